/* test_metrics.c - what a Prometheus server reads at /metrics of the real daemon: valid for promtool, and each
 * number moves by exactly what known requests did. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/generation.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define TEXT_MODEL "model=\"enwik8-aft-local\""
#define PICTURE_MODEL "model=\"cifar10-aft-conv\""

enum { LIMIT_S = 580 };

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--streams-max=2", "--body-bytes-max=65536",
                                              "--precision=auto,cifar10-aft-conv=bf16", NULL});
    return 0;
}

/* ---- its form -------------------------------------------------------------------------------------------------- */

static void promtool_finds_nothing_to_say(void **state)
{
    struct program_run find = {.argv = {"/bin/sh", "-c", "command -v promtool || exit 1"}};
    struct generation g;
    struct reply r;
    (void)state;
    program_run(&find);
    if (find.exit_code != 0) {
        program_run_clear(&find);
        print_message("skipped: promtool is not installed\n");
        skip();
    }
    find.out[strcspn(find.out, "\n")] = '\0';
    generate(&aftd, json_pack("{s:i}", "max_tokens", 5), &g); /* so that there are series with values */
    generation_clear(&g);
    client_get(&aftd, "/metrics", &r);
    struct program_run check = {.argv = {find.out, "check", "metrics"}, .input = r.body, .input_size = r.size};
    program_run(&check);
    if (check.exit_code != 0 || check.out_size > 0 || check.err_size > 0)
        fail_msg("promtool ended with %d: %s%s", check.exit_code, check.out, check.err);
    program_run_clear(&check);
    program_run_clear(&find);
    reply_clear(&r);
}

static void the_type_and_the_names_are_prometheus(void **state)
{
    char type[128];
    struct reply r;
    (void)state;
    client_get(&aftd, "/metrics", &r);
    assert_true(reply_header(&r, "Content-Type", type, sizeof type));
    assert_string_equal(type, "text/plain; version=0.0.4; charset=utf-8");
    assert_int_equal(r.body[r.size - 1], '\n');
    for (const char *line = r.body; *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *name = line;
        if (strncmp(line, "# HELP ", 7) == 0 || strncmp(line, "# TYPE ", 7) == 0)
            name = line + 7;
        if (strncmp(name, "aftd_", 5) != 0 && strncmp(name, "process_", 8) != 0)
            fail_msg("a name of another kind: %.60s", line);
    }
    reply_clear(&r);
}

static void what_is_running_and_loaded_is_told(void **state)
{
    static const struct {
        const char *series;
        double min, max;
    } gauges[] = {
        {"aftd_build_info{", 1, 1},
        {"aftd_model_info{" TEXT_MODEL ",task=\"text-generation\",mixer=\"aft-local\",precision=\"", 1, 1},
        {"aftd_model_info{" PICTURE_MODEL
         ",task=\"image-classification\",mixer=\"aft-conv\",precision=\"bf16\",precision_by=\"setting\"} ",
         1, 1},
        {"aftd_stream_slots{" TEXT_MODEL, 2, 2},
        {"aftd_stream_state_bytes{" TEXT_MODEL, 1024, 1 << 24},
        {"aftd_model_resident_bytes{" TEXT_MODEL, 1 << 20, 1 << 30},
        {"aftd_model_resident_bytes{" PICTURE_MODEL, 1 << 20, 1 << 30},
        {"aftd_queue_capacity ", 256, 256},
        {"aftd_models_failed ", 0, 0},
        {"aftd_config_last_reload_successful ", 1, 1},
        {"aftd_config_last_reload_success_timestamp_seconds ", 1.6e9, 1e11},
        {"aftd_tls_certificate_expiry_timestamp_seconds ", 0, 0},
        {"aftd_memory_limit_bytes ", 1 << 20, 1e15},
        {"aftd_connections ", 1, 16},
        {"process_open_fds ", 5, 100},
        {"process_threads ", 3, 600},
        {"process_resident_memory_bytes ", 1 << 20, 1e12},
        {"process_start_time_seconds ", 1.6e9, 1e11},
        {"process_cpu_seconds_total ", 0.001, 1e6},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(gauges); i++) {
        const double value = client_metric(&aftd, gauges[i].series);
        if (value < gauges[i].min || value > gauges[i].max)
            fail_msg("%s is %g, expected %g to %g", gauges[i].series, value, gauges[i].min, gauges[i].max);
    }
    struct reply r; /* what auto chooses goes by the processor: here that it went by the record */
    client_get(&aftd, "/metrics", &r);
    const char *info = strstr(r.body, "aftd_model_info{" TEXT_MODEL),
               *by = strstr(info, "precision_by=\"record\"} 1\n");
    assert_true(by != NULL && by < strchr(info, '\n'));
    reply_clear(&r);
}

