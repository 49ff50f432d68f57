/* test_metrics.c - what a Prometheus server reads: exact counts, consistent histograms, bounded series, valid text. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "server/core/metrics.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define MS UINT64_C(1000000) /* nanoseconds */

enum { CLASSIFY, GENERATE };
static const char *const endpoints[] = {[CLASSIFY] = "/classify", [GENERATE] = "/generate"};

static int reset(void **state)
{
    (void)state;
    metrics_init(endpoints, ARRAY_LEN(endpoints));
    return 0;
}

static char *render(void)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(metrics_render(&text, &size, NULL), OK);
    assert_int_equal(strlen(text), size);
    assert_int_equal(text[size - 1], '\n');
    return text;
}

/* The value, as text, of the line that starts with `series` and a space; NULL if there is none. */
static const char *value_in(const char *text, const char *series)
{
    const size_t length = strlen(series);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, series, length) == 0 && line[length] == ' ')
            return line + length + 1;
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return NULL;
}

static void assert_series(const char *text, const char *series, const char *want)
{
    const char *value = value_in(text, series);
    if (value == NULL)
        fail_msg("no series %s", series);
    else if (strncmp(value, want, strlen(want)) != 0 || value[strlen(want)] != '\n')
        fail_msg("%s is %.*s, expected %s", series, (int)strcspn(value, "\n"), value, want);
}

static double number_in(const char *text, const char *series)
{
    const char *value = value_in(text, series);
    if (value == NULL)
        fail_msg("no series %s", series);
    return value != NULL ? strtod(value, NULL) : 0;
}

static unsigned add_model(const char *name, const char *task, const char *mixer)
{
    return metrics_model_add(&(struct metrics_model){name, task, mixer, "f32", "setting"});
}

static void a_fresh_set_shows_zeros_and_no_requests(void **state)
{
    (void)state;
    char *text = render();
    assert_series(text, "aftd_received_bytes_total", "0");
    assert_series(text, "aftd_connections", "0");
    assert_series(text, "aftd_engine_step_age_seconds", "0");
    assert_series(text, "aftd_requests_rejected_total{reason=\"queue_full\"}", "0");
    assert_null(strstr(text, "aftd_time_to_first_byte_seconds"));
    assert_null(strstr(text, "aftd_tls_certificate_expiry_timestamp_seconds")); /* 1970 would be an alert */
    assert_null(strstr(text, "aftd_session_store_up")); /* there is no store that could be away */
    assert_series(text, "aftd_build_info{version=\"\",revision=\"\",isa=\"\",blas=\"\"}", "1");
    assert_null(strstr(text, "aftd_requests_total"));
    assert_null(strstr(text, "aftd_request_duration_seconds"));
    assert_null(strstr(text, "aftd_pictures_classified_total"));
    assert_null(strstr(text, "aftd_model_info"));
    free(text);
}

static void requests_are_counted_by_their_labels(void **state)
{
    (void)state;
    const unsigned model = add_model("m1", "text-generation", "aft-local");
    metrics_request_end(GENERATE, model, 200, 3 * MS, 0);
    metrics_request_end(GENERATE, model, 200, 4 * MS, 0);
    metrics_request_end(GENERATE, METRICS_MODEL_NONE, 400, MS, 0);
    metrics_request_end(CLASSIFY, model, 503, MS, 0); /* a code that several statuses share */
    metrics_request_end(CLASSIFY, model, 500, MS, 0);
    char *text = render();
    assert_series(text, "aftd_requests_total{endpoint=\"/generate\",model=\"m1\",status=\"200\"}", "2");
    assert_series(text, "aftd_requests_total{endpoint=\"/generate\",model=\"none\",status=\"400\"}", "1");
    assert_series(text, "aftd_requests_total{endpoint=\"/classify\",model=\"m1\",status=\"503\"}", "1");
    assert_series(text, "aftd_requests_total{endpoint=\"/classify\",model=\"m1\",status=\"500\"}", "1");
    assert_null(value_in(text, "aftd_requests_total{endpoint=\"/classify\",model=\"m1\",status=\"200\"}"));
    assert_series(text, "aftd_request_duration_seconds_sum{endpoint=\"/generate\",model=\"m1\"}", "0.007");
    assert_series(text, "aftd_request_duration_seconds_bucket{endpoint=\"/generate\",model=\"m1\",le=\"0.0025\"}", "0");
    assert_series(text, "aftd_request_duration_seconds_bucket{endpoint=\"/generate\",model=\"m1\",le=\"0.005\"}", "2");
    assert_series(text, "aftd_request_duration_seconds_count{endpoint=\"/generate\",model=\"none\"}", "1");
    assert_series(text, "aftd_request_duration_seconds_count{endpoint=\"/classify\",model=\"m1\"}", "2");
    assert_null(strstr(text, "aftd_request_duration_seconds_count{endpoint=\"/classify\",model=\"none\"}"));
    free(text);
}

