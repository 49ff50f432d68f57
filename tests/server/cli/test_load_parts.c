/* test_load_parts.c - the parts of aft load that need no daemon: histograms against exact quantiles, arrivals,
 * answers cut into pieces anywhere, what requests carry, what outcomes are counted as. */
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
#include "server/cli/load_answer.h"
#include "tests/support/random.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum { VALUES = 20000 };

/* ---- histograms -------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Within 0.4 % of the value at the nearest rank, and never above the largest. */
static void expect_quantiles(const struct load_histogram *h, uint64_t *values, size_t n)
{
    static const struct {
        double q;
        size_t per_thousand;
    } quantiles[] = {{0.001, 1}, {0.5, 500}, {0.9, 900}, {0.99, 990}, {0.999, 999}, {1.0, 1000}};
    qsort(values, n, sizeof *values, by_value);
    for (size_t i = 0; i < LENGTH(quantiles); i++) {
        const size_t rank = (n * quantiles[i].per_thousand + 999) / 1000;
        const double exact = (double)values[rank - 1], got = load_histogram_quantile_ns(h, quantiles[i].q);
        if (fabs(got - exact) > 0.004 * exact || got > (double)values[n - 1])
            fail_msg("quantile %g of %zu values is %.17g, expected %.17g", quantiles[i].q, n, got, exact);
    }
}

static void quantiles_are_the_exact_ones_to_less_than_half_a_percent(void **state)
{
    (void)state;
    static uint64_t values[VALUES];
    struct random random = {.state = 3};
    for (unsigned bits = 1; bits <= 62; bits += 3) { /* from a nanosecond to a century, each length as often */
        struct load_histogram *h = calloc(1, sizeof *h);
        assert_non_null(h);
        double sum = 0;
        for (size_t i = 0; i < VALUES; i++) {
            values[i] = random_next(&random) >> 2 >> (random_below(&random, bits) + 62 - bits);
            load_histogram_add(h, values[i], 1);
            sum += (double)values[i];
        }
        assert_int_equal(h->count, VALUES);
        assert_true(fabs(load_histogram_mean_ns(h) - sum / VALUES) <= 1e-9 * sum);
        expect_quantiles(h, values, VALUES);
        assert_true((double)h->max_ns == (double)values[VALUES - 1]);
        free(h);
    }
}

static void quantiles_of_few_values_are_some_of_them(void **state)
{
    (void)state;
    uint64_t values[12];
    struct load_histogram *h = calloc(1, sizeof *h);
    assert_non_null(h);
    assert_true(load_histogram_quantile_ns(h, 0.5) == 0.0 && load_histogram_mean_ns(h) == 0.0);
    for (size_t n = 1; n <= LENGTH(values); n++) {
        values[n - 1] = 10 * n;
        load_histogram_add(h, 10 * n, 1);
        expect_quantiles(h, values, n);
    }
    load_histogram_add(h, 5, 88); /* 88 of 100 */
    assert_true(load_histogram_quantile_ns(h, 0.88) == 5.0);
    assert_true(load_histogram_quantile_ns(h, 0.89) == 10.0);
    load_histogram_add(h, 7, 0); /* none at all */
    assert_int_equal(h->count, 100);
    free(h);
}

static void a_histogram_takes_any_time(void **state)
{
    (void)state;
    struct load_histogram *h = calloc(1, sizeof *h);
    assert_non_null(h);
    load_histogram_add_s(h, -1.0, 1);
    assert_true(load_histogram_quantile_ns(h, 1.0) == 0.0);
    load_histogram_add_s(h, 0.25, 1);
    assert_int_equal(h->max_ns, 250000000);
    load_histogram_add(h, UINT64_MAX, 1);
    load_histogram_add_s(h, 1e300, 1);
    load_histogram_add_s(h, INFINITY, 1);
    assert_true(h->max_ns == UINT64_MAX);
    assert_true(fabs(load_histogram_quantile_ns(h, 1.0) - 0x1p64) < 0.004 * 0x1p64);
    free(h);
}

/* ---- arrivals ---------------------------------------------------------------------------------------------------- */

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

