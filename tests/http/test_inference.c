/* test_inference.c - the Open Inference Protocol: what it says of models, tensors in JSON and in binary, each
 * error in its shape. That the protocol's own client works with it is in tests/clients. The real daemon with the
 * trained models and a classifier of texts. */
#include <jansson.h>
#include <limits.h>
#include <nettle/base64.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define CONV "/v2/models/cifar10-aft-conv"
#define TEXTS "/v2/models/text-attention"
#define WRITER "/v2/models/enwik8-aft-local"

enum { LIMIT_S = 580, CLASSES = 10, PIXELS = 32 * 32 * 3, BODY_MAX = 200000 };

static const char *const linked[] = {"weights/models/cifar10-aft-conv", "weights/models/cifar10-pixels-16",
                                     "tests/data/models/enwik8-aft-local", "tests/data/golden/text-attention"};
static char models[PATH_MAX];
static struct daemon aftd;
static struct raw_input in;

static int start(void **state)
{
    char flag[PATH_MAX + 16];
    (void)state;
    temp_dir_create(models);
    model_variants_link_all(models, linked, ARRAY_LEN(linked));
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    return 0;
}

/* `head` bytes of JSON at the beginning: -1, all of it. */
static void infer(const char *path, const void *body, size_t size, long head, struct reply *ret)
{
    char length[64];
    (void)snprintf(length, sizeof length, "Inference-Header-Content-Length: %ld", head);
    const char *const headers[] = {length, NULL};
    client_call(&aftd,
                &(struct request){.path = path,
                                  .type = head < 0 ? "application/json" : "application/octet-stream",
                                  .body = body,
                                  .size = size,
                                  .headers = head < 0 ? NULL : headers},
                ret);
}

static json_t *infer_json(const char *path, json_t *body)
{
    struct reply r;
    char *text = json_dumps(body, 0);
    infer(path, text, strlen(text), -1, &r);
    if (r.status != 200)
        fail_msg("%s: %ld %s", path, r.status, r.body);
    json_t *answer = reply_json(&r);
    reply_clear(&r);
    free(text);
    json_decref(body);
    return answer;
}

static void assert_refused(const char *name, const struct reply *r, long status, const char *says)
{
    json_t *answer = reply_json(r);
    const char *message = json_string_value(json_object_get(answer, "error"));
    if (r->status != status || json_object_size(answer) != 1 || message == NULL || strstr(message, says) == NULL)
        fail_msg("%s: expected %ld and \"%s\", got %ld %s", name, status, says, r->status, r->body);
    json_decref(answer);
}

/* The probabilities that /classify gives for the picture, by class. */
static void classify(const void *bytes, size_t size, double p[CLASSES])
{
    struct reply r;
    size_t i;
    json_t *each;
    client_call(
        &aftd, &(struct request){.path = "/classify?top_k=10&model=cifar10-aft-conv", .body = bytes, .size = size}, &r);
    assert_int_equal(r.status, 200);
    json_t *answer = reply_json(&r);
    json_array_foreach(json_object_get(answer, "predictions"), i, each)
    {
        p[json_integer_value(json_object_get(each, "index"))] = json_number_value(json_object_get(each, "probability"));
    }
    json_decref(answer);
    reply_clear(&r);
}

/* ---- what there is ---------------------------------------------------------------------------------------------- */