static void clients_cannot_make_series(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        metrics_request_end(2 + i, METRICS_MODEL_FIRST + METRICS_MODELS_MAX + i, 600 + i, MS, 0);
        metrics_histogram_observe(METRIC_FIRST_BYTE, 100000 + i, MS);
        metrics_counter_add(METRIC_PICTURES_CLASSIFIED, 100000 + i, 1);
    }
    char *text = render();
    assert_series(text, "aftd_requests_total{endpoint=\"other\",model=\"other\",status=\"other\"}", "2000");
    assert_series(text, "aftd_request_duration_seconds_count{endpoint=\"other\",model=\"other\"}", "2000");
    assert_series(text, "aftd_time_to_first_byte_seconds_count{model=\"other\"}", "2000");
    assert_series(text, "aftd_pictures_classified_total{model=\"other\"}", "2000");
    assert_true(strlen(text) < 65536);
    free(text);
}

static void models_have_series_from_the_start(void **state)
{
    (void)state;
    const struct metrics_model cifar10 = {"cifar10", "image-classification", "aft-conv", "bf16", "record"};
    const unsigned a = metrics_model_add(&cifar10);
    const unsigned b = add_model("enwik8", "text-generation", "aft-local");
    assert_int_equal(a, METRICS_MODEL_FIRST);
    assert_int_equal(b, METRICS_MODEL_FIRST + 1);
    metrics_counter_add(METRIC_GENERATED_BYTES, b, 17);
    metrics_gauge_set(METRIC_STREAM_SLOTS, b, 64);
    char *text = render();
    assert_series(text,
                  "aftd_model_info{model=\"cifar10\",task=\"image-classification\",mixer=\"aft-conv\","
                  "precision=\"bf16\",precision_by=\"record\"}",
                  "1");
    assert_series(text,
                  "aftd_model_info{model=\"enwik8\",task=\"text-generation\",mixer=\"aft-local\","
                  "precision=\"f32\",precision_by=\"setting\"}",
                  "1");
    assert_series(text, "aftd_pictures_classified_total{model=\"cifar10\"}", "0");
    assert_series(text, "aftd_generated_bytes_total{model=\"enwik8\"}", "17");
    assert_series(text, "aftd_stream_slots{model=\"enwik8\"}", "64");
    assert_null(value_in(text, "aftd_pictures_classified_total{model=\"none\"}"));
    free(text);
    /* Loaded again: the same series, the latest kind. */
    assert_int_equal(add_model("cifar10", "image-classification", "attention"), a);
    text = render();
    assert_series(text,
                  "aftd_model_info{model=\"cifar10\",task=\"image-classification\",mixer=\"attention\","
                  "precision=\"f32\",precision_by=\"setting\"}",
                  "1");
    assert_null(strstr(text, "aft-conv"));
    assert_null(strstr(text, "bf16"));
    free(text);
}

static void models_beyond_the_bound_share_a_series(void **state)
{
    (void)state;
    for (unsigned i = 0; i < METRICS_MODELS_MAX + 3; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "model-%u", i);
        const unsigned index = add_model(name, "t", "x");
        assert_int_equal(index, i < METRICS_MODELS_MAX ? METRICS_MODEL_FIRST + i : METRICS_MODEL_OTHER);
    }
    assert_int_equal(add_model("model-3", "t", "x"), METRICS_MODEL_FIRST + 3);
}

