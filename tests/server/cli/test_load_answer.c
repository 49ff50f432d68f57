/* test_load_answer.c - the parts of aft load that need no daemon: times against exact quantiles, arrivals, answers cut
 * into pieces anywhere, what requests carry. */
#include <jansson.h>
#include <math.h>
#include <nettle/base64.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/cli/load.h"
#include "tests/support/random.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum { VALUES = 20000 };

/* Whose gaps are measured; large. */
static struct load_result result;

/* ---- times ------------------------------------------------------------------------------------------------------ */

static struct load_times *new_times(void)
{
    struct load_times *t = calloc(1, sizeof *t);
    assert_non_null(t);
    return t;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Within 0.3 % of the value at the nearest rank, and never above the largest. */
static void expect_quantiles(const struct load_times *t, double *values, size_t n)
{
    static const struct {
        double q;
        size_t per_thousand;
    } quantiles[] = {{0.001, 1}, {0.5, 500}, {0.9, 900}, {0.99, 990}, {0.999, 999}, {1.0, 1000}};
    qsort(values, n, sizeof *values, by_value);
    for (size_t i = 0; i < LENGTH(quantiles); i++) {
        const size_t rank = (n * quantiles[i].per_thousand + 999) / 1000;
        const double exact = values[rank - 1], got = load_times_quantile_s(t, quantiles[i].q);
        if (fabs(got - exact) > 0.003 * exact || got > values[n - 1])
            fail_msg("quantile %g of %zu values is %.17g, expected %.17g", quantiles[i].q, n, got, exact);
    }
}

static void quantiles_are_the_exact_ones_to_a_third_of_a_percent(void **state)
{
    (void)state;
    static double values[VALUES];
    struct random random = {.state = 3};
    for (unsigned bits = 4; bits <= 56; bits += 4) { /* from nanoseconds to years, each length as often */
        struct load_times *t = new_times();
        double sum = 0;
        for (size_t i = 0; i < VALUES; i++) {
            values[i] = 1e-9 * (double)(1 + (random_next(&random) >> 8 >> (random_below(&random, bits) + 56 - bits)));
            load_times_add(t, values[i], 1);
            sum += values[i];
        }
        assert_int_equal(t->count, VALUES);
        assert_true(fabs(t->sum_s - sum) <= 1e-9 * sum);
        expect_quantiles(t, values, VALUES);
        assert_true(t->max_s == values[VALUES - 1]);
        free(t);
    }
}

static void quantiles_of_few_values_are_some_of_them(void **state)
{
    (void)state;
    double values[12];
    struct load_times *t = new_times();
    assert_true(load_times_quantile_s(t, 0.5) == 0.0);
    for (size_t n = 1; n <= LENGTH(values); n++) {
        values[n - 1] = 0.01 * (double)n;
        load_times_add(t, 0.01 * (double)n, 1);
        expect_quantiles(t, values, n);
    }
    load_times_add(t, 0.005, 88); /* 88 of 100 */
    assert_true(fabs(load_times_quantile_s(t, 0.88) - 0.005) < 2e-5);
    assert_true(fabs(load_times_quantile_s(t, 0.89) - 0.01) < 4e-5);
    assert_int_equal(t->count, 100);
    free(t);
}

static void any_time_is_taken(void **state)
{
    static const double times_s[] = {-1.0, 0.0, 1e-12, 1e300, INFINITY};
    (void)state;
    struct load_times *t = new_times();
    for (size_t i = 0; i < LENGTH(times_s); i++)
        load_times_add(t, times_s[i], 1);
    assert_int_equal(t->count, LENGTH(times_s));
    assert_true(load_times_quantile_s(t, 0.2) < 2e-9);
    assert_true(t->max_s == INFINITY && load_times_quantile_s(t, 1.0) > 1e9);
    free(t);
}

/* ---- arrivals --------------------------------------------------------------------------------------------------- */

static void arrivals_are_a_poisson_process_that_the_seed_decides(void **state)
{
    (void)state;
    double sum = 0, squares = 0;
    size_t long_ones = 0;
    for (uint64_t n = 0; n < VALUES; n++) {
        const double gap = load_arrival_gap_s(11, n, 50);
        assert_true(gap >= 0 && isfinite(gap));
        assert_true(gap == load_arrival_gap_s(11, n, 50));
        sum += gap;
        squares += gap * gap;
        long_ones += gap > 0.04 ? 1 : 0;
    }
    const double mean = sum / VALUES, deviation = sqrt(squares / VALUES - mean * mean);
    assert_true(fabs(mean - 0.02) < 0.0006);      /* 4 deviations of the mean of so many */
    assert_true(fabs(deviation - mean) < 0.0012); /* an exponential distribution's is its mean */
    assert_true(fabs((double)long_ones / VALUES - exp(-2)) < 0.01);
    assert_true(load_arrival_gap_s(11, 0, 50) != load_arrival_gap_s(12, 0, 50));
    assert_true(load_arrival_gap_s(11, 0, 50) != load_arrival_gap_s(11, 1, 50));
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static const char stream[] = ": ping\n\ndata: {\"text\":\"a\",\"index\":0,\"tokens\":1}\n\n"
                             "data: {\"text\":\"\\n\\\"tokens\\\":9\",\"index\":0,\"tokens\":3}\r\n\r\n"
                             "data: {\"finish_reason\":\"length\",\"usage\":{\"completion_tokens\":4}}\n\n";

static void texts_may_have_a_nul(void **state)
{
    static const char event[] = "data: {\"text\":\"\\u0000\",\"index\":0,\"tokens\":1}\n\n"
                                "data: {\"finish_reason\":\"length\"}\n\n",
                      whole[] = "{\"text\":\"\\u0000\",\"tokens\":1,\"finish_reason\":\"length\"}";
    (void)state;
    struct load_answer a = {0};
    load_answer_begin(&a, LOAD_EVENTS, NULL);
    load_answer_take(&a, event, sizeof event - 1, 1.0);
    load_answer_end(&a);
    assert_int_equal(a.bytes, 1);
    assert_null(a.fault);
    load_answer_begin(&a, LOAD_TEXT, NULL);
    load_answer_take(&a, whole, sizeof whole - 1, 1.0);
    load_answer_end(&a);
    assert_int_equal(a.bytes, 1);
    assert_null(a.fault);
    free(a.held.bytes);
}

static void a_stream_is_the_same_however_it_is_cut(void **state)
{
    (void)state;
    const size_t size = sizeof stream - 1;
    struct load_answer a = {0};
    for (size_t cut = 0; cut <= size; cut++)
        for (size_t step = 1; step <= 64; step += 21) {
            memset(&result, 0, sizeof result);
            load_answer_begin(&a, LOAD_EVENTS, &result);
            for (size_t at = 0, next = cut; at < size; at = next, next = next + step < size ? next + step : size)
                load_answer_take(&a, stream + at, next - at, 5.0);
            load_answer_end(&a);
            assert_int_equal(a.bytes, 4);
            assert_null(a.fault);
            assert_int_equal(result.times[LOAD_EVENT_GAP].count, 1); /* one gap, */
            assert_int_equal(result.times[LOAD_BYTE_GAP].count, 3);  /* of three bytes */
        }
    free(a.held.bytes);
}

static void gaps_are_between_events_and_shared_by_their_bytes(void **state)
{
    (void)state;
    static const char *const events[] = {
        ": ping\n\n", "data: {\"tokens\":2}\n\n", "data: {\"tokens\":1}\n\n",
        ": ping\n\n", "data: {\"tokens\":4}\n\n", "data: {\"finish_reason\":\"stop\"}\n\n",
    };
    static const double at_s[] = {1.0, 2.0, 2.5, 3.0, 4.5, 9.0};
    struct load_answer a = {0};
    const struct load_times *events_apart = &result.times[LOAD_EVENT_GAP], *bytes_apart = &result.times[LOAD_BYTE_GAP];
    memset(&result, 0, sizeof result);
    load_answer_begin(&a, LOAD_EVENTS, &result);
    for (size_t i = 0; i < LENGTH(events); i++)
        load_answer_take(&a, events[i], strlen(events[i]), at_s[i]);
    load_answer_end(&a);
    assert_int_equal(a.bytes, 7);
    assert_true(a.first_s == 2.0); /* a ping is no byte */
    assert_int_equal(events_apart->count, 2);
    assert_true(events_apart->sum_s == 2.5 && events_apart->max_s == 2.0);
    assert_int_equal(bytes_apart->count, 5);
    assert_true(bytes_apart->sum_s == 2.5 && bytes_apart->max_s == 0.5); /* 0.5 s once, 2 / 4 s four times */
    free(a.held.bytes);
}

static void answers_that_are_not_what_was_asked_for_are_faults(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum load_form form;
        const char *bytes, *fault, *detail;
    } cases[] = {
        {"a stream that is cut", LOAD_EVENTS, "data: {\"tokens\":1}\n\n", "stream", "without its last event"},
        {"an empty stream", LOAD_EVENTS, "", "stream", "without its last event"},
        {"an event that is no JSON", LOAD_EVENTS, "data: {\n\n", "stream", "not a JSON object"},
        {"an event that is no object", LOAD_EVENTS, "data: [1]\n\n", "stream", "not a JSON object"},
        {"an error in a stream", LOAD_EVENTS, "data: {\"error\":{\"message\":\"the engine broke\"}}\n\n",
         "error in the stream", "the engine broke"},
        {"an error without words", LOAD_EVENTS, "data: {\"error\":1}\n\n", "error in the stream", "without"},
        {"the deadline passed", LOAD_EVENTS, "data: {\"finish_reason\":\"timeout\"}\n\n", "finish_reason timeout",
         "deadline"},
        {"the daemon drained", LOAD_TEXT, "{\"finish_reason\":\"cancelled\"}", "finish_reason cancelled", "daemon"},
        {"a text that is no JSON", LOAD_TEXT, "<html>", "answer", "not a JSON object"},
        {"a text that is empty", LOAD_TEXT, "", "answer", "not a JSON object"},
    };
    struct load_answer a = {0};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        load_answer_begin(&a, cases[i].form, NULL);
        load_answer_take(&a, cases[i].bytes, strlen(cases[i].bytes), 1.0);
        load_answer_end(&a);
        if (a.fault == NULL || strcmp(a.fault, cases[i].fault) != 0 || strstr(a.detail, cases[i].detail) == NULL)
            fail_msg("%s: \"%s\", \"%s\"", cases[i].name, a.fault != NULL ? a.fault : "no fault", a.detail);
    }
    free(a.held.bytes);
}

