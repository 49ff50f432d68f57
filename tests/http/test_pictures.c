/* test_pictures.c - pictures in every form that a request may give them: JPEG, PNG and WebP as the body,
 * as parts of a form, as base64 in JSON, several at once. The real daemon with the shipped models. */
#include <jansson.h>
#include <nettle/base64.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <webp/encode.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/pictures.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define CONV "cifar10-aft-conv"
#define FORMATS_DIR PICTURES_DIR "formats/"

enum { LIMIT_S = 580 };

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--models-dir=weights/models", NULL});
    return 0;
}

static void post(const char *path, const char *type, const char *file, struct reply *ret)
{
    size_t size;
    uint8_t *bytes = picture_file_read(file, &size);
    client_call(&aftd, &(struct request){.path = path, .type = type, .body = bytes, .size = size}, ret);
    free(bytes);
}

/* ---- one, as the body ------------------------------------------------------------------------------------------- */

/* Files with equal pixels, however they are encoded: their answers are equal to the last digit. */
static void equal_pixels_have_equal_answers(void **state)
{
    static const char *const paths[] = {"/classify?model=" CONV, "/score?model=cifar10-pixels-16",
                                        "/explain?side=64&model=" CONV, "/complete?seed=1&rows=14"};
    static const struct {
        const char *one, *type, *other, *other_type;
    } cases[] = {
        {"rgb-8.png", "image/png", "lossless.webp", "image/webp"},
        {"rgba-8.png", "application/octet-stream", "lossless-alpha.webp", NULL},
        {"turned.png", "IMAGE/PNG; x=y", "turned.webp", "application/x-www-form-urlencoded"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths) * ARRAY_LEN(cases); i++) {
        const char *path = paths[i % ARRAY_LEN(paths)];
        const size_t c = i / ARRAY_LEN(paths);
        char one[256], other[256];
        struct reply r, s;
        (void)snprintf(one, sizeof one, "%s%s", FORMATS_DIR, cases[c].one);
        (void)snprintf(other, sizeof other, "%s%s", FORMATS_DIR, cases[c].other);
        post(path, cases[c].type, one, &r);
        post(path, cases[c].other_type, other, &s);
        if (r.status != 200 || s.status != 200)
            fail_msg("%s of %s: %ld and %ld %s", path, cases[c].one, r.status, s.status, s.body);
        assert_int_equal(r.size, s.size);
        assert_memory_equal(r.body, s.body, r.size);
        reply_clear(&r);
        reply_clear(&s);
    }
}

static void a_type_that_the_bytes_contradict_is_refused(void **state)
{
    static const struct {
        const char *path, *file, *type, *says;
    } cases[] = {
        {"/classify?model=" CONV, "rgb-8.png", "image/jpeg",
         "declared as image/jpeg, but its bytes are those of image/png"},
        {"/classify?model=" CONV, "lossy.webp", "image/png",
         "declared as image/png, but its bytes are those of image/webp"},
        {"/explain?model=" CONV, "../gray.jpg", "image/webp",
         "declared as image/webp, but its bytes are those of image/jpeg"},
        {"/complete", "lossy.webp", "image/jpeg; q=1", "declared as image/jpeg, but its bytes are those of image/webp"},
        {"/score?model=cifar10-pixels-16", "rgb-8.png", "Image/WebP",
         "declared as Image/WebP, but its bytes are those of image/png"},
        {"/classify?model=" CONV, "rgb-8.png", "image/gif", "expected one of image/jpeg, image/png, image/webp, "},
        {"/score?model=cifar10-pixels-16", "rgb-8.png", "image/tiff",
         "expected one of image/jpeg, image/png, image/webp, "},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char file[256];
        struct reply r;
        (void)snprintf(file, sizeof file, "%s%s", FORMATS_DIR, cases[i].file);
        post(cases[i].path, cases[i].type, file, &r);
        reply_assert_error(&r, 415, "unsupported_media", "Content-Type", cases[i].says);
        reply_clear(&r);
    }
}

/* ---- several, or in another form -------------------------------------------------------------------------------- */

enum { PICTURES = 5, FORM_MAX = 400000 };

