/* test_picture_lane.c - how batches are formed: of one size, the oldest first, as many as fit. The test's thread is the
 * engine thread, so that every step is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/registry.h"
#include "server/operation/classify.h"
#include "server/operation/picture_lane.h"
#include "tests/support/job_party.h"
#include "tests/support/model_copy.h"
#include "tests/support/temp_dir.h"

enum { BATCH = 3, TOKENS = 256, JOBS_MAX = 16, DIM_MAX = 64 };

/* A model, its lane, and jobs that were pushed in this order. */
struct stage {
    struct settings settings;
    struct hosted_model *hosted;
    struct queue *queue;
    struct picture_lane *lane;
    struct job *jobs[JOBS_MAX];
    uint32_t count;
};

static void stage_open(struct stage *s, const char *dir)
{
    const struct engine_options o = {.threads = 1, .pictures_max = BATCH, .tokens_max = TOKENS};
    struct error err;
    *s = (struct stage){.hosted = party_model()};
    settings_init(&s->settings);
    s->settings.batch_images_max = BATCH;
    if (model_load(&s->hosted->model, dir, NULL, NULL, &err) != OK ||
        engine_open(&s->hosted->engine, s->hosted->model, &o, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(queue_create(&s->queue, 1, JOBS_MAX), OK);
    assert_int_equal(picture_lane_create(&s->lane, s->hosted, s->queue, &s->settings, NULL), OK);
}

static void stage_close(struct stage *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        job_release(s->jobs[i]);
    picture_lane_free(s->lane);
    queue_free(s->queue);
    hosted_model_release(s->hosted);
}

/* A picture of height x width pixels, or a text of `width` bytes, that depends on them alone. */
static uint8_t *draw(uint32_t height, uint32_t width, size_t bytes)
{
    uint8_t *pixels = malloc(bytes);
    assert_non_null(pixels);
    for (size_t i = 0; i < bytes; i++)
        pixels[i] = (uint8_t)(i * i * 31 + (size_t)height * 7 + width);
    return pixels;
}

static void drop(void *inputs)
{
    picture_inputs_drop(inputs);
}

/* A job that classifies these, with that model. */
static struct job *classify(struct hosted_model *e, const struct picture_input *in, uint32_t count)
{
    struct job *j = job_create(sizeof *j);
    struct error err;
    assert_non_null(j);
    hosted_model_reference(e);
    job_take_model(j, e);
    assert_int_equal(classify_begin(j, &err), OK);
    for (uint32_t i = 0; i < count; i++)
        classify_job_of(j)->in.list[classify_job_of(j)->in.count++] = in[i];
    assert_int_equal(classify_make_outputs(j, false, &err), OK);
    assert_int_equal(job_defer(j, drop, &classify_job_of(j)->in, &err), OK);
    return j;
}

/* map_values: 0, or the picture's patches, of which block 1 then shows head 2. */
static void push_for_map(struct stage *s, uint32_t height, uint32_t width, uint32_t map_values, uint64_t deadline_ns)
{
    const bool text = s->hosted->model->config.input != INPUT_IMAGE;
    const struct picture_input in = {.pixels = draw(height, width, text ? width : (size_t)height * width * 3),
                                     .height = height,
                                     .width = width,
                                     .classes = s->hosted->model->config.classes,
                                     .map = {.layer = 1, .layers = map_values > 0, .head = 2, .heads = 1},
                                     .map_values = map_values};
    s->jobs[s->count] = classify(s->hosted, &in, 1);
    assert_int_equal(job_submit(s->jobs[s->count], s->queue, 0, deadline_ns), OK);
    s->count++;
}

static void push(struct stage *s, uint32_t height, uint32_t width, uint64_t deadline_ns)
{
    push_for_map(s, height, width, 0, deadline_ns);
}

static uint64_t later_ns(void)
{
    return clock_now_ns() + 1000 * CLOCK_NS_PER_S;
}

/* The next batch must be of exactly these jobs, "acf" being the first, the third and the sixth; it is run to its end, a
 * part of most_ns at a time, and each gets what it gets alone. Returns the number of parts. */
static uint32_t expect_batch_in_parts(struct stage *s, const char *who, uint64_t most_ns)
{
    const size_t n = strlen(who);
    const struct model_config *c = &s->hosted->model->config;
    uint32_t ended = 0, parts = 0;
    bool before[JOBS_MAX];
    for (uint32_t i = 0; i < s->count; i++)
        before[i] = job_is_done(s->jobs[i]);
    assert_true(picture_lane_has_work(s->lane, false));
    (void)picture_lane_step(s->lane, false, PICTURE_LANE_NO_HURRY);
    assert_int_equal(picture_lane_running(s->lane), n);
    for (; picture_lane_running(s->lane) > 0; parts++)
        ended += picture_lane_step(s->lane, false, most_ns);
    assert_int_equal(ended, n);
    for (uint32_t i = 0; i < s->count; i++) {
        struct job *j = s->jobs[i];
        const bool expected = strchr(who, (int)('a' + i)) != NULL;
        if (!before[i] && job_is_done(j) != expected)
            fail_msg("batch %s: job %c %s", who, (char)('a' + i), expected ? "is left" : "is done");
        if (!expected)
            continue;
        assert_int_equal(job_result(j)->status, OK);
        const uint8_t *batch[1] = {classify_job_of(j)->in.list[0].pixels};
        if (c->input == INPUT_IMAGE)
            engine_pictures_begin(s->hosted->engine, batch, 1, classify_job_of(j)->in.list[0].height,
                                  classify_job_of(j)->in.list[0].width);
        else
            engine_texts_begin(s->hosted->engine, batch, 1, classify_job_of(j)->in.list[0].width);
        while (!engine_batch_step(s->hosted->engine))
            ;
        assert_memory_equal(classify_job_of(j)->logits, engine_batch_logits(s->hosted->engine, 0),
                            c->classes * sizeof(float));
    }
    return parts;
}

static void expect_batch(struct stage *s, const char *who)
{
    (void)expect_batch_in_parts(s, who, PICTURE_LANE_NO_HURRY);
}

static void a_batch_has_the_size_of_the_oldest(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    push(&s, 32, 32, later_ns()); /* a */
    push(&s, 16, 48, later_ns());
    push(&s, 48, 16, later_ns()); /* as many patches, another size */
    push(&s, 32, 32, later_ns()); /* d */
    push(&s, 16, 48, later_ns());
    push(&s, 32, 32, later_ns());
    push(&s, 32, 32, later_ns()); /* g: one too many for the first batch */
    expect_batch(&s, "adf");
    expect_batch(&s, "be");
    expect_batch(&s, "c");
    push(&s, 48, 16, later_ns());
    expect_batch(&s, "g");
    expect_batch(&s, "h");
    assert_false(picture_lane_has_work(s.lane, false));
    stage_close(&s);
}

/* Rows are for 3 pictures of 64 patches, or one of 256. */
static void large_pictures_share_no_batch_that_they_do_not_fit(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    push(&s, 64, 64, later_ns()); /* 256 patches */
    push(&s, 32, 64, later_ns()); /* 128 */
    push(&s, 64, 64, later_ns());
    push(&s, 32, 64, later_ns());
    push(&s, 32, 64, later_ns());
    push(&s, 4, 4, later_ns()); /* 1 */
    push(&s, 4, 4, later_ns());
    push(&s, 4, 4, later_ns());
    push(&s, 4, 4, later_ns());
    expect_batch(&s, "a");
    expect_batch(&s, "bd");
    expect_batch(&s, "c");
    expect_batch(&s, "e");
    expect_batch(&s, "fgh");
    expect_batch(&s, "i");
    stage_close(&s);
}

static void jobs_that_wait_for_another_size_end_as_any_others(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    push(&s, 8, 8, 1); /* late: it must not decide the size */
    push(&s, 32, 32, later_ns());
    push(&s, 16, 16, later_ns());
    push(&s, 16, 16, 1);
    push(&s, 16, 16, later_ns());
    push(&s, 32, 32, 1);
    assert_int_equal(queue_look(s.queue, 0).lane_count, 6);
    /* The late ones on the way to the first batch. */
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 2);
    assert_int_equal(picture_lane_running(s.lane), 1);
    assert_int_equal(job_result(s.jobs[0])->status, ERR_TIMEOUT);
    assert_int_equal(job_result(s.jobs[5])->status, ERR_TIMEOUT);
    assert_int_equal(queue_look(s.queue, 0).lane_count, 3); /* they are counted while they wait */
    job_cancel(s.jobs[2], ERR_CLIENT_GONE);
    assert_true(job_is_done(s.jobs[2])); /* and leave at once */
    assert_int_equal(job_result(s.jobs[2])->status, ERR_CLIENT_GONE);
    while (picture_lane_running(s.lane) > 0)
        (void)picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY);
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 1);
    assert_int_equal(job_result(s.jobs[3])->status, ERR_TIMEOUT);
    assert_int_equal(picture_lane_running(s.lane), 1);
    picture_lane_cancel(s.lane, ERR_UNAVAILABLE);
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 1);
    assert_int_equal(job_result(s.jobs[4])->status, ERR_UNAVAILABLE);
    assert_int_equal(picture_lane_running(s.lane), 0);
    stage_close(&s);
}

