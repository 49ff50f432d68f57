/* test_picture_size.c - /classify and /explain with `size`: a picture at its own resolution, or at one that was
 * asked for, gets what the engine says of pixels that are cut here by hand; sizes mixed under load; wrong sizes. The
 * real daemon. */
#include <jansson.h>
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
#include "engine/picture.h"
#include "server/media/picture.h"
#include "tests/support/bright_model.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_copy.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, CLASSES_MAX = 16, TOKENS_MAX = 1500 };

static const char *const linked[] = {"weights/models/cifar10-aft-conv", "weights/models/cifar10-sima",
                                     "tests/data/golden/conv-k3x7-oblong", "tests/data/golden/text-attention",
                                     "tests/data/golden/image-aft-full-class-token"};
static char models[PATH_MAX];
static struct daemon aftd;

/* conv-heads8-k5 with a margin around the crop: the shorter side becomes 40, of which the model sees 32. */
static void write_margin_model(void)
{
    struct model_copy c;
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    assert_int_equal(json_object_set_new(json_object_get(c.config, "input"), "resize_to", json_integer(40)), 0);
    model_variants_put(&c, models, "margin");
}

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16], path[PATH_MAX];
    temp_dir_create(models);
    model_variants_link_all(models, linked, ARRAY_LEN(linked));
    temp_path(path, models, "bright");
    bright_model_write(path);
    write_margin_model();
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, "--picture-tokens-max=1500", NULL});
    return 0;
}

/* A picture of soft colours and an edge, stored so that EXIF has to turn it; the caller frees. */
static uint8_t *draw_jpeg(uint32_t width, uint32_t height, unsigned orientation, size_t *size)
{
    uint8_t *pixels = malloc((size_t)width * height * 3);
    assert_non_null(pixels);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) {
            uint8_t *pixel = pixels + (y * width + x) * 3;
            pixel[0] = (uint8_t)(x * 255 / width);
            pixel[1] = (uint8_t)(y * 255 / height);
            pixel[2] = x * 3 > y * 2 ? 200 : 40;
        }
    uint8_t *jpeg = jpeg_write_turned(pixels, width, height, orientation, size);
    free(pixels);
    return jpeg;
}

static struct request picture_request(const char *path, const void *body, size_t size)
{
    return (struct request){.path = path, .type = "image/jpeg", .body = body, .size = size};
}

/* ---- the engine's word ----------------------------------------------------------------------------------------- */

/* Probabilities of pixels [height, width, 3]. */
static void classify_pixels(const char *name, const uint8_t *pixels, uint32_t height, uint32_t width, double *p)
{
    char path[PATH_MAX];
    struct model *m = NULL;
    struct engine *e = NULL;
    double sum = 0.0;
    temp_path(path, models, name);
    assert_int_equal(model_load(&m, path, NULL, NULL, NULL), OK);
    const struct engine_options o = {.threads = 1, .pictures_max = 1, .tokens_max = TOKENS_MAX};
    assert_int_equal(engine_open(&e, m, &o, NULL), OK);
    engine_pictures_begin(e, &pixels, 1, height, width);
    while (!engine_batch_step(e))
        ;
    for (size_t c = 0; c < m->config.classes; c++)
        sum += p[c] = exp((double)engine_batch_logits(e, 0)[c]);
    for (size_t c = 0; c < m->config.classes; c++)
        p[c] /= sum;
    engine_close(e);
    model_free(m);
}

static void assert_answer(const struct reply *r, const char *path, const double *p)
{
    size_t i;
    json_t *each;
    if (r->status != 200)
        fail_msg("%s answered %ld: %s", path, r->status, r->body);
    json_t *answer = reply_json(r), *list = json_object_get(answer, "predictions");
    assert_true(json_array_size(list) >= 5);
    json_array_foreach(list, i, each)
    {
        const json_int_t index = json_integer_value(json_object_get(each, "index"));
        const double got = json_real_value(json_object_get(each, "probability"));
        if (!(fabs(got - p[index]) < 1e-6))
            fail_msg("%s: class %d has %.7f, expected %.7f", path, (int)index, got, p[index]);
    }
    json_decref(answer);
}

