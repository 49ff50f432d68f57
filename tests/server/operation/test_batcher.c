/* test_batcher.c - the engine thread with two trained models: batching changes no byte, limits of sequences are
 * kept, cancelled and late jobs give their slots back, stopping ends everything. No HTTP: the test's thread waits for
 * jobs as a connection would. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/control/hosting.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/models/registry.h"
#include "server/operation/batcher.h"
#include "server/operation/classify.h"
#include "server/operation/generate.h"
#include "tests/support/job_party.h"
#include "tests/support/model_copy.h"
#include "tests/support/model_variants.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
enum { STREAMS = 4, QUEUE = 12, PASS_ROWS = 24, IMAGES = 4, LATER_S = 1000, BYTES_MAX = 4096 };

static struct settings settings;
static struct hosting *served;
static struct batcher *batcher; /* theirs */

static int start(void **state)
{
    struct error err;
    (void)state;
    settings_init(&settings);
    (void)snprintf(settings.models_dir, sizeof settings.models_dir, "tests/data/models");
    (void)snprintf(settings.precision, sizeof settings.precision, "f32"); /* as the plain procedure computes */
    settings.threads = 1;
    settings.streams_max = STREAMS;
    settings.pass_rows_max = PASS_ROWS;
    settings.batch_images_max = IMAGES;
    settings.queue_jobs_max = QUEUE;
    if (hosting_start(&served, &settings, NULL, &err) == OK) {
        batcher = served->batcher;
        return 0;
    }
    print_error("%s\n", err.message);
    return -1;
}

static int stop(void **state)
{
    (void)state;
    hosting_stop(served);
    hosting_free(served);
    return 0;
}

