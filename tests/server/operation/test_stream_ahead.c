/* test_stream_ahead.c - texts that go on past the ends of their contexts, in a lane whose passes the test makes itself:
 * what is fed ahead changes no byte, no stream stands still, and no pass gets much longer. The rows of each pass are
 * counted where the lane calls the engine (the Makefile lets the linker put __wrap_engine_feed there). */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "config/settings.h"
#include "engine/engine.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/models/model_sources.h"
#include "server/operation/generate.h"
#include "server/operation/stream_lane.h"
#include "tests/support/job_party.h"
#include "tests/support/model_variants.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { STREAMS = 64, CONTEXT = 128, ENDS = 5, LONG = CONTEXT + (ENDS - 1) * CONTEXT / 2 + CONTEXT / 4, LATER_S = 1000 };

static char models[PATH_MAX];

/* ---- passes ---------------------------------------------------------------------------------------------------- */

/* What the engine was given since it was last zeroed. */
static struct {
    uint32_t passes, rows, rows_max;
    uint32_t refills; /* streams that were fed several elements before they drew the next one */
} fed;

void __real_engine_feed(struct engine *e, const struct engine_part *parts, size_t n);
void __wrap_engine_feed(struct engine *e, const struct engine_part *parts, size_t n);

void __wrap_engine_feed(struct engine *e, const struct engine_part *parts, size_t n)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        rows += parts[i].count;
        fed.refills += parts[i].logits != NULL && parts[i].count > 1;
    }
    fed.passes++;
    fed.rows += rows;
    fed.rows_max = rows > fed.rows_max ? rows : fed.rows_max;
    __real_engine_feed(e, parts, n);
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

/* A text to be. */
struct text {
    uint32_t prompt_bytes, max_tokens, n;
    uint8_t client;
    struct party party;
    struct job *job;
    uint8_t bytes[4 * LONG];
    size_t size;
};

struct scene {
    struct settings settings;
    struct hosted_model *model;
    struct queue *queue;
    struct stream_lane *lane;
};

static void open_scene(struct scene *s, const char *model, uint32_t streams, bool ahead)
{
    struct found_model found;
    struct error err;
    settings_init(&s->settings);
    (void)snprintf(s->settings.models_dir, sizeof s->settings.models_dir, "%.1000s", models);
    assert_int_equal(model_sources_find(&found, &s->settings, model, &err), OK);
    (void)snprintf(s->settings.precision, sizeof s->settings.precision, "f32");
    s->settings.threads = 1;
    s->settings.streams_max = streams;
    assert_int_equal(hosted_model_load(&s->model, &found, &s->settings, &err), OK);
    assert_true(s->model->ahead_rows_max > 0);
    if (!ahead)
        s->model->ahead_rows_max = 0;
    assert_int_equal(queue_create(&s->queue, 1, s->settings.queue_jobs_max), OK);
    assert_int_equal(stream_lane_create(&s->lane, s->model, s->queue, &s->settings, &err), OK);
    memset(&fed, 0, sizeof fed);
}

static void close_scene(struct scene *s)
{
    stream_lane_free(s->lane);
    queue_free(s->queue);
    hosted_model_release(s->model);
}

/* Each text has a seed, by its number. */
static void submit(struct scene *s, struct text *t, uint64_t seed)
{
    static const char letters[] = "The quick brown fox jumps over the lazy dog. ";
    struct generate_input in = {
        .prompt_count = 1, .n = t->n > 0 ? t->n : 1, .max_tokens = t->max_tokens, .shift = true};
    const struct job_waiter waiter = party_waiter(&t->party);
    sampler_options_default(&in.sampler);
    in.sampler.seed = seed;
    in.prompt_bytes = in.ends[0] = t->prompt_bytes;
    in.prompt = malloc(t->prompt_bytes + 1);
    assert_non_null(in.prompt);
    for (uint32_t i = 0; i < t->prompt_bytes; i++)
        in.prompt[i] = (uint8_t)letters[i % (sizeof letters - 1)];
    t->job = party_generate(s->model, &in, t->max_tokens);
    t->job->item.client = (struct client_id){.kind = CLIENT_IPV4, .bytes = {10, 0, 0, t->client}};
    party_init(&t->party);
    job_attach(t->job, &waiter);
    assert_int_equal(job_submit(t->job, s->queue, 0, clock_now_ns() + LATER_S * CLOCK_NS_PER_S), OK);
}

static void take(struct text *t)
{
    assert_int_equal(job_result(t->job)->status, OK);
    t->size = party_read(&t->party, t->job, t->bytes, sizeof t->bytes);
    assert_int_equal(t->size, (size_t)t->max_tokens * (t->n > 0 ? t->n : 1));
    job_detach(t->job);
    job_release(t->job);
    party_clear(&t->party);
}