/* The part of a picture that begins at (left, top), black outside of it: [height, width, 3]. */
static uint8_t *cut(const struct picture *p, int64_t top, int64_t left, uint32_t height, uint32_t width)
{
    uint8_t *out = calloc((size_t)height * width, 3);
    assert_non_null(out);
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            if (y + top >= 0 && y + top < p->height && x + left >= 0 && x + left < p->width)
                memcpy(out + (y * width + x) * 3, p->pixels + ((y + top) * p->width + x + left) * 3, 3);
    return out;
}

static void native_is_the_picture_cut_to_whole_patches(void **state)
{
    static const struct {
        const char *model;
        uint32_t width, height; /* of the upright picture */
        int top, left;          /* of the cut */
        uint32_t cut_height, cut_width;
    } cases[] = {
        {"cifar10-aft-conv", 32, 32, 0, 0, 32, 32},
        {"cifar10-aft-conv", 101, 67, 2, 0, 64, 100}, /* a half is rounded to the even neighbour */
        {"cifar10-aft-conv", 67, 101, 0, 2, 100, 64},
        {"cifar10-aft-conv", 155, 154, 1, 2, 152, 152}, /* 1,444 patches */
        {"cifar10-aft-conv", 1, 1, -2, -2, 4, 4},
        {"cifar10-aft-conv", 3, 90, 1, 0, 88, 4},
        {"conv-k3x7-oblong", 111, 46, 1, 4, 44, 104}, /* patches of 4 x 8 */
        {"conv-k3x7-oblong", 24, 40, 0, 0, 40, 24},
        {"margin", 50, 50, 1, 1, 48, 48}, /* no margin: all of the picture is seen */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[128];
        double p[CLASSES_MAX];
        struct picture whole = {0};
        struct reply r;
        size_t size;
        uint8_t *jpeg = draw_jpeg(cases[i].width, cases[i].height, 1 + (unsigned)(i % 8), &size);
        assert_int_equal(picture_decode(&whole, jpeg, size, NULL, NULL), OK);
        uint8_t *pixels = cut(&whole, cases[i].top, cases[i].left, cases[i].cut_height, cases[i].cut_width);
        classify_pixels(cases[i].model, pixels, cases[i].cut_height, cases[i].cut_width, p);
        (void)snprintf(path, sizeof path, "/classify?model=%s&size=native", cases[i].model);
        client_call(&aftd, &(struct request){.path = path, .type = "image/jpeg", .body = jpeg, .size = size}, &r);
        assert_answer(&r, path, p);
        json_t *answer = reply_json(&r), *image = json_object_get(answer, "image");
        assert_int_equal(json_integer_value(json_object_get(image, "width")), cases[i].width);
        assert_int_equal(json_integer_value(json_object_get(image, "height")), cases[i].height);
        json_decref(answer);
        reply_clear(&r);
        free(pixels);
        free(jpeg);
        picture_clear(&whole);
    }
}

static void a_size_is_resized_in_proportion_and_cropped(void **state)
{
    static const struct {
        const char *model, *size;
        uint32_t height, width, resize_to;
    } cases[] = {
        {"cifar10-aft-conv", "32x32", 32, 32, 32},
        {"cifar10-aft-conv", "64x96", 64, 96, 64},
        {"cifar10-aft-conv", "152x8", 152, 8, 8},
        {"conv-k3x7-oblong", "24x40", 24, 40, 24},
        {"conv-k3x7-oblong", "48x80", 48, 80, 48},
        {"conv-k3x7-oblong", "84x72", 84, 72, 72},
        {"margin", "32x32", 32, 32, 40},
        {"margin", "64x48", 64, 48, 60},
        {"margin", "4x4", 4, 4, 5},
        {"margin", "12x4", 12, 4, 5},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[128];
        double p[CLASSES_MAX];
        struct picture whole = {0};
        struct reply r;
        size_t size;
        uint8_t *jpeg = draw_jpeg(130, 90, 1 + (unsigned)(i % 8), &size);
        uint8_t *pixels = malloc((size_t)cases[i].height * cases[i].width * 3);
        assert_non_null(pixels);
        const struct picture_options wish = {.shorter = cases[i].resize_to};
        assert_int_equal(picture_decode(&whole, jpeg, size, &wish, NULL), OK);
        assert_int_equal(picture_prepare(pixels, cases[i].width, cases[i].height, &whole, cases[i].resize_to,
                                         INTERPOLATION_BICUBIC, NULL),
                         OK);
        classify_pixels(cases[i].model, pixels, cases[i].height, cases[i].width, p);
        (void)snprintf(path, sizeof path, "/classify?model=%s&size=%s", cases[i].model, cases[i].size);
        client_call(&aftd, &(struct request){.path = path, .type = "image/jpeg", .body = jpeg, .size = size}, &r);
        assert_answer(&r, path, p);
        reply_clear(&r);
        free(pixels);
        free(jpeg);
        picture_clear(&whole);
    }
}

