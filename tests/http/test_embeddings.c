/* test_embeddings.c - POST /v1/embeddings: each text or picture has, to the last bit, the embedding that the engine
 * gives it alone, whatever else runs and in whichever forms it comes; what is wrong is named. The real daemon.
 * tests/clients/test_embeddings.py compares with the reference. */
#include <jansson.h>
#include <math.h>
#include <nettle/base64.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/picture.h"
#include "server/media/picture.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define LM "enwik8-aft-local"
#define SEER "cifar10-aft-conv"
#define JSON "application/json"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum {
    LIMIT_S = 580,
    TEXT_MAX = 2000,
    DIM_MAX = 512,
    PART_MAX = 128,
    SIDE = 32,
    ENDLESS_CONTEXT = 6,
    LONG_TEXT = 1 << 20,
};

static char models[PATH_MAX];
static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    temp_dir_create(models);
    model_variants_link(models, "tests/data/models", LM);
    model_variants_link(models, "weights/models", SEER);
    model_variants_link(models, "weights/models", "cifar10-pixels-16");
    model_variants_link(models, GOLDEN, "text-fastformer");
    model_variants_write_starting(models);
    model_variants_write_endless(models, "endless-simple", GOLDEN "lm-simple", ENDLESS_CONTEXT);
    model_variants_write_endless(models, "endless-conv", GOLDEN "lm-conv-heads4-k5", ENDLESS_CONTEXT);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, "--streams-max=4", "--pass-rows-max=7",
                                              "--default-models=enwik8-aft-local", NULL});
    return 0;
}

/* ---- the engine by itself --------------------------------------------------------------------------------------- */