static void label_values_are_escaped(void **state)
{
    (void)state;
    (void)add_model("a\"b\\c\nd\xff", "t", "x");
    metrics_build_set("1.0", "0f3a+changes", "avx512", "OpenBLAS 0.3.21 \"quoted\"");
    char *text = render();
    assert_series(text,
                  "aftd_model_info{model=\"a\\\"b\\\\c?d?\",task=\"t\",mixer=\"x\","
                  "precision=\"f32\",precision_by=\"setting\"}",
                  "1");
    assert_series(text,
                  "aftd_build_info{version=\"1.0\",revision=\"0f3a+changes\",isa=\"avx512\",blas=\"OpenBLAS 0.3.21 "
                  "\\\"quoted\\\"\"}",
                  "1");
    free(text);
}

static void gauges_go_up_and_down(void **state)
{
    (void)state;
    metrics_gauge_set(METRIC_CONNECTIONS, 0, 5);
    metrics_gauge_add(METRIC_CONNECTIONS, 0, 3);
    metrics_gauge_add(METRIC_CONNECTIONS, 0, -7);
    const unsigned a = add_model("a", "t", "x"), b = add_model("b", "t", "x");
    metrics_gauge_add(METRIC_QUEUE_DEPTH, a, 2);
    metrics_counter_add(METRIC_REJECTED, METRICS_REASON_DRAINING, 4);
    char *text = render();
    assert_series(text, "aftd_connections", "1");
    assert_series(text, "aftd_queue_depth{model=\"a\"}", "2");
    assert_series(text, "aftd_queue_depth{model=\"b\"}", "0");
    assert_series(text, "aftd_requests_rejected_total{reason=\"draining\"}", "4");
    free(text);
    metrics_model_remove(a); /* what waits for a model that is no longer loaded still does */
    metrics_model_remove(b);
    text = render();
    assert_series(text, "aftd_queue_depth{model=\"a\"}", "2");
    assert_null(value_in(text, "aftd_queue_depth{model=\"b\"}"));
    assert_null(value_in(text, "aftd_stream_slots{model=\"a\"}"));
    free(text);
}

static void what_may_be_missing_is_shown_once_it_is_there(void **state)
{
    (void)state;
    metrics_gauge_set(METRIC_TLS_EXPIRY, 0, UINT64_C(1900000000) * 1000 * MS);
    char *text = render();
    assert_series(text, "aftd_tls_certificate_expiry_timestamp_seconds", "1900000000");
    free(text);
    for (uint64_t up = 0; up < 2; up++) {
        metrics_gauge_set(METRIC_STORE_UP, 0, up);
        text = render();
        assert_series(text, "aftd_session_store_up", up == 0 ? "0" : "1");
        free(text);
    }
}