static void it_says_what_there_is(void **state)
{
    static const struct {
        const char *path, *want;
    } cases[] = {
        {"/v2", "{'name': 'aftd', 'version': '*', 'extensions': ['binary_tensor_data', 'classification', "
                "'model_configuration', 'model_repository', 'parameters', 'schedule_policy', 'statistics']}"},
        {"/v2/health/live", "{'live': true}"},
        {"/v2/health/ready", "{'ready': true}"},
        {CONV "/ready", "{'name': 'cifar10-aft-conv', 'ready': true}"},
        {CONV "/versions/1/ready", "{'name': 'cifar10-aft-conv', 'ready': true}"},
        {CONV, "{'name': 'cifar10-aft-conv', 'versions': ['1'], 'platform': 'aftd', 'inputs': ["
               "{'name': 'image', 'datatype': 'BYTES', 'shape': [-1]},"
               "{'name': 'pixels', 'datatype': 'FP32', 'shape': [-1, 32, 32, 3]}], 'outputs': ["
               "{'name': 'logits', 'datatype': 'FP32', 'shape': [-1, 10]},"
               "{'name': 'probabilities', 'datatype': 'FP32', 'shape': [-1, 10]}]}"},
        {WRITER "/versions/1", "{'name': 'enwik8-aft-local', 'versions': ['1'], 'platform': 'aftd', 'inputs': ["
                               "{'name': 'prompt', 'datatype': 'BYTES', 'shape': [-1]}], 'outputs': ["
                               "{'name': 'text', 'datatype': 'BYTES', 'shape': [-1]},"
                               "{'name': 'finish_reason', 'datatype': 'BYTES', 'shape': [-1]}]}"},
        {"/v2/models/cifar10-pixels-16", "{'name': 'cifar10-pixels-16', 'versions': ['1'], 'platform': 'aftd', "
                                         "'inputs': [], 'outputs': []}"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[1000];
        struct reply r;
        (void)snprintf(text, sizeof text, "%s", cases[i].want);
        for (char *at = text; *at != '\0'; at++)
            *at = *at == '\'' ? '"' : *at;
        client_get(&aftd, cases[i].path, &r);
        assert_int_equal(r.status, 200);
        json_t *want = json_loads(text, 0, NULL), *got = reply_json(&r);
        assert_non_null(want);
        if (json_object_get(want, "version") != NULL) /* whatever it is */
            (void)json_object_set(want, "version", json_object_get(got, "version"));
        if (!json_equal(want, got))
            fail_msg("%s: %s", cases[i].path, r.body);
        json_decref(want);
        json_decref(got);
        reply_clear(&r);
    }
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* The output's flat data, [count]. */
static void read_output(const json_t *answer, const char *name, double *values, size_t count)
{
    size_t i;
    json_t *output, *value;
    json_array_foreach(json_object_get(answer, "outputs"), i, output)
    {
        if (strcmp(json_string_value(json_object_get(output, "name")), name) == 0) {
            assert_string_equal(json_string_value(json_object_get(output, "datatype")), "FP32");
            assert_int_equal(json_array_size(json_object_get(output, "data")), count);
            json_array_foreach(json_object_get(output, "data"), i, value) values[i] = json_number_value(value);
            return;
        }
    }
    fail_msg("there is no output %s", name);
}

static void a_picture_is_classified_as_at_classify(void **state)
{
    double want[CLASSES], got[2 * CLASSES], logits[2 * CLASSES];
    size_t size;
    (void)state;
    uint8_t *bytes = picture_file_read("tests/data/cifar/cat.jpg", &size);
    classify(bytes, size, want);
    char *text = malloc(BASE64_ENCODE_RAW_LENGTH(size) + 1);
    base64_encode_raw(text, size, bytes);
    text[BASE64_ENCODE_RAW_LENGTH(size)] = '\0';
    json_t *answer =
        infer_json(CONV "/infer", json_pack("{s:s, s:[{s:s, s:s, s:[i, i], s:[[s], [s]]}]}", "id", "me", "inputs",
                                            "name", "image", "datatype", "BYTES", "shape", 2, 1, "data", text, text));
    assert_string_equal(json_string_value(json_object_get(answer, "id")), "me");
    assert_string_equal(json_string_value(json_object_get(answer, "model_version")), "1");
    read_output(answer, "probabilities", got, (size_t)2 * CLASSES);
    read_output(answer, "logits", logits, (size_t)2 * CLASSES);
    for (size_t i = 0; i < (size_t)2 * CLASSES; i++) {
        assert_true(got[i] - want[i % CLASSES] < 1e-6 && want[i % CLASSES] - got[i] < 1e-6);
        assert_true((logits[i] > logits[0]) == (got[i] > got[0]));
    }
    json_decref(answer);
    free(text);

    /* The same as binary data, and binary answers. */
    char body[BODY_MAX];
    struct reply r;
    const int head = snprintf(body, sizeof body,
                              "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"BYTES\", \"shape\": [1], "
                              "\"parameters\": {\"binary_data_size\": %zu}}], "
                              "\"outputs\": [{\"name\": \"probabilities\", \"parameters\": {\"binary_data\": true}}]}",
                              size + 4);
    const uint32_t length = (uint32_t)size;
    memcpy(body + head, &length, 4);
    memcpy(body + head + 4, bytes, size);
    infer(CONV "/versions/1/infer", body, (size_t)head + 4 + size, head, &r);
    char value[64];
    float numbers[CLASSES];
    assert_int_equal(r.status, 200);
    assert_true(reply_header(&r, "Inference-Header-Content-Length", value, sizeof value));
    assert_int_equal(strtoul(value, NULL, 10) + sizeof numbers, r.size);
    memcpy(numbers, r.body + strtoul(value, NULL, 10), sizeof numbers);
    for (size_t i = 0; i < CLASSES; i++)
        assert_true((double)numbers[i] - want[i] < 1e-6 && want[i] - (double)numbers[i] < 1e-6);
    reply_clear(&r);
    free(bytes);
}

static void pixels_are_taken_in_both_layouts_and_rounded(void **state)
{
    double first[CLASSES], other[CLASSES];
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        json_t *data = json_array();
        for (int i = 0; i < PIXELS; i++) { /* a colour for each pixel, by its place */
            const int place = layout == 0 ? i / 3 : i % 1024, channel = layout == 0 ? i % 3 : i / 1024;
            const double value = (double)((place * 7 + channel * 50) % 256);
            assert_int_equal(json_array_append_new(data, json_real(layout == 0 ? value : value * 254.9 / 255 + 0.05)),
                             0);
        }
        json_t *sides = layout == 0 ? json_pack("[i, i, i, i]", 1, 32, 32, 3) : json_pack("[i, i, i, i]", 1, 3, 32, 32);
        json_t *answer = infer_json(CONV "/infer", json_pack("{s:[{s:s, s:s, s:o, s:o}], s:[{s:s}]}", "inputs", "name",
                                                             "pixels", "datatype", "FP32", "shape", sides, "data", data,
                                                             "outputs", "name", "logits"));
        assert_int_equal(json_array_size(json_object_get(answer, "outputs")), 1);
        read_output(answer, "logits", layout == 0 ? first : other, CLASSES);
        json_decref(answer);
    }
    assert_memory_equal(first, other, sizeof first);
}

static void texts_are_classified_and_written(void **state)
{
    (void)state;
    json_t *answer = infer_json(TEXTS "/infer",
                                json_loads("{\"inputs\": [{\"name\": \"text\", \"datatype\": \"BYTES\", \"shape\": "
                                           "[3], \"data\": [\"a text\", \"another\", \"x\"]}], \"outputs\": "
                                           "[{\"name\": \"probabilities\", \"parameters\": {\"classification\": 1}}]}",
                                           0, NULL));
    json_t *output = json_array_get(json_object_get(answer, "outputs"), 0);
    assert_string_equal(json_string_value(json_object_get(output, "datatype")), "BYTES");
    assert_int_equal(json_array_size(json_object_get(output, "data")), 3);
    const char *class = json_string_value(json_array_get(json_object_get(output, "data"), 2)); /* "0.9:3" */
    char *end = NULL;
    const double probability = strtod(class, &end);
    assert_true(probability > 0.0 && probability <= 1.0 && *end == ':' && end[1] >= '0' && end[1] <= '9');
    json_decref(answer);

    static const char prompt[] = "{\"prompt\": \"The history of \", \"max_tokens\": 20, \"seed\": 3}";
    struct reply r;
    client_call(&aftd, &(struct request){.path = "/generate", .body = prompt, .size = sizeof prompt - 1}, &r);
    json_t *alone = reply_json(&r);
    answer = infer_json(WRITER "/infer",
                        json_loads("{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [2], "
                                   "\"data\": [\"The history of \", \"\"]}], \"parameters\": {\"max_tokens\": 20, "
                                   "\"seed\": 3, \"timeout\": null, \"binary_data_output\": null, \"top_k\": null}}",
                                   0, NULL));
    output = json_array_get(json_object_get(answer, "outputs"), 0);
    assert_true(json_equal(json_array_get(json_object_get(output, "data"), 0), json_object_get(alone, "text")));
    output = json_array_get(json_object_get(answer, "outputs"), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(output, "data"), 1)), "length");
    json_decref(answer);
    json_decref(alone);
    reply_clear(&r);
}

