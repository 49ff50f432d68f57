/* test_arithmetic_coder.c - what is encoded is decoded, takes about as many bits as its probabilities say, and nothing
 * that is fed to the decoder stops it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/logits.h"
#include "server/operation/arithmetic_coder.h"
#include "tests/support/random.h"

enum { BYTES = 3000 };

/* Logits of some kind for each byte of a text: flat, peaked, extreme, all alike. */
static void make_logits(float *logits, struct random *rng)
{
    static const float sizes[] = {0.0f, 1.0f, 8.0f, 60.0f, 1e4f, 3e38f};
    const float size = sizes[random_below(rng, sizeof sizes / sizeof sizes[0])];
    for (size_t b = 0; b < BYTE_VALUES; b++)
        logits[b] = random_float(rng, size);
}

static uint8_t likely_byte(const float *logits, struct random *rng)
{
    struct byte_frequencies f;
    uint8_t b = 0;
    byte_frequencies_of(&f, logits);
    const uint32_t at = random_below(rng, f.before[BYTE_VALUES]);
    while (f.before[b + 1] <= at)
        b++;
    return b;
}

static void what_is_encoded_is_decoded(void **state)
{
    (void)state;
    static float logits[BYTES][BYTE_VALUES];
    uint8_t bytes[BYTES], out[4 * BYTES];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct random rng = {seed};
        struct arithmetic_encoder e;
        struct arithmetic_decoder d;
        struct byte_frequencies f;
        double bits = 0.0;
        const size_t count = random_below(&rng, BYTES + 1);
        arithmetic_encoder_init(&e, out, sizeof out);
        for (size_t i = 0; i < count; i++) {
            make_logits(logits[i], &rng);
            const bool likely = seed % 2 == 0 || random_below(&rng, 16) > 0;
            bytes[i] = likely ? likely_byte(logits[i], &rng) : (uint8_t)random_below(&rng, BYTE_VALUES);
            byte_frequencies_of(&f, logits[i]);
            bits += log2((double)f.before[BYTE_VALUES] / (double)(f.before[bytes[i] + 1] - f.before[bytes[i]]));
            arithmetic_encode(&e, &f, bytes[i]);
        }
        arithmetic_encoder_end(&e);
        assert_false(e.is_full);
        assert_true((double)e.size * 8.0 <= bits * 1.0001 + 16.0);
        arithmetic_decoder_init(&d, out, e.size);
        for (size_t i = 0; i < count; i++) {
            byte_frequencies_of(&f, logits[i]);
            assert_int_equal(arithmetic_decode(&d, &f), bytes[i]);
        }
    }
}

/* A frequency is the probability in units of 2^-24, at least one. */
static void frequencies_are_the_models_probabilities(void **state)
{
    (void)state;
    struct random rng = {3};
    for (int i = 0; i < 200; i++) {
        float logits[BYTE_VALUES];
        struct byte_frequencies f;
        make_logits(logits, &rng);
        byte_frequencies_of(&f, logits);
        assert_int_equal(f.before[0], 0);
        assert_true(f.before[BYTE_VALUES] <= FREQUENCY_TOTAL_MAX);
        for (uint32_t b = 0; b < BYTE_VALUES; b++) {
            const double share = ((double)f.before[b + 1] - f.before[b]) / f.before[BYTE_VALUES];
            assert_true(f.before[b + 1] > f.before[b]);
            assert_true(fabs(share - exp2(logits_log2(logits, BYTE_VALUES, b))) < 4e-5);
        }
    }
}

/* 256 frequencies of one each: a byte's eight bits are its own. */
static void even_frequencies_leave_bytes_as_they_are(void **state)
{
    (void)state;
    static const uint8_t bytes[] = "every byte takes eight bits\xFF\x80\x01";
    struct byte_frequencies f;
    struct arithmetic_encoder e;
    uint8_t out[sizeof bytes + 1];
    byte_frequencies_even(&f);
    arithmetic_encoder_init(&e, out, sizeof out);
    for (size_t i = 0; i < sizeof bytes; i++)
        arithmetic_encode(&e, &f, bytes[i]);
    arithmetic_encoder_end(&e);
    assert_in_range(e.size, sizeof bytes - 1, sizeof out);
    assert_memory_equal(out, bytes, sizeof bytes - 1);
}

static void nothing_takes_nothing(void **state)
{
    (void)state;
    struct arithmetic_encoder e;
    uint8_t out[1];
    arithmetic_encoder_init(&e, out, sizeof out);
    arithmetic_encoder_end(&e);
    assert_true(e.size <= 1 && !e.is_full);
}

static void what_does_not_fit_is_said(void **state)
{
    (void)state;
    struct byte_frequencies f;
    struct arithmetic_encoder e;
    uint8_t out[8 + 1] = {[8] = 0xA5};
    byte_frequencies_even(&f);
    arithmetic_encoder_init(&e, out, 8);
    for (size_t i = 0; i < 100; i++)
        arithmetic_encode(&e, &f, 0x77);
    arithmetic_encoder_end(&e);
    assert_true(e.is_full);
    assert_int_equal(out[8], 0xA5);
}

static void any_input_is_decoded_to_something(void **state)
{
    (void)state;
    struct random rng = {5};
    for (int i = 0; i < 200; i++) {
        uint8_t in[64];
        struct arithmetic_decoder d;
        const size_t size = random_below(&rng, sizeof in + 1);
        for (size_t b = 0; b < size; b++)
            in[b] = (uint8_t)(i % 3 == 0 ? 0xFF : random_below(&rng, 256));
        arithmetic_decoder_init(&d, in, size);
        for (size_t b = 0; b < 400; b++) {
            float logits[BYTE_VALUES];
            struct byte_frequencies f;
            make_logits(logits, &rng);
            byte_frequencies_of(&f, logits);
            (void)arithmetic_decode(&d, &f);
            assert_true(d.low <= d.code && d.code <= d.high);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_encoded_is_decoded),
        cmocka_unit_test(frequencies_are_the_models_probabilities),
        cmocka_unit_test(even_frequencies_leave_bytes_as_they_are),
        cmocka_unit_test(nothing_takes_nothing),
        cmocka_unit_test(what_does_not_fit_is_said),
        cmocka_unit_test(any_input_is_decoded_to_something),
    };
    return cmocka_run_group_tests_name("arithmetic_coder", tests, NULL, NULL);
}