/* All of them together, to their ends; those from `later` on come once the others have gone so many passes. */
static void run(struct scene *s, struct text *texts, size_t count, size_t later, uint32_t passes)
{
    uint32_t ended = 0;
    for (size_t i = 0; i < later; i++)
        submit(s, &texts[i], i);
    while (fed.passes < passes)
        ended += stream_lane_step(s->lane);
    for (size_t i = later; i < count; i++)
        submit(s, &texts[i], i);
    while (ended < count)
        ended += stream_lane_step(s->lane);
    for (size_t i = 0; i < count; i++)
        take(&texts[i]);
}

static struct text *texts_of(size_t count)
{
    struct text *texts = calloc(count, sizeof *texts);
    assert_non_null(texts);
    return texts;
}

/* The texts are what they are one by one with nothing fed ahead. */
static void compare_alone(const char *model, const struct text *texts, size_t count)
{
    struct scene s;
    open_scene(&s, model, 1, false);
    for (size_t i = 0; i < count; i++) {
        struct text *alone = texts_of(1);
        *alone =
            (struct text){.prompt_bytes = texts[i].prompt_bytes, .max_tokens = texts[i].max_tokens, .n = texts[i].n};
        submit(&s, alone, i);
        while (stream_lane_step(s.lane) == 0)
            continue;
        take(alone);
        if (alone->size != texts[i].size || memcmp(alone->bytes, texts[i].bytes, alone->size) != 0)
            fail_msg("text %zu has other bytes", i);
        free(alone);
    }
    close_scene(&s);
}

/* ---- the tests ------------------------------------------------------------------------------------------------- */

/* A model with learnt positions, whose context is longer than that of others. */
static void write_ending(void)
{
    enum { DIM = 32 };
    static float positions[CONTEXT * DIM];
    struct random r = {1};
    struct model_copy c;
    for (size_t i = 0; i < ARRAY_LEN(positions); i++)
        positions[i] = (float)random_below(&r, 1000) / 1000.0f - 0.5f;
    model_copy_read(&c, "tests/data/golden/lm-simple");
    assert_int_equal(json_object_set_new(json_object_get(c.config, "input"), "context", json_integer(CONTEXT)), 0);
    model_copy_set(&c, "pos_embed", positions, CONTEXT, DIM);
    model_variants_put(&c, models, "ends");
}

static int start(void **state)
{
    (void)state;
    temp_dir_create(models);
    write_ending();
    model_variants_write_starting(models);
    model_variants_link(models, "tests/data/golden", "lm-local-8");
    model_variants_link(models, "tests/data/golden", "lm-full");
    return 0;
}

static void no_stream_stands_still_where_contexts_end(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 3, 8, STREAMS};
    for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
        const size_t count = counts[c];
        struct text *texts = texts_of(count);
        struct scene s;
        open_scene(&s, "ends", STREAMS, true);
        for (size_t i = 0; i < count; i++)
            texts[i] = (struct text){.prompt_bytes = 1, .max_tokens = LONG};
        run(&s, texts, count, count, 0);
        assert_int_equal(fed.refills, 0);
        assert_int_equal(fed.passes, LONG); /* each of them gave a byte of each text */
        assert_in_range(fed.rows_max, 0, count < 8 ? count + 16 : 3 * count);
        close_scene(&s);
        if (count < STREAMS)
            compare_alone("ends", texts, count);
        free(texts);
    }
}

static void streams_that_began_apart_share_what_they_feed_ahead(void **state)
{
    (void)state;
    struct text *texts = texts_of(STREAMS);
    struct scene s;
    open_scene(&s, "ends", STREAMS, true);
    for (uint32_t i = 0; i < STREAMS; i++)
        texts[i] = (struct text){.prompt_bytes = 1 + i * CONTEXT / STREAMS / 2, .max_tokens = LONG};
    run(&s, texts, STREAMS, STREAMS, 0);
    assert_in_range(fed.refills, 0, STREAMS - 1); /* the ends of prompts alone: the first is of one byte */
    assert_in_range(fed.rows_max, 0, 3 * STREAMS + s.settings.pass_rows_max);
    close_scene(&s);
    compare_alone("ends", texts, STREAMS / 4);
    free(texts);
}