/* Behind a context of 512 bytes. */
static void what_is_left_out_of_a_prompt_is_told_or_refused(void **state)
{
    enum { PROMPT = 600, LEFT_OUT = PROMPT - 256 };
    char prompt[PROMPT + 1], value[16] = "";
    (void)state;
    memset(prompt, 'a', PROMPT);
    prompt[PROMPT] = '\0';
    for (int refuse = 0; refuse < 2; refuse++) {
        char body[PROMPT + 256];
        struct reply r;
        const int size =
            snprintf(body, sizeof body,
                     "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": "
                     "[\"%s\"]}], \"parameters\": {\"max_tokens\": 1%s}}",
                     prompt, refuse ? ", \"context_overflow\": \"refuse\"" : "");
        infer(WRITER "/infer", body, (size_t)size, -1, &r);
        if (refuse) {
            assert_refused(body, &r, 400, "has 600 bytes, of which the context of");
        } else {
            assert_int_equal(r.status, 200);
            assert_true(reply_header(&r, "X-Prompt-Tokens-Dropped", value, sizeof value));
            assert_int_equal(strtol(value, NULL, 10), LEFT_OUT);
        }
        reply_clear(&r);
    }
}

/* As KServe's and Triton's clients send them. */
static void fields_of_the_protocol_that_mean_nothing_here_are_ignored(void **state)
{
    static const char *const parameters[] = {
        "{\"max_tokens\": 9, \"seed\": 3}",
        "{\"max_tokens\": 9, \"seed\": 3, \"sequence_id\": 1, \"sequence_start\": true, \"sequence_end\": true}",
        "{\"max_tokens\": 9, \"seed\": 3, \"priority\": 0, \"triton_enable_empty_final_response\": true}",
        "{\"max_tokens\": 9, \"seed\": 3, \"priority\": 9223372036854775807, \"headers\": {\"a\": \"b\"}}",
    };
    json_t *first = NULL;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(parameters); i++) {
        json_t *answer =
            infer_json(WRITER "/infer", json_pack("{s:s, s:s, s:s, s:[{s:s, s:s, s:[i], s:[s]}], s:o}", "id", "me",
                                                  "model_name", "another", "model_version", "9", "inputs", "name",
                                                  "prompt", "datatype", "BYTES", "shape", 1, "data", "The history of ",
                                                  "parameters", json_loads(parameters[i], 0, NULL)));
        assert_string_equal(json_string_value(json_object_get(answer, "model_name")), "enwik8-aft-local");
        if (first != NULL)
            assert_true(json_equal(answer, first));
        else
            first = json_incref(answer);
        json_decref(answer);
    }
    json_decref(first);
}