/* Byte by byte, or a long text in larger parts. Returns the number of dimensions. */
static size_t embed_alone(const char *name, const uint8_t *bytes, size_t size, float *out)
{
    char path[PATH_MAX];
    struct model *m = NULL;
    struct engine *e = NULL;
    const struct engine_options o = {.threads = 1, .pictures_max = 1, .streams_max = 1, .rows_max = PART_MAX};
    double sums[DIM_MAX] = {0.0};
    temp_path(path, models, name);
    assert_int_equal(model_load(&m, path, NULL, NULL, NULL), OK);
    assert_int_equal(engine_open(&e, m, &o, NULL), OK);
    const struct model_config *c = &m->config;
    const size_t dim = c->dim;
    assert_true(dim <= DIM_MAX);
    if (model_config_causal(c)) {
        const uint8_t first = 0;
        if (engine_info(e)->starts)
            engine_feed(e, &(struct engine_part){.count = 1, .bytes = &first}, 1);
        const size_t each = size > TEXT_MAX ? PART_MAX : 1;
        for (size_t i = 0; i < size; i += each) {
            const size_t left = size - i;
            const struct engine_part part = {
                .count = (uint32_t)(left < each ? left : each), .bytes = bytes + i, .sums = sums};
            engine_feed(e, &part, 1);
        }
        for (size_t d = 0; d < dim; d++)
            out[d] = (float)(sums[d] / (double)size);
    } else {
        if (c->input == INPUT_IMAGE)
            engine_pictures_begin(e, &bytes, 1, c->size[0], c->size[1]);
        else
            engine_texts_begin(e, &bytes, 1, (uint32_t)size);
        while (!engine_batch_step(e))
            ;
        memcpy(out, engine_batch_pooled(e, 0), dim * sizeof *out);
    }
    engine_close(e);
    model_free(m);
    return dim;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void post(const char *body, struct reply *ret)
{
    client_call(&aftd, &(struct request){.path = "/v1/embeddings", .type = JSON, .body = body, .size = strlen(body)},
                ret);
}

/* The list's strict shape; `tokens` in all. Borrowed from *whole, which the caller decrefs. */
static const json_t *read_list(const struct reply *r, const char *model, size_t count, size_t tokens, json_t **whole)
{
    json_t *data;
    const char *object, *named;
    json_int_t prompt, total;
    if (r->status != 200)
        fail_msg("%ld: %s", r->status, r->body);
    *whole = reply_json(r);
    assert_int_equal(json_unpack_ex(*whole, NULL, JSON_STRICT, "{s:s, s:o, s:s, s:{s:I, s:I !}}", "object", &object,
                                    "data", &data, "model", &named, "usage", "prompt_tokens", &prompt, "total_tokens",
                                    &total),
                     0);
    assert_string_equal(object, "list");
    assert_string_equal(named, model);
    assert_int_equal(prompt, tokens);
    assert_int_equal(total, tokens);
    assert_int_equal(json_array_size(data), count);
    return data;
}

static const json_t *embedding_at(const json_t *data, size_t i)
{
    const char *object;
    json_t *embedding;
    int index;
    assert_int_equal(json_unpack_ex(json_array_get(data, i), NULL, JSON_STRICT, "{s:s, s:i, s:o}", "object", &object,
                                    "index", &index, "embedding", &embedding),
                     0);
    assert_string_equal(object, "embedding");
    assert_int_equal(index, i);
    return embedding;
}

/* In base64, lowest byte first: the same bits. */
static void assert_bits(const char *what, const json_t *embedding, const float *want, size_t dim)
{
    static uint8_t bytes[BASE64_DECODE_LENGTH(8 * DIM_MAX)];
    struct base64_decode_ctx base64;
    size_t size = sizeof bytes;
    base64_decode_init(&base64);
    assert_true(json_is_string(embedding));
    assert_int_equal(
        base64_decode_update(&base64, &size, bytes, json_string_length(embedding), json_string_value(embedding)), 1);
    assert_int_equal(base64_decode_final(&base64), 1);
    assert_int_equal(size, 4 * dim);
    for (size_t d = 0; d < dim; d++) {
        const uint8_t *at = bytes + 4 * d;
        const uint32_t bits = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        uint32_t wanted;
        memcpy(&wanted, &want[d], sizeof wanted);
        if (bits != wanted)
            fail_msg("%s: number %zu is %08x, expected %08x, %.9g", what, d, bits, wanted, (double)want[d]);
    }
}

/* As numbers, with the digits that a float32 has. */
static void assert_numbers(const json_t *embedding, const float *want, size_t dim)
{
    assert_int_equal(json_array_size(embedding), dim);
    for (size_t d = 0; d < dim; d++)
        assert_true((float)json_number_value(json_array_get(embedding, d)) == want[d]);
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

static void write_text(uint8_t *text, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1103515245u + 12345u;
        text[i] = (uint8_t)(seed >> 16);
    }
}

/* As a list of numbers. */
static json_t *as_bytes(const uint8_t *text, size_t size)
{
    json_t *list = json_array();
    for (size_t i = 0; i < size; i++)
        assert_int_equal(json_array_append_new(list, json_integer(text[i])), 0);
    return list;
}

static char *dump(json_t *body)
{
    char *text = json_dumps(body, 0);
    json_decref(body);
    assert_non_null(text);
    return text;
}

/* GET /v1/models/NAME has the elements that a model sees at most, if there is a most. */
static void a_model_without_an_end_has_no_context(void **state)
{
    static const struct {
        const char *path;
        int context;
    } cases[] = {{"/v1/models/endless-conv", 0},
                 {"/v1/models/endless-simple", 0},
                 {"/v1/models/starting", 48},
                 {"/v1/models/text-fastformer", 48}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        client_get(&aftd, cases[i].path, &r);
        json_t *model = reply_json(&r), *context = json_object_get(model, "context");
        assert_int_equal(json_integer_value(context), cases[i].context);
        assert_int_equal(context == NULL, cases[i].context == 0);
        json_decref(model);
        reply_clear(&r);
    }
}

/* Texts of all lengths that the models take, all at once, beside streams that are written. */
static void each_text_has_the_bits_that_it_has_alone(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        size_t size;
    } cases[] = {
        {LM, 1},
        {LM, 2},
        {LM, 511},
        {LM, 512},
        {LM, 100},
        {"starting", 1},
        {"starting", 2},
        {"starting", 47},
        {"endless-simple", 1},
        {"endless-simple", 6},
        {"endless-simple", 7},
        {"endless-simple", 13},
        {"endless-simple", 700},
        {"endless-conv", 6},
        {"endless-conv", 7},
        {"endless-conv", 500},
        {"text-fastformer", 1},
        {"text-fastformer", 48},
    };
    enum { CASES = ARRAY_LEN(cases), OTHERS = 6 };
    static uint8_t texts[CASES][TEXT_MAX];
    static const char story[] =
        "{\"model\": \"" LM "\", \"prompt\": \"The history of \", \"max_tokens\": 60, \"seed\": 1}";
    struct request requests[CASES + OTHERS];
    struct reply replies[CASES + OTHERS];
    char *bodies[CASES];
    for (size_t i = 0; i < CASES; i++) {
        write_text(texts[i], cases[i].size, (unsigned)i);
        bodies[i] = dump(json_pack("{s:s, s:o, s:s}", "model", cases[i].model, "input",
                                   as_bytes(texts[i], cases[i].size), "encoding_format", "base64"));
        requests[i] =
            (struct request){.path = "/v1/embeddings", .type = JSON, .body = bodies[i], .size = strlen(bodies[i])};
    }
    for (size_t i = CASES; i < CASES + OTHERS; i++)
        requests[i] =
            (struct request){.path = "/v1/completions", .type = JSON, .body = story, .size = sizeof story - 1};
    client_call_all(&aftd, requests, replies, CASES + OTHERS, NULL);
    for (size_t i = 0; i < CASES + OTHERS; i++) {
        float want[DIM_MAX];
        json_t *whole;
        if (i < CASES) {
            const size_t dim = embed_alone(cases[i].model, texts[i], cases[i].size, want);
            const json_t *data = read_list(&replies[i], cases[i].model, 1, cases[i].size, &whole);
            print_message("  %s, %zu bytes\n", cases[i].model, cases[i].size);
            assert_bits(cases[i].model, embedding_at(data, 0), want, dim);
            json_decref(whole);
            free(bodies[i]);
        }
        assert_int_equal(replies[i].status, 200);
        reply_clear(&replies[i]);
    }
}

