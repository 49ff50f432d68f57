/* test_classify_text.c - POST /classify with a text: every answer is the engine's for that text alone, whatever
 * else is asked meanwhile; wrong bodies. The real daemon with two text classifiers and a picture classifier. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { CLASSES = 3, TEXTS = 40, CONTEXT = 48 };

static const char *const names[] = {"text-attention", "text-fastformer", "conv-heads8-k5"};
static char models[PATH_MAX];
static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    temp_dir_create(models);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        model_variants_link(models, GOLDEN, names[i]);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    return 0;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* The probabilities that the engine gives a text. */
static void classify_alone(const char *name, const char *text, double p[CLASSES])
{
    char path[PATH_MAX];
    struct model *m = NULL;
    struct engine *e = NULL;
    const struct engine_options options = {.threads = 1, .pictures_max = 1};
    const uint8_t *batch[1] = {(const uint8_t *)text};
    double sum = 0.0;
    temp_path(path, GOLDEN, name);
    assert_int_equal(model_load(&m, path, NULL, NULL, NULL), OK);
    assert_int_equal(engine_open(&e, m, &options, NULL), OK);
    assert_int_equal(m->config.classes, CLASSES);
    engine_texts_begin(e, batch, 1, (uint32_t)strlen(text));
    while (!engine_batch_step(e))
        ;
    for (size_t c = 0; c < CLASSES; c++)
        sum += p[c] = exp((double)engine_batch_logits(e, 0)[c]);
    for (size_t c = 0; c < CLASSES; c++)
        p[c] /= sum;
    engine_close(e);
    model_free(m);
}

static void assert_predictions(json_t *answer, const char *name, const double p[CLASSES])
{
    const char *model;
    json_t *predictions;
    size_t i;
    json_t *each;
    double before = 1.0;
    assert_int_equal(
        json_unpack_ex(answer, NULL, JSON_STRICT, "{s:s, s:o}", "model", &model, "predictions", &predictions), 0);
    assert_string_equal(model, name);
    assert_int_equal(json_array_size(predictions), CLASSES);
    json_array_foreach(predictions, i, each)
    {
        const char *label;
        int index;
        double probability;
        assert_int_equal(json_unpack_ex(each, NULL, JSON_STRICT, "{s:s, s:i, s:f}", "label", &label, "index", &index,
                                        "probability", &probability),
                         0);
        assert_in_range(index, 0, CLASSES - 1);
        assert_true(fabs(probability - p[index]) < 1e-6 && probability <= before);
        before = probability;
    }
}

static void assert_answer(const struct reply *r, const char *name, const double p[CLASSES])
{
    assert_int_equal(r->status, 200);
    json_t *answer = reply_json(r);
    assert_predictions(answer, name, p);
    json_decref(answer);
}

static void texts_get_the_answers_that_they_get_alone(void **state)
{
    (void)state;
    static char texts[TEXTS][CONTEXT + 1], bodies[TEXTS][CONTEXT + 80];
    struct request requests[TEXTS];
    struct reply replies[TEXTS];
    for (size_t i = 0; i < TEXTS; i++) { /* of 1 to CONTEXT bytes */
        const size_t length = i == 0 ? CONTEXT : i;
        for (size_t b = 0; b < length; b++)
            texts[i][b] = (char)('a' + (i * 7 + b * b * 3) % 26);
        assert_in_range(
            snprintf(bodies[i], sizeof bodies[i], "{\"model\": \"%s\", \"text\": \"%s\"}", names[i % 2], texts[i]), 1,
            sizeof bodies[i] - 1);
        requests[i] = (struct request){.path = "/classify",
                                       .type = i % 3 == 0 ? "application/json" : NULL,
                                       .body = bodies[i],
                                       .size = strlen(bodies[i])};
    }
    client_call_all(&aftd, requests, replies, TEXTS, NULL);
    for (size_t i = 0; i < TEXTS; i++) {
        double p[CLASSES];
        classify_alone(names[i % 2], texts[i], p);
        assert_answer(&replies[i], names[i % 2], p);
        reply_clear(&replies[i]);
    }
}

static void many_texts_get_a_list_of_such_answers(void **state)
{
    (void)state;
    static const char *const texts[] = {"good", "b", "a longer one", "b"};
    static const char body[] =
        "{\"model\": \"text-fastformer\", \"texts\": [\"good\", \"b\", \"a longer one\", \"b\"]}";
    struct reply r;
    client_call(&aftd,
                &(struct request){.path = "/classify", .type = "application/json", .body = body, .size = strlen(body)},
                &r);
    json_t *answers = reply_json(&r), *each;
    size_t i;
    assert_int_equal(json_array_size(answers), ARRAY_LEN(texts));
    json_array_foreach(answers, i, each)
    {
        double p[CLASSES];
        classify_alone("text-fastformer", texts[i], p);
        assert_predictions(each, "text-fastformer", p);
    }
    json_decref(answers);
    reply_clear(&r);
}