/* ---- maps ------------------------------------------------------------------------------------------------------ */

static void a_bright_square_is_found_at_any_size(void **state)
{
    static const struct {
        const char *query;
        struct square square;
        double tolerance;
    } cases[] = {
        {"size=native", {96, 64, 40, 24, 8}, 0.004},
        {"size=native", {67, 101, 10, 76, 8}, 0.004}, /* the cut begins at 2, 0; so do the patches */
        {"size=native", {39, 41, 18, 20, 4}, 0.004},
        {"size=64x64", {192, 64, 88, 24, 8}, 0.004},
        {"size=64x96", {192, 128, 64, 32, 16}, 0.004},
        {"size=96x32", {64, 192, 16, 96, 16}, 0.004},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[128];
        struct reply r;
        size_t size;
        uint8_t *jpeg = square_jpeg(&cases[i].square, 1 + (unsigned)(i % 8), &size);
        (void)snprintf(path, sizeof path, "/explain?model=bright&layer=0&side=400&%s", cases[i].query);
        const struct request request = picture_request(path, jpeg, size);
        client_call(&aftd, &request, &r);
        if (r.status != 200)
            fail_msg("%s answered %ld: %s", path, r.status, r.body);
        print_message("  %s\n", cases[i].query);
        square_assert_found(&cases[i].square, r.body, r.size, 400, cases[i].tolerance);
        reply_clear(&r);
        free(jpeg);
    }
}

/* ---- company --------------------------------------------------------------------------------------------------- */

