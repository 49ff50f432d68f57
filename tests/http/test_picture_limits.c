/* test_picture_limits.c - pictures that are not read, by every way that a picture comes in: small files whose
 * headers tell of many pixels, JPEGs whose scans go over them too often, sizes that a model is to see. Each is refused
 * saying what it is and what is read; what is just within the bound is answered. The real daemon. */
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

#include "config/limits.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_copy.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define FORM_TYPE "multipart/form-data; boundary=XX"
#define PART "--XX\r\nContent-Disposition: form-data; name=image\r\n\r\n"

enum { LIMIT_S = 580, PATCH = 64, SIDE = 128, DIM = 32, SMALL = 16, SCANNED = 2048 };

static char models[PATH_MAX];
static struct daemon aftd;

/* A model whose patches are so large that a few of them have more pixels than are read. */
static void put_coarse_model(void)
{
    static const float zeros[DIM * 3 * PATCH * PATCH];
    struct model_copy c;
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    json_t *input = json_object_get(c.config, "input");
    assert_int_equal(json_object_set_new(input, "size", json_pack("[i, i]", SIDE, SIDE)), 0);
    assert_int_equal(json_object_set_new(input, "patch", json_pack("[i, i]", PATCH, PATCH)), 0);
    struct tensor *t = model_copy_tensor(&c, "patch_embed.weight");
    t->shape[2] = t->shape[3] = PATCH;
    t->elements = ARRAY_LEN(zeros);
    t->bytes = sizeof zeros;
    t->data = (const uint8_t *)zeros;
    model_variants_put(&c, models, "coarse");
}

static int start(void **state)
{
    char flag[PATH_MAX + 16];
    (void)state;
    temp_dir_create(models);
    put_coarse_model();
    model_variants_link(models, "tests/data/golden", "pixels-local");
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, "--picture-tokens-max=8448", "--batch-images-max=1",
                                              "--timeout-ms=600000", NULL});
    return 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

struct bytes {
    uint8_t *at;
    size_t size;
};

/* A gray JPEG of `scans` scans; 0: one that is not progressive. */
static struct bytes make_jpeg(unsigned side, int scans)
{
    struct bytes b;
    uint8_t *pixels = calloc(side, side);
    assert_non_null(pixels);
    b.at = jpeg_write(
        &(struct jpeg_recipe){.width = side, .height = side, .components = 1, .scans = scans, .pixels = pixels},
        &b.size);
    free(pixels);
    return b;
}

static struct bytes jpeg_that_tells_of(unsigned width, unsigned height)
{
    struct bytes b = make_jpeg(SMALL, 0);
    jpeg_set_size(b.at, b.size, width, height);
    return b;
}

static struct bytes png_that_tells_of(unsigned width, unsigned height)
{
    struct bytes b;
    b.at = picture_file_read(PICTURES_DIR "formats/rgb-8.png", &b.size);
    png_set_size(b.at, width, height);
    return b;
}

/* Lossless: 14 bits of width - 1, then 14 of height - 1, behind the chunk's header and a byte. */
static struct bytes webp_that_tells_of(unsigned width, unsigned height)
{
    static const uint8_t pixels[SMALL * SMALL * 3];
    const uint32_t sides = (width - 1) | (height - 1) << 14;
    struct bytes b;
    uint8_t *written = NULL;
    b.size = WebPEncodeLosslessRGB(pixels, SMALL, SMALL, SMALL * 3, &written);
    assert_true(b.size > 25);
    assert_memory_equal(written + 12, "VP8L", 4);
    b.at = malloc(b.size);
    assert_non_null(b.at);
    memcpy(b.at, written, b.size);
    WebPFree(written);
    for (unsigned i = 0; i < 4; i++)
        b.at[21 + i] = (uint8_t)((i < 3 ? 0 : b.at[24] & 0xf0u) | ((sides >> 8 * i) & 0xffu));
    return b;
}

/* ---- ways in ---------------------------------------------------------------------------------------------------- */

enum form { RAW, FORM, LIST, INFER };

static const struct way {
    const char *path;
    enum form form;
    const char *param; /* that is named in errors; NULL: none */
} ways[] = {
    {"/classify?model=coarse", RAW, NULL},
    {"/classify?model=coarse", FORM, "image[0]"},
    {"/classify?model=coarse", LIST, "images[0]"},
    {"/explain?model=coarse", RAW, NULL},
    {"/complete", RAW, NULL},
    {"/score?model=pixels-local", RAW, NULL},
    {"/v2/models/coarse/infer", INFER, NULL},
};