/* More texts than there are streams, equal ones among them: each in its place. */
static void several_texts_come_in_order_in_every_form(void **state)
{
    (void)state;
    enum { TEXTS = GENERATE_PROMPTS_MAX };
    static const char *const names[] = {LM, "text-fastformer"};
    const int count = test_work(TEXTS);
    for (size_t n = 0; n < ARRAY_LEN(names); n++)
        for (int form = 0; form < 4; form++) { /* strings or bytes, numbers or base64 */
            static char texts[TEXTS][32];
            json_t *list = json_array(), *whole;
            struct reply r;
            size_t tokens = 0;
            for (int i = 0; i < count; i++) {
                const int size = snprintf(texts[i], sizeof texts[i], "Text%*d", i % 5, i % 7);
                assert_int_equal(json_array_append_new(list, form % 2 == 0
                                                                 ? json_string(texts[i])
                                                                 : as_bytes((uint8_t *)texts[i], (size_t)size)),
                                 0);
                tokens += (size_t)size;
            }
            char *body = dump(json_pack("{s:s, s:o, s:s, s:n, s:s}", "model", names[n], "input", list,
                                        "encoding_format", form < 2 ? "float" : "base64", "dimensions", "user", "me"));
            post(body, &r);
            const json_t *data = read_list(&r, names[n], (size_t)count, tokens, &whole);
            for (size_t i = 0; i < (size_t)count; i++) {
                float want[DIM_MAX];
                const size_t dim = embed_alone(names[n], (const uint8_t *)texts[i], strlen(texts[i]), want);
                if (form < 2)
                    assert_numbers(embedding_at(data, i), want, dim);
                else
                    assert_bits(texts[i], embedding_at(data, i), want, dim);
            }
            json_decref(whole);
            reply_clear(&r);
            free(body);
        }
}

