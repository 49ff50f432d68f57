/* test_errors.c - one of each error that the contract names, in each API's words: by status, code, field and
 * headers. What else is wrong with one endpoint's input is its own test's. The real daemon and small models; what needs
 * a part of it to stand still is in test_halted.c, what needs memory to be short in test_memory.c. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/api/routes.h"
#include "server/request/route.h"
#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/model_copy.h"
#include "tests/support/model_folder.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GOLDEN "tests/data/golden/"
#define JSON "application/json"
#define BODY(text) .body = (text), .size = sizeof(text) - 1
#define INFER(model) .path = "/v2/models/" model "/infer", .type = JSON

enum { LIMIT_S = 580, LONG_PATH = 3000, PIXELS_SIDE = 24, DIM = 32, PAIR = 8 };

/* A request and its refusal. */
struct row {
    struct request request;
    long status;
    const char *code, *param, *says; /* as for reply_assert_error; without a code in the words of /v2 */
    const char *header;              /* one that the answer must have; NULL: none in particular */
};

/* As the Open Inference Protocol has them: {"error": "text"}. */
static void assert_inference_error(const struct reply *r, long status, const char *says)
{
    const char *message = NULL;
    json_t *value = reply_json(r);
    if (r->status != status || json_unpack_ex(value, NULL, JSON_STRICT, "{s:s}", "error", &message) != 0 ||
        strstr(message, says) == NULL)
        fail_msg("expected %ld and {\"error\": \"..%s..\"}, got %ld: %s", status, says, r->status, r->body);
    json_decref(value);
}

static void assert_refused(const struct row *row)
{
    struct reply r;
    char value[256];
    client_call(&administered, &row->request, &r);
    if (r.status != row->status)
        fail_msg("%.200s: expected %ld, got %ld: %s", row->request.path, row->status, r.status, r.body);
    if (row->code == NULL)
        assert_inference_error(&r, row->status, row->says);
    else
        reply_assert_error(&r, row->status, row->code, row->param, row->says);
    if (row->header != NULL && !reply_header(&r, row->header, value, sizeof value))
        fail_msg("%s: expected a header %s: %s", row->request.path, row->header, r.headers);
    assert_true(reply_header(&r, "X-Request-Id", value, sizeof value));
    reply_clear(&r);
}