/* Bucket bounds are inclusive, counts cumulative, the sum exact. */
static void buckets_hold_what_they_say(void **state)
{
    (void)state;
    const unsigned pictures = add_model("pictures", "t", "x"), streams = add_model("streams", "t", "x");
    metrics_histogram_observe(METRIC_BATCH_SIZE, pictures, 0);
    metrics_histogram_observe(METRIC_BATCH_SIZE, pictures, 1);
    metrics_histogram_observe(METRIC_BATCH_SIZE, pictures, 8);
    metrics_histogram_observe(METRIC_BATCH_SIZE, pictures, 9);
    metrics_histogram_observe(METRIC_BATCH_SIZE, pictures, 5000);
    metrics_histogram_observe(METRIC_BETWEEN_BYTES, streams, MS / 10);
    metrics_histogram_observe(METRIC_BETWEEN_BYTES, streams, MS / 10 + 1);
    metrics_histogram_observe(METRIC_BETWEEN_BYTES, streams, UINT64_C(3600000) * MS);
    char *text = render();
    assert_series(text, "aftd_batch_size_bucket{model=\"pictures\",le=\"1\"}", "2");
    assert_series(text, "aftd_batch_size_bucket{model=\"pictures\",le=\"6\"}", "2");
    assert_series(text, "aftd_batch_size_bucket{model=\"pictures\",le=\"8\"}", "3");
    assert_series(text, "aftd_batch_size_bucket{model=\"pictures\",le=\"12\"}", "4");
    assert_series(text, "aftd_batch_size_bucket{model=\"pictures\",le=\"4096\"}", "4");
    assert_series(text, "aftd_batch_size_bucket{model=\"pictures\",le=\"+Inf\"}", "5");
    assert_series(text, "aftd_batch_size_sum{model=\"pictures\"}", "5018");
    assert_series(text, "aftd_batch_size_count{model=\"pictures\"}", "5");
    assert_null(value_in(text, "aftd_batch_size_count{model=\"streams\"}")); /* a model that never did any */
    assert_series(text, "aftd_time_between_bytes_seconds_bucket{model=\"streams\",le=\"0.0001\"}", "1");
    assert_series(text, "aftd_time_between_bytes_seconds_bucket{model=\"streams\",le=\"0.00015\"}", "2");
    assert_series(text, "aftd_time_between_bytes_seconds_bucket{model=\"streams\",le=\"2.5\"}", "2");
    assert_series(text, "aftd_time_between_bytes_seconds_bucket{model=\"streams\",le=\"+Inf\"}", "3");
    assert_series(text, "aftd_time_between_bytes_seconds_sum{model=\"streams\"}", "3600.000200001");
    free(text);
}

/* For every histogram of the page: bounds rise, counts do not fall, +Inf is the count. */
/* What dashboards and rules name: a bound that moves breaks them without a word. */
static void bounds_are_what_dashboards_know(void **state)
{
    static const struct {
        enum metric metric;
        const char *name, *bounds;
    } cases[] = {
        {METRIC_QUEUE_WAIT, "aftd_queue_wait_seconds",
         "0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 60 120 300 600 +Inf "},
        {METRIC_BETWEEN_BYTES, "aftd_time_between_bytes_seconds",
         "0.0001 0.00015 0.0002 0.0003 0.0005 0.00075 0.001 0.0015 0.002 0.003 0.005 0.0075 0.01 0.015 0.025 0.05 0.1 "
         "0.25 0.5 1 2.5 +Inf "},
        {METRIC_BATCH_SIZE, "aftd_batch_size", "1 2 3 4 6 8 12 16 24 32 48 64 96 128 256 512 1024 4096 +Inf "},
    };
    const unsigned model = add_model("m", "text-generation", "aft-local");
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        metrics_histogram_observe(cases[i].metric, model, 1);
    char *text = render();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char bucket[64], bounds[1024] = "";
        (void)snprintf(bucket, sizeof bucket, "\n%s_bucket{", cases[i].name);
        for (const char *at = text; (at = strstr(at, bucket)) != NULL;) {
            at = strstr(at, "le=\"") + 4;
            const size_t size = strlen(bounds);
            (void)snprintf(bounds + size, sizeof bounds - size, "%.*s ", (int)strcspn(at, "\""), at);
        }
        assert_string_equal(bounds, cases[i].bounds);
    }
    free(text);
}

static void every_histogram_is_consistent(void **state)
{
    (void)state;
    const unsigned a = add_model("a", "t", "x"), b = add_model("b", "t", "x");
    for (uint64_t i = 0; i < 5000; i++) {
        metrics_histogram_observe(METRIC_QUEUE_WAIT, i % 2 == 0 ? a : b, i * i * i);
        metrics_request_end(CLASSIFY, a, 200, i * i * i * 10, 0);
        metrics_histogram_observe(METRIC_DECODE, a, i * 100000);
        metrics_histogram_observe(METRIC_BATCH_SIZE, b, i);
    }
    char *text = render();
    char *rest = text;
    double bound = -1;
    unsigned long long count = 0;
    size_t histograms = 0;
    for (const char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        const char *le = strstr(line, "le=\"");
        if (le != NULL && strstr(line, "_bucket{") != NULL) {
            const double next = strncmp(le, "le=\"+Inf", 8) == 0 ? 1e300 : strtod(le + 4, NULL);
            const unsigned long long next_count = strtoull(strrchr(line, ' '), NULL, 10);
            assert_true(next > bound && next_count >= count);
            bound = next;
            count = next_count;
        } else if (strstr(line, "_count") != NULL) {
            assert_true(bound == 1e300);
            assert_int_equal(strtoull(strrchr(line, ' '), NULL, 10), count);
            bound = -1;
            count = 0;
            histograms++;
        }
    }
    free(text);
    assert_int_equal(histograms, 5); /* what counted: one of two models, three of one */
}