static void an_endless_line_is_not_kept(void **state)
{
    (void)state;
    static char piece[1 << 20];
    struct load_answer a = {0};
    memset(piece, 'x', sizeof piece);
    load_answer_begin(&a, LOAD_EVENTS, NULL);
    for (int i = 0; i < 64; i++)
        load_answer_take(&a, piece, sizeof piece, 1.0);
    load_answer_end(&a);
    assert_string_equal(a.fault, "answer");
    assert_true(a.held.room <= (size_t)2 * LOAD_ANSWER_MAX + 256);
    load_answer_begin(&a, LOAD_ERROR, NULL); /* of an error its beginning is enough */
    for (int i = 0; i < 64; i++)
        load_answer_take(&a, piece, 1024, 1.0);
    load_answer_end(&a);
    assert_true(a.held.size < 8192);
    assert_string_equal(a.detail, "");
    free(a.held.bytes);
}

/* ---- what is sent ----------------------------------------------------------------------------------------------- */

static void expect_prompt(const struct load_body *body, const char *prompt, json_int_t seed)
{
    struct base64_decode_ctx base64;
    uint8_t bytes[64];
    size_t size = sizeof bytes;
    json_t *object = json_loadb((const char *)body->bytes, body->size, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    const char *text = json_string_value(json_object_get(object, "prompt_base64"));
    assert_non_null(text);
    assert_true(BASE64_DECODE_LENGTH(strlen(text)) <= sizeof bytes);
    base64_decode_init(&base64);
    assert_int_equal(base64_decode_update(&base64, &size, bytes, strlen(text), text), 1);
    assert_int_equal(base64_decode_final(&base64), 1);
    assert_int_equal(size, strlen(prompt));
    assert_memory_equal(bytes, prompt, size);
    assert_int_equal(json_integer_value(json_object_get(object, "seed")), seed);
    assert_true(json_is_true(json_object_get(object, "stream")));
    json_decref(object);
}

static void prompts_follow_each_other_through_the_text(void **state)
{
    (void)state;
    static const char *const pieces[] = {"abc", "dea", "bcd", "eab", "cde", "abc"};
    const struct load_options o = {.prompt = "abcde", .prompt_bytes = 3, .max_tokens = 5, .seed = 40};
    struct load_bodies bodies = {.count = 0};
    assert_int_equal(load_bodies_make(&bodies, &o), CLI_OK);
    assert_int_equal(bodies.count, LOAD_PROMPTS_MAX);
    for (size_t i = 0; i < LENGTH(pieces); i++)
        expect_prompt(&bodies.at[i], pieces[i], 40 + (json_int_t)i);
    load_bodies_clear(&bodies);
}

static void a_prompt_without_a_length_is_all_of_the_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "a", "The history of \xff"};
    for (size_t i = 0; i < LENGTH(texts); i++) {
        const struct load_options o = {.prompt = texts[i], .seed = SEED_MAX};
        struct load_bodies bodies = {.count = 0};
        assert_int_equal(load_bodies_make(&bodies, &o), CLI_OK);
        expect_prompt(&bodies.at[0], texts[i], (json_int_t)SEED_MAX);
        expect_prompt(&bodies.at[1], texts[i], 0); /* seeds stay in range */
        load_bodies_clear(&bodies);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_the_exact_ones_to_a_third_of_a_percent),
        cmocka_unit_test(quantiles_of_few_values_are_some_of_them),
        cmocka_unit_test(any_time_is_taken),
        cmocka_unit_test(arrivals_are_a_poisson_process_that_the_seed_decides),
        cmocka_unit_test(texts_may_have_a_nul),
        cmocka_unit_test(a_stream_is_the_same_however_it_is_cut),
        cmocka_unit_test(gaps_are_between_events_and_shared_by_their_bytes),
        cmocka_unit_test(answers_that_are_not_what_was_asked_for_are_faults),
        cmocka_unit_test(an_endless_line_is_not_kept),
        cmocka_unit_test(prompts_follow_each_other_through_the_text),
        cmocka_unit_test(a_prompt_without_a_length_is_all_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