/* While one runs, one of the lowest level comes, which would run for a minute, and then one of the highest. */
static void lower_levels_of_priority_go_first(void **state)
{
    static const char level[] =
        "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": "
        "[\"a\"]}], \"parameters\": {\"max_tokens\": %d, \"priority\": %d}}";
    static const char *const paths[] = {"/generate", WRITER "/infer", WRITER "/infer"};
    char bodies[3][300] = {"{\"prompt\": \"a\", \"max_tokens\": 1000000, \"stream\": true}"};
    struct daemon own;
    int fds[3];
    (void)state;
    (void)snprintf(bodies[1], sizeof bodies[1], level, 1000000, 21);
    (void)snprintf(bodies[2], sizeof bodies[2], level, 20, 1);
    daemon_start(&own,
                 (const char *const[]){"--streams-max=1", "--max-tokens-max=1000000", "--timeout-ms=600000", NULL});
    for (int i = 0; i < 3; i++) {
        char *text = raw_post(paths[i], bodies[i], "Connection: close\r\n");
        fds[i] = raw_connect(own.port);
        assert_true(raw_send_text(fds[i], text));
        free(text);
        if (i == 0)
            assert_int_equal(raw_receive(fds[0], &in, "data: ", HANG_MS), RAW_FOUND);
        else
            (void)client_await_metric(&own, "aftd_queue_depth", i, HANG_MS);
    }
    raw_close(fds[0]);
    assert_int_equal(raw_receive(fds[2], &in, NULL, HANG_MS), RAW_CLOSED);
    assert_int_equal(raw_status(&in), 200);
    (void)raw_receive(fds[1], &in, NULL, 0);
    assert_int_equal(in.size, 0);
    raw_close(fds[1]);
    raw_close(fds[2]);
    daemon_stop(&own);
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

#define IMAGE "{\"name\": \"image\", \"datatype\": \"BYTES\", \"shape\": [1], "
#define IN(rest) "{\"inputs\": [" IMAGE rest "]}"

static const struct {
    const char *path, *body;
    long head, status; /* head: -1: no header */
    const char *says;
} wrong[] = {
    {"/v2/models/none/infer", "{}", -1, 404, "none"},
    {"/v2/models/none/nothing", "{}", -1, 404, "there is nothing at"},
    {CONV "/versions/2/infer", "{}", -1, 404, "there is no version \"2\""},
    {"/v2/models/cifar10-pixels-16/infer", "{}", -1, 400, "draws pictures"},
    {CONV "/infer", "", -1, 400, "empty"},
    {CONV "/infer", "[]", -1, 400, "expected a JSON object"},
    {CONV "/infer", "{}", -1, 400, "\"inputs\" is missing"},
    {CONV "/infer", "{\"inputs\": []}", -1, 400, "a list of 1 to 4"},
    {CONV "/infer", "{\"inputs\": [1]}", -1, 400, "an input is 1; expected an object"},
    {CONV "/infer", "{\"inputs\": [], \"other\": 1}", -1, 400, "expected"},
    {CONV "/infer", "{\"inputs\": [{}]}", -1, 400, "\"name\" of an input is missing"},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"image\"}]}", -1, 400, "\"datatype\" of the input"},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"FP16\"}]}", -1, 400, "\"FP16\""},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"BYTES\"}]}", -1, 400, "\"shape\" of the"},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"BYTES\", \"shape\": [-1]}]}", -1, 400,
     "\"shape\" of the"},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"BYTES\", \"shape\": [60000000, 60000000]}]}",
     -1, 400, "\"shape\" of the"},
    {CONV "/infer", IN("\"data\": [\"abcd\"], \"parameters\": {\"binary_data_size\": 0}}"), -1, 400, "has both"},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"BYTES\", \"shape\": [1]}]}", -1, 400,
     "has neither"},
    {CONV "/infer", IN("\"data\": []}"), -1, 400, "1 elements that its shape says"},
    {CONV "/infer", IN("\"data\": [1]}"), -1, 400, "element 0 of the input \"image\" is not a string"},
    {CONV "/infer", IN("\"data\": [\"abc\"]}"), -1, 400, "image[0] is not base64"},
    {CONV "/infer", IN("\"data\": [\"abcd\"]}"), -1, 415, "image[0]: the picture"},
    {CONV "/infer", IN("\"data\": [\"/9j/\"]}"), -1, 422, "image[0]: the JPEG does not decode"},
    {CONV "/infer", IN("\"parameters\": {\"binary_data_size\": 5}}"), -1, 400,
     "expected at most 0, the bytes that are left"},
    {CONV "/infer", IN("\"parameters\": {\"binary_size\": 5}}"), -1, 400, "binary_size"},
    {CONV "/infer", "{}", 3, 400, "Inference-Header-Content-Length is \"3\""},
    {CONV "/infer", "{} ", 2, 400, "\"inputs\" is missing"},
    {CONV "/infer", IN("\"parameters\": {\"binary_data_size\": 0}}"), -1, 400, "1 elements"},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"FP32\", \"shape\": [1], \"data\": [1]}]}", -1,
     400, "expected BYTES of [n]"},
    {CONV "/infer",
     "{\"inputs\": [{\"name\": \"pixels\", \"datatype\": \"FP32\", \"shape\": [1, 3, 8, 8], \"data\": [1]}]}", -1, 400,
     "expected FP32 or UINT8 of [n, 32, 32, 3]"},
    {CONV "/infer",
     "{\"inputs\": [{\"name\": \"pixels\", \"datatype\": \"FP32\", \"shape\": [1, 3, 32, 32], \"data\": [1]}]}", -1,
     400, "3072 elements"},
    {CONV "/infer",
     "{\"inputs\": [{\"name\": \"pixels\", \"datatype\": \"FP32\", \"shape\": [1, 3, 32, 32], \"data\": [256]}]}", -1,
     400, "from 0 to 255"},
    {CONV "/infer",
     IN("\"data\": [\"/9j/\"]}], \"parameters\": {\"priority\": -1}, \"outputs\": [{\"name\": \"logits\"}"), -1, 400,
     "\"priority\" is -1; expected a whole number: 0"},
    {WRITER "/infer",
     "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"]}], "
     "\"parameters\": {\"max_token\": 2}}",
     -1, 400, "no parameter \"max_token\" here; did you mean \"max_tokens\"?"},
    {CONV "/infer", "{\"inputs\": [{\"name\": \"text\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"]}]}",
     -1, 400, "expected one: image or pixels"},
    {CONV "/infer", "{\"inputs\": [" IMAGE "\"data\": [\"a\"]}, " IMAGE "\"data\": [\"a\"]}]}", -1, 400, "2 inputs"},
    {CONV "/infer", "{\"inputs\": [" IMAGE "\"data\": [\"/9j/\"]}], \"outputs\": [{\"name\": \"x\"}]}", -1, 400,
     "no output \"x\""},
    {CONV "/infer", "{\"inputs\": [" IMAGE "\"data\": [\"/9j/\"]}], \"outputs\": [{}]}", -1, 400,
     "\"name\" of an output"},
    {CONV "/infer",
     "{\"inputs\": [" IMAGE "\"data\": [\"/9j/\"]}], \"outputs\": [{\"name\": \"logits\"}, {\"name\": \"logits\"}]}",
     -1, 400, "asked for twice"},
    {CONV "/infer", "{\"inputs\": [" IMAGE "\"data\": [\"/9j/\"]}], \"parameters\": {\"seed\": 1}}", -1, 400,
     "no parameter \"seed\""},
    {CONV "/infer", "{\"inputs\": [" IMAGE "\"data\": [\"/9j/\"]}], \"parameters\": {\"binary_data_output\": 1}}", -1,
     400, "\"binary_data_output\" is 1; expected true or false"},
    {CONV "/infer", "{\"inputs\": [" IMAGE "\"data\": [\"/9j/\"]}], \"parameters\": {\"timeout\": 0}}", -1, 400,
     "\"timeout\" is 0"},
    {CONV "/infer",
     "{\"inputs\": [" IMAGE "\"data\": [\"/9j/\"]}], \"parameters\": {\"timeout\": 9223372036854775807}}", -1, 400,
     "\"timeout\" is 9223372036854775807"},
    {TEXTS "/infer", "{\"inputs\": [{\"name\": \"text\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"\"]}]}",
     -1, 400, "\"text[0]\" has 0 bytes"},
    {WRITER "/infer",
     "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"]}], "
     "\"parameters\": {\"prompt\": \"b\"}}",
     -1, 400, "no parameter \"prompt\""},
    {WRITER "/infer",
     "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"]}], "
     "\"parameters\": {\"temperature\": 101}}",
     -1, 400, "\"temperature\" is 101"},
    {WRITER "/infer",
     "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"]}], "
     "\"outputs\": [{\"name\": \"text\", \"parameters\": {\"classification\": 2}}]}",
     -1, 400, "the output is a text"},
    {WRITER "/infer", "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [0], \"data\": []}]}",
     -1, 400, "n at least 1"},
};

