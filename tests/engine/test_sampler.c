/* test_sampler.c - the sampler's list of options, its ties, its generator. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sampler.h"

/* The vectors published with Random123 for Philox 4x32-10. */
static void philox_gives_its_published_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        sampler_philox(out, cases[i].counter, cases[i].key);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

/* Logits of log p for the first bytes, nearly impossible elsewhere. */
static void set_logits(float logits[BYTE_VALUES], const double *p, size_t n)
{
    for (size_t b = 0; b < BYTE_VALUES; b++)
        logits[b] = b < n ? (float)log(p[b]) : -1e9f;
}

static void count_draws(size_t counts[BYTE_VALUES], const struct sampler_options *o, const float *logits, size_t draws)
{
    struct sampler s;
    memset(counts, 0, BYTE_VALUES * sizeof *counts);
    sampler_init(&s, o);
    for (size_t i = 0; i < draws; i++)
        counts[sampler_draw(&s, logits)]++;
}

/* Expected frequencies after the options did their work; 40,000 draws, so 5 standard deviations are at most 0.0125. */
static const struct {
    const char *name;
    double p[4];
    float temperature;
    uint32_t top_k;
    float top_p, min_p;
    double want[4];
} cases[] = {
    {"as they are", {0.4, 0.3, 0.2, 0.1}, 1.0f, 0, 1.0f, 0.0f, {0.4, 0.3, 0.2, 0.1}},
    {"temperature 0.5 squares", {0.4, 0.3, 0.2, 0.1}, 0.5f, 0, 1.0f, 0.0f, {16. / 30, 9. / 30, 4. / 30, 1. / 30}},
    {"top_k 2", {0.1, 0.2, 0.3, 0.4}, 1.0f, 2, 1.0f, 0.0f, {0, 0, 3. / 7, 4. / 7}},
    {"top_k 1 with a tie takes the lower byte", {0.1, 0.4, 0.4, 0.1}, 1.0f, 1, 1.0f, 0.0f, {0, 1, 0, 0}},
    {"top_p 0.7 is reached by two", {0.4, 0.3, 0.2, 0.1}, 1.0f, 0, 0.69f, 0.0f, {4. / 7, 3. / 7, 0, 0}},
    {"top_p takes one more where it is not reached",
     {0.4, 0.3, 0.2, 0.1},
     1.0f,
     0,
     0.71f,
     0.0f,
     {4. / 9, 3. / 9, 2. / 9, 0}},
    {"a tiny top_p keeps the likeliest", {0.4, 0.3, 0.2, 0.1}, 1.0f, 0, 1e-6f, 0.0f, {1, 0, 0, 0}},
    {"min_p 0.6 of the largest", {0.4, 0.3, 0.2, 0.1}, 1.0f, 0, 1.0f, 0.6f, {4. / 7, 3. / 7, 0, 0}},
    {"min_p 1 keeps those that tie", {0.4, 0.4, 0.1, 0.1}, 1.0f, 0, 1.0f, 1.0f, {0.5, 0.5, 0, 0}},
    {"top_p counts after top_k", {0.4, 0.3, 0.2, 0.1}, 1.0f, 2, 0.56f, 0.0f, {1, 0, 0, 0}},
    {"temperature comes before top_p", {0.4, 0.3, 0.2, 0.1}, 0.5f, 0, 0.52f, 0.0f, {1, 0, 0, 0}},
};

static void options_shape_the_distribution(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sampler_options o;
        float logits[BYTE_VALUES];
        size_t counts[BYTE_VALUES];
        sampler_options_default(&o);
        o.seed = 12345;
        o.temperature = cases[i].temperature;
        o.top_k = cases[i].top_k;
        o.top_p = cases[i].top_p;
        o.min_p = cases[i].min_p;
        set_logits(logits, cases[i].p, 4);
        count_draws(counts, &o, logits, 40000);
        for (size_t b = 0; b < 4; b++)
            if (!(fabs((double)counts[b] / 40000.0 - cases[i].want[b]) <= 0.0125) ||
                (cases[i].want[b] == 0.0 && counts[b] != 0))
                fail_msg("%s: byte %zu came %zu times of 40000, expected a share of %g", cases[i].name, b, counts[b],
                         cases[i].want[b]);
    }
}