static const char *const files[PICTURES] = {"tests/data/cifar/cat.jpg", FORMATS_DIR "rgb-8.png",
                                            FORMATS_DIR "lossy.webp", PICTURES_DIR "orientation-6.jpg",
                                            FORMATS_DIR "turned-rgba.png"};

/* The answer to each file alone. */
static json_t *answers_alone(const char *path)
{
    json_t *list = json_array();
    for (size_t i = 0; i < PICTURES; i++) {
        struct reply r;
        post(path, NULL, files[i], &r);
        assert_int_equal(r.status, 200);
        assert_int_equal(json_array_append_new(list, reply_json(&r)), 0);
        reply_clear(&r);
    }
    return list;
}

/* A form of `count` times the files in turn. Returns its size. */
static size_t write_form(char *form, size_t count, const char *name, const char *type)
{
    char *at = form;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        uint8_t *bytes = picture_file_read(files[i % PICTURES], &size);
        at += sprintf(at, "--XX\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"f%zu\"\r\n%s\r\n", name, i,
                      type);
        memcpy(at, bytes, size);
        at += size;
        at += sprintf(at, "\r\n");
        free(bytes);
    }
    at += sprintf(at, "--XX--\r\n");
    assert_true(at - form < FORM_MAX);
    return (size_t)(at - form);
}

static char *to_base64(const char *file, const char *prefix)
{
    size_t size;
    uint8_t *bytes = picture_file_read(file, &size);
    char *text = malloc(strlen(prefix) + BASE64_ENCODE_RAW_LENGTH(size) + 1), *at = stpcpy(text, prefix);
    base64_encode_raw(at, size, bytes);
    at[BASE64_ENCODE_RAW_LENGTH(size)] = '\0';
    free(bytes);
    return text;
}

static void call_form(const char *path, const char *form, size_t size, struct reply *ret)
{
    client_call(&aftd,
                &(struct request){.path = path, .type = "multipart/form-data; boundary=XX", .body = form, .size = size},
                ret);
}

static void assert_answer(const char *name, const struct reply *r, json_t *wanted)
{
    json_t *got = r->status == 200 ? reply_json(r) : NULL;
    if (!json_equal(got, wanted))
        fail_msg("%s: %ld %s", name, r->status, r->body);
    json_decref(got);
}

static void parts_are_answered_as_each_alone(void **state)
{
    static const char *const paths[] = {"/classify?model=" CONV, "/classify?top_k=2&size=48x32&model=" CONV};
    char *form = malloc(FORM_MAX);
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(paths); p++) {
        struct reply r;
        json_t *alone = answers_alone(paths[p]);
        call_form(paths[p], form, write_form(form, PICTURES, "image", ""), &r);
        assert_answer("five parts", &r, alone);
        reply_clear(&r);
        call_form(paths[p], form, write_form(form, 1, "image", "Content-Type: image/jpeg\r\n"), &r);
        assert_answer("one part", &r, json_array_get(alone, 0));
        reply_clear(&r);
        json_decref(alone);
    }
    free(form);
}

/* As to /classify, so wherever one picture is posted; an input of a page that was left as it was is no picture. */
static void a_form_is_taken_where_the_picture_alone_is(void **state)
{
    static const char unused[] = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"\"\r\n"
                                 "Content-Type: application/octet-stream\r\n\r\n\r\n";
    static const char *const paths[] = {"/score?model=cifar10-pixels-16", "/explain?side=64&model=" CONV,
                                        "/complete?seed=1&rows=14"};
    char *form = malloc(FORM_MAX);
    const size_t more = sizeof unused - 1, size = more + write_form(form + more, 1, "image", "");
    memcpy(form, unused, more);
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(paths); p++) {
        struct reply alone, r;
        post(paths[p], NULL, files[0], &alone);
        call_form(paths[p], form, size, &r);
        if (alone.status != 200 || r.status != 200)
            fail_msg("%s: %ld and %ld %s", paths[p], alone.status, r.status, r.body);
        assert_int_equal(r.size, alone.size);
        assert_memory_equal(r.body, alone.body, r.size);
        reply_clear(&alone);
        reply_clear(&r);
    }
    free(form);
}