static void wrong_requests_are_refused_in_the_protocols_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct reply r;
        infer(wrong[i].path, wrong[i].body, strlen(wrong[i].body), wrong[i].head, &r);
        assert_refused(wrong[i].body, &r, wrong[i].status, wrong[i].says);
        reply_clear(&r);
    }
}

/* Only its length separates a binary text from what follows it; and a prompt may not be too long. */
static void texts_with_bytes_to_spare_are_refused(void **state)
{
    enum { LARGE = GENERATE_PROMPT_MAX + 1 };
    static const struct {
        const char *path, *name, *says;
        size_t size; /* of the text's own bytes */
        size_t spare;
    } cases[] = {
        {TEXTS "/infer", "text", "\"text\" has bytes after its last element", 1, 1},
        {WRITER "/infer", "prompt", "\"prompt\" has bytes after its last element", 1, 1},
        {WRITER "/infer", "prompt", "the prompts have more than 1048576 bytes; expected at most that", LARGE, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const size_t size = 4 + cases[i].size + cases[i].spare;
        char *body = calloc(1, size + 300);
        struct reply r;
        assert_non_null(body);
        const int head = snprintf(body, 300,
                                  "{\"inputs\": [{\"name\": \"%s\", \"datatype\": \"BYTES\", \"shape\": [1], "
                                  "\"parameters\": {\"binary_data_size\": %zu}}]}",
                                  cases[i].name, size);
        for (int byte = 0; byte < 4; byte++)
            body[head + byte] = (char)(cases[i].size >> (8 * byte) & 0xff);
        infer(cases[i].path, body, (size_t)head + size, head, &r);
        assert_refused(cases[i].name, &r, 400, cases[i].says);
        reply_clear(&r);
        free(body);
    }
}

/* The element's own length is wrong, or bytes are left over. */
static void wrong_binary_data_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } cases[] = {
        {"", 0, "1 elements"},
        {"\3\0\0", 3, "1 elements"},
        {"\4\0\0\0abc", 7, "declares 4 bytes"},
        {"\xff\xff\xff\xff"
         "abc",
         7, "declares 4294967295 bytes"},
        {"\1\0\0\0aX", 6, "image[0]"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[500];
        struct reply r;
        const int head = snprintf(body, sizeof body, IN("\"parameters\": {\"binary_data_size\": %zu}}"), cases[i].size);
        memcpy(body + head, cases[i].bytes, cases[i].size);
        infer(CONV "/infer", body, (size_t)head + cases[i].size, head, &r);
        assert_refused(cases[i].says, &r, i + 1 < ARRAY_LEN(cases) ? 400 : 415, cases[i].says);
        reply_clear(&r);
        infer(CONV "/infer", body, (size_t)head + cases[i].size + 1, head, &r);
        assert_refused("a byte more", &r, 400, "1 bytes after the JSON belong to no input");
        reply_clear(&r);
    }
}