static struct hosted_model *model_for(enum model_task task)
{
    struct hosted_model *e = NULL;
    struct error err;
    assert_int_equal(registry_acquire(served->registry, NULL, (int)task, NULL, &e, &err), OK);
    hosted_model_release(e); /* nothing is unloaded here */
    return e;
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

/* A prompt and how to go on from it. */
struct ask {
    const char *prompt;
    size_t prompt_repeats;
    uint32_t max_tokens;
    float temperature;
    uint64_t seed;
    bool shift;
};

static struct job *submit_text(struct party *p, const struct ask *a, uint64_t deadline_ns)
{
    struct generate_input in = {
        .prompt_count = 1, .n = 1, .max_tokens = a->max_tokens, .stream = true, .shift = a->shift};
    const size_t size = strlen(a->prompt);
    const struct job_waiter waiter = party_waiter(p);
    struct job *j = NULL;
    sampler_options_default(&in.sampler);
    in.sampler.temperature = a->temperature;
    in.sampler.seed = a->seed;
    in.prompt_bytes = in.ends[0] = size * a->prompt_repeats;
    in.prompt = malloc(in.prompt_bytes + 1);
    assert_non_null(in.prompt);
    for (size_t i = 0; i < a->prompt_repeats; i++)
        memcpy(in.prompt + i * size, a->prompt, size);
    struct hosted_model *e = model_for(TASK_TEXT_GENERATION);
    j = party_generate(e, &in, a->max_tokens);
    party_init(p);
    job_attach(j, &waiter);
    assert_int_equal(job_submit(j, batcher_queue(batcher), e->lane, deadline_ns), OK);
    return j;
}

static uint64_t later_ns(void)
{
    return clock_now_ns() + LATER_S * CLOCK_NS_PER_S;
}

static size_t take_text(struct party *p, struct job *j, uint8_t *out, size_t size_max)
{
    party_await(p, j);
    return party_read(p, j, out, size_max);
}

static void leave(struct party *p, struct job *j)
{
    job_detach(j);
    job_release(j);
    party_clear(p);
}

/* What the contract says, done slowly: a slot of an engine of our own is fed byte by byte; every byte that was fed is
 * written down, and at the limit the text stops or starts again from its last half. */
static size_t plain_generate(const struct ask *a, uint8_t *out)
{
    struct model *m = NULL;
    struct error err;
    assert_int_equal(model_load(&m, "tests/data/models/enwik8-aft-local", NULL, NULL, &err), OK);
    const uint32_t context = m->config.context;
    const struct engine_options o = {.threads = 1, .streams_max = 1, .rows_max = 1, .pictures_max = 1};
    struct engine *e = NULL;
    float logits[BYTE_VALUES];
    struct sampler s;
    struct sampler_options so;
    assert_int_equal(engine_open(&e, m, &o, &err), OK);
    sampler_options_default(&so);
    so.temperature = a->temperature;
    so.seed = a->seed;
    sampler_init(&s, &so);

    const size_t unit = strlen(a->prompt), prompt = unit * a->prompt_repeats;
    uint8_t *all = malloc(prompt + a->max_tokens + 1); /* prompt and generated bytes */
    assert_non_null(all);
    size_t size = 0, next = 0, fed = 0, generated = 0; /* all[next] is to be fed; `fed` since the start */
    for (; size < prompt; size++)
        all[size] = (uint8_t)a->prompt[size % unit];
    if (size == 0)
        all[size++] = '\n';
    if (a->shift ? size > context : size > context - 1)
        next = size - (a->shift ? context / 2 : context - 1);
    for (;;) {
        for (; next < size; next++, fed++) {
            if (fed == context) {
                engine_stream_reset(e, 0);
                next = size - context / 2;
                fed = 0;
            }
            engine_feed(e, &(struct engine_part){.count = 1, .bytes = &all[next], .logits = logits}, 1);
        }
        all[size] = sampler_draw(&s, logits);
        out[generated++] = all[size];
        if (generated == a->max_tokens || (fed == context && !a->shift))
            break;
        size++;
    }
    free(all);
    engine_close(e);
    model_free(m);
    return generated;
}

static const struct {
    const char *name;
    struct ask ask;
    uint32_t generated, dropped;
} limit_cases[] = {
    {"a short prompt", {"The history of ", 1, 40, 0.0f, 1, false}, 40, 0},
    {"an empty prompt", {"", 0, 20, 0.0f, 1, false}, 20, 0},
    {"sampled", {"Once", 1, 60, 0.9f, 77, false}, 60, 0},
    {"a prompt of T - 1", {"abcdefg", 73, 40, 0.0f, 1, false}, 2, 0},
    {"a prompt of more than T - 1", {"abcdefgh", 64, 40, 0.0f, 1, false}, 2, 1},
    {"a prompt of much more", {"abcdefgh", 500, 40, 0.0f, 1, false}, 2, 4000 - 511},
    {"up to T + 1", {"abcd", 125, 40, 0.5f, 3, false}, 13, 0},
    {"from one byte to the end", {"a", 1, 2000, 0.0f, 1, false}, 512, 0},
    {"shift with a short prompt", {"a", 1, 1100, 0.8f, 5, true}, 1100, 0},
    {"shift with a prompt of T", {"abcdefgh", 64, 300, 0.8f, 6, true}, 300, 0},
    {"shift with a longer prompt", {"abcdefghi", 57, 300, 0.8f, 7, true}, 300, 513 - 256},
};

static void texts_are_those_of_the_plain_procedure(void **state)
{
    (void)state;
    assert_int_equal(model_for(TASK_TEXT_GENERATION)->model->config.context, 512);
    /* A sanitizer sees in these what it sees in all. */
    const size_t step = program_slowness() > 4 ? 6 : program_slowness() > 1 ? 3 : 1;
    for (size_t i = 0; i < ARRAY_LEN(limit_cases); i += step) {
        static uint8_t want[BYTES_MAX], got[BYTES_MAX];
        const struct ask *a = &limit_cases[i].ask;
        struct party p;
        struct job *j = submit_text(&p, a, later_ns());
        const size_t n = take_text(&p, j, got, sizeof got);
        const struct job_result *r = job_result(j);
        assert_int_equal(plain_generate(a, want), limit_cases[i].generated);
        const enum job_finish finish = n < a->max_tokens ? FINISH_CONTEXT : FINISH_LENGTH;
        if (r->status != OK || r->finish != finish || n != limit_cases[i].generated ||
            j->dropped != limit_cases[i].dropped || memcmp(got, want, n) != 0)
            fail_msg("%s: %zu bytes, %u dropped, %s", limit_cases[i].name, n, j->dropped,
                     memcmp(got, want, n) == 0 ? "the same" : "other bytes");
        leave(&p, j);
    }
}

static void company_changes_no_byte_and_all_get_a_slot(void **state)
{
    (void)state;
    static uint8_t alone[QUEUE][BYTES_MAX], together[BYTES_MAX];
    size_t sizes[QUEUE];
    struct party parties[QUEUE];
    struct job *jobs[QUEUE];
    struct ask asks[QUEUE];
    for (size_t i = 0; i < QUEUE; i++) {
        asks[i] = (struct ask){"The state of ", 1 + 3 * (i % 4), (uint32_t)(20 + 7 * i), 0.9f, i, i % 2 == 0};
        jobs[i] = submit_text(&parties[i], &asks[i], later_ns());
        sizes[i] = take_text(&parties[i], jobs[i], alone[i], BYTES_MAX);
        leave(&parties[i], jobs[i]);
    }
    for (size_t i = 0; i < QUEUE; i++) /* three times as many as there are slots */
        jobs[i] = submit_text(&parties[i], &asks[i], later_ns());
    for (size_t i = 0; i < QUEUE; i++) {
        assert_int_equal(take_text(&parties[i], jobs[i], together, BYTES_MAX), sizes[i]);
        assert_memory_equal(together, alone[i], sizes[i]);
        leave(&parties[i], jobs[i]);
    }
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

static const struct ask endless = {"a", 1, 1000000, 0.0f, 1, true};

static void cancelled_and_late_streams_give_their_slots_back(void **state)
{
    (void)state;
    static uint8_t out[1 << 20];
    struct party parties[STREAMS + 1];
    struct job *jobs[STREAMS + 1];
    for (size_t i = 0; i < STREAMS; i++) {
        jobs[i] = submit_text(&parties[i], &endless, i == 0 ? clock_now_ns() + 150 * CLOCK_NS_PER_MS : later_ns());
        party_await(&parties[i], jobs[i]);
    }
    struct ask quick = endless;
    quick.max_tokens = 3;
    jobs[STREAMS] = submit_text(&parties[STREAMS], &quick, later_ns()); /* waits for a slot */
    assert_int_equal(take_text(&parties[STREAMS], jobs[STREAMS], out, sizeof out), 3);
    (void)take_text(&parties[0], jobs[0], out, sizeof out); /* it was late, and made room */
    if (job_result(jobs[0])->status != ERR_TIMEOUT)         /* which it is before the first byte */
        assert_int_equal(job_result(jobs[0])->finish, FINISH_TIMEOUT);
    for (size_t i = 1; i < STREAMS; i++) {
        job_cancel(jobs[i], ERR_CLIENT_GONE);
        (void)take_text(&parties[i], jobs[i], out, sizeof out);
        assert_int_equal(job_result(jobs[i])->finish, FINISH_CANCELLED);
    }
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        leave(&parties[i], jobs[i]);
}

static void a_deadline_that_has_passed_needs_no_slot(void **state)
{
    (void)state;
    struct party p;
    struct job *j = submit_text(&p, &endless, 1);
    party_await(&p, j);
    assert_int_equal(job_result(j)->status, ERR_TIMEOUT);
    leave(&p, j);
}

static void work_that_goes_on_is_not_stuck(void **state)
{
    (void)state;
    static uint8_t out[1 << 20];
    struct party p;
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && batcher_is_stuck(batcher, later_ns()); i++)
        (void)nanosleep(&pause, NULL);                   /* until the round is over that ended the jobs before */
    assert_false(batcher_is_stuck(batcher, later_ns())); /* idle */
    struct job *j = submit_text(&p, &endless, later_ns());
    party_await(&p, j);
    assert_false(batcher_is_stuck(batcher, clock_now_ns()));
    assert_true(batcher_is_stuck(batcher, later_ns())); /* no step for so long */
    assert_in_range(queue_retry_after_s(batcher_queue(batcher)), 1, HTTP_RETRY_AFTER_MAX_S);
    job_cancel(j, ERR_CLIENT_GONE);
    (void)take_text(&p, j, out, sizeof out);
    leave(&p, j);
}

static void drop(void *inputs)
{
    picture_inputs_drop(inputs);
}

/* ---- pictures -------------------------------------------------------------------------------------------------- */

static struct job *submit_picture(struct party *p, uint64_t seed, uint64_t deadline_ns)
{
    struct hosted_model *e = model_for(TASK_IMAGE_CLASSIFICATION);
    const struct model_config *c = &e->model->config;
    struct picture_input in = {.height = c->size[0], .width = c->size[1], .classes = c->classes};
    const struct job_waiter waiter = party_waiter(p);
    struct random r = {seed};
    struct job *j = NULL;
    const size_t size = (size_t)in.height * in.width * 3;
    in.pixels = malloc(size);
    assert_non_null(in.pixels);
    for (size_t i = 0; i < size; i++)
        in.pixels[i] = (uint8_t)random_below(&r, 256);
    j = job_create(sizeof *j);
    struct error err;
    assert_non_null(j);
    hosted_model_reference(e);
    job_take_model(j, e);
    assert_int_equal(classify_begin(j, &err), OK);
    classify_job_of(j)->in.list[classify_job_of(j)->in.count++] = in;
    assert_int_equal(classify_make_outputs(j, false, &err), OK);
    assert_int_equal(job_defer(j, drop, &classify_job_of(j)->in, &err), OK);
    party_init(p);
    job_attach(j, &waiter);
    assert_int_equal(job_submit(j, batcher_queue(batcher), e->lane, deadline_ns), OK);
    return j;
}

static void pictures_get_the_logits_that_they_get_alone_beside_streams_too(void **state)
{
    (void)state;
    static uint8_t out[1 << 20];
    enum { PICTURES = QUEUE };
    const uint32_t classes = model_for(TASK_IMAGE_CLASSIFICATION)->model->config.classes;
    float alone[PICTURES][16];
    struct party parties[PICTURES], stream_party;
    struct job *jobs[PICTURES];
    assert_true(classes <= ARRAY_LEN(alone[0]));
    for (size_t i = 0; i < PICTURES; i++) {
        jobs[i] = submit_picture(&parties[i], i, later_ns());
        party_await(&parties[i], jobs[i]);
        assert_int_equal(job_result(jobs[i])->status, OK);
        memcpy(alone[i], classify_job_of(jobs[i])->logits, classes * sizeof(float));
        leave(&parties[i], jobs[i]);
    }
    struct job *stream = submit_text(&stream_party, &endless, later_ns());
    party_await(&stream_party, stream);
    for (size_t i = 0; i < PICTURES; i++) /* more than a batch; the last of all is late */
        jobs[i] = submit_picture(&parties[i], i, i == PICTURES - 1 ? 1 : later_ns());
    for (size_t i = 0; i < PICTURES; i++) {
        party_await(&parties[i], jobs[i]);
        assert_int_equal(job_result(jobs[i])->status, i == PICTURES - 1 ? ERR_TIMEOUT : OK);
        if (i < PICTURES - 1)
            assert_memory_equal(classify_job_of(jobs[i])->logits, alone[i], classes * sizeof(float));
        leave(&parties[i], jobs[i]);
    }
    job_cancel(stream, ERR_CLIENT_GONE);
    (void)take_text(&stream_party, stream, out, sizeof out);
    leave(&stream_party, stream);
}

/* The count of a histogram on /metrics, of all models. */
static uint64_t observed(const char *histogram)
{
    char *text = NULL, name[64];
    size_t size;
    uint64_t count = 0;
    assert_int_equal(metrics_render(&text, &size, NULL), OK);
    (void)snprintf(name, sizeof name, "\n%s_count{", histogram);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name))
        count += strtoull(strchr(at, ' ') + 1, NULL, 10);
    free(text);
    return count;
}

