/* test_score.c - POST /score, and models whose streams have another beginning or no end: a start embedding, no
 * positions. What the daemon answers is what the engine says when each element is fed by itself, however long the text
 * is and whatever runs beside it. The real daemon. */
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
#include <unistd.h>

#include <cmocka.h>

#include "config/utf8.h"
#include "engine/engine.h"
#include "server/media/picture.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/generation.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, SIDE = 16, SUB_PIXELS = 3 * SIDE * SIDE, TEXT_MAX = 2000, ENDLESS_CONTEXT = 6 };

static char models[PATH_MAX];
static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    temp_dir_create(models);
    model_variants_link(models, "tests/data/models", "enwik8-aft-local");
    model_variants_link(models, "weights/models", "cifar10-pixels-16");
    model_variants_link(models, "weights/models", "cifar10-sima");
    model_variants_write_starting(models);
    model_variants_write_endless(models, "endless-simple", GOLDEN "lm-simple", ENDLESS_CONTEXT);
    model_variants_write_endless(models, "endless-conv", GOLDEN "lm-conv-heads4-k5", ENDLESS_CONTEXT);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, "--streams-max=4", "--pass-rows-max=7", NULL});
    return 0;
}

/* ---- the engine by itself --------------------------------------------------------------------------------------- */

struct alone {
    struct model *model;
    struct engine *engine;
    uint32_t context; /* UINT32_MAX: none */
    bool starts;
    float logits[BYTE_VALUES];
};

static void alone_open(struct alone *a, const char *name)
{
    char path[PATH_MAX];
    const struct engine_options options = {.threads = 1, .streams_max = 1, .rows_max = 1};
    temp_path(path, models, name);
    assert_int_equal(model_load(&a->model, path, NULL, NULL, NULL), OK);
    assert_int_equal(engine_open(&a->engine, a->model, &options, NULL), OK);
    a->starts = a->model->start_embed != NULL;
    a->context = strncmp(name, "endless", 7) == 0 ? UINT32_MAX : a->model->config.context;
}

static void alone_close(struct alone *a)
{
    engine_close(a->engine);
    model_free(a->model);
}

static void feed(struct alone *a, uint8_t element)
{
    const struct engine_part part = {.count = 1, .bytes = &element, .logits = a->logits};
    engine_feed(a->engine, &part, 1);
}

static double log2_of(const float *logits, uint8_t element)
{
    double sum = 0.0;
    for (size_t i = 0; i < BYTE_VALUES; i++)
        sum += exp((double)logits[i]);
    return ((double)logits[element] - log(sum)) / log(2.0);
}

/* log2 p of each element that has one; returns how many. */
static size_t score_alone(const char *name, const uint8_t *elements, size_t count, double *log2_p)
{
    struct alone a;
    size_t n = 0;
    alone_open(&a, name);
    for (size_t i = a.starts ? 0 : 1; i < count; i++, n++) {
        const bool anew = n == 0 || (a.context != UINT32_MAX && n % a.context == 0);
        if (anew)
            engine_stream_reset(a.engine, 0);
        feed(&a, anew && a.starts ? 77 : elements[i - 1]);
        log2_p[n] = log2_of(a.logits, elements[i]);
    }
    alone_close(&a);
    return n;
}

/* Greedily; *dropped bytes of the prompt were not fed. */
static size_t generate_alone(const char *name, const char *prompt, size_t max, bool shift, uint8_t *out,
                             size_t *dropped)
{
    struct alone a;
    uint8_t all[TEXT_MAX];
    size_t size = strlen(prompt), made = 0;
    alone_open(&a, name);
    const size_t limit = a.context == UINT32_MAX ? SIZE_MAX : a.context - (a.starts || !shift ? 1 : 0);
    for (size_t i = 0; i < size; i++)
        all[i] = (uint8_t)prompt[i];
    *dropped = size <= limit ? 0 : size - (shift ? a.context / 2 : limit);
    if (a.starts)
        feed(&a, 5);
    else if (size == 0)
        feed(&a, '\n');
    for (size_t i = *dropped; i < size; i++)
        feed(&a, all[i]);
    for (;;) {
        uint8_t best = 0;
        for (size_t i = 1; i < BYTE_VALUES; i++)
            if (a.logits[i] > a.logits[best])
                best = (uint8_t)i;
        all[size++] = out[made++] = best;
        const bool full = engine_stream_position(a.engine, 0) == a.context;
        if (made == max || (full && !shift))
            break;
        if (full) {
            engine_stream_reset(a.engine, 0);
            if (a.starts)
                feed(&a, 9);
            for (size_t i = size - a.context / 2; i < size; i++)
                feed(&a, all[i]);
        } else {
            feed(&a, best);
        }
    }
    alone_close(&a);
    return made;
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

static void write_text(uint8_t *text, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1103515245u + 12345u;
        text[i] = (uint8_t)(seed >> 16);
    }
}