static void the_query_may_name_the_model_and_how_many(void **state)
{
    (void)state;
    static const char body[] = "{\"text\": \"good\"}", both[] = "{\"text\": \"good\", \"top_k\": 2}";
    const struct {
        const char *path, *body;
        size_t count;
    } cases[] = {{"/classify?model=text-attention&top_k=1", body, 1},
                 {"/classify?model=text-attention", both, 2},
                 {"/classify?model=text-attention&top_k=1", both, 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        client_call(&aftd,
                    &(struct request){.path = cases[i].path,
                                      .type = "application/json; charset=utf-8",
                                      .body = cases[i].body,
                                      .size = strlen(cases[i].body)},
                    &r);
        assert_int_equal(r.status, 200);
        json_t *answer = reply_json(&r);
        assert_int_equal(json_array_size(json_object_get(answer, "predictions")), cases[i].count);
        json_decref(answer);
        reply_clear(&r);
    }
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

static void wrong_bodies_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        long status;
        const char *code, *param, *says;
    } cases[] = {
        {"", 400, "invalid_value", NULL, "empty"},
        {"{", 400, "invalid_value", NULL, "not valid JSON"},
        {"[\"text\"]", 400, "invalid_value", NULL, "expected a JSON object"},
        {"{}", 400, "invalid_value", "text", "missing"},
        {"{\"model\": \"text-attention\"}", 400, "invalid_value", "text", "missing"},
        {"{\"model\": \"text-attention\", \"text\": 5}", 400, "invalid_value", "text", "5"},
        {"{\"model\": \"text-attention\", \"text\": \"\"}", 400, "invalid_value", "text", "0 bytes; expected 1 to 48"},
        {"{\"model\": \"text-attention\", \"text\": \"0123456789012345678901234567890123456789012345678\"}", 400,
         "invalid_value", "text", "49 bytes; expected 1 to 48"},
        {"{\"model\": \"text-attention\", \"text\": \"a\", \"text\": \"b\"}", 400, "invalid_value", NULL, "duplicate"},
        {"{\"model\": \"text-attention\", \"text\": \"a\", \"top_k\": 0}", 400, "invalid_value", "top_k",
         "from 1 to 1000"},
        {"{\"model\": \"text-attention\", \"text\": \"a\", \"top_k\": 1.5}", 400, "invalid_value", "top_k",
         "from 1 to 1000"},
        {"{\"model\": \"text-attention\", \"text\": \"a\", \"image\": \"b\"}", 400, "invalid_value", "image",
         "text, texts, images, model, top_k"},
        {"{\"model\": \"text-attention\", \"texts\": []}", 400, "invalid_value", "texts", "a list of 1 to 64 texts"},
        {"{\"model\": \"text-attention\", \"texts\": [\"a\", \"\"]}", 400, "invalid_value", "texts",
         "none of them empty"},
        {"{\"model\": \"text-attention\", \"texts\": [\"a\", 1]}", 400, "invalid_value", "texts", "of 1 to 64 texts"},
        {"{\"model\": \"text-attention\", \"texts\": [\"a\", \"0123456789012345678901234567890123456789012345678\"]}",
         400, "invalid_value", "texts[1]", "49 bytes; expected 1 to 48"},
        {"{\"model\": \"text-attention\", \"text\": \"a\", \"texts\": [\"a\"]}", 400, "invalid_value", "texts",
         "are both given"},
        {"{\"model\": \"text-attention\", \"texts\": [\"a\"], \"size\": \"native\"}", 400, "invalid_value", "size",
         "no \"size\" with a text"},
        {"{\"model\": 7, \"text\": \"a\"}", 400, "invalid_value", "model", "the name of a model"},
        {"{\"model\": \"nothing\", \"text\": \"a\"}", 404, "not_found", "model", "text-attention"},
        {"{\"model\": \"conv-heads8-k5\", \"text\": \"a\"}", 400, "invalid_value", "model", "image-classification"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        client_call(
            &aftd,
            &(struct request){
                .path = "/classify", .type = "application/json", .body = cases[i].body, .size = strlen(cases[i].body)},
            &r);
        print_message("  %s\n", cases[i].body);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
}

static void a_picture_for_a_text_model_is_refused(void **state)
{
    (void)state;
    struct reply r;
    size_t size;
    char *picture = temp_read("tests/data/images/small-32.jpg", &size);
    client_call(&aftd,
                &(struct request){
                    .path = "/classify?model=text-attention", .type = "image/jpeg", .body = picture, .size = size},
                &r);
    reply_assert_error(&r, 400, "invalid_value", "model", "text-classification");
    reply_clear(&r);
    free(picture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_get_the_answers_that_they_get_alone),
        cmocka_unit_test(many_texts_get_a_list_of_such_answers),
        cmocka_unit_test(the_query_may_name_the_model_and_how_many),
        cmocka_unit_test(wrong_bodies_are_refused_by_name),
        cmocka_unit_test(a_picture_for_a_text_model_is_refused),
    };
    return cmocka_run_group_tests(tests, start, daemons_end);
}