static void long_prompts_leave_less_time_and_passes_are_bounded_still(void **state)
{
    (void)state;
    struct text *texts = texts_of(STREAMS);
    struct scene s;
    open_scene(&s, "ends", STREAMS, true);
    for (uint32_t i = 0; i < STREAMS; i++)
        texts[i] = (struct text){.prompt_bytes = CONTEXT - 1 - i % 48, .max_tokens = LONG};
    run(&s, texts, STREAMS, STREAMS, 0);
    assert_in_range(fed.rows_max, 0, 3 * STREAMS + s.settings.pass_rows_max);
    close_scene(&s);
    compare_alone("ends", texts, STREAMS / 4);
    free(texts);
}

static void what_a_text_ends_before_is_not_fed(void **state)
{
    (void)state;
    struct text *texts = texts_of(1);
    for (uint32_t more = 0; more < 2; more++) {
        struct scene s;
        open_scene(&s, "ends", 1, true);
        *texts = (struct text){.prompt_bytes = 1, .max_tokens = CONTEXT + more}; /* the last one is not fed */
        run(&s, texts, 1, 1, 0);
        assert_int_equal(fed.passes, CONTEXT + more);
        assert_int_equal(fed.rows, CONTEXT + more * CONTEXT / 2);
        close_scene(&s);
    }
    free(texts);
}

static void parked_streams_keep_what_was_fed_ahead(void **state)
{
    (void)state;
    enum { SLOTS = 4, COUNT = 16 };
    struct text *texts = texts_of(COUNT);
    struct scene s;
    open_scene(&s, "ends", SLOTS, true);
    texts[0] = (struct text){.prompt_bytes = 1, .max_tokens = LONG};
    run(&s, texts, 1, 1, 0);
    const uint32_t rows = fed.rows;
    memset(&fed, 0, sizeof fed);
    for (uint32_t i = 0; i < COUNT; i++)
        texts[i] = (struct text){.prompt_bytes = 1, .max_tokens = LONG, .client = i < SLOTS ? 0 : (uint8_t)i};
    run(&s, texts, COUNT, SLOTS, CONTEXT - CONTEXT / 8);
    assert_int_equal(fed.refills, 0);
    assert_int_equal(fed.rows, COUNT * rows); /* nothing twice */
    close_scene(&s);
    compare_alone("ends", texts, COUNT);
    free(texts);
}

static void samples_and_prompts_from_the_cache_go_on_as_ever(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    struct text *texts = texts_of(COUNT);
    struct scene s;
    open_scene(&s, "ends", 8, true);
    for (uint32_t i = 0; i < COUNT; i++)
        texts[i] = (struct text){.prompt_bytes = CONTEXT / 2 + 7 * i, .max_tokens = LONG, .n = 1 + i % 3};
    run(&s, texts, COUNT, COUNT / 2, LONG / 2);
    close_scene(&s);
    compare_alone("ends", texts, COUNT);
    free(texts);
}

static void every_kind_of_model_says_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"starting", "lm-local-8"};
    enum { COUNT = 12 };
    struct text *texts = texts_of(COUNT);
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        struct scene s;
        open_scene(&s, names[k], COUNT, true);
        for (uint32_t i = 0; i < COUNT; i++)
            texts[i] = (struct text){.prompt_bytes = 5 * i, .max_tokens = 190};
        run(&s, texts, COUNT, COUNT, 0);
        close_scene(&s);
        compare_alone(names[k], texts, COUNT);
    }
    free(texts);
}

static void states_of_all_keys_and_values_are_not_doubled(void **state)
{
    (void)state;
    struct found_model found;
    struct settings s;
    struct error err;
    settings_init(&s);
    (void)snprintf(s.models_dir, sizeof s.models_dir, "%.1000s", models);
    for (int i = 0; i < 2; i++) {
        struct hosted_model *m = NULL;
        assert_int_equal(model_sources_find(&found, &s, i == 0 ? "lm-full" : "ends", &err), OK);
        assert_int_equal(hosted_model_load(&m, &found, &s, &err), OK);
        const struct engine_info *info = engine_info(m->engine);
        const uint64_t states = info->stream_bytes * s.streams_max;
        assert_true(i == 0 ? info->workspace_bytes < 2 * states : info->workspace_bytes > 2 * states);
        hosted_model_release(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_stream_stands_still_where_contexts_end),
        cmocka_unit_test(streams_that_began_apart_share_what_they_feed_ahead),
        cmocka_unit_test(long_prompts_leave_less_time_and_passes_are_bounded_still),
        cmocka_unit_test(what_a_text_ends_before_is_not_fed),
        cmocka_unit_test(parked_streams_keep_what_was_fed_ahead),
        cmocka_unit_test(samples_and_prompts_from_the_cache_go_on_as_ever),
        cmocka_unit_test(every_kind_of_model_says_the_same),
        cmocka_unit_test(states_of_all_keys_and_values_are_not_doubled),
    };
    return cmocka_run_group_tests(tests, start, temp_dirs_end);
}