enum { THREADS = 4, UPDATES = 20000 };

static void *update_many(void *arg)
{
    const unsigned model = add_model("shared", "t", "x");
    (void)arg;
    for (unsigned i = 0; i < UPDATES; i++) {
        metrics_request_end(GENERATE, model, 200, 3 * MS, 0);
        metrics_counter_add(METRIC_PROMPT_BYTES, model, 3);
        metrics_gauge_add(METRIC_CONNECTIONS, 0, i % 2 == 0 ? 1 : -1);
        metrics_histogram_observe(METRIC_PREFILL, model, i % 7 * MS);
    }
    return NULL;
}

static void updates_of_many_threads_add_up(void **state)
{
    pthread_t threads[THREADS];
    char want[32];
    (void)state;
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, update_many, NULL), 0);
    for (int i = 0; i < 20; i++) /* read meanwhile */
        free(render());
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    char *text = render();
    (void)snprintf(want, sizeof want, "%d", THREADS * UPDATES);
    assert_series(text, "aftd_requests_total{endpoint=\"/generate\",model=\"shared\",status=\"200\"}", want);
    assert_series(text, "aftd_prefill_seconds_count{model=\"shared\"}", want);
    assert_series(text, "aftd_prefill_seconds_bucket{model=\"shared\",le=\"+Inf\"}", want);
    (void)snprintf(want, sizeof want, "%d", THREADS * UPDATES * 3);
    assert_series(text, "aftd_prompt_bytes_total{model=\"shared\"}", want);
    assert_series(text, "aftd_connections", "0");
    uint64_t sum_ms = 0;
    for (unsigned i = 0; i < UPDATES; i++)
        sum_ms += (uint64_t)THREADS * (i % 7);
    assert_in_range((uint64_t)(number_in(text, "aftd_prefill_seconds_sum{model=\"shared\"}") * 1000 + 0.5), sum_ms,
                    sum_ms);
    free(text);
}

static void the_process_is_described(void **state)
{
    (void)state;
    const double now = (double)time(NULL);
    char *text = render();
    assert_true(number_in(text, "process_resident_memory_bytes") > 100000);
    assert_true(number_in(text, "aftd_memory_limit_bytes") > number_in(text, "process_resident_memory_bytes"));
    assert_true(number_in(text, "process_virtual_memory_bytes") > number_in(text, "process_resident_memory_bytes"));
    assert_true(number_in(text, "process_max_fds") >= number_in(text, "process_open_fds"));
    assert_true(number_in(text, "process_threads") >= 1);
    assert_true(number_in(text, "process_cpu_seconds_total") > 0);
    assert_true(number_in(text, "process_start_time_seconds") <= now + 2);
    assert_true(number_in(text, "process_start_time_seconds") > now - 3600);
    const double open_before = number_in(text, "process_open_fds");
    free(text);
    FILE *file = fopen("/dev/null", "r");
    assert_non_null(file);
    text = render();
    assert_true(number_in(text, "process_open_fds") == open_before + 1);
    free(text);
    (void)fclose(file);
}

static void fill_everything(void)
{
    const unsigned model = add_model("a \"b\" \\ c", "text-generation", "aft-local");
    metrics_build_set("1.0", "0f3a", "baseline", "OpenBLAS");
    metrics_request_end(GENERATE, model, 200, 3 * MS, 0);
    metrics_request_end(99, 99, 99, MS, 0);
    metrics_histogram_observe(METRIC_QUEUE_WAIT, model, 3 * MS);
    metrics_gauge_set(METRIC_TLS_EXPIRY, 0, UINT64_C(1900000000) * 1000 * MS);
    metrics_gauge_set(METRIC_STORE_UP, 0, 1);
    metrics_counter_add(METRIC_PICTURES_CLASSIFIED, METRICS_MODEL_NONE, 1);
}