/* Eight long texts have all four streams until another client comes, for whose sake one of them is parked. */
static void a_text_that_was_parked_has_the_same_bits(void **state)
{
    (void)state;
    enum { TEXTS = 8, TEXT_BYTES = 60000, OTHER = 2 };
    static uint8_t texts[TEXTS][TEXT_BYTES + 1];
    static struct raw_input in;
    static const char story[] =
        "{\"model\": \"endless-simple\", \"prompt\": \"The \", \"max_tokens\": 20, \"seed\": 1}";
    json_t *list = json_array(), *whole;
    for (size_t i = 0; i < TEXTS; i++) {
        for (size_t b = 0; b < TEXT_BYTES; b++)
            texts[i][b] = (uint8_t)('a' + (b * (i + 3) + b / 7) % 26);
        assert_int_equal(json_array_append_new(list, json_string((const char *)texts[i])), 0);
    }
    char *body =
             dump(json_pack("{s:s, s:o, s:s}", "model", "endless-simple", "input", list, "encoding_format", "base64")),
         *text = raw_post("/v1/embeddings", body, "Connection: close\r\n");
    const double parkings = client_metric(&aftd, "aftd_stream_parkings_total");
    const int fd = raw_connect_as(aftd.port, OTHER);
    assert_true(raw_send_text(fd, text));
    (void)client_await_metric(&aftd, "aftd_streams_running", 4, HANG_MS);
    for (int i = 0; i < 10; i++) {
        struct reply r;
        client_call(&aftd,
                    &(struct request){.path = "/v1/completions", .type = JSON, .body = story, .size = sizeof story - 1},
                    &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
    }
    assert_true(client_metric(&aftd, "aftd_stream_parkings_total") > parkings);
    assert_int_equal(raw_receive(fd, &in, NULL, HANG_MS), RAW_CLOSED);
    raw_close(fd);
    char *answer = strstr(in.bytes, "\r\n\r\n");
    assert_non_null(answer);
    const struct reply r = {.status = raw_status(&in),
                            .body = answer + 4,
                            .size = strlen(answer + 4),
                            .headers = in.bytes,
                            .header_bytes = (size_t)(answer + 4 - in.bytes)};
    const json_t *data = read_list(&r, "endless-simple", TEXTS, (size_t)TEXTS * TEXT_BYTES, &whole);
    for (size_t i = 0; i < TEXTS; i++) {
        float want[DIM_MAX];
        assert_bits("a parked text", embedding_at(data, i), want,
                    embed_alone("endless-simple", texts[i], TEXT_BYTES, want));
    }
    json_decref(whole);
    free(text);
    free(body);
}

/* ---- pictures --------------------------------------------------------------------------------------------------- */

static json_t *in_base64(const uint8_t *bytes, size_t size)
{
    char *text = malloc(BASE64_ENCODE_RAW_LENGTH(size) + 1);
    assert_non_null(text);
    base64_encode_raw(text, size, bytes);
    json_t *value = json_stringn(text, BASE64_ENCODE_RAW_LENGTH(size));
    free(text);
    return value;
}

static void pictures_have_the_bits_that_they_have_alone(void **state)
{
    (void)state;
    static const char *const files[] = {"truck", "cat", "truck", "ship"};
    enum { FILES = ARRAY_LEN(files), PATCHES = 64 };
    static uint8_t seen[FILES][3 * SIDE * SIDE];
    json_t *list = json_array(), *whole;
    struct reply r;
    for (size_t i = 0; i < FILES; i++) {
        char path[PATH_MAX];
        struct picture picture = {0};
        size_t size;
        (void)snprintf(path, sizeof path, "tests/data/cifar/%s.jpg", files[i]);
        uint8_t *bytes = picture_file_read(path, &size);
        assert_int_equal(picture_decode(&picture, bytes, size, NULL, NULL), OK);
        assert_int_equal(picture_prepare(seen[i], SIDE, SIDE, &picture, SIDE, INTERPOLATION_BICUBIC, NULL), OK);
        assert_int_equal(json_array_append_new(list, in_base64(bytes, size)), 0);
        picture_clear(&picture);
        free(bytes);
    }
    char *body =
        dump(json_pack("{s:s, s:o, s:n, s:s}", "model", SEER, "images", list, "input", "encoding_format", "base64"));
    post(body, &r);
    const json_t *data = read_list(&r, SEER, FILES, (size_t)FILES * PATCHES, &whole);
    for (size_t i = 0; i < FILES; i++) {
        float want[DIM_MAX];
        assert_bits(files[i], embedding_at(data, i), want, embed_alone(SEER, seen[i], sizeof seen[i], want));
    }
    json_decref(whole);
    reply_clear(&r);
    free(body);
}

/* ---- what does not come to an answer ---------------------------------------------------------------------------- */

static char *long_request(unsigned timeout_ms)
{
    char *text = malloc(LONG_TEXT + 1);
    assert_non_null(text);
    memset(text, 'a', LONG_TEXT);
    text[LONG_TEXT] = '\0';
    char *body =
        dump(json_pack("{s:s, s:s, s:i}", "model", "endless-simple", "input", text, "timeout_ms", (int)timeout_ms));
    free(text);
    return body;
}

static void a_deadline_ends_it(void **state)
{
    (void)state;
    char *body = long_request(10);
    struct reply r;
    post(body, &r);
    reply_assert_error(&r, 408, "deadline_exceeded", NULL, NULL);
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    reply_clear(&r);
    free(body);
}

static void a_client_that_leaves_is_noticed(void **state)
{
    (void)state;
    char *body = long_request(60000), *text = raw_post("/v1/embeddings", body, "");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    (void)client_await_metric(&aftd, "aftd_streams_running", 1, HANG_MS);
    raw_close(fd);
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    free(text);
    free(body);
}

/* ---- wrong requests --------------------------------------------------------------------------------------------- */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static char too_long[600], too_many[400];
    static const struct {
        const char *body, *param, *says;
    } cases[] = {
        {"{}", "input", "missing"},
        {"{\"input\": null}", "input", "missing"},
        {"{\"input\": \"\"}", "input", "is empty; expected at least one byte"},
        {"{\"input\": []}", "input", "a list of bytes"},
        {"{\"input\": [\"a\", \"\"]}", "input[1]", "is empty"},
        {"{\"input\": [\"a\", 5]}", "input", "a string"},
        {"{\"input\": [256]}", "input", "0 to 255"},
        {"{\"input\": [[1], [-1]]}", "input", "0 to 255"},
        {"{\"input\": [1.5]}", "input", "0 to 255"},
        {too_long, "input", "has 513 bytes; expected at most 512, the context of the model \"enwik8-aft-local\""},
        {too_many, "input", "at most 64"},
        {"{\"model\": \"starting\", \"input\": \"123456789012345678901234567890123456789012345678\"}", "input",
         "48 bytes; expected at most 47"},
        {"{\"model\": \"text-fastformer\", \"input\": [\"a\", \"1234567890123456789012345678901234567890123456789\"]}",
         "input[1]", "49 bytes; expected at most 48"},
        {"{\"input\": \"a\", \"encoding_format\": \"int8\"}", "encoding_format", "\"float\" or \"base64\""},
        {"{\"input\": \"a\", \"dimensions\": 100}", "dimensions", "is 100; expected 192"},
        {"{\"input\": \"a\", \"dimensions\": 0}", "dimensions", "from 1"},
        {"{\"model\": \"cifar10-aft-conv\", \"input\": \"a\"}", "model", "is for image-classification; expected one"},
        {"{\"model\": \"cifar10-pixels-16\", \"input\": \"a\"}", "model", "is for image-generation"},
        {"{\"model\": \"enwik8-aft-local\", \"images\": [\"YQ==\"]}", "model", "is for text-generation"},
        {"{\"model\": \"cifar10-pixels-16\", \"images\": [\"YQ==\"]}", "model", "is for image-generation"},
        {"{\"input\": \"a\", \"images\": [\"YQ==\"]}", "images", "both given"},
        {"{\"images\": []}", "images", "1 to 64"},
        {"{\"images\": [\"!\"]}", "images[0]", "base64"},
        {"{\"prompt\": \"a\"}", "prompt", "did you mean \"input\""},
        {"{\"input\": \"a\", \"priority\": \"soon\"}", "priority", "normal"},
        {"{\"input\": \"a\", \"timeout_ms\": 0}", "timeout_ms", "from 1"},
        {"{\"input\": \"a\", \"user\": 5}", "user", "a string"},
        {"[]", NULL, "JSON object"},
    };
    (void)snprintf(too_long, sizeof too_long, "{\"input\": \"%0513d\"}", 0);
    size_t used = (size_t)snprintf(too_many, sizeof too_many, "{\"input\": [\"a\"");
    for (int i = 0; i < GENERATE_PROMPTS_MAX; i++)
        used += (size_t)snprintf(too_many + used, sizeof too_many - used, ", \"b\"");
    (void)snprintf(too_many + used, sizeof too_many - used, "]}");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        print_message("  %.70s\n", cases[i].body);
        post(cases[i].body, &r);
        reply_assert_error(&r, 400, "invalid_value", cases[i].param, cases[i].says);
        reply_clear(&r);
    }
    struct reply r;
    post("{\"images\": [\"YQ==\"]}", &r);
    reply_assert_error(&r, 415, "unsupported_media", "images[0]", "images[0]");
    reply_clear(&r);
    post("{\"model\": \"none\", \"input\": \"a\"}", &r);
    reply_assert_error(&r, 404, "not_found", "model", "none");
    reply_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_without_an_end_has_no_context),
        cmocka_unit_test(each_text_has_the_bits_that_it_has_alone),
        cmocka_unit_test(several_texts_come_in_order_in_every_form),
        cmocka_unit_test(a_text_that_was_parked_has_the_same_bits),
        cmocka_unit_test(pictures_have_the_bits_that_they_have_alone),
        cmocka_unit_test(a_deadline_ends_it),
        cmocka_unit_test(a_client_that_leaves_is_noticed),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