/* A client may leave between the blocks: what is left of its job must not be written to, and the others get theirs. */
static void a_job_that_waits_for_a_map_may_end_before_it_is_drawn(void **state)
{
    (void)state;
    struct stage s;
    float alone[64];
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    push_for_map(&s, 32, 32, 64, later_ns());
    expect_batch(&s, "a");
    memcpy(alone, classify_job_of(s.jobs[0])->map, sizeof alone);
    push_for_map(&s, 32, 32, 64, later_ns());
    push_for_map(&s, 32, 32, 64, later_ns());
    push(&s, 32, 32, later_ns());
    (void)picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY); /* the batch begins */
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 0);
    job_cancel(s.jobs[1], ERR_CLIENT_GONE);
    job_release(s.jobs[1]); /* its connection's; the lane has the last reference */
    s.jobs[1] = s.jobs[3];
    s.count = 3;
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 3);
    assert_int_equal(job_result(s.jobs[2])->status, OK);
    assert_memory_equal(classify_job_of(s.jobs[2])->map, alone, sizeof alone);
    assert_null(classify_job_of(s.jobs[1])->map);
    stage_close(&s);
}

static void texts_of_one_length_share_a_batch(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/text-attention");
    push(&s, 1, 48, later_ns());
    push(&s, 1, 5, later_ns());
    push(&s, 1, 48, later_ns());
    push(&s, 1, 48, later_ns());
    push(&s, 1, 5, later_ns());
    push(&s, 1, 48, later_ns());
    expect_batch(&s, "acd");
    expect_batch(&s, "be");
    expect_batch(&s, "f");
    stage_close(&s);
}