static void greedy_takes_the_lowest_of_the_largest(void **state)
{
    (void)state;
    struct sampler_options o;
    struct sampler s;
    float logits[BYTE_VALUES] = {0};
    sampler_options_default(&o);
    o.temperature = 0.0f;
    logits[200] = logits[77] = logits[255] = 3.0f;
    for (uint64_t seed = 0; seed < 50; seed++) {
        o.seed = seed;
        sampler_init(&s, &o);
        assert_int_equal(sampler_draw(&s, logits), 77);
    }
}

static void penalty_divides_positive_and_multiplies_negative_logits(void **state)
{
    (void)state;
    struct sampler_options o;
    struct sampler s;
    float logits[BYTE_VALUES];
    sampler_options_default(&o);
    o.temperature = 0.0f;
    o.repetition_penalty = 2.0f;

    for (size_t b = 0; b < BYTE_VALUES; b++)
        logits[b] = -100.0f;
    logits[1] = 3.0f;
    logits[2] = 2.0f;
    sampler_init(&s, &o);
    assert_int_equal(sampler_draw(&s, logits), 1);
    sampler_accept(&s, 1); /* as it was drawn; twice seen is punished once: 3 / 2 < 2, and 2 / 2 < 3 / 2 below */
    assert_int_equal(sampler_draw(&s, logits), 2);
    assert_int_equal(sampler_draw(&s, logits), 1);

    logits[1] = -3.0f;
    logits[2] = -5.0f;
    logits[3] = -5.5f;
    sampler_init(&s, &o);
    sampler_accept(&s, 1); /* -6 */
    assert_int_equal(sampler_draw(&s, logits), 2);
}

static void penalty_forgets_after_64_bytes(void **state)
{
    (void)state;
    struct sampler_options o;
    struct sampler s;
    float logits[BYTE_VALUES] = {0};
    sampler_options_default(&o);
    o.temperature = 0.0f;
    o.repetition_penalty = 10.0f;
    logits[9] = 5.0f;
    logits[8] = 1.0f;
    sampler_init(&s, &o);
    sampler_accept(&s, 9);
    for (int i = 0; i < SAMPLER_HISTORY - 1; i++)
        sampler_accept(&s, 100);
    assert_int_equal(sampler_draw(&s, logits), 8);
    assert_int_equal(sampler_draw(&s, logits), 9);
}