static char *score_body(const char *model, const uint8_t *text, size_t size)
{
    char encoded[BASE64_ENCODE_RAW_LENGTH(TEXT_MAX)];
    base64_encode_raw(encoded, size, text);
    json_t *body = json_pack("{s:s, s:s%}", "model", model, "text_base64", encoded, BASE64_ENCODE_RAW_LENGTH(size));
    char *dumped = json_dumps(body, 0);
    json_decref(body);
    assert_non_null(dumped);
    return dumped;
}

/* The answer's numbers are `want` [n], and their mean is what it says. */
static void assert_scores(const struct reply *r, const char *model, const char *mean, const char *unit, size_t count,
                          const double *want, size_t n)
{
    json_t *answer = reply_json(r), *each;
    size_t i;
    double bits = 0.0;
    assert_int_equal(r->status, 200);
    assert_string_equal(json_string_value(json_object_get(answer, "model")), model);
    assert_int_equal(json_integer_value(json_object_get(answer, unit)), count);
    const json_t *list = json_object_get(answer, "log2_probs");
    assert_int_equal(json_array_size(list), n);
    json_array_foreach(list, i, each)
    {
        if (!(fabs(json_number_value(each) - want[i]) < 1e-5 * fmax(1.0, fabs(want[i]))))
            fail_msg("%s: element %zu: %g, expected %g", model, i, json_number_value(each), want[i]);
        bits -= json_number_value(each);
    }
    assert_true(fabs(json_number_value(json_object_get(answer, mean)) - bits / (double)n) < 1e-6);
    json_decref(answer);
}

/* Texts of all lengths around the context, all at once. */
static void each_byte_has_the_probability_that_it_has_alone(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        size_t size;
    } cases[] = {
        {"enwik8-aft-local", 2}, {"enwik8-aft-local", 513}, {"enwik8-aft-local", 1300}, {"starting", 1},
        {"starting", 2},         {"starting", 47},          {"starting", 48},           {"starting", 49},
        {"starting", 96},        {"starting", 97},          {"starting", 200},          {"endless-simple", 2},
        {"endless-simple", 6},   {"endless-simple", 7},     {"endless-simple", 8},      {"endless-simple", 13},
        {"endless-simple", 700}, {"endless-conv", 6},       {"endless-conv", 7},        {"endless-conv", 500},
    };
    static uint8_t texts[ARRAY_LEN(cases)][TEXT_MAX];
    static double want[TEXT_MAX];
    struct request requests[ARRAY_LEN(cases)];
    struct reply replies[ARRAY_LEN(cases)];
    char *bodies[ARRAY_LEN(cases)];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        write_text(texts[i], cases[i].size, (unsigned)i);
        bodies[i] = score_body(cases[i].model, texts[i], cases[i].size);
        requests[i] = (struct request){
            .path = "/score", .type = "application/json", .body = bodies[i], .size = strlen(bodies[i])};
    }
    client_call_all(&aftd, requests, replies, ARRAY_LEN(cases), NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        print_message("  %s, %zu bytes\n", cases[i].model, cases[i].size);
        const size_t n = score_alone(cases[i].model, texts[i], cases[i].size, want);
        assert_scores(&replies[i], cases[i].model, "bits_per_byte", "bytes", cases[i].size, want, n);
        reply_clear(&replies[i]);
        free(bodies[i]);
    }
}