/* ---- jobs of several inputs ------------------------------------------------------------------------------------- */

/* A text model whose numbers overflow where a text has a z. */
static void open_overflowing(struct stage *s, char folder[PATH_MAX])
{
    static float embed[256 * DIM_MAX];
    struct model_copy c;
    temp_dir_create(folder);
    model_copy_read(&c, "tests/data/golden/text-attention");
    const struct tensor *before = model_copy_tensor(&c, "tok_embed");
    const uint64_t dim = before->shape[1];
    assert_true(before->bytes <= sizeof embed && before->dtype == DTYPE_F32);
    memcpy(embed, before->data, before->bytes);
    for (uint64_t i = 0; i < dim; i++)
        embed['z' * dim + i] = i % 2 == 0 ? 3e38f : -3e38f;
    model_copy_set(&c, "tok_embed", embed, before->shape[0], dim);
    model_copy_write(&c, folder);
    model_copy_clear(&c);
    stage_open(s, folder);
}

static void of_a_batch_only_what_overflows_is_an_error(void **state)
{
    static const char *const texts[BATCH] = {"every", "dizzy", "other"};
    char folder[PATH_MAX];
    struct stage s;
    (void)state;
    open_overflowing(&s, folder);
    for (uint32_t i = 0; i < BATCH; i++) {
        push(&s, 1, (uint32_t)strlen(texts[i]), later_ns());
        memcpy(classify_job_of(s.jobs[i])->in.list[0].pixels, texts[i], strlen(texts[i]));
    }
    for (uint32_t ended = 0; ended < BATCH;)
        ended += picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY);
    for (uint32_t i = 0; i < BATCH; i++)
        assert_int_equal(job_result(s.jobs[i])->status, i == 1 ? ERR_INTERNAL : OK);
    assert_non_null(strstr(job_result(s.jobs[1])->error.message, "a logit that is not a number"));
    stage_close(&s);
    temp_dir_remove(folder);
}