/* OpenAI's two: the one once for a byte that is there, the other each time; from what repetition_penalty left. */
static void offsets_are_taken_off_after_the_penalty(void **state)
{
    (void)state;
    static const struct {
        float presence, frequency, repetition, other; /* other: the logit of the byte that was not seen */
        uint8_t want;                                 /* 1, at 5 and seen three times, or that one, 2 */
    } rows[] = {
        {2.0f, 0.0f, 1.0f, 2.9f, 1},  {2.0f, 0.0f, 1.0f, 3.1f, 2},   {0.0f, 1.0f, 1.0f, 1.9f, 1},
        {0.0f, 1.0f, 1.0f, 2.1f, 2},  {0.5f, 1.0f, 1.0f, 1.4f, 1},   {0.5f, 1.0f, 1.0f, 1.6f, 2},
        {-2.0f, 0.0f, 1.0f, 6.9f, 1}, {0.0f, -2.0f, 1.0f, 10.9f, 1}, {0.0f, -2.0f, 1.0f, 11.1f, 2},
        {1.0f, 0.0f, 2.0f, 1.4f, 1},  {1.0f, 0.0f, 2.0f, 1.6f, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_options o;
        struct sampler s;
        float logits[BYTE_VALUES];
        for (size_t b = 0; b < BYTE_VALUES; b++)
            logits[b] = -100.0f;
        logits[1] = 5.0f;
        logits[2] = rows[i].other;
        sampler_options_default(&o);
        o.temperature = 0.0f;
        o.presence_penalty = rows[i].presence;
        o.frequency_penalty = rows[i].frequency;
        o.repetition_penalty = rows[i].repetition;
        sampler_init(&s, &o);
        for (int n = 0; n < 3; n++)
            sampler_accept(&s, 1);
        if (sampler_draw(&s, logits) != rows[i].want)
            fail_msg("row %zu: expected byte %d", i, rows[i].want);
    }
}

static void a_bias_moves_its_byte_alone(void **state)
{
    (void)state;
    static const double p[4] = {0.4, 0.3, 0.2, 0.1}, want[4] = {0.4 / 1.9, 0.3 / 1.9, 0.2 / 1.9, 1.0 / 1.9};
    struct sampler_options o;
    float logits[BYTE_VALUES];
    size_t counts[BYTE_VALUES];
    sampler_options_default(&o);
    o.is_biased = true;
    o.bias[3] = (float)log(10.0);
    set_logits(logits, p, 4);
    count_draws(counts, &o, logits, 40000);
    for (size_t b = 0; b < 4; b++)
        assert_true(fabs((double)counts[b] / 40000.0 - want[b]) <= 0.0125);
    o.bias[0] = o.bias[1] = o.bias[3] = -100.0f;
    count_draws(counts, &o, logits, 1000);
    assert_int_equal(counts[2], 1000);
}

static void allow_only(struct sampler_options *o, const uint8_t *bytes, size_t n)
{
    memset(o->allowed, 0, sizeof o->allowed);
    for (size_t i = 0; i < n; i++)
        o->allowed[bytes[i] / 8] |= (uint8_t)(1u << bytes[i] % 8);
}

/* Whatever else is asked for: greedy, hot, cut by top_k, the byte that is allowed far below all others. */
static void what_is_not_allowed_is_never_drawn(void **state)
{
    (void)state;
    static const uint8_t few[] = {0, 77, 200, 255};
    static const float temperatures[] = {0.0f, 1e-3f, 1.0f, 100.0f};
    for (size_t t = 0; t < sizeof temperatures / sizeof temperatures[0]; t++)
        for (uint32_t top_k = 0; top_k <= 8; top_k += 4)
            for (size_t n = 1; n <= sizeof few; n++) {
                struct sampler_options o;
                float logits[BYTE_VALUES];
                size_t counts[BYTE_VALUES], drawn = 0;
                for (size_t b = 0; b < BYTE_VALUES; b++)
                    logits[b] = b == 200 ? -3e4f : (float)(b % 7);
                sampler_options_default(&o);
                o.temperature = temperatures[t];
                o.top_k = top_k;
                allow_only(&o, few + sizeof few - n, n);
                assert_true(sampler_can_draw(&o));
                count_draws(counts, &o, logits, 200);
                for (size_t i = 0; i < n; i++)
                    drawn += counts[few[sizeof few - 1 - i]];
                assert_int_equal(drawn, 200);
            }
}

/* Bytes of the text that may be missing at its end, or 4 if it is not UTF-8 as Unicode's table 3-7 has it. */
static size_t missing(const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        const uint8_t a = text[i];
        const size_t length = a < 0x80 ? 1 : a >= 0xc2 && a <= 0xdf ? 2 : a >= 0xe0 && a <= 0xef ? 3 : 4;
        if ((length == 4 && (a < 0xf0 || a > 0xf4)))
            return 4;
        for (size_t k = 1; k < length; k++) {
            if (i + k == n)
                return length - k;
            const uint8_t b = text[i + k];
            const uint8_t low = k == 1 && a == 0xe0 ? 0xa0 : k == 1 && a == 0xf0 ? 0x90 : 0x80;
            const uint8_t high = k == 1 && a == 0xed ? 0x9f : k == 1 && a == 0xf4 ? 0x8f : 0xbf;
            if (b < low || b > high)
                return 4;
        }
        i += length;
    }
    return 0;
}

/* From noise, so that every first byte and every edge of every second one comes. */
static void utf8_is_never_broken(void **state)
{
    (void)state;
    enum { BYTES = 200000 };
    float logits[BYTE_VALUES] = {0};
    bool seen[BYTE_VALUES] = {false};
    struct sampler_options o;
    struct sampler s;
    uint8_t *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t b = 0xc2; b < BYTE_VALUES; b++)
        logits[b] = 3.0f;
    sampler_options_default(&o);
    o.utf8 = true;
    sampler_init(&s, &o);
    for (size_t i = 0; i < BYTES; i++) {
        text[i] = sampler_draw(&s, logits);
        seen[text[i]] = true;
    }
    assert_in_range(missing(text, BYTES), 0, 3);
    for (size_t b = 0; b < BYTE_VALUES; b++)
        assert_int_equal(seen[b], b < 0xc0 || (b >= 0xc2 && b <= 0xf4));
    free(text);
}