/* A picture's form with a further part before or behind it, and its answer. */
static void call_form_with(const char *name, const char *value, bool before, struct reply *r)
{
    char fields[256];
    const size_t more = (size_t)snprintf(
        fields, sizeof fields, "--XX\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n", name, value);
    char *form = malloc(FORM_MAX);
    const size_t size = write_form(form, 1, "file", ""), at = before ? 0 : size - strlen("--XX--\r\n");
    memmove(form + at + more, form + at, size - at);
    memmove(form + at, fields, more);
    call_form("/classify?top_k=3", form, size + more, r);
    free(form);
}

/* curl -F model=... -F top_k=2 -F file=@cat.jpg: in any order, over the query. */
static void a_form_has_what_the_query_has(void **state)
{
    static const struct {
        const char *name, *value, *path; /* what says the same in the query */
    } cases[] = {
        {"top_k", "2", "/classify?top_k=2"},
        {"size", "48x32", "/classify?size=48x32&top_k=3"},
        {"model", CONV, "/classify?model=" CONV "&top_k=3"},
    };
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        struct reply r;
        call_form_with(cases[i / 2].name, cases[i / 2].value, i % 2 == 0, &r);
        json_t *got = reply_json(&r);
        reply_clear(&r);
        post(cases[i / 2].path, NULL, files[0], &r);
        assert_int_equal(r.status, 200);
        json_t *want = reply_json(&r);
        assert_true(json_equal(got, want));
        reply_clear(&r);
        json_decref(got);
        json_decref(want);
    }
}

static void wrong_fields_of_a_form_are_refused_by_name(void **state)
{
    static const struct {
        const char *name, *value, *says;
        long status;
    } cases[] = {
        {"top_k", "0", "1 to", 400},
        {"top_k", "two", "a string", 400},
        {"top_k", "null", "a string", 400},
        {"model", "gone", "gone", 404},
        {"model", "", "the name", 400},
        {"seed", "1", "no part", 400},
        {"top_k", "2\r\n--XX\r\nContent-Disposition: form-data; name=\"top_k\"\r\n\r\n2", "given twice", 400},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        call_form_with(cases[i].name, cases[i].value, true, &r);
        reply_assert_error(&r, cases[i].status, cases[i].status == 404 ? "not_found" : "invalid_value", cases[i].name,
                           cases[i].says);
        reply_clear(&r);
    }
}

static void base64_is_answered_as_the_bytes_are(void **state)
{
    static const char *const prefixes[PICTURES] = {"", "data:image/png;base64,", "data:;base64,",
                                                   "DATA:image/jpg;x=y;BASE64,",
                                                   "data:application/octet-stream;base64,"};
    json_t *alone = answers_alone("/classify?top_k=3&model=" CONV), *images = json_array();
    (void)state;
    for (size_t i = 0; i < PICTURES; i++) {
        char *text = to_base64(files[i], prefixes[i]);
        assert_int_equal(json_array_append_new(images, json_string(text)), 0);
        free(text);
    }
    for (size_t n = PICTURES; n > 0; n -= n == PICTURES ? PICTURES - 1 : 1) { /* all, then one */
        struct reply r;
        while (json_array_size(images) > n)
            assert_int_equal(json_array_remove(images, n), 0);
        json_t *object = json_pack("{s:O, s:s, s:i}", "images", images, "model", CONV, "top_k", 3);
        char *body = json_dumps(object, JSON_COMPACT);
        client_call(
            &aftd,
            &(struct request){.path = "/classify", .type = "application/json", .body = body, .size = strlen(body)}, &r);
        assert_answer("base64", &r, n == 1 ? json_array_get(alone, 0) : alone);
        reply_clear(&r);
        free(body);
        json_decref(object);
    }
    json_decref(images);
    json_decref(alone);
}