static size_t count_series(void)
{
    struct reply r;
    size_t lines = 0;
    client_get(&aftd, "/metrics", &r);
    for (size_t i = 0; i < r.size; i++)
        lines += r.body[i] == '\n';
    reply_clear(&r);
    return lines;
}

static void clients_cannot_make_series(void **state)
{
    size_t before = 0;
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 30; i++) {
            char path[64], body[64];
            struct reply r;
            (void)snprintf(path, sizeof path, "/made-up-%d-%d?x=%d", round, i, i);
            client_get(&aftd, path, &r);
            reply_clear(&r);
            (void)snprintf(body, sizeof body, "{\"model\":\"made-up-%d-%d\"}", round, i);
            const struct request request = generate_request(body);
            client_call(&aftd, &request, &r);
            assert_int_equal(r.status, 404);
            reply_clear(&r);
        }
        if (round > 0)
            assert_int_equal(count_series(), before);
        before = count_series(); /* after a round, so that /metrics itself is among them */
    }
}

/* ---- its numbers ----------------------------------------------------------------------------------------------- */

struct change {
    const char *series;
    double by;
};

static void note(const struct change *changes, size_t count, double before[])
{
    for (size_t i = 0; i < count; i++)
        before[i] = client_metric(&aftd, changes[i].series);
}

/* A request is counted when its answer has been sent, which its client may see a little earlier. */
static void assert_changes(const struct change *changes, size_t count, const double before[])
{
    for (size_t i = 0; i < count; i++) {
        double by = 0;
        for (const int64_t end = test_now_ms() + HANG_MS; test_now_ms() < end; test_sleep_ms(2)) {
            by = client_metric(&aftd, changes[i].series) - before[i];
            if (fabs(by - changes[i].by) < 1e-9)
                break;
        }
        if (fabs(by - changes[i].by) >= 1e-9)
            fail_msg("%s moved by %g, expected %g", changes[i].series, by, changes[i].by);
    }
}

static void generating_moves_its_counters(void **state)
{
    static const struct change changes[] = {
        {"aftd_requests_total{endpoint=\"/generate\"," TEXT_MODEL ",status=\"200\"}", 2},
        {"aftd_requests_total{endpoint=\"/generate\"," TEXT_MODEL, 2},
        {"aftd_generated_bytes_total{" TEXT_MODEL, 120},
        {"aftd_prompt_bytes_total{" TEXT_MODEL, 2 * 4},
        {"aftd_time_to_first_byte_seconds_count{" TEXT_MODEL, 2},
        {"aftd_time_between_bytes_seconds_count{" TEXT_MODEL, 118},
        {"aftd_queue_wait_seconds_count{" TEXT_MODEL, 2},
        {"aftd_request_duration_seconds_count{endpoint=\"/generate\"," TEXT_MODEL "}", 2},
        {"aftd_batch_size_sum{" TEXT_MODEL, 120}, /* one at a time */
        {"aftd_prefill_seconds_count{" TEXT_MODEL, 2},
        {"aftd_decode_seconds_count{" TEXT_MODEL, 118},
        {"aftd_pictures_classified_total", 0},
        {"aftd_requests_cancelled_total", 0},
        {"aftd_requests_timed_out_total", 0},
        {"aftd_requests_rejected_total", 0},
        {"aftd_streams_running", 0},
    };
    double before[ARRAY_LEN(changes)];
    (void)state;
    note(changes, ARRAY_LEN(changes), before);
    for (int stream = 0; stream < 2; stream++) {
        struct generation g;
        generate(&aftd, json_pack("{s:s, s:i, s:b}", "prompt", "The ", "max_tokens", 60, "stream", stream), &g);
        generation_clear(&g);
    }
    assert_changes(changes, ARRAY_LEN(changes), before);
}

