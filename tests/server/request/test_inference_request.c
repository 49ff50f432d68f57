/* test_inference_request.c - numbers of the Open Inference Protocol's tensors as pixels: the same from JSON, flat or
 * nested, from raw bytes and from raw floats, and a refusal of what is none wherever it stands. */
#include "server/request/inference_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const float numbers[] = {7.0f, 0.0f, 255.0f, 1.4f, 1.6f, 254.9f};
static const uint8_t pixels[] = {7, 0, 255, 1, 2, 255};
enum { COUNT = LENGTH(pixels) };

static struct inference_tensor tensor(enum inference_type type, const void *raw, size_t raw_size, const json_t *data)
{
    return (struct inference_tensor){.name = "p",
                                     .type = type,
                                     .rank = 1,
                                     .shape = {COUNT},
                                     .elements = COUNT,
                                     .raw = raw,
                                     .raw_size = raw_size,
                                     .data = data};
}

static void assert_pixels(const struct inference_tensor *t)
{
    uint8_t out[COUNT + 1];
    struct error err;
    memset(out, 99, sizeof out);
    if (inference_read_pixels(out, t, &err) != OK)
        fail_msg("%s", err.message);
    assert_memory_equal(out, pixels, COUNT);
    assert_int_equal(out[COUNT], 99);
}

static void assert_refused(const struct inference_tensor *t, const char *says)
{
    uint8_t out[COUNT + 1];
    struct error err = {.message = ""};
    assert_int_equal(inference_read_pixels(out, t, &err), ERR_ARGUMENT);
    assert_string_equal(err.param, "data");
    if (strstr(err.message, says) == NULL)
        fail_msg("%s, expected %s", err.message, says);
}

static void raw_numbers_are_pixels(void **state)
{
    (void)state;
    const struct inference_tensor floats = tensor(INFERENCE_FP32, (const uint8_t *)numbers, sizeof numbers, NULL);
    const struct inference_tensor bytes = tensor(INFERENCE_UINT8, pixels, sizeof pixels, NULL);
    assert_pixels(&floats);
    assert_pixels(&bytes);
    for (size_t size = 0; size < sizeof numbers; size++) {
        const struct inference_tensor cut = tensor(INFERENCE_FP32, (const uint8_t *)numbers, size, NULL);
        assert_refused(&cut, "\"p\"");
    }
    const struct inference_tensor few = tensor(INFERENCE_UINT8, pixels, sizeof pixels - 1, NULL);
    assert_refused(&few, "\"p\"");
}

static void numbers_in_json_are_pixels(void **state)
{
    static const char *const lists[] = {"[7, 0, 255, 1.4, 1.6, 254.9]", "[[7, 0], [255, 1.4], [1.6, 254.9]]",
                                        "[[[7], [0], [255]], [[1.4], [1.6], [254.9]]]"};
    (void)state;
    for (size_t i = 0; i < LENGTH(lists); i++) {
        json_t *data = json_loads(lists[i], 0, NULL);
        const struct inference_tensor t = tensor(INFERENCE_FP32, NULL, 0, data);
        assert_non_null(data);
        assert_pixels(&t);
        json_decref(data);
    }
}

static void what_is_no_pixel_is_refused_wherever_it_stands(void **state)
{
    static const uint32_t no_pixels[] = {0x7fc00000, 0x7f800000, 0xff800000, 0xbf800000, 0x43800000};
    (void)state; /* not a number, both infinities, -1, 256 */
    for (size_t at = 0; at < COUNT; at++)
        for (size_t i = 0; i < LENGTH(no_pixels); i++) {
            float some[COUNT];
            memcpy(some, numbers, sizeof some);
            memcpy(&some[at], &no_pixels[i], sizeof some[at]);
            const struct inference_tensor t = tensor(INFERENCE_FP32, (const uint8_t *)some, sizeof some, NULL);
            assert_refused(&t, "not a number from 0 to 255");
        }
    static const struct {
        const char *list, *says;
    } cases[] = {
        {"[7, 0, 255, 1, 1, -1]", "not a number from 0 to 255"},
        {"[256, 0, 255, 1, 1, 1]", "not a number from 0 to 255"},
        {"[7, 0, \"1\", 1, 1, 1]", "not a number from 0 to 255"},
        {"[7, 0, null, 1, 1, 1]", "not a number from 0 to 255"},
        {"[7, 0, 255, 1, 1]", "\"p\""},
        {"[7, 0, 255, 1, 1, 1, 1]", "\"p\""},
        {"[]", "\"p\""},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        json_t *data = json_loads(cases[i].list, 0, NULL);
        const struct inference_tensor t = tensor(INFERENCE_FP32, NULL, 0, data);
        assert_non_null(data);
        assert_refused(&t, cases[i].says);
        json_decref(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_numbers_are_pixels),
        cmocka_unit_test(numbers_in_json_are_pixels),
        cmocka_unit_test(what_is_no_pixel_is_refused_wherever_it_stands),
    };
    return cmocka_run_group_tests_name("inference request", tests, NULL, NULL);
}