/* Pictures of these sides, square and all different. */
static void push_several(struct stage *s, const uint32_t *sides, uint32_t count)
{
    struct picture_input in[8];
    for (uint32_t i = 0; i < count; i++) {
        in[i] = (struct picture_input){.pixels = draw(sides[i], sides[i], (size_t)sides[i] * sides[i] * 3),
                                       .height = sides[i],
                                       .width = sides[i],
                                       .classes = s->hosted->model->config.classes};
        in[i].pixels[i] ^= 0x80;
    }
    s->jobs[s->count] = classify(s->hosted, in, count);
    assert_int_equal(job_submit(s->jobs[s->count], s->queue, 0, later_ns()), OK);
    s->count++;
}

static void assert_logits_of_each(struct stage *s, const struct job *j)
{
    const uint32_t classes = s->hosted->model->config.classes;
    assert_int_equal(job_result(j)->status, OK);
    for (uint32_t i = 0; i < classify_job_of(j)->in.count; i++) {
        const struct picture_input *in = &classify_job_of(j)->in.list[i];
        const uint8_t *batch[1] = {in->pixels};
        engine_pictures_begin(s->hosted->engine, batch, 1, in->height, in->width);
        while (!engine_batch_step(s->hosted->engine))
            ;
        assert_memory_equal(classify_job_of(j)->logits + (size_t)i * classes, engine_batch_logits(s->hosted->engine, 0),
                            classes * sizeof(float));
    }
}

/* Begin the next batch, which must have so many inputs, and run it; returns how many jobs ended. */
static uint32_t run_batch(struct stage *s, uint32_t inputs)
{
    assert_true(picture_lane_has_work(s->lane, false));
    uint32_t ended = picture_lane_step(s->lane, false, PICTURE_LANE_NO_HURRY);
    assert_int_equal(picture_lane_running(s->lane), inputs);
    for (uint32_t block = 0; block < s->hosted->model->config.depth; block++)
        ended += picture_lane_step(s->lane, false, PICTURE_LANE_NO_HURRY);
    return ended;
}

static void a_job_of_several_inputs_goes_through_many_batches(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    push_several(&s, (const uint32_t[]){32, 32, 32, 32, 16}, 5); /* a */
    push(&s, 16, 16, later_ns());                                /* b */
    push_several(&s, (const uint32_t[]){16, 32}, 2);             /* c */
    push(&s, 32, 32, later_ns());                                /* d */
    assert_int_equal(run_batch(&s, 3), 0);                       /* of a */
    assert_true(picture_lane_has_work(s.lane, true));            /* what is held waits for no company */
    assert_int_equal(run_batch(&s, 1), 0);                       /* of a: what it has next is of another size */
    assert_int_equal(run_batch(&s, 3), 2);                       /* a, b and c share one; a and b end */
    assert_true(job_is_done(s.jobs[0]) && job_is_done(s.jobs[1]) && !job_is_done(s.jobs[2]));
    assert_int_equal(run_batch(&s, 2), 2); /* c and d */
    assert_false(picture_lane_has_work(s.lane, false));
    for (uint32_t i = 0; i < s.count; i++)
        assert_logits_of_each(&s, s.jobs[i]);
    stage_close(&s);
}