static void classifying_moves_its_counters(void **state)
{
    size_t size;
    uint8_t *bytes = picture_file_read("tests/data/cifar/cat.jpg", &size);
    const struct change changes[] = {
        {"aftd_requests_total{endpoint=\"/classify\"," PICTURE_MODEL ",status=\"200\"}", 3},
        {"aftd_pictures_classified_total{" PICTURE_MODEL, 3},
        {"aftd_received_bytes_total", 3.0 * (double)size},
        {"aftd_queue_wait_seconds_count{" PICTURE_MODEL, 3},
        {"aftd_batch_size_sum{" PICTURE_MODEL, 3},
        {"aftd_request_duration_seconds_count{endpoint=\"/classify\"," PICTURE_MODEL "}", 3},
        {"aftd_encode_block_seconds_count{" PICTURE_MODEL, 3 * 6}, /* the model has six blocks */
        {"aftd_generated_bytes_total", 0},
    };
    double before[ARRAY_LEN(changes)];
    (void)state;
    note(changes, ARRAY_LEN(changes), before);
    for (int i = 0; i < 3; i++) {
        struct reply r;
        client_call(&aftd, &(struct request){.path = "/classify", .body = bytes, .size = size}, &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
    }
    assert_changes(changes, ARRAY_LEN(changes), before);
    free(bytes);
}

static void refusals_are_counted_by_their_reason(void **state)
{
    static const char too_large[65537];
    static const struct {
        const char *path, *body;
        size_t size;
    } requests[] = {
        {"/generate", "{", 1},           {"/generate", "{\"seed\":-1}", 11},
        {"/classify", "no picture", 10}, {"/nothing", NULL, 0},
        {"/classify", NULL, 0},          {"/generate", too_large, sizeof too_large},
    };
    static const struct change changes[] = {
        {"aftd_requests_rejected_total{reason=\"invalid_request\"}", 5},
        {"aftd_requests_rejected_total{reason=\"body_too_large\"}", 1},
        {"aftd_requests_rejected_total", 6},
        {"aftd_requests_total{endpoint=\"/generate\",model=\"none\",status=\"400\"}", 2},
        {"aftd_requests_total{endpoint=\"/classify\",model=\"none\",status=\"405\"}", 1},
        {"aftd_generated_bytes_total", 0},
    };
    double before[ARRAY_LEN(changes)];
    (void)state;
    note(changes, ARRAY_LEN(changes), before);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct reply r;
        client_call(
            &aftd, &(struct request){.path = requests[i].path, .body = requests[i].body, .size = requests[i].size}, &r);
        assert_in_range(r.status, 400, 499);
        reply_clear(&r);
    }
    assert_changes(changes, ARRAY_LEN(changes), before);
}

static json_t *endless(int timeout_ms)
{
    return json_pack("{s:s, s:i, s:s, s:i, s:b}", "prompt", "x", "max_tokens", 65536, "context_overflow", "shift",
                     "timeout_ms", timeout_ms, "stream", 1);
}

static void deadlines_and_departures_are_counted(void **state)
{
    static struct raw_input in;
    static const struct change changes[] = {
        {"aftd_requests_timed_out_total{" TEXT_MODEL, 1},
        {"aftd_requests_cancelled_total{" TEXT_MODEL, 2},
        {"aftd_streams_running", 0},
        {"aftd_queue_depth", 0},
    };
    double before[ARRAY_LEN(changes)];
    struct reply r;
    (void)state;
    note(changes, ARRAY_LEN(changes), before);
    char *body = generate_body(endless(100));
    const struct request late = generate_request(body);
    client_call(&aftd, &late, &r); /* before the first byte or behind it */
    assert_true(r.status == 408 || strstr(r.body, "\"timeout\"") != NULL);
    reply_clear(&r);
    free(body);

    body = generate_body(endless(600000));
    char *text = raw_post("/generate", body, "");
    int fds[3];
    for (int i = 0; i < 3; i++) { /* two stream, one waits */
        fds[i] = raw_connect(aftd.port);
        assert_true(raw_send_text(fds[i], text));
        if (i < 2)
            assert_int_equal(raw_receive(fds[i], &in, "data: ", HANG_MS), RAW_FOUND);
    }
    (void)client_await_metric(&aftd, "aftd_queue_depth{" TEXT_MODEL, 1, HANG_MS);
    (void)client_await_metric(&aftd, "aftd_requests_in_flight", 4, HANG_MS); /* that for /metrics, too */
    assert_int_equal(client_metric(&aftd, "aftd_streams_running{" TEXT_MODEL), 2);
    assert_true(client_metric(&aftd, "aftd_connections ") >= 3);
    raw_close(fds[2]);
    (void)client_await_metric(&aftd, "aftd_queue_depth", 0, HANG_MS);
    raw_close(fds[0]);
    (void)client_await_metric(&aftd, "aftd_streams_running", 1, HANG_MS);
    assert_changes(changes, 2, before);
    raw_close(fds[1]);
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    (void)client_await_metric(&aftd, "aftd_requests_in_flight", 1, HANG_MS);
    assert_changes(changes + 2, 2, before + 2);
    free(body);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promtool_finds_nothing_to_say),        cmocka_unit_test(the_type_and_the_names_are_prometheus),
        cmocka_unit_test(what_is_running_and_loaded_is_told),   cmocka_unit_test(clients_cannot_make_series),
        cmocka_unit_test(generating_moves_its_counters),        cmocka_unit_test(classifying_moves_its_counters),
        cmocka_unit_test(refusals_are_counted_by_their_reason), cmocka_unit_test(deadlines_and_departures_are_counted),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