/* `count` times the picture as parts of a form. */
static void post_form(const char *path, const struct bytes *b, unsigned count, struct reply *ret)
{
    static const char end[] = "--XX--\r\n";
    char *form = malloc(count * (b->size + sizeof PART + 2) + sizeof end), *at = form;
    assert_non_null(form);
    for (unsigned i = 0; i < count; i++) {
        at = stpcpy(at, PART);
        memcpy(at, b->at, b->size);
        at = stpcpy(at + b->size, "\r\n");
    }
    at = stpcpy(at, end);
    client_call(&aftd, &(struct request){.path = path, .type = FORM_TYPE, .body = form, .size = (size_t)(at - form)},
                ret);
    free(form);
}

static void post_base64(const char *path, const char *before, const char *behind, const struct bytes *b,
                        struct reply *ret)
{
    const size_t size = BASE64_ENCODE_RAW_LENGTH(b->size);
    char *json = malloc(strlen(before) + size + strlen(behind) + 1), *at = stpcpy(json, before);
    base64_encode_raw(at, b->size, b->at);
    (void)stpcpy(at + size, behind);
    client_call(&aftd, &(struct request){.path = path, .type = "application/json", .body = json, .size = strlen(json)},
                ret);
    free(json);
}

static void post(const struct way *w, const struct bytes *b, struct reply *ret)
{
    switch (w->form) {
    case RAW:
        client_call(&aftd, &(struct request){.path = w->path, .body = b->at, .size = b->size}, ret);
        break;
    case FORM:
        post_form(w->path, b, 1, ret);
        break;
    case LIST:
        post_base64(w->path, "{\"images\": [\"", "\"]}", b, ret);
        break;
    case INFER:
        post_base64(w->path,
                    "{\"inputs\": [{\"name\": \"image\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"",
                    "\"]}]}", b, ret);
        break;
    }
}

/* The picture is refused by all ways; frees it. */
static void assert_refused_by_all_ways(struct bytes b, const char *says)
{
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct reply r;
        post(&ways[i], &b, &r);
        if (r.status != 422 || strstr(r.body, says) == NULL)
            fail_msg("%s, %zu bytes: expected 422 and \"%s\", got %ld: %s", ways[i].path, b.size, says, r.status,
                     r.body);
        if (ways[i].form != INFER) /* which has words of its own */
            reply_assert_error(&r, 422, "undecodable_picture", ways[i].param, says);
        reply_clear(&r);
    }
    free(b.at);
}

/* ---- what is read ----------------------------------------------------------------------------------------------- */

static void a_header_that_tells_of_too_much_is_refused(void **state)
{
    static const char pixels[] = "the picture is 16384 x 2049, 33.6 megapixels; at most 33.6 are accepted";
    static const char sides[] = "at most 16384 pixels per side are accepted";
    (void)state;
    assert_refused_by_all_ways(jpeg_that_tells_of(PICTURE_SIDE_MAX, 12801),
                               "the picture is 16384 x 12801, 209.7 megapixels; at most 209.7 are accepted");
    assert_refused_by_all_ways(jpeg_that_tells_of(1, PICTURE_SIDE_MAX + 1), sides);
    assert_refused_by_all_ways(png_that_tells_of(PICTURE_SIDE_MAX, 2049), pixels);
    assert_refused_by_all_ways(png_that_tells_of(PICTURE_SIDE_MAX + 1, 1), sides);
    assert_refused_by_all_ways(webp_that_tells_of(PICTURE_SIDE_MAX, 2049), pixels);
}

/* A phone's photograph of 48 megapixels, light above and dark below: the model sees little of it.
 * Those who want all of its pixels are told why not. */