/* Between two bytes of a stream lie one pass and at most one block of an encoder, or the forming of one batch: as many
 * passes as blocks while pictures keep the encoder busy. */
static void a_stream_waits_for_one_block_at_most(void **state)
{
    (void)state;
    static uint8_t out[1 << 20];
    enum { PICTURES = QUEUE };
    struct party parties[PICTURES], stream_party;
    struct job *jobs[PICTURES], *stream = submit_text(&stream_party, &endless, later_ns());
    party_await(&stream_party, stream);
    const uint64_t passes = observed("aftd_prefill_seconds") + observed("aftd_decode_seconds");
    const uint64_t blocks = observed("aftd_encode_block_seconds");
    for (size_t i = 0; i < PICTURES; i++)
        jobs[i] = submit_picture(&parties[i], i, later_ns());
    for (size_t i = 0; i < PICTURES; i++) {
        party_await(&parties[i], jobs[i]);
        leave(&parties[i], jobs[i]);
    }
    const uint64_t blocks_run = observed("aftd_encode_block_seconds") - blocks;
    const uint64_t passes_run = observed("aftd_prefill_seconds") + observed("aftd_decode_seconds") - passes;
    assert_true(blocks_run >=
                (uint64_t)(PICTURES / IMAGES) * model_for(TASK_IMAGE_CLASSIFICATION)->model->config.depth);
    assert_true(passes_run + 1 >= blocks_run);
    job_cancel(stream, ERR_CLIENT_GONE);
    (void)take_text(&stream_party, stream, out, sizeof out);
    leave(&stream_party, stream);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void cancelling_all_ends_what_runs_and_what_waits(void **state)
{
    (void)state;
    static uint8_t out[1 << 20];
    struct party parties[QUEUE];
    struct job *jobs[QUEUE];
    for (size_t i = 0; i < QUEUE; i++)
        jobs[i] = submit_text(&parties[i], &endless, later_ns());
    party_await(&parties[0], jobs[0]);
    batcher_cancel(batcher);
    for (size_t i = 0; i < QUEUE; i++) {
        (void)take_text(&parties[i], jobs[i], out, sizeof out);
        const struct job_result *r = job_result(jobs[i]);
        assert_true(r->status == ERR_UNAVAILABLE || (r->status == OK && r->finish == FINISH_CANCELLED));
        leave(&parties[i], jobs[i]);
    }
}

static void a_folder_without_models_is_an_error_that_names_it(void **state)
{
    (void)state;
    struct settings s;
    struct error err;
    struct hosting *b = NULL;
    settings_init(&s);
    (void)snprintf(s.models_dir, sizeof s.models_dir, "tests/support");
    assert_int_equal(hosting_start(&b, &s, NULL, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "tests/support"));
    (void)snprintf(s.models_dir, sizeof s.models_dir, "no/such/folder");
    assert_int_equal(hosting_start(&b, &s, NULL, &err), ERR_IO);
    assert_non_null(strstr(err.message, "no/such/folder"));
}

static void models_whose_pictures_do_not_fit_are_left_out(void **state)
{
    (void)state;
    char models[PATH_MAX];
    struct settings s;
    struct error err;
    struct hosting *b = NULL;
    char path[PATH_MAX];
    struct model_copy c;
    temp_dir_create(models);
    temp_path(path, models, "pixels");
    assert_int_equal(mkdir(path, 0700), 0);
    model_copy_read(&c, "tests/data/golden/pixels-local");
    assert_int_equal(json_object_set_new(json_object_get(c.config, "input"), "size", json_pack("[i, i]", 5, 4)), 0);
    model_copy_write(&c, path);
    model_copy_clear(&c);
    settings_init(&s);
    s.threads = 1;
    assert_in_range(snprintf(s.models_dir, sizeof s.models_dir, "%s", models), 1, sizeof s.models_dir - 1);
    assert_int_equal(hosting_start(&b, &s, NULL, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "this build serves pictures that fit into the context"));

    model_variants_link(models, "tests/data/golden", "conv-heads8-k5");
    assert_int_equal(hosting_start(&b, &s, NULL, &err), OK);
    assert_non_null(registry_row(b->registry, "conv-heads8-k5")->hosted);
    assert_int_equal(registry_row(b->registry, "pixels")->state, MODEL_FAILED);
    assert_null(registry_row_at(b->registry, 2));
    hosting_stop(b);
    hosting_free(b);
    temp_dir_remove(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_the_plain_procedure),
        cmocka_unit_test(company_changes_no_byte_and_all_get_a_slot),
        cmocka_unit_test(cancelled_and_late_streams_give_their_slots_back),
        cmocka_unit_test(a_deadline_that_has_passed_needs_no_slot),
        cmocka_unit_test(work_that_goes_on_is_not_stuck),
        cmocka_unit_test(pictures_get_the_logits_that_they_get_alone_beside_streams_too),
        cmocka_unit_test(a_stream_waits_for_one_block_at_most),
        cmocka_unit_test(cancelling_all_ends_what_runs_and_what_waits), /* the last: no job is taken after it */
        cmocka_unit_test(a_folder_without_models_is_an_error_that_names_it),
        cmocka_unit_test(models_whose_pictures_do_not_fit_are_left_out),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