static void promtool_has_nothing_to_say(void **state)
{
    char dir[PATH_MAX], page[PATH_MAX], command[PATH_MAX + 64], said[1024];
    (void)state;
    FILE *found = popen("command -v promtool", "r"); /* NOLINT(cert-env33-c): a fixed command */
    assert_non_null(found);
    const bool is_installed = fgets(said, sizeof said, found) != NULL;
    (void)pclose(found);
    if (!is_installed) {
        print_message("skipped: promtool is not installed\n");
        skip();
    }
    fill_everything();
    char *text = render();
    temp_dir_create(dir);
    temp_path(page, dir, "metrics.txt");
    temp_write(page, text, strlen(text));
    free(text);
    (void)snprintf(command, sizeof command, "promtool check metrics < '%s' 2>&1", page);
    FILE *tool = popen(command, "r"); /* NOLINT(cert-env33-c): a fixed command on a file of our own */
    assert_non_null(tool);
    const size_t size = fread(said, 1, sizeof said - 1, tool);
    said[size] = '\0';
    const int result = pclose(tool);
    temp_dir_remove(dir);
    assert_string_equal(said, "");
    assert_int_equal(WEXITSTATUS(result), 0);
}

/* For answers that tell figures in another form than /metrics. */
static void what_was_counted_can_be_read(void **state)
{
    (void)state;
    const unsigned one = add_model("one", "text-generation", "aft-local"), two = add_model("two", "t", "m");
    metrics_request_end(GENERATE, one, 200, MS, 0);
    metrics_request_end(GENERATE, one, 201, MS, 0);
    metrics_request_end(GENERATE, one, 400, MS, 0);
    metrics_request_end(GENERATE, one, 777, MS, 0);
    metrics_request_end(CLASSIFY, one, 200, MS, 0);
    metrics_request_end(GENERATE, two, 503, MS, 0);
    const struct metrics_answered at = metrics_requests_read(GENERATE, one);
    assert_int_equal(at.good, 2);
    assert_int_equal(at.others, 2);
    assert_int_equal(metrics_requests_read(CLASSIFY, one).good, 1);
    assert_int_equal(metrics_requests_read(GENERATE, two).good, 0);
    assert_int_equal(metrics_requests_read(GENERATE, two).others, 1);
    metrics_histogram_observe(METRIC_QUEUE_WAIT, one, 3 * MS);
    metrics_histogram_observe(METRIC_QUEUE_WAIT, one, 900000 * MS); /* above all bounds */
    assert_int_equal(metrics_histogram_read(METRIC_QUEUE_WAIT, one).count, 2);
    assert_int_equal(metrics_histogram_read(METRIC_QUEUE_WAIT, one).sum, 900003 * MS);
    assert_int_equal(metrics_histogram_read(METRIC_QUEUE_WAIT, two).count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_fresh_set_shows_zeros_and_no_requests, reset),
        cmocka_unit_test_setup(what_was_counted_can_be_read, reset),
        cmocka_unit_test_setup(requests_are_counted_by_their_labels, reset),
        cmocka_unit_test_setup(clients_cannot_make_series, reset),
        cmocka_unit_test_setup(models_have_series_from_the_start, reset),
        cmocka_unit_test_setup(models_beyond_the_bound_share_a_series, reset),
        cmocka_unit_test_setup(label_values_are_escaped, reset),
        cmocka_unit_test_setup(gauges_go_up_and_down, reset),
        cmocka_unit_test_setup(what_may_be_missing_is_shown_once_it_is_there, reset),
        cmocka_unit_test_setup(buckets_hold_what_they_say, reset),
        cmocka_unit_test_setup(bounds_are_what_dashboards_know, reset),
        cmocka_unit_test_setup(every_histogram_is_consistent, reset),
        cmocka_unit_test_setup(updates_of_many_threads_add_up, reset),
        cmocka_unit_test_setup(the_process_is_described, reset),
        cmocka_unit_test_setup(promtool_has_nothing_to_say, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