static void mixed_sizes_get_the_answers_that_they_get_alone(void **state)
{
    enum { REQUESTS = 60 };
    static const char *const targets[] = {
        "/classify?model=cifar10-aft-conv",
        "/classify?model=cifar10-aft-conv&size=native",
        "/classify?model=cifar10-aft-conv&size=64x64",
        "/classify?model=conv-k3x7-oblong&size=32x64",
        "/classify?model=cifar10-aft-conv&size=152x152",
        "/explain?model=cifar10-aft-conv&size=64x64&side=64",
        "/classify?model=cifar10-sima",
    };
    static const uint32_t sides[][2] = {{32, 32}, {64, 64}, {90, 70}, {40, 120}};
    uint8_t *jpegs[ARRAY_LEN(sides)];
    size_t sizes[ARRAY_LEN(sides)];
    struct request requests[REQUESTS];
    struct reply alone[REQUESTS], together[REQUESTS];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sides); i++)
        jpegs[i] = draw_jpeg(sides[i][0], sides[i][1], 1, &sizes[i]);
    for (size_t i = 0; i < REQUESTS; i++) {
        const size_t which = i % ARRAY_LEN(sides);
        requests[i] = picture_request(targets[i % ARRAY_LEN(targets)], jpegs[which], sizes[which]);
        client_call(&aftd, &requests[i], &alone[i]);
        assert_int_equal(alone[i].status, 200);
    }
    client_call_all(&aftd, requests, together, REQUESTS, NULL);
    for (size_t i = 0; i < REQUESTS; i++) {
        if (alone[i].size != together[i].size || memcmp(alone[i].body, together[i].body, alone[i].size) != 0)
            fail_msg("%s answers differently in company", requests[i].path);
        reply_clear(&alone[i]);
        reply_clear(&together[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(sides); i++)
        free(jpegs[i]);
}

/* ---- what is wrong --------------------------------------------------------------------------------------------- */

static void wrong_sizes_are_refused_by_name(void **state)
{
    static const char syntax[] = "expected native, or HxW in pixels, multiples of the patch of 4x4";
    static const struct {
        const char *query, *says;
    } cases[] = {
        {"bright&size", "\"size\" is empty; expected native or HxW in pixels"},
        {"bright&size=", "\"size\" is empty; expected native or HxW in pixels"},
        {"bright&size=native%00", "expected native or HxW in pixels"},
        {"bright&size=native&size=native", "\"size\" is given twice"},
        {"bright&size=Native", syntax},
        {"bright&size=32", syntax},
        {"bright&size=32x", syntax},
        {"bright&size=x32", syntax},
        {"bright&size=32x32x32", syntax},
        {"bright&size=32X32", syntax},
        {"bright&size=%2032x32", syntax},
        {"bright&size=32x32%20", syntax},
        {"bright&size=-4x32", syntax},
        {"bright&size=0x32", syntax},
        {"bright&size=32x0", syntax},
        {"bright&size=30x32", syntax},
        {"bright&size=32x33", syntax},
        {"bright&size=16388x4", syntax},
        {"bright&size=99999999999999999999x4", syntax},
        {"conv-k3x7-oblong&size=32x36", "multiples of the patch of 4x8"},
        {"bright&size=156x156", "156x156 pixels or 1521 patches of 4x4; expected at most 1500 patches"},
        {"bright&size=16384x16384", "16777216 patches of 4x4; expected at most 1500 patches"},
        {"bright&size=native", "160x200 pixels or 2000 patches of 4x4; expected at most 1500 patches"},
        {"cifar10-sima&size=native", "expected none: the positions of cifar10-sima are learnt for 32x32 pixels"},
        {"cifar10-sima&size=64x64", "expected none"},
        {"image-aft-full-class-token&size=native", "expected none"},
    };
    size_t size;
    uint8_t *jpeg = draw_jpeg(200, 160, 1, &size);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int explain = 0; explain < 2; explain++) {
            char path[128];
            struct reply r;
            (void)snprintf(path, sizeof path, "/%s?model=%s", explain ? "explain" : "classify", cases[i].query);
            const struct request request = picture_request(path, jpeg, size);
            client_call(&aftd, &request, &r);
            print_message("  %s\n", path);
            reply_assert_error(&r, 400, "invalid_value", "size", cases[i].says);
            reply_clear(&r);
        }
    free(jpeg);
    static const char text[] = "{\"text\": \"good\"}";
    struct reply r;
    client_call(&aftd,
                &(struct request){.path = "/classify?model=text-attention&size=native",
                                  .type = "application/json",
                                  .body = text,
                                  .size = sizeof text - 1},
                &r);
    reply_assert_error(&r, 400, "invalid_value", "size", "with a text");
    reply_clear(&r);
}

/* The setting bounds what clients ask for, never what a model was trained with. */
static void a_small_bound_leaves_the_trained_size(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    struct daemon small = {0};
    struct reply r;
    size_t size;
    uint8_t *jpeg = draw_jpeg(36, 32, 1, &size);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&small, (const char *const[]){flag, "--picture-tokens-max=1", "--batch-images-max=1", NULL});
    static const struct {
        const char *path;
        long status;
    } cases[] = {{"/classify?model=bright", 200},
                 {"/classify?model=bright&size=32x32", 200},
                 {"/classify?model=bright&size=native", 400},
                 {"/classify?model=cifar10-sima", 200}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct request request = picture_request(cases[i].path, jpeg, size);
        client_call(&small, &request, &r);
        assert_int_equal(r.status, cases[i].status);
        reply_clear(&r);
    }
    free(jpeg);
    daemon_stop(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_is_the_picture_cut_to_whole_patches),
        cmocka_unit_test(a_size_is_resized_in_proportion_and_cropped),
        cmocka_unit_test(a_bright_square_is_found_at_any_size),
        cmocka_unit_test(mixed_sizes_get_the_answers_that_they_get_alone),
        cmocka_unit_test(wrong_sizes_are_refused_by_name),
        cmocka_unit_test(a_small_bound_leaves_the_trained_size),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
