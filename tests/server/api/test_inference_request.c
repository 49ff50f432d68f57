/* test_inference_request.c - numbers of the Open Inference Protocol's tensors as pixels: the same from JSON, flat or
 * nested, from raw bytes and from raw floats, and a refusal of what is none wherever it stands; and what of a request's
 * fields and parameters counts. */
#include "config/settings.h"
#include "server/api/inference_inputs.h"
#include "server/api/inference_request.h"

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

/* Pictures from 0 to 1 would all be black; black and white ones may be meant. */
static void pictures_from_0_to_1_are_noticed(void **state)
{
    static const struct {
        float raw[COUNT];
        const char *list;
        bool refused;
    } cases[] = {
        {{0.0f, 0.25f, 1.0f, 0.0f, 0.0f, 0.0f}, "[0, 0.25, 1, 0, 0, 0]", true},
        {{0.001f, 0.001f, 0.001f, 0.001f, 0.001f, 0.001f}, "[[0.001, 0.001, 0.001], [0.001, 0.001, 0.001]]", true},
        {{0.0f, 1.0f, 1.0f, 0.0f, 0.0f, 1.0f}, "[0, 1, 1.0, 0.0, 0, 1]", false},
        {{0.0f, 0.25f, 1.0f, 0.0f, 0.0f, 1.5f}, "[0, 0.25, 1, 0, 0, 1.5]", false},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        json_t *data = json_loads(cases[i].list, 0, NULL);
        assert_non_null(data);
        const struct inference_tensor forms[] = {
            tensor(INFERENCE_FP32, (const uint8_t *)cases[i].raw, sizeof cases[i].raw, NULL),
            tensor(INFERENCE_FP32, NULL, 0, data)};
        for (size_t k = 0; k < LENGTH(forms); k++) {
            uint8_t out[COUNT];
            struct error err;
            if (cases[i].refused)
                assert_refused(&forms[k], "expected pixels from 0 to 255: multiply them by 255");
            else
                assert_int_equal(inference_read_pixels(out, &forms[k], &err), OK);
        }
        json_decref(data);
    }
}

#define WITH(rest) \
    "{\"inputs\": [{\"name\": \"x\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"]}], " rest "}"

static enum status parse(struct inference_request *ret, const char *body, struct error *err)
{
    struct settings s;
    settings_init(&s);
    return inference_request_parse(ret, (const uint8_t *)body, strlen(body), NULL, &s, err);
}

/* What KServe's, Triton's and MLServer's clients send of their own accord. */
static void what_clients_send_beside_the_request_is_no_parameter_of_the_model(void **state)
{
    static const char *const bodies[] = {
        WITH("\"model_name\": \"m\", \"model_version\": \"1\""),
        WITH("\"model_name\": null, \"model_version\": 7"),
        WITH("\"parameters\": {\"sequence_id\": 7, \"sequence_start\": true, \"sequence_end\": false}"),
        WITH("\"parameters\": {\"triton_enable_empty_final_response\": true, \"triton_x\": 1, \"headers\": {}, "
             "\"content_type\": \"str\", \"priority\": 0, \"timeout\": 1000, \"binary_data_output\": true}"),
        "{\"inputs\": [{\"name\": \"x\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"], \"parameters\": "
        "{\"content_type\": \"str\"}}], \"outputs\": [{\"name\": \"y\", \"parameters\": {\"content_type\": \"np\"}}]}",
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(bodies); i++) {
        struct inference_request r;
        struct error err;
        if (parse(&r, bodies[i], &err) != OK)
            fail_msg("%s: %s", bodies[i], err.message);
        assert_int_equal(json_object_size(r.parameters), 0);
        inference_request_clear(&r);
    }
}

static void other_parameters_are_left_for_the_model(void **state)
{
    struct inference_request r;
    struct error err;
    (void)state;
    assert_int_equal(parse(&r, WITH("\"parameters\": {\"sequence_ids\": 7, \"max_tokens\": 3, \"priority\": 9}"), &err),
                     OK);
    assert_int_equal(json_object_size(r.parameters), 2);
    assert_int_equal(r.priority, 9);
    inference_request_clear(&r);
    assert_int_equal(parse(&r, WITH("\"model_nam\": \"m\""), &err), ERR_ARGUMENT);
    assert_string_equal(err.param, "model_nam");
    assert_non_null(strstr(err.message, "did you mean \"model_name\"?"));
}

static void a_priority_is_a_whole_number_without_a_sign(void **state)
{
    static const char *const wrong[] = {"-1", "1.5", "\"high\"", "true", "[1]"};
    (void)state;
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        char body[200];
        struct inference_request r;
        struct error err;
        (void)snprintf(body, sizeof body, WITH("\"parameters\": {\"priority\": %s}"), wrong[i]);
        assert_int_equal(parse(&r, body, &err), ERR_ARGUMENT);
        assert_string_equal(err.param, "priority");
        assert_non_null(strstr(err.message, "0, the default, or 1, the most urgent, or more"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_numbers_are_pixels),
        cmocka_unit_test(numbers_in_json_are_pixels),
        cmocka_unit_test(what_is_no_pixel_is_refused_wherever_it_stands),
        cmocka_unit_test(pictures_from_0_to_1_are_noticed),
        cmocka_unit_test(what_clients_send_beside_the_request_is_no_parameter_of_the_model),
        cmocka_unit_test(other_parameters_are_left_for_the_model),
        cmocka_unit_test(a_priority_is_a_whole_number_without_a_sign),
    };
    return cmocka_run_group_tests_name("inference request", tests, NULL, NULL);
}