static void a_picture_has_bits_per_dim(void **state)
{
    (void)state;
    static double want[SUB_PIXELS];
    static uint8_t seen[SUB_PIXELS];
    struct picture picture = {0};
    struct reply r;
    size_t size;
    uint8_t *bytes = picture_file_read("tests/data/cifar/truck.jpg", &size);
    assert_int_equal(picture_decode(&picture, bytes, size, NULL, NULL), OK);
    assert_int_equal(picture_prepare(seen, SIDE, SIDE, &picture, SIDE, INTERPOLATION_BICUBIC, NULL), OK);
    const size_t n = score_alone("cifar10-pixels-16", seen, SUB_PIXELS, want);
    assert_int_equal(n, SUB_PIXELS);
    const char *const types[] = {"image/jpeg", NULL};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct request request = {.path = "/score", .type = types[i], .body = bytes, .size = size};
        client_call(&aftd, &request, &r);
        assert_scores(&r, "cifar10-pixels-16", "bits_per_dim", "dims", SUB_PIXELS, want, n);
        reply_clear(&r);
    }
    picture_clear(&picture);
    free(bytes);
}

static void a_text_is_likelier_than_noise(void **state)
{
    (void)state;
    static const char *const texts[] = {"The history of the city of Rome", "Tqe hzstory ob the cjty xf Rowe"};
    double bits[2];
    for (size_t i = 0; i < 2; i++) {
        char *body = score_body("enwik8-aft-local", (const uint8_t *)texts[i], strlen(texts[i]));
        const struct request request = {.path = "/score", .body = body, .size = strlen(body)}; /* undeclared JSON */
        struct reply r;
        client_call(&aftd, &request, &r);
        json_t *answer = reply_json(&r);
        bits[i] = json_number_value(json_object_get(answer, "bits_per_byte"));
        json_decref(answer);
        reply_clear(&r);
        free(body);
    }
    assert_true(bits[0] > 0.5 && bits[0] < 2.5 && bits[1] > bits[0] + 2.0);
}

/* ---- texts from such models ------------------------------------------------------------------------------------- */