static void other_ways_are_refused_in_the_protocols_shape(void **state)
{
    static const char *const compressed[] = {"Content-Encoding: gzip", NULL};
    const struct {
        struct request request;
        long status;
        const char *says;
    } cases[] = {
        {{.path = CONV "/infer", .type = "text/plain", .body = "{}", .size = 2},
         415,
         "expected one of application/octet-stream, application/json"},
        {{.path = CONV "/infer", .body = "{}", .size = 2, .headers = compressed},
         415,
         "compressed bodies are not read"},
        {{.path = CONV "/infer"}, 405, "expected POST"},
        {{.path = CONV, .body = "{}", .size = 2}, 405, "expected GET"},
        {{.path = "/v2/models/none"}, 404, "none"},
        {{.path = "/v2/models/none/ready"}, 404, "none"},
        {{.path = CONV "/versions/01"}, 404, "no version \"01\""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        client_call(&aftd, &cases[i].request, &r);
        assert_refused(cases[i].request.path, &r, cases[i].status, cases[i].says);
        reply_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_there_is),
        cmocka_unit_test(a_picture_is_classified_as_at_classify),
        cmocka_unit_test(pixels_are_taken_in_both_layouts_and_rounded),
        cmocka_unit_test(texts_are_classified_and_written),
        cmocka_unit_test(what_is_left_out_of_a_prompt_is_told_or_refused),
        cmocka_unit_test(fields_of_the_protocol_that_mean_nothing_here_are_ignored),
        cmocka_unit_test(lower_levels_of_priority_go_first),
        cmocka_unit_test(wrong_requests_are_refused_in_the_protocols_shape),
        cmocka_unit_test(texts_with_bytes_to_spare_are_refused),
        cmocka_unit_test(wrong_binary_data_are_refused),
        cmocka_unit_test(other_ways_are_refused_in_the_protocols_shape),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("the Open Inference Protocol", tests, start, daemons_end);
}