static void as_many_as_may_be_and_no_more(void **state)
{
    char *form = malloc(FORM_MAX);
    struct reply r;
    (void)state;
    json_t *alone = answers_alone("/classify?model=" CONV);
    size_t size = 0, parts = 0;
    for (parts = 0; parts < 65; parts++) { /* small ones: files[1] */
        size_t bytes_size;
        uint8_t *bytes = picture_file_read(files[1], &bytes_size);
        size += (size_t)sprintf(form + size, "--XX\r\nContent-Disposition: form-data; name=image\r\n\r\n");
        memcpy(form + size, bytes, bytes_size);
        size += bytes_size;
        size += (size_t)sprintf(form + size, "\r\n");
        free(bytes);
        if (parts + 2 == 65) { /* 64 of them */
            (void)sprintf(form + size, "--XX--");
            call_form("/classify?model=" CONV, form, size + 6, &r);
            json_t *got = reply_json(&r);
            assert_int_equal(json_array_size(got), 64);
            for (size_t i = 0; i < 64; i++)
                assert_true(json_equal(json_array_get(got, i), json_array_get(alone, 1)));
            json_decref(got);
            reply_clear(&r);
        }
    }
    size += (size_t)sprintf(form + size, "--XX--");
    call_form("/classify?model=" CONV, form, size, &r);
    reply_assert_error(&r, 400, "invalid_value", "image[64]", "too many inputs; expected at most 64");
    reply_clear(&r);
    json_decref(alone);
    free(form);
}