/* ---- answers ----------------------------------------------------------------------------------------------------- */

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
    load_answer_begin(&a, LOAD_FORM_EVENTS, NULL, NULL);
    assert_int_equal(load_answer_take(&a, event, sizeof event - 1, 1.0) + load_answer_end(&a), 1);
    assert_null(a.fault);
    load_answer_begin(&a, LOAD_FORM_TEXT, NULL, NULL);
    assert_int_equal(load_answer_take(&a, whole, sizeof whole - 1, 1.0) + load_answer_end(&a), 1);
    assert_null(a.fault);
    load_answer_clear(&a);
}

static void a_stream_is_the_same_however_it_is_cut(void **state)
{
    (void)state;
    const size_t size = sizeof stream - 1;
    struct load_answer a = {0};
    for (size_t cut = 0; cut <= size; cut++)
        for (size_t step = 1; step <= 64; step += 21) {
            struct load_histogram *h = calloc(2, sizeof *h);
            assert_non_null(h);
            uint64_t bytes = 0;
            load_answer_begin(&a, LOAD_FORM_EVENTS, &h[0], &h[1]);
            for (size_t at = 0, next = cut; at < size; at = next, next = next + step < size ? next + step : size)
                bytes += load_answer_take(&a, stream + at, next - at, 5.0);
            bytes += load_answer_end(&a);
            assert_int_equal(bytes, 4);
            assert_int_equal(a.bytes, 4);
            assert_null(a.fault);
            assert_int_equal(h[0].count, 1); /* one gap, */
            assert_int_equal(h[1].count, 3); /* of three bytes */
            free(h);
        }
    load_answer_clear(&a);
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
    struct load_histogram *h = calloc(2, sizeof *h);
    assert_non_null(h);
    load_answer_begin(&a, LOAD_FORM_EVENTS, &h[0], &h[1]);
    for (size_t i = 0; i < LENGTH(events); i++)
        (void)load_answer_take(&a, events[i], strlen(events[i]), at_s[i]);
    assert_int_equal(load_answer_end(&a), 0);
    assert_true(a.first_s == 2.0); /* a ping is no byte */
    assert_true(a.longest_gap_s == 2.0);
    assert_int_equal(h[0].count, 2);
    assert_true(load_histogram_mean_ns(&h[0]) == 1.25e9); /* 0.5 and 2 s */
    assert_int_equal(h[1].count, 5);
    assert_true(load_histogram_mean_ns(&h[1]) == 0.5e9); /* 0.5 s once, 2 / 4 s four times */
    assert_int_equal(h[1].max_ns, 500000000);
    free(h);
    load_answer_clear(&a);
}

static void answers_that_are_not_what_was_asked_for_are_faults(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum load_form form;
        const char *bytes, *fault, *detail;
    } cases[] = {
        {"a stream that is cut", LOAD_FORM_EVENTS, "data: {\"tokens\":1}\n\n", "stream", "without its last event"},
        {"an empty stream", LOAD_FORM_EVENTS, "", "stream", "without its last event"},
        {"an event that is no JSON", LOAD_FORM_EVENTS, "data: {\n\n", "stream", "not a JSON object"},
        {"an event that is no object", LOAD_FORM_EVENTS, "data: [1]\n\n", "stream", "not a JSON object"},
        {"an error in a stream", LOAD_FORM_EVENTS, "data: {\"error\":{\"message\":\"the engine broke\"}}\n\n",
         "error in the stream", "the engine broke"},
        {"an error without words", LOAD_FORM_EVENTS, "data: {\"error\":1}\n\n", "error in the stream", "without"},
        {"the deadline passed", LOAD_FORM_EVENTS, "data: {\"finish_reason\":\"timeout\"}\n\n", "finish_reason timeout",
         "deadline"},
        {"the daemon drained", LOAD_FORM_TEXT, "{\"finish_reason\":\"cancelled\"}", "finish_reason cancelled",
         "daemon"},
        {"a text that is no JSON", LOAD_FORM_TEXT, "<html>", "answer", "not a JSON object"},
        {"a text that is empty", LOAD_FORM_TEXT, "", "answer", "not a JSON object"},
    };
    struct load_answer a = {0};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        load_answer_begin(&a, cases[i].form, NULL, NULL);
        (void)load_answer_take(&a, cases[i].bytes, strlen(cases[i].bytes), 1.0);
        (void)load_answer_end(&a);
        if (a.fault == NULL || strcmp(a.fault, cases[i].fault) != 0 || strstr(a.detail, cases[i].detail) == NULL)
            fail_msg("%s: \"%s\", \"%s\"", cases[i].name, a.fault != NULL ? a.fault : "no fault", a.detail);
    }
    load_answer_clear(&a);
}