static void a_stream_is_the_engines_whatever_its_beginning_and_end(void **state)
{
    (void)state;
    static const char hundred[] = "The quick brown fox jumps over the lazy dog, and the dog, being lazy, does not mind "
                                  "it at all today.";
    static const struct {
        const char *model, *prompt;
        int max;
        bool shift;
        const char *finish;
    } cases[] = {
        {"starting", "", 10, false, "length"},         {"starting", "", 60, false, "context"},
        {"starting", "", 130, true, "length"},         {"starting", hundred, 10, false, "context"},
        {"starting", hundred, 90, true, "length"},     {"starting", "The quick", 90, true, "length"},
        {"endless-simple", "", 80, false, "length"},   {"endless-simple", hundred, 80, false, "length"},
        {"endless-conv", "The q", 80, true, "length"}, {"endless-conv", hundred, 80, false, "length"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t raw[TEXT_MAX];
        char want[UTF8_GROWTH * TEXT_MAX];
        struct generation g;
        size_t dropped, bytes;
        const size_t made =
            generate_alone(cases[i].model, cases[i].prompt, (size_t)cases[i].max, cases[i].shift, raw, &dropped);
        (void)utf8_repair(want, &bytes, raw, made, true);
        generate(&aftd,
                 json_pack("{s:s, s:s, s:i, s:i, s:s, s:b}", "model", cases[i].model, "prompt", cases[i].prompt,
                           "max_tokens", cases[i].max, "temperature", 0, "context_overflow",
                           cases[i].shift ? "shift" : "stop", "stream", i % 2 == 0),
                 &g);
        print_message("  %s, %zu bytes and %d more%s\n", cases[i].model, strlen(cases[i].prompt), cases[i].max,
                      cases[i].shift ? ", shifted" : "");
        assert_same_text(cases[i].model, g.text, g.bytes, want, bytes);
        assert_int_equal(g.completion_tokens, made);
        assert_int_equal(g.dropped, dropped);
        assert_string_equal(g.finish, cases[i].finish);
        generation_clear(&g);
    }
}

/* ---- wrong requests --------------------------------------------------------------------------------------------- */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *path, *type, *body;
        long status;
        const char *code, *param, *says;
    } cases[] = {
#define JSON_CASE(body, param, says) {"/score", "application/json", body, 400, "invalid_value", param, says}
        JSON_CASE("{}", "text", "missing"),
        JSON_CASE("{\"model\": \"enwik8-aft-local\"}", "text", "missing"),
        JSON_CASE("{\"model\": \"enwik8-aft-local\", \"text\": \"a\"}", "text", "at least 2"),
        JSON_CASE("{\"model\": \"starting\", \"text\": \"\"}", "text", "at least 1"),
        JSON_CASE("{\"model\": \"starting\", \"text_base64\": \"\"}", "text_base64", "at least 1"),
        JSON_CASE("{\"model\": \"starting\", \"text_base64\": \"a\"}", "text_base64", "base64"),
        JSON_CASE("{\"model\": \"starting\", \"text\": \"a\", \"text_base64\": \"YQ==\"}", "text_base64", "both"),
        JSON_CASE("{\"model\": \"starting\", \"text\": 5}", "text", "a string"),
        JSON_CASE("{\"model\": \"starting\", \"text\": \"a\", \"top_k\": 5}", "top_k", "text_base64"),
        JSON_CASE("{\"model\": \"cifar10-pixels-16\", \"text\": \"abc\"}", "model", "image-generation"),
        JSON_CASE("{\"model\": \"cifar10-sima\", \"text\": \"abc\"}", "model", "image-classification"),
        JSON_CASE("[]", NULL, "JSON object"),
        {"/score", "text/plain", "ab", 415, "unsupported_media", "Content-Type", "application/json"},
        {"/score", "image/jpeg", "ab", 415, "unsupported_media", NULL, "JPEG"},
        {"/score?model=enwik8-aft-local", "image/jpeg", "ab", 400, "invalid_value", "model", "text-generation"},
        {"/score?text=ab", "image/jpeg", "ab", 400, "invalid_value", "text", "timeout_ms"},
        {"/score", "image/jpeg", "", 400, "invalid_value", NULL, "empty"},
        {"/score?timeout_ms=soon", "application/json", "{\"text\": \"ab\"}", 400, "invalid_value", "timeout_ms",
         "whole number"},
        {"/score?model=starting&top_k=1", "application/json", "{\"text\": \"ab\"}", 400, "invalid_value", "top_k",
         "there is no parameter"},
        {"/score?model=enwik8-aft-local", "application/json", "{\"text\": \"a\"}", 400, "invalid_value", "text",
         "at least 2"},
        {"/score?model=enwik8-aft-local", "application/json", "{\"text\": \"\", \"model\": \"starting\"}", 400,
         "invalid_value", "text", "at least 1"},
        {"/classify?model=enwik8-aft-local", "image/jpeg", "ab", 400, "invalid_value", "model", "text-generation"},
        {"/classify", "application/json", "{\"text\": \"a\", \"model\": \"cifar10-sima\"}", 400, "invalid_value",
         "model", "image-classification"},
        {"/generate", "application/json", "{\"prompt\": \"a\", \"model\": \"cifar10-pixels-16\"}", 400, "invalid_value",
         "model", "image-generation"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct request request = {.method = "POST",
                                        .path = cases[i].path,
                                        .type = cases[i].type,
                                        .body = cases[i].body,
                                        .size = strlen(cases[i].body)};
        struct reply r;
        print_message("  %s %s\n", cases[i].path, cases[i].body);
        client_call(&aftd, &request, &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
}

/* Trying again would not help, so that the answer is not 503. */
static void an_answer_that_can_never_fit_is_refused_as_that(void **state)
{
    enum { SIZE = 160000 };
    struct daemon small;
    struct reply r;
    char *body = malloc(SIZE + 32);
    (void)state;
    assert_non_null(body);
    (void)snprintf(body, SIZE + 32, "{\"text\": \"%0*d\"}", SIZE, 0);
    const struct request request = {.path = "/score", .type = "application/json", .body = body, .size = strlen(body)};
    daemon_start(&small, (const char *const[]){"--answers-memory-max-mb=16", NULL});
    client_call(&small, &request, &r);
    reply_assert_error(&r, 400, "invalid_value", NULL, "answers_memory_max_mb");
    reply_clear(&r);
    daemon_stop(&small);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_has_the_probability_that_it_has_alone),
        cmocka_unit_test(a_picture_has_bits_per_dim),
        cmocka_unit_test(a_text_is_likelier_than_noise),
        cmocka_unit_test(a_stream_is_the_engines_whatever_its_beginning_and_end),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(an_answer_that_can_never_fit_is_refused_as_that),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