static void wrong_parts_are_refused_by_name(void **state)
{
    static const struct {
        const char *name, *type, *param, *code, *says;
        long status;
    } cases[] = {
        {"picture", "", "picture", "invalid_value", "there is no part \"picture\" here", 400},
        {"Image", "", "Image", "invalid_value", "expected image or file with a picture, or one of model, top_k, size",
         400},
        {"text", "", "text", "invalid_value", "there is no part \"text\" here", 400},
        {"model", "", "model", "invalid_value", "\"model\" is not UTF-8", 400},
        {"top_k", "", "top_k", "invalid_value", "\"top_k\" is not UTF-8", 400},
        {"file", "Content-Type: image/png\r\n", "file[0]", "unsupported_media",
         "declared as image/png, but its bytes are those of image/jpeg", 415},
        {"image", "Content-Type: image/png\r\n", "image[0]", "unsupported_media",
         "declared as image/png, but its bytes are those of image/jpeg", 415},
        {"image", "Content-Type: multipart/mixed; boundary=YY\r\n", "image[0]", "unsupported_media",
         "declared as \"multipart/mixed\"", 415},
        {"image", "Content-Type: image/jpeg\r\n", "image[1]", "unsupported_media",
         "declared as image/jpeg, but its bytes are those of image/png", 415},
        {"image", "Content-Transfer-Encoding: base64\r\n", NULL, "invalid_value", "Content-Transfer-Encoding", 400},
    };
    char *form = malloc(FORM_MAX);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        call_form("/classify?model=" CONV, form, write_form(form, 2, cases[i].name, cases[i].type), &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
    struct reply r;
    const size_t size = write_form(form, 2, "image", "");
    call_form("/classify?model=" CONV, form, size - 20, &r);
    reply_assert_error(&r, 400, "invalid_value", NULL, "is truncated");
    reply_clear(&r);
    call_form("/classify?model=" CONV, "--XX--", 6, &r);
    reply_assert_error(&r, 400, "invalid_value", "image", "no part");
    reply_clear(&r);
    char *png = memmem(form, size, "\x89PNG", 4);
    assert_non_null(png);
    for (size_t i = 0; i < 4; i++)
        png[i] = "GIF8"[i];
    call_form("/classify?model=" CONV, form, size, &r);
    reply_assert_error(&r, 415, "unsupported_media", "image[1]", "looks like GIF");
    reply_clear(&r);
    free(form);
}

static void wrong_images_are_refused_by_name(void **state)
{
#define PIXEL "data:image/gif;base64,R0lGODlhAQABAAAAACw="
    static const struct {
        const char *body, *param, *code, *says;
        long status;
    } cases[] = {
        {"{\"images\": []}", "images", "invalid_value", "a list of 1 to 64 strings", 400},
        {"{\"images\": \"abcd\"}", "images", "invalid_value", "a list of 1 to 64 strings", 400},
        {"{\"images\": [1]}", "images", "invalid_value", "a list of 1 to 64 strings", 400},
        {"{\"images\": [\"\"]}", "images", "invalid_value", "a list of 1 to 64 strings", 400},
        {"{\"images\": [\"abc\"]}", "images[0]", "invalid_value", "is not base64", 400},
        {"{\"images\": [\"ab\\ncd\"]}", "images[0]", "invalid_value", "is not base64", 400},
        {"{\"images\": [\"ab\\u0000d\"]}", "images[0]", "invalid_value", "is not base64", 400},
        {"{\"images\": [\"abcd\"]}", "images[0]", "unsupported_media", "is not a JPEG, PNG or WebP", 415},
        {"{\"images\": [\"/9j/\"]}", "images[0]", "undecodable_picture", "does not decode", 422},
        {"{\"images\": [\"" PIXEL "\"]}", "images[0]", "unsupported_media", "declared as \"image/gif\"", 415},
        {"{\"images\": [\"data:image/png,abcd\"]}", "images[0]", "invalid_value", "of an unsupported form", 400},
        {"{\"images\": [\"data:\"]}", "images[0]", "invalid_value", "of an unsupported form", 400},
        {"{\"images\": [\"data:image/png;base64,\"]}", "images[0]", "unsupported_media", "empty", 415},
        {"{\"images\": [\"http://127.0.0.1/a.png\"]}", "images[0]", "invalid_value", "is a URL; expected the", 400},
        {"{\"images\": [\"/9j/\"], \"size\": 3}", "size", "invalid_value", "expected", 400},
        {"{\"images\": [\"/9j/\"], \"text\": \"a\"}", "images", "invalid_value", "both given", 400},
        {"{\"images\": [\"/9j/\"], \"picture\": 1}", "picture", "invalid_value", "no field", 400},
        {"{\"images\": [\"/9j/\"], \"model\": \"no\"}", "model", "not_found", "no", 404},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        client_call(&aftd,
                    &(struct request){.path = "/classify?model=" CONV,
                                      .type = "application/json",
                                      .body = cases[i].body,
                                      .size = strlen(cases[i].body)},
                    &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
}

/* Files of a few kilobytes that become many millions of pixels: the sum of a request is bounded. */
static void many_large_pictures_are_refused(void **state)
{
    enum { SIDE = 5500 };
    const size_t row = (size_t)SIDE * 3;
    uint8_t *pixels = calloc(SIDE, row), *webp = NULL;
    char *form = malloc(FORM_MAX);
    size_t size = 0;
    struct reply r;
    (void)state;
    assert_true(pixels != NULL && form != NULL);
    const size_t bytes = pixels != NULL ? WebPEncodeLosslessRGB(pixels, SIDE, SIDE, (int)row, &webp) : 0;
    if (webp == NULL || form == NULL) {
        free(form);
        free(pixels);
        fail_msg("libwebp wrote nothing");
        return;
    }
    for (int i = 0; i < 7; i++) {
        size += (size_t)sprintf(form + size, "--XX\r\nContent-Disposition: form-data; name=image\r\n\r\n");
        memcpy(form + size, webp, bytes);
        size += bytes;
        size += (size_t)sprintf(form + size, "\r\n");
    }
    size += (size_t)sprintf(form + size, "--XX--");
    call_form("/classify?model=" CONV, form, size, &r);
    print_message("  seven pictures of 30 million pixels in %zu bytes: %.2f s\n", size, r.seconds);
    reply_assert_error(&r, 422, "undecodable_picture", "image[6]",
                       "too many pixels in all; expected at most 209715200");
    reply_clear(&r);
    WebPFree(webp);
    free(form);
    free(pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_pixels_have_equal_answers),
        cmocka_unit_test(a_type_that_the_bytes_contradict_is_refused),
        cmocka_unit_test(parts_are_answered_as_each_alone),
        cmocka_unit_test(base64_is_answered_as_the_bytes_are),
        cmocka_unit_test(as_many_as_may_be_and_no_more),
        cmocka_unit_test(a_form_is_taken_where_the_picture_alone_is),
        cmocka_unit_test(a_form_has_what_the_query_has),
        cmocka_unit_test(wrong_fields_of_a_form_are_refused_by_name),
        cmocka_unit_test(wrong_parts_are_refused_by_name),
        cmocka_unit_test(wrong_images_are_refused_by_name),
        cmocka_unit_test(many_large_pictures_are_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("pictures over HTTP", tests, start, daemons_end);
}