static void an_endless_line_is_not_kept(void **state)
{
    (void)state;
    static char piece[1 << 20];
    struct load_answer a = {0};
    memset(piece, 'x', sizeof piece);
    load_answer_begin(&a, LOAD_FORM_EVENTS, NULL, NULL);
    for (int i = 0; i < 64; i++)
        (void)load_answer_take(&a, piece, sizeof piece, 1.0);
    (void)load_answer_end(&a);
    assert_string_equal(a.fault, "answer");
    assert_true(a.room <= (size_t)2 * LOAD_ANSWER_MAX);
    load_answer_begin(&a, LOAD_FORM_ERROR, NULL, NULL); /* of an error its beginning is enough */
    for (int i = 0; i < 64; i++)
        (void)load_answer_take(&a, piece, 1024, 1.0);
    (void)load_answer_end(&a);
    assert_true(a.used < 8192);
    assert_string_equal(a.detail, "");
    load_answer_clear(&a);
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

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

static void expect_body(const struct load_body *body, const char *text)
{
    assert_int_equal(body->size, strlen(text));
    assert_memory_equal(body->bytes, text, body->size);
}

static void prompts_follow_each_other_through_the_text(void **state)
{
    (void)state;
    static const char *const pieces[] = {"abc", "dea", "bcd", "eab", "cde", "abc"};
    const struct load_options o = {
        .kinds = {[LOAD_GENERATE] = true}, .prompt = "abcde", .prompt_bytes = 3, .max_tokens = 5, .seed = 40};
    struct load_bodies bodies[LOAD_KINDS] = {{0}};
    assert_int_equal(load_bodies_make(bodies, &o), CLI_OK);
    assert_int_equal(bodies[LOAD_GENERATE].count, LOAD_PROMPTS_MAX);
    for (size_t i = 0; i < LENGTH(pieces); i++)
        expect_prompt(&bodies[LOAD_GENERATE].at[i], pieces[i], 40 + (json_int_t)i);
    load_bodies_clear(&bodies[LOAD_GENERATE]);
}

static void a_session_begins_with_a_prompt_and_goes_on_without_one(void **state)
{
    (void)state;
    const struct load_options o = {
        .kinds = {[LOAD_GENERATE] = true}, .sessions = true, .prompt = "abc", .max_tokens = 5, .seed = 40};
    struct load_bodies bodies[LOAD_KINDS] = {{0}}, sessions = {.count = 0};
    assert_int_equal(load_bodies_make(bodies, &o), CLI_OK);
    assert_int_equal(load_bodies_make_sessions(&sessions, &o), CLI_OK);
    assert_int_equal(bodies[LOAD_GENERATE].count, 1);
    assert_int_equal(sessions.count, LOAD_PROMPTS_MAX);
    expect_body(&bodies[LOAD_GENERATE].at[0], "{\"max_tokens\":5,\"stream\":true}");
    expect_body(&sessions.at[1], "{\"prompt_base64\":\"YWJj\",\"temperature\":0.0,\"seed\":41}");
    load_bodies_clear(&bodies[LOAD_GENERATE]);
    load_bodies_clear(&sessions);
}

static void a_prompt_without_a_length_is_all_of_the_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "a", "The history of \xff"};
    for (size_t i = 0; i < LENGTH(texts); i++) {
        const struct load_options o = {.kinds = {[LOAD_GENERATE] = true}, .prompt = texts[i], .seed = SEED_MAX};
        struct load_bodies bodies[LOAD_KINDS] = {{0}};
        assert_int_equal(load_bodies_make(bodies, &o), CLI_OK);
        expect_prompt(&bodies[LOAD_GENERATE].at[0], texts[i], (json_int_t)SEED_MAX);
        expect_prompt(&bodies[LOAD_GENERATE].at[1], texts[i], 0); /* seeds stay in range */
        load_bodies_clear(&bodies[LOAD_GENERATE]);
    }
}