/* A character is begun only if what is allowed can go on with it; after what nothing goes on with, a new one begins. */
static void utf8_and_what_is_allowed_hold_together(void **state)
{
    (void)state;
    static const uint8_t e_acute[] = {0xc3, 0xa9, 0xe0, 0xed}, lead[] = {0xc3}, surrogate[] = {0xed, 0xa0},
                         only_e0[] = {0xe0, 0x80}, letter[] = {'a'};
    float logits[BYTE_VALUES] = {0};
    struct sampler_options o;
    struct sampler s;
    sampler_options_default(&o);
    o.utf8 = true;
    allow_only(&o, lead, sizeof lead);
    assert_false(sampler_can_draw(&o));
    allow_only(&o, surrogate, sizeof surrogate);
    assert_false(sampler_can_draw(&o));
    allow_only(&o, only_e0, sizeof only_e0);
    assert_false(sampler_can_draw(&o));
    allow_only(&o, e_acute, sizeof e_acute); /* E0 A9 A9 as well, but ED A9 is a surrogate */
    assert_true(sampler_can_draw(&o));
    uint8_t text[3000];
    sampler_init(&s, &o);
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = sampler_draw(&s, logits);
        assert_true(text[i] == 0xc3 || text[i] == 0xa9 || text[i] == 0xe0);
    }
    assert_in_range(missing(text, sizeof text), 0, 2);

    allow_only(&o, letter, sizeof letter);
    sampler_init(&s, &o);
    sampler_accept(&s, 0xc3); /* the prompt's */
    assert_int_equal(sampler_draw(&s, logits), 'a');
    sampler_init(&s, &o);
    for (size_t i = 0; i < 5; i++)
        sampler_accept(&s, 0xa9); /* no character has so many */
    assert_int_equal(sampler_draw(&s, logits), 'a');
}

static void a_stream_depends_on_seed_and_sample_alone(void **state)
{
    (void)state;
    float logits[BYTE_VALUES] = {0}; /* all alike: every draw shows the generator */
    uint8_t texts[4][100];
    static const struct {
        uint64_t seed;
        uint32_t sample;
    } who[4] = {{1, 0}, {1, 0}, {1, 1}, {SEED_MAX, 0}};
    for (size_t i = 0; i < 4; i++) {
        struct sampler_options o;
        struct sampler s;
        sampler_options_default(&o);
        o.seed = who[i].seed;
        o.sample = who[i].sample;
        sampler_init(&s, &o);
        for (size_t n = 0; n < sizeof texts[i]; n++)
            texts[i][n] = sampler_draw(&s, logits);
    }
    assert_memory_equal(texts[0], texts[1], sizeof texts[0]);
    assert_memory_not_equal(texts[0], texts[2], sizeof texts[0]);
    assert_memory_not_equal(texts[0], texts[3], sizeof texts[0]);
}

static void extreme_logits_and_temperatures_are_survived(void **state)
{
    (void)state;
    static const float temperatures[] = {1e-30f, 1e-3f, 1.0f, 100.0f, 3e38f};
    static const float sizes[] = {0.0f, 1e-38f, 1.0f, 1e4f, 3e38f};
    for (size_t t = 0; t < sizeof temperatures / sizeof temperatures[0]; t++)
        for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
            struct sampler_options o;
            struct sampler s;
            float logits[BYTE_VALUES];
            sampler_options_default(&o);
            o.temperature = temperatures[t];
            o.top_p = 0.9f;
            o.min_p = 0.01f;
            o.repetition_penalty = 100.0f;
            o.presence_penalty = o.frequency_penalty = 2.0f;
            o.utf8 = true;
            for (size_t b = 0; b < BYTE_VALUES; b++)
                logits[b] = b % 2 == 0 ? sizes[z] : -sizes[z];
            sampler_init(&s, &o);
            for (int i = 0; i < 100; i++)
                (void)sampler_draw(&s, logits); /* any byte; asan and the asserts watch */
            if (sizes[z] >= 1e4f && temperatures[t] <= 1.0f)
                assert_int_equal(sampler_draw(&s, logits) % 2, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_published_vectors),
        cmocka_unit_test(options_shape_the_distribution),
        cmocka_unit_test(greedy_takes_the_lowest_of_the_largest),
        cmocka_unit_test(penalty_divides_positive_and_multiplies_negative_logits),
        cmocka_unit_test(penalty_forgets_after_64_bytes),
        cmocka_unit_test(offsets_are_taken_off_after_the_penalty),
        cmocka_unit_test(a_bias_moves_its_byte_alone),
        cmocka_unit_test(what_is_not_allowed_is_never_drawn),
        cmocka_unit_test(utf8_is_never_broken),
        cmocka_unit_test(utf8_and_what_is_allowed_hold_together),
        cmocka_unit_test(a_stream_depends_on_seed_and_sample_alone),
        cmocka_unit_test(extreme_logits_and_temperatures_are_survived),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
