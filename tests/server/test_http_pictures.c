/* test_http_pictures.c - pictures in every form that a request may give them: JPEG, PNG and WebP as the body, whatever
 * it is declared as. The real daemon with the shipped models. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/pictures.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define CONV "cifar10-aft-conv"
#define FORMATS_DIR PICTURES_DIR "formats/"

enum { LIMIT_S = 120 };

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--models-dir=weights/models", NULL});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(&aftd);
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

/* Files of equal pixels, however they are kept: their answers are equal to the last digit. */
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
         "declared as image/jpeg and its bytes are those of image/png"},
        {"/classify?model=" CONV, "lossy.webp", "image/png",
         "declared as image/png and its bytes are those of image/webp"},
        {"/explain?model=" CONV, "../gray.jpg", "image/webp",
         "declared as image/webp and its bytes are those of image/jpeg"},
        {"/complete", "lossy.webp", "image/jpeg; q=1", "declared as image/jpeg and its bytes are those of image/webp"},
        {"/score?model=cifar10-pixels-16", "rgb-8.png", "Image/WebP",
         "declared as Image/WebP and its bytes are those of image/png"},
        {"/classify?model=" CONV, "rgb-8.png", "image/gif", "expected image/jpeg, image/png, image/webp or"},
        {"/score?model=cifar10-pixels-16", "rgb-8.png", "image/x-png", "expected image/jpeg, image/png, image/webp or"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_pixels_have_equal_answers),
        cmocka_unit_test(a_type_that_the_bytes_contradict_is_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("pictures over HTTP", tests, start, stop);
}