static void assert_all_refused(const struct row rows[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_refused(&rows[i]);
}

/* ---- a daemon of five models ----------------------------------------------------------------------------------- */

/* A model of larger pictures, of zeros where it has to be longer. */
static void put_wide_pixels(const char *name)
{
    static const float zeros[3 * PIXELS_SIDE * PIXELS_SIDE * DIM];
    static const char *const pairs[] = {"blocks.0.mixer.pos_u", "blocks.0.mixer.pos_v", "blocks.1.mixer.pos_u",
                                        "blocks.1.mixer.pos_v"};
    const uint64_t context = (uint64_t)3 * PIXELS_SIDE * PIXELS_SIDE;
    struct model_copy c;
    model_copy_read(&c, GOLDEN "pixels-local");
    json_t *input = json_object_get(c.config, "input");
    assert_int_equal(json_object_set_new(input, "context", json_integer((json_int_t)context)), 0);
    assert_int_equal(json_object_set_new(input, "size", json_pack("[i, i]", PIXELS_SIDE, PIXELS_SIDE)), 0);
    model_copy_set(&c, "pos_embed", zeros, context, DIM);
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        model_copy_set(&c, pairs[i], zeros, context, PAIR);
    model_variants_put(&c, models_folder, name);
}

static void put_beginningless_pixels(const char *name)
{
    struct model_copy c;
    model_copy_read(&c, GOLDEN "pixels-local");
    model_copy_drop(&c, "start_embed");
    model_variants_put(&c, models_folder, name);
}

static void start(const char *flag, const char *other)
{
    model_folder_put(models_folder, "picture", GOLDEN "conv-heads8-k5");
    model_folder_put(models_folder, "text", GOLDEN "lm-simple");
    model_folder_put(models_folder, "words", GOLDEN "text-simple-attention");
    put_wide_pixels("wide");
    put_beginningless_pixels("middle");
    administration_start(flag, other);
}

/* ---- what each status is for ----------------------------------------------------------------------------------- */

#define ELEMENTS_10 "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\""
#define ELEMENTS_65                                                                                                   \
    ELEMENTS_10 "," ELEMENTS_10 "," ELEMENTS_10 "," ELEMENTS_10 "," ELEMENTS_10 "," ELEMENTS_10 ",\"a\",\"a\",\"a\"," \
                "\"a\",\"a\""

static const char *const gzipped[] = {"Content-Encoding: gzip", NULL};

static const struct row rows[] = {
    /* 400: malformed or out of range, by field */
    {{.path = "/generate", .type = JSON, BODY("{\"prompt\"")}, 400, "invalid_value", NULL, "not valid JSON", NULL},
    {{.path = "/generate", .type = JSON, BODY("{\"max_tokens\": 0}")},
     400,
     "invalid_value",
     "max_tokens",
     "1 to",
     NULL},
    {{.path = "/generate", .type = JSON, BODY("{\"tokens\": 1}")}, 400, "invalid_value", "tokens", "no field", NULL},
    {{.path = "/generate?stream=true", .type = JSON, BODY("{}")},
     400,
     "invalid_value",
     "stream",
     "expected: none",
     NULL},
    {{.path = "/v1/completions", .type = JSON, BODY("{\"n\": 0}")}, 400, "invalid_value", "n", "1 to 64", NULL},
    {{.path = "/classify?model=%ff", BODY("x")}, 400, "invalid_value", "model", "is not UTF-8", NULL},
    {{.path = "/complete?model=wide&n=16&scale=32", BODY("")}, 400, "invalid_value", "scale", "3168 x 3168", NULL},
    {{.path = "/complete?model=middle", BODY("")}, 400, "invalid_value", "rows", "cannot begin a picture", NULL},
    {{.path = "/explain?model=words&view=biases", BODY("")}, 400, "invalid_value", "view", "expected none", NULL},
    {{INFER("text"), BODY("{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": "
                          "[\"a\"]}], \"outputs\": [1]}")},
     400,
     NULL,
     NULL,
     "an output is",
     NULL},
    {{INFER("text"), BODY("{\"inputs\": [{\"name\": \"text\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": "
                          "[\"a\"]}]}")},
     400,
     NULL,
     NULL,
     "expected one: prompt",
     NULL},
    {{INFER("text"), BODY("{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [65], \"data\": "
                          "[" ELEMENTS_65 "]}]}")},
     400,
     NULL,
     NULL,
     "65 prompts; expected at most 64",
     NULL},
    /* 404: a model or a path that is not there */
    {{.path = "/nothing"}, 404, "not_found", NULL, "there is nothing at", NULL},
    {{.path = "/v1/chat/completions", .type = JSON, BODY("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}")},
     404,
     "not_found",
     "model",
     "to /v1/completions",
     NULL},
    {{.path = "/v1/responses", .type = JSON, BODY("{}")}, 404, "not_found", NULL, "to /v1/completions", NULL},
    {{.path = "/completion", .type = JSON, BODY("{}")}, 404, "not_found", NULL, "POST /generate", NULL},
    {{.path = "/version"}, 404, "not_found", NULL, ": GET /v2 tells the version", NULL},
    {{.path = "/docs"}, 404, "not_found", NULL, ": GET /openapi.json describes", NULL},
    {{.path = "/sessions/x"}, 404, "not_found", NULL, ": POST /v1/sessions makes a session", NULL},
    {{.path = "/v2/nothing"}, 404, NULL, NULL, "there is nothing at", NULL},
    {{.path = "/v1/models/nothing"}, 404, "not_found", "model", "nothing", NULL},
    {{.path = "/generate", .type = JSON, BODY("{\"model\": \"gone\"}")},
     404,
     "not_found",
     "model",
     "loaded models",
     NULL},
    {{.path = "/v1/completions", .type = JSON, BODY("{\"model\": \"gone\"}")}, 404, "not_found", "model", "gone", NULL},
    {{.path = "/classify?model=gone", BODY("x")}, 404, "not_found", "model", "loaded models", NULL},
    {{.path = "/v2/models/gone"}, 404, NULL, NULL, "gone", NULL},
    {{INFER("gone"), BODY("{}")}, 404, NULL, NULL, "gone", NULL},
    {{.path = "/v2/models/text/versions/7"}, 404, NULL, NULL, "no version \"7\" of text", NULL},
    /* 405, with what is allowed */
    {{.path = "/classify"}, 405, "method_not_allowed", NULL, "POST, OPTIONS", "Allow"},
    {{.path = "/metrics", BODY("x")}, 405, "method_not_allowed", NULL, "GET, HEAD, OPTIONS", "Allow"},
    {{.method = "DELETE", .path = "/v1/models/text"}, 405, "method_not_allowed", NULL, "GET, HEAD", "Allow"},
    {{.path = "/v2/models/text/infer"}, 405, NULL, NULL, "POST, OPTIONS", "Allow"},
    /* 411, 413: bodies */
    {{.method = "POST", .path = "/generate"}, 411, "length_required", NULL, "no body", NULL},
    {{.method = "POST", .path = "/v2/models/text/infer"}, 411, NULL, NULL, "no body", NULL},
    /* 415: not what this reads */
    {{.path = "/classify", .headers = gzipped, BODY("\x1f\x8b\x08")},
     415,
     "unsupported_media",
     "Content-Encoding",
     "compressed bodies",
     NULL},
    {{.path = "/generate", .type = JSON, .headers = gzipped, BODY("\x1f\x8b\x08")},
     415,
     "unsupported_media",
     "Content-Encoding",
     "compressed bodies",
     NULL},
    {{.path = "/v1/completions", .headers = gzipped, BODY("\x1f\x8b\x08")},
     415,
     "unsupported_media",
     "Content-Encoding",
     "compressed bodies",
     NULL},
    {{.path = "/classify", BODY("GIF89a")}, 415, "unsupported_media", NULL, "GIF", NULL},
    {{.path = "/classify", .type = "text/html", BODY("x")},
     415,
     "unsupported_media",
     "Content-Type",
     "text/html",
     NULL},
    {{.path = "/generate", .type = "text/plain", BODY("x")},
     415,
     "unsupported_media",
     "Content-Type",
     "text/plain",
     NULL},
    {{.path = "/v2/models/text/infer", .type = "text/plain", BODY("x")}, 415, NULL, NULL, "text/plain", NULL},
    /* 422: a picture that does not decode */
    {{.path = "/classify", BODY("\xff\xd8\xff\xe0\0\x10JFIF\0")}, 422, "undecodable_picture", NULL, "JPEG", NULL},
    {{.path = "/explain", BODY("\x89PNG\r\n\x1a\n")}, 422, "undecodable_picture", NULL, "PNG", NULL},
    {{.path = "/complete?model=wide", BODY("RIFF\x04\0\0\0WEBP")}, 422, "undecodable_picture", NULL, "WebP", NULL},
    {{.path = "/classify", .type = "application/x-www-form-urlencoded", BODY("\xff\xd8\xff\xe0\0\x10JFIF\0")},
     422,
     "undecodable_picture",
     NULL,
     "--data-binary",
     NULL},
    /* a picture where JSON is expected */
    {{.path = "/classify", .type = "application/json", BODY("\xff\xd8\xff\xe0\0\x10JFIF\0")},
     400,
     "invalid_value",
     NULL,
     "a picture (image/jpeg)",
     NULL},
    {{.path = "/generate", BODY("\x89PNG\r\n\x1a\n")}, 400, "invalid_value", NULL, "a picture (image/png)", NULL},
};

static void each_status_is_given_for_what_it_means(void **state)
{
    (void)state;
    start(NULL, NULL);
    assert_all_refused(rows, ARRAY_LEN(rows));
    daemon_stop(&administered);
}

static void what_is_too_large_is_refused_before_it_comes(void **state)
{
    static char body[5000], path[LONG_PATH] = "/";
    (void)state;
    memset(body, 'x', sizeof body);
    memset(path + 1, 'x', sizeof path - 2);
    const struct row large[] = {
        {{.path = "/generate", .type = JSON, .body = body, .size = sizeof body},
         413,
         "body_too_large",
         NULL,
         "4096",
         NULL},
        {{INFER("text"), .body = body, .size = sizeof body}, 413, NULL, NULL, "4096", NULL},
        {{.path = path}, 414, "url_too_long", NULL, "2048", NULL},
    };
    start("--body-bytes-max=4096", NULL);
    assert_all_refused(large, ARRAY_LEN(large));
    daemon_stop(&administered);
}

/* JSON that would take a parser's time or stack, whatever it says. */
static void json_of_too_much_is_refused_unread(void **state)
{
    static char deep[JSON_DEPTH_MAX + 2], wide[2 * JSON_VALUES_MAX];
    (void)state;
    memset(deep, '[', JSON_DEPTH_MAX + 1);
    memset(wide, ',', JSON_VALUES_MAX + 1);
    const struct row much[] = {
        {{.path = "/generate", .type = JSON, .body = deep, .size = strlen(deep)},
         400,
         "invalid_value",
         NULL,
         "is nested too deeply; expected at most 64 levels and",
         NULL},
        {{.path = "/score", .type = JSON, .body = wide, .size = strlen(wide)},
         400,
         "invalid_value",
         NULL,
         "has too many values; expected at most 64 levels and 1024 of the characters",
         NULL},
    };
    start(NULL, NULL);
    assert_all_refused(much, ARRAY_LEN(much));
    daemon_stop(&administered);
}

static void a_task_that_no_model_is_for_is_refused(void **state)
{
    static const struct row none[] = {
        {{.path = "/generate", .type = JSON, BODY("{}")}, 400, "invalid_value", "model", "no model for", NULL},
        {{.path = "/complete", BODY("")}, 400, "invalid_value", "model", "no model for", NULL},
        {{.path = "/score", .type = JSON, BODY("{\"text\": \"ab\"}")},
         400,
         "invalid_value",
         "model",
         "no model for",
         NULL},
    };
    (void)state;
    model_folder_put(models_folder, "picture", GOLDEN "conv-heads8-k5");
    administration_start(NULL, NULL);
    assert_all_refused(none, ARRAY_LEN(none));
    daemon_stop(&administered);
}

/* ---- queries --------------------------------------------------------------------------------------------------- */

/* Every route refuses parameters that it does not know, except those that are open to all. */
static void a_parameter_that_a_route_does_not_know_is_refused(void **state)
{
    unsigned refused = 0, ignored = 0;
    (void)state;
    start(NULL, NULL);
    for (size_t i = 0; i < api_routes.count; i++) {
        const struct route *route = &api_routes.list[i];
        char path[256];
        struct reply r;
        size_t used = 0;
        for (const char *at = route->path; *at != '\0';
             at += *at == '{' ? 2 : 1) /* text, or a version that is not there */
            used += (size_t)snprintf(path + used, sizeof path - used, *at == '{' ? "text" : "%c", *at);
        (void)snprintf(path + used, sizeof path - used, "?surely=unknown");
        const bool posts = strcmp(route->method, "POST") == 0;
        client_call(&administered,
                    &(struct request){.method = route->method,
                                      .path = path,
                                      .body = posts ? "{}" : NULL,
                                      .size = 2,
                                      .port = route_is_served(route, false) ? 0 : administered.admin_port},
                    &r);
        if (route->api == API_OPEN && strstr(route->path, "{}") == NULL) {
            ignored++;
            assert_int_equal(r.status, 200);
        } else if (strncmp(route->path, "/v2", 3) == 0) {
            refused++;
            assert_inference_error(&r, 400, "there is no parameter \"surely\" here");
        } else if (route->api != API_OPEN) {
            refused++;
            reply_assert_error(&r, 400, "invalid_value", "surely", "there is no parameter \"surely\" here");
        }
        reply_clear(&r);
    }
    assert_true(refused > 20 && ignored >= 5);
    struct reply r;
    client_get(&administered, "/readyz", &r); /* it does not drain */
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    daemon_stop(&administered);
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

static void keys_are_asked_for_and_hold(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 32], key[KEYS_TEXT_MAX], one[KEYS_TEXT_MAX + 32], slow[KEYS_TEXT_MAX + 32];
    (void)state;
    temp_path(file, models_folder, ".keys.json");
    keys_add(file, "one", (const char *const[]){"--models", "text", "--apis", "native,inference", NULL}, key);
    (void)snprintf(one, sizeof one, "Authorization: Bearer %s", key);
    keys_add(file, "slow", (const char *const[]){"--rate", "0.001/s", NULL}, key);
    (void)snprintf(slow, sizeof slow, "X-API-Key: %s", key);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    const char *const by_one[] = {one, NULL}, *const by_slow[] = {slow, NULL};
    const char *const wrong[] = {"Authorization: Bearer aftd_0", NULL};
    const struct row keyed[] = {
        {{.path = "/v1/models"}, 401, "invalid_api_key", NULL, "a key is needed", "WWW-Authenticate"},
        {{.path = "/v2"}, 401, NULL, NULL, "a key is needed", "WWW-Authenticate"},
        {{.path = "/v2/models/text"}, 401, NULL, NULL, "a key is needed", "WWW-Authenticate"},
        {{.path = "/generate", BODY("{}"), .headers = wrong},
         401,
         "invalid_api_key",
         NULL,
         "is not known here",
         "WWW-Authenticate"},
        {{.path = "/v1/models", .headers = by_one}, 403, "not_allowed", NULL, "the API \"openai\"", NULL},
        {{.path = "/classify?model=picture", BODY("x"), .headers = by_one},
         403,
         "not_allowed",
         "model",
         "picture",
         NULL},
        {{INFER("picture"), BODY("{}"), .headers = by_one}, 403, NULL, NULL, "may not use the model", NULL},
        {{.path = "/classify", BODY("x"), .headers = by_one},
         400,
         "invalid_value",
         "model",
         "none of the models that the key \"one\" may use is for this",
         NULL},
        {{.path = "/classify?model=text", BODY("x"), .headers = by_one},
         400,
         "invalid_value",
         "model",
         "\"text\" does not exist, or does not serve this",
         NULL},
        {{.path = "/v1/models/nothing", .headers = by_slow}, 404, "not_found", "model", NULL, NULL},
        {{.path = "/v1/models", .headers = by_slow}, 429, "rate_limit_exceeded", NULL, "retry in", "Retry-After"},
        {{.path = "/v2/models/text", .headers = by_slow}, 429, NULL, NULL, "retry in", "Retry-After"},
    };
    start(flag, NULL);
    assert_all_refused(keyed, ARRAY_LEN(keyed));
    daemon_stop(&administered);
}

/* If a key's only model cannot serve, the error says why, although the request did not name it. */
static void the_one_model_of_a_key_is_said_to_be_loading_or_broken(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 32], key[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 32];
    (void)state;
    temp_path(file, models_folder, ".keys.json");
    keys_add(file, "one", (const char *const[]){"--models", "broken", NULL}, key);
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", key);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    model_folder_put(models_folder, "broken", GOLDEN "lm-local-8");
    model_folder_break(models_folder, "broken", GOLDEN "lm-local-8", MODEL_TRUNCATED);
    administration_start(flag, "--models-lazy=true");
    const struct request r = {
        .path = "/generate", .type = JSON, BODY("{}"), .headers = (const char *const[]){header, NULL}};
    assert_refused(&(struct row){r, 503, "model_loading", "model", "is being loaded", "Retry-After"});
    long status = 503;
    for (const int64_t end = test_now_ms() + HANG_MS; status == 503; test_sleep_ms(5)) {
        struct reply reply;
        client_call(&administered, &r, &reply);
        status = strstr(reply.body, "model_loading") != NULL && test_now_ms() < end ? 503 : 0;
        reply_clear(&reply);
    }
    assert_refused(&(struct row){r, 503, "unavailable", "model", "cannot be loaded", "Retry-After"});
    daemon_stop(&administered);
}