static void a_job_of_several_inputs_is_stopped_as_a_whole(void **state)
{
    static const uint32_t sides[] = {32, 32, 32, 32, 32};
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    push_several(&s, sides, 5); /* a */
    push_several(&s, sides, 2); /* b */
    assert_int_equal(run_batch(&s, 3), 0);
    job_cancel(s.jobs[0], ERR_CLIENT_GONE); /* between two batches */
    assert_int_equal(picture_lane_running(s.lane), 1);
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 1);
    assert_int_equal(job_result(s.jobs[0])->status, ERR_CLIENT_GONE);
    assert_int_equal(picture_lane_running(s.lane), 2); /* of b, which begins in the same step */
    while (picture_lane_running(s.lane) > 0)
        (void)picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY);
    assert_logits_of_each(&s, s.jobs[1]);

    push_several(&s, sides, 5); /* c */
    push_several(&s, sides, 1); /* d */
    (void)picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY);
    job_cancel(s.jobs[2], ERR_TIMEOUT); /* in a batch, two inputs yet to come */
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 1);
    assert_int_equal(job_result(s.jobs[2])->status, ERR_TIMEOUT);
    assert_int_equal(picture_lane_running(s.lane), 0);
    (void)picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY);
    picture_lane_cancel(s.lane, ERR_UNAVAILABLE);
    assert_int_equal(picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY), 1);
    assert_int_equal(job_result(s.jobs[3])->status, ERR_UNAVAILABLE);
    stage_close(&s);
}

/* The model was trained with pictures of 32 x 32. */
static void a_job_counts_as_the_pictures_that_it_is_worth(void **state)
{
    static const uint32_t sides[] = {32, 16, 36, 64};
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    push_several(&s, sides, 2);
    assert_int_equal(s.jobs[0]->engine_cost, 2);
    push_several(&s, sides, 4);
    assert_int_equal(s.jobs[1]->engine_cost, 2 + 2 + 4);
    struct job *j;
    const struct picture_input unknown[2] = {{.classes = s.hosted->model->config.classes},
                                             {.classes = s.hosted->model->config.classes}};
    struct picture_input known = unknown[0];
    j = classify(s.hosted, unknown, 2);
    assert_int_equal(j->engine_cost, 2);
    known.height = known.width = 64;
    known.pixels = draw(64, 64, (size_t)3 * 64 * 64);
    const struct picture_fit fit = {.height = 64, .width = 64};
    struct error err;
    classify_job_of(j)->in.list[1] = known;
    assert_int_equal(classify_note_input(j, 1, NULL, &fit, &err), OK);
    assert_int_equal(j->engine_cost, 1 + 4);
    job_release(j);
    while (picture_lane_has_work(s.lane, false))
        (void)picture_lane_step(s.lane, false, PICTURE_LANE_NO_HURRY);
    stage_close(&s);
}

/* The time is known only once a part has run: until then one input at a time, for the engine has one thread. */
static void as_many_inputs_pass_a_block_as_fit_into_the_time(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, "tests/data/golden/conv-heads8-k5");
    const uint32_t depth = s.hosted->model->config.depth;
    const uint64_t ample_ns = 1000 * CLOCK_NS_PER_S;
    for (int i = 0; i < 3; i++)
        push(&s, 32, 32, later_ns());
    assert_int_equal(expect_batch_in_parts(&s, "abc", 1), depth * 3);
    for (int i = 0; i < 3; i++)
        push(&s, 32, 32, later_ns());
    assert_int_equal(expect_batch_in_parts(&s, "def", ample_ns), depth);
    for (int i = 0; i < 3; i++)
        push(&s, 16, 16, later_ns()); /* how long these take is not known */
    assert_int_equal(expect_batch_in_parts(&s, "ghi", ample_ns), depth + 1);
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_has_the_size_of_the_oldest),
        cmocka_unit_test(large_pictures_share_no_batch_that_they_do_not_fit),
        cmocka_unit_test(jobs_that_wait_for_another_size_end_as_any_others),
        cmocka_unit_test(a_job_that_waits_for_a_map_may_end_before_it_is_drawn),
        cmocka_unit_test(texts_of_one_length_share_a_batch),
        cmocka_unit_test(of_a_batch_only_what_overflows_is_an_error),
        cmocka_unit_test(a_job_of_several_inputs_goes_through_many_batches),
        cmocka_unit_test(a_job_of_several_inputs_is_stopped_as_a_whole),
        cmocka_unit_test(a_job_counts_as_the_pictures_that_it_is_worth),
        cmocka_unit_test(as_many_inputs_pass_a_block_as_fit_into_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