static void a_photograph_of_48_megapixels_is_read(void **state)
{
    enum { WIDTH = 8064, HEIGHT = 6048 };
    const struct jpeg_recipe whole = {
        .width = WIDTH, .height = HEIGHT, .components = 1, .pixels = calloc(WIDTH, HEIGHT)};
    struct bytes b;
    struct reply r;
    (void)state;
    assert_non_null(whole.pixels);
    for (size_t y = 0; y < HEIGHT; y++)
        memset(whole.pixels + y * WIDTH, y < HEIGHT / 2 ? 200 : 60, WIDTH);
    b.at = jpeg_write(&whole, &b.size);
    free(whole.pixels);
    client_call(&aftd, &(struct request){.path = "/classify?model=coarse", .body = b.at, .size = b.size}, &r);
    print_message("  %zu bytes, %.2f s\n", b.size, r.seconds);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"image\":{\"width\":8064,\"height\":6048}"));
    reply_clear(&r);
    client_call(&aftd, &(struct request){.path = "/classify?model=coarse&size=native", .body = b.at, .size = b.size},
                &r);
    reply_assert_error(&r, 422, "undecodable_picture", NULL,
                       "48.8 megapixels; at most 33.6 are accepted where so many");
    reply_clear(&r);
    free(b.at);
}

static void what_is_no_still_picture_in_colours_is_refused(void **state)
{
    static uint8_t pixels[SMALL * SMALL * 2];
    struct bytes b;
    (void)state;
    b.at = picture_file_read(PICTURES_DIR "formats/turned.webp", &b.size);
    assert_memory_equal(b.at + 12, "VP8X", 4);
    b.at[20] |= 2; /* the flag of an animation */
    assert_refused_by_all_ways(b, "the WebP is an animation; expected one picture");
    b.at =
        jpeg_write(&(struct jpeg_recipe){.width = SMALL, .height = SMALL, .components = 2, .pixels = pixels}, &b.size);
    assert_refused_by_all_ways(b, "the picture has 2 colour components; expected 1 (gray), 3 (RGB) or 4 (CMYK)");
}

static void too_many_scans_are_refused(void **state)
{
    (void)state;
    struct bytes b = make_jpeg(SMALL, PICTURE_SCANS_MAX + 1);
    assert_refused_by_all_ways(b, "the JPEG has more than 100 scans; expected at most 100");
}

static void scans_are_bounded_the_more_the_larger_the_picture(void **state)
{
    const int most = (int)(PICTURE_SCAN_PIXELS_MAX / SCANNED / SCANNED); /* fewer than of a small picture */
    struct reply r;
    (void)state;
    assert_int_equal(most, 96);
    struct bytes within = make_jpeg(SCANNED, most), beyond = make_jpeg(SCANNED, most + 1);
    post(&ways[0], &within, &r);
    print_message("  %d scans of %d x %d pixels in %zu bytes: %.2f s\n", most, SCANNED, SCANNED, within.size,
                  r.seconds);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    free(within.at);
    assert_refused_by_all_ways(beyond,
                               "the JPEG of 2048 x 2048 pixels has 97 scans or more; expected at most 402653184 "
                               "pixels in all scans together, which is 96 scans of this size");
}

/* ---- what a model is to see ------------------------------------------------------------------------------------- */

static void a_size_of_too_many_pixels_is_refused(void **state)
{
    static const struct way wide[] = {{"/classify?model=coarse&size=16384x2112", RAW, NULL},
                                      {"/explain?model=coarse&size=16384x2112", RAW, NULL}};
    struct bytes b = make_jpeg(SMALL, 0);
    struct reply r;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
        post(&wide[i], &b, &r);
        reply_assert_error(&r, 400, "invalid_value", "size",
                           "\"size\" is \"16384x2112\"; expected at most 33554432 pixels");
        reply_clear(&r);
    }
    post(&(struct way){"/classify?model=coarse&size=16384x2048", RAW, NULL}, &b, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    free(b.at);
}

static void pictures_of_too_many_pixels_in_all_are_refused(void **state)
{
    static const char path[] = "/classify?model=coarse&size=4096x4096";
    struct bytes b = make_jpeg(SMALL, 0);
    struct reply r;
    (void)state;
    post_form(path, &b, 3, &r);
    reply_assert_error(&r, 400, "invalid_value", "image[2]",
                       "image[2]: with this picture the model would see too many pixels in one request; expected "
                       "at most 33554432");
    reply_clear(&r);
    post_form(path, &b, 2, &r); /* so many, no more */
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_that_tells_of_too_much_is_refused),
        cmocka_unit_test(a_photograph_of_48_megapixels_is_read),
        cmocka_unit_test(what_is_no_still_picture_in_colours_is_refused),
        cmocka_unit_test(too_many_scans_are_refused),
        cmocka_unit_test(scans_are_bounded_the_more_the_larger_the_picture),
        cmocka_unit_test(a_size_of_too_many_pixels_is_refused),
        cmocka_unit_test(pictures_of_too_many_pixels_in_all_are_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