/* ---- our own faults -------------------------------------------------------------------------------------------- */

/* A text model that begins each text with z, and whose numbers after a z overflow. */
static void put_overflowing_text(const char *name)
{
    static float embed[256 * DIM], bias[256];
    struct model_copy c;
    model_copy_read(&c, GOLDEN "lm-simple");
    memcpy(embed, model_copy_tensor(&c, "tok_embed")->data, sizeof embed);
    memcpy(bias, model_copy_tensor(&c, "head.bias")->data, sizeof bias);
    for (int i = 0; i < DIM; i++)
        embed['z' * DIM + i] = i % 2 == 0 ? 3e38f : -3e38f;
    bias['z'] = 1000.0f;
    model_copy_set(&c, "tok_embed", embed, 256, DIM);
    model_copy_set(&c, "head.bias", bias, 256, 0);
    model_variants_put(&c, models_folder, name);
}

static void a_model_that_overflows_is_an_error_before_and_within_a_stream(void **state)
{
    static const struct row before[] = {
        {{.path = "/generate", .type = JSON, BODY("{\"prompt\": \"z\"}")}, 500, "internal", NULL, "not a number", NULL},
        {{.path = "/generate", .type = JSON, BODY("{\"prompt\": \"z\", \"stream\": true}")},
         500,
         "internal",
         NULL,
         "not a number",
         NULL},
        {{.path = "/v1/completions", .type = JSON, BODY("{\"prompt\": \"z\"}")}, 500, "internal", NULL, NULL, NULL},
        {{.path = "/score", .type = JSON, BODY("{\"text\": \"azb\"}")}, 500, "internal", NULL, NULL, NULL},
        {{.path = "/v1/compress", BODY("azb")}, 500, "internal", NULL, NULL, NULL},
        {{.path = "/v1/embeddings", .type = JSON, BODY("{\"input\": [\"a\", \"azb\", \"b\"]}")},
         500,
         "internal",
         NULL,
         "not a number",
         NULL},
        {{INFER("one"), BODY("{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": "
                             "[\"z\"]}]}")},
         500,
         NULL,
         NULL,
         "not a number",
         NULL},
    };
    static const char *const streams[] = {"/generate", "/v1/completions"};
    (void)state;
    put_overflowing_text("one");
    administration_start(NULL, NULL);
    assert_all_refused(before, ARRAY_LEN(before));
    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        struct reply r;
        client_call(&administered,
                    &(struct request){.path = streams[i],
                                      .type = JSON,
                                      BODY("{\"prompt\": \"a\", \"stream\": true, \"temperature\": 0}")},
                    &r);
        assert_int_equal(r.status, 200);
        const char *text = strstr(r.body, "\"text\":\"z\""), *error = strstr(r.body, "data: {\"error\":{\"message\":");
        const char *end = error != NULL ? strstr(error, "\n\n") : NULL; /* of the last event */
        if (text == NULL || error < text || end == NULL || end + 2 != r.body + r.size ||
            strstr(error, "\"code\":\"internal\"") == NULL)
            fail_msg("%s: expected a z and then an error: %s", streams[i], r.body);
        reply_clear(&r);
    }
    daemon_stop(&administered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_status_is_given_for_what_it_means, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(what_is_too_large_is_refused_before_it_comes, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(json_of_too_much_is_refused_unread, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(a_task_that_no_model_is_for_is_refused, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(a_parameter_that_a_route_does_not_know_is_refused, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(keys_are_asked_for_and_hold, administration_set_up, administration_tear_down),
        cmocka_unit_test_setup_teardown(the_one_model_of_a_key_is_said_to_be_loading_or_broken, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(a_model_that_overflows_is_an_error_before_and_within_a_stream,
                                        administration_set_up, administration_tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