/* ---- what is counted --------------------------------------------------------------------------------------------- */

static void goals_are_met_together(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double first_s, end_s, gap_s;
        bool good;
    } cases[] = {
        {"at each limit", 11, 15, 1, true},
        {"first byte late", 11.5, 15, 1, false},
        {"end late", 11, 15.5, 1, false},
        {"a gap too long", 11, 15, 1.5, false},
    };
    const struct load_options o = {.slo_ttfb_s = 1, .slo_e2e_s = 5, .slo_gap_s = 1};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct load_tally *t = calloc(1, sizeof *t);
        const struct load_outcome outcome = {.due_s = 10,
                                             .first_s = cases[i].first_s,
                                             .end_s = cases[i].end_s,
                                             .longest_gap_s = cases[i].gap_s,
                                             .measured = true,
                                             .in_window = true};
        assert_non_null(t);
        load_tally_add(t, &o, &outcome);
        if (t->answered != 1 || (t->good == 1) != cases[i].good || t->window_good != t->good)
            fail_msg("%s: %d good", cases[i].name, (int)t->good);
        free(t);
    }
}

static void failures_are_counted_by_what_they_are_in_bounded_memory(void **state)
{
    (void)state;
    struct load_tally *t = calloc(1, sizeof *t);
    const struct load_options o = {.slo_ttfb_s = INFINITY, .slo_e2e_s = INFINITY, .slo_gap_s = INFINITY};
    uint64_t sum = 0;
    assert_non_null(t);
    for (int i = 0; i < 3 * 2 * LOAD_FAILURES_MAX; i++) {
        char what[32], detail[32];
        (void)snprintf(what, sizeof what, "HTTP %d", 400 + i % (2 * LOAD_FAILURES_MAX));
        (void)snprintf(detail, sizeof detail, "number %d", i);
        load_tally_add(t, &o, &(struct load_outcome){.measured = true, .fault = what, .detail = detail});
    }
    assert_int_equal(t->failure_count, LOAD_FAILURES_MAX);
    assert_string_equal(t->failures[0].what, "HTTP 400");
    assert_string_equal(t->failures[0].detail, "number 0");
    assert_int_equal(t->failures[0].count, 3);
    assert_string_equal(t->failures[LOAD_FAILURES_MAX - 1].what, "other");
    for (size_t i = 0; i < t->failure_count; i++)
        sum += t->failures[i].count;
    assert_int_equal(sum, t->failed);
    assert_int_equal(t->failed, 3 * 2 * LOAD_FAILURES_MAX);
    assert_int_equal(t->answered, 0);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_the_exact_ones_to_less_than_half_a_percent),
        cmocka_unit_test(quantiles_of_few_values_are_some_of_them),
        cmocka_unit_test(a_histogram_takes_any_time),
        cmocka_unit_test(arrivals_are_a_poisson_process_that_the_seed_decides),
        cmocka_unit_test(texts_may_have_a_nul),
        cmocka_unit_test(a_stream_is_the_same_however_it_is_cut),
        cmocka_unit_test(gaps_are_between_events_and_shared_by_their_bytes),
        cmocka_unit_test(answers_that_are_not_what_was_asked_for_are_faults),
        cmocka_unit_test(an_endless_line_is_not_kept),
        cmocka_unit_test(prompts_follow_each_other_through_the_text),
        cmocka_unit_test(a_session_begins_with_a_prompt_and_goes_on_without_one),
        cmocka_unit_test(a_prompt_without_a_length_is_all_of_the_text),
        cmocka_unit_test(goals_are_met_together),
        cmocka_unit_test(failures_are_counted_by_what_they_are_in_bounded_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
