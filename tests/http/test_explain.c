/* test_explain.c - POST /explain: the overlay lies where the picture's thing is, whatever its shape and however
 * the camera was held; every view of real models; wrong parameters. The real daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/bright_model.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define CAT "tests/data/cifar/cat.jpg"

enum { LIMIT_S = 580 };

static const char *const linked[] = {
    "weights/models/cifar10-aft-conv",     "weights/models/cifar10-sima",
    "tests/data/models/enwik8-aft-local",  "tests/data/golden/image-aft-full-class-token",
    "tests/data/golden/image-aft-simple",  "tests/data/golden/image-attention",
    "tests/data/golden/lm-conv-heads4-k5", "tests/data/golden/text-attention",
    "tests/data/golden/conv-local-only",   "tests/data/golden/conv-k15-wider-than-grid",
    "tests/data/golden/conv-heads32-k11",
};
static char models[PATH_MAX];
static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16], path[PATH_MAX];
    temp_dir_create(models);
    model_variants_link_all(models, linked, ARRAY_LEN(linked));
    temp_path(path, models, "bright");
    bright_model_write(path);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    return 0;
}

static struct request picture_request(const char *path, const void *body, size_t size)
{
    return (struct request){.path = path, .type = "image/jpeg", .body = body, .size = size};
}

static void post_file(const char *path, const char *file, struct reply *ret)
{
    size_t size;
    uint8_t *bytes = picture_file_read(file, &size);
    const struct request r = picture_request(path, bytes, size);
    client_call(&aftd, &r, ret);
    free(bytes);
}

/* No picture: an empty body. */
static void post_nothing(const char *path, struct reply *ret)
{
    const struct request r = {.method = "POST", .path = path, .body = "", .size = 0};
    client_call(&aftd, &r, ret);
}

static void assert_png(const struct reply *r)
{
    char type[64];
    if (r->status != 200)
        fail_msg("/explain answered %ld: %s", r->status, r->body);
    assert_true(reply_header(r, "Content-Type", type, sizeof type));
    assert_string_equal(type, "image/png");
}

static void assert_header(const struct reply *r, const char *name, const char *value)
{
    char got[128] = "(none)";
    (void)reply_header(r, name, got, sizeof got);
    if (strcmp(got, value) != 0)
        fail_msg("%s: %s, expected %s", name, got, value);
}

/* ---- where things lie ------------------------------------------------------------------------------------------ */

static void find_square(const struct square *s, unsigned orientation, const char *query, uint32_t side,
                        double tolerance)
{
    char path[128];
    struct reply reply;
    size_t size;
    uint8_t *jpeg = square_jpeg(s, orientation, &size);
    (void)snprintf(path, sizeof path, "/explain?model=bright&layer=0&side=%u%s", side, query);
    const struct request r = picture_request(path, jpeg, size);
    client_call(&aftd, &r, &reply);
    assert_png(&reply);
    square_assert_found(s, reply.body, reply.size, side, tolerance);
    reply_clear(&reply);
    free(jpeg);
}

/* The crop is 64 x 64 with 8 x 8 patches, and the square is one of them. */
static void a_bright_square_is_found_at_its_place(void **state)
{
    static const uint32_t places[][2] = {{1, 1}, {3, 5}, {6, 2}, {4, 4}}; /* column, row */
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const uint32_t x = 8 * places[i][0], y = 8 * places[i][1];
        find_square(&(struct square){64, 64, x, y, 8}, 1, "", 512, 0.004);
        find_square(&(struct square){96, 64, 16 + x, y, 8}, 1, "&head=3", 512, 0.004);
        find_square(&(struct square){64, 112, x, 24 + y, 8}, 1, "&view=keys", 512, 0.004);
    }
}

/* How the camera was held must not matter: what is upright is explained. */
static void a_bright_square_is_found_in_every_orientation(void **state)
{
    (void)state;
    for (unsigned orientation = 1; orientation <= 8; orientation++) {
        find_square(&(struct square){96, 64, 16 + 8, 40, 8}, orientation, "", 384, 0.004);
        find_square(&(struct square){64, 96, 48, 16 + 16, 8}, orientation, "", 384, 0.004);
    }
}

/* Sides that divide by nothing, larger and smaller than the model's: to half a patch. */
static void a_bright_square_is_found_in_pictures_of_odd_sizes(void **state)
{
    static const struct square squares[] = {
        {101, 67, 30, 20, 12},    {67, 101, 10, 60, 12}, {333, 1000, 200, 500, 50},
        {1001, 247, 500, 30, 40}, {31, 33, 10, 20, 5},   {20, 11, 9, 3, 3},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(squares); i++) {
        const struct square *s = &squares[i];
        const double shorter = s->width < s->height ? s->width : s->height;
        const double longer = s->width < s->height ? s->height : s->width;
        find_square(s, 1 + (unsigned)(i % 8), "", 600, 0.5 / 8 * shorter / longer);
    }
}

static const uint8_t *pixel_at(const uint8_t *pixels, size_t width, size_t x, size_t y)
{
    return pixels + (y * width + x) * 3;
}

/* What the model does not see is there all the same, darker and without colour. */
static void what_is_cropped_away_is_dimmed(void **state)
{
    (void)state;
    struct reply reply;
    size_t size;
    uint32_t width = 0, height = 0;
    const struct square s = {192, 64, 8, 16, 24}; /* the crop begins at 64 */
    uint8_t *jpeg = square_jpeg(&s, 1, &size);
    const struct request r = picture_request("/explain?model=bright&layer=0&side=384", jpeg, size);
    client_call(&aftd, &r, &reply);
    assert_png(&reply);
    uint8_t *pixels = png_read(reply.body, reply.size, &width, &height);
    assert_int_equal(width, 384);
    assert_int_equal(height, 128);
    const uint8_t *bright = pixel_at(pixels, width, 40, 56), *dark = pixel_at(pixels, width, 10, 100);
    const uint8_t *seen = pixel_at(pixels, width, 192, 64);
    for (size_t i = 0; i < 3; i++) {
        assert_in_range(bright[i], 60, 120); /* of 255 */
        assert_in_range(dark[i], 0, 4);
    }
    assert_true(seen[0] > seen[2] + 20); /* all dark alike: all of the crop has the map's largest value */
    free(pixels);
    reply_clear(&reply);
    free(jpeg);
}

/* ---- views ----------------------------------------------------------------------------------------------------- */

/* How many of the picture's pixels differ from the first. */
static size_t count_changes(const struct reply *r, uint32_t *width, uint32_t *height)
{
    uint8_t *pixels = png_read(r->body, r->size, width, height);
    size_t changes = 0;
    for (size_t i = 1; i < (size_t)*width * *height; i++)
        changes += memcmp(pixels, pixels + i * 3, 3) != 0;
    free(pixels);
    return changes;
}

static void views_of_a_picture(void **state)
{
    static const struct {
        const char *path, *view, *layer, *head;
        uint32_t side;
    } cases[] = {
        {"/explain?model=cifar10-aft-conv", "keys", "5", "all", 512},
        {"/explain?model=cifar10-aft-conv&view=keys&layer=2&head=15&side=100", "keys", "2", "15", 100},
        {"/explain?model=cifar10-sima", "tokens", "5", "all", 512},
        {"/explain?model=cifar10-sima&view=tokens&layer=0&head=3&side=16", "tokens", "0", "3", 16},
        {"/explain?model=image-aft-full-class-token&head=31", "keys", "1", "31", 512},
        {"/explain?model=image-aft-simple&side=2048", "keys", "1", "all", 2048},
        {"/explain?model=image-attention&head=1", "tokens", "1", "1", 512},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        uint32_t width = 0, height = 0;
        char prediction[64], *end = NULL;
        post_file(cases[i].path, CAT, &r);
        assert_png(&r);
        assert_header(&r, "X-Explain-View", cases[i].view);
        assert_header(&r, "X-Explain-Layer", cases[i].layer);
        assert_header(&r, "X-Explain-Head", cases[i].head);
        assert_true(reply_header(&r, "X-Explain-Prediction", prediction, sizeof prediction));
        assert_true(strtoul(prediction, &end, 10) < 10 && end > prediction && *end == ' ');
        const double probability = strtod(end, NULL);
        assert_true(probability > 0.0 && probability <= 1.0);
        assert_true(count_changes(&r, &width, &height) > (size_t)width * height / 2);
        assert_true(width == cases[i].side && height == cases[i].side);
        reply_clear(&r);
    }
}

/* Maps side by side, of 64 patches each. */
static void sheets_of_a_picture(void **state)
{
    static const struct {
        const char *path, *view, *layer, *head;
        uint32_t tiles;
    } cases[] = {
        {"/explain?model=cifar10-aft-conv&layer=each&head=each", "keys", "each", "each", 6 * 16},
        {"/explain?model=cifar10-aft-conv&layer=each", "keys", "each", "all", 6},
        {"/explain?model=image-attention&head=each", "tokens", "1", "each", 4},
        {"/explain?model=cifar10-sima&view=queries&layer=each&head=each&side=400", "queries", "each", "each", 6 * 4},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        uint32_t width = 0, height = 0;
        post_file(cases[i].path, CAT, &r);
        assert_png(&r);
        assert_header(&r, "X-Explain-View", cases[i].view);
        assert_header(&r, "X-Explain-Layer", cases[i].layer);
        assert_header(&r, "X-Explain-Head", cases[i].head);
        assert_true(count_changes(&r, &width, &height) > 64 * cases[i].tiles / 2);
        assert_true(width <= 512 && height <= 512 && (size_t)width * height > (size_t)64 * cases[i].tiles);
        assert_true(2 * width > height &&
                    2 * height > width); /* as many tiles in a row as make it most like a square */
        reply_clear(&r);
    }
}

static void heads_and_layers_differ(void **state)
{
    static const char *const paths[] = {
        "/explain?model=cifar10-aft-conv&side=64",         "/explain?model=cifar10-aft-conv&side=64&head=0",
        "/explain?model=cifar10-aft-conv&side=64&head=7",  "/explain?model=cifar10-aft-conv&side=64&layer=0",
        "/explain?model=cifar10-aft-conv&side=64&layer=3", "/explain?model=cifar10-sima&side=64",
        "/explain?model=cifar10-sima&side=64&head=2",      "/explain?model=cifar10-sima&side=64&layer=1",
    };
    struct reply replies[ARRAY_LEN(paths)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        post_file(paths[i], CAT, &replies[i]);
        assert_png(&replies[i]);
        for (size_t j = 0; j < i; j++)
            assert_false(replies[i].size == replies[j].size &&
                         memcmp(replies[i].body, replies[j].body, replies[i].size) == 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        reply_clear(&replies[i]);
}

static void biases_need_no_picture(void **state)
{
    static const struct {
        const char *path, *layer, *head;
        uint32_t width, height;
    } cases[] = {
        /* A layer's 32 heads in two rows; cells of 5 pixels, gaps of 3. */
        {"/explain?model=cifar10-aft-conv&view=biases", "each", "each", 3 + 16 * 28, 3 + 12 * 28},
        {"/explain?model=cifar10-aft-conv&view=biases&layer=5", "5", "each", 3 + 6 * 83, 3 + 6 * 83},
        {"/explain?model=cifar10-aft-conv&view=biases&layer=5&head=3&side=58", "5", "3", 57, 57},
        {"/explain?model=conv-k15-wider-than-grid&view=biases&side=128", "each", "each", 1 + 6 * 16, 1 + 6 * 16},
        {"/explain?model=enwik8-aft-local&view=biases&layer=each", "each", "0", 6 + 32 * 15, 3 + 6 * 35},
        {"/explain?model=enwik8-aft-local&view=biases&layer=2&head=0", "2", "0", 6 + 32 * 15, 6 + 32},
        {"/explain?model=image-aft-full-class-token&view=biases&side=200", "each", "36", 2 * 1 + 8 * 12, 3 + 2 * 96},
        {"/explain?model=image-aft-full-class-token&view=biases&row=0&layer=1", "1", "each", 3 + 3 * 163, 3 + 3 * 163},
        {"/explain?model=lm-conv-heads4-k5&view=biases", "each", "each", 3 + 4 * 127, 3 + 4 * 126},
        {"/explain?model=conv-local-only&view=biases", "each", "each", 3 + 4 * 126, 3 + 2 * 126},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r, with_picture;
        uint32_t width = 0, height = 0;
        post_nothing(cases[i].path, &r);
        assert_png(&r);
        assert_header(&r, "X-Explain-View", "biases");
        assert_header(&r, "X-Explain-Layer", cases[i].layer);
        assert_header(&r, "X-Explain-Head", cases[i].head);
        assert_true(count_changes(&r, &width, &height) > 0);
        if (width != cases[i].width || height != cases[i].height)
            fail_msg("%s: %u x %u, expected %u x %u", cases[i].path, width, height, cases[i].width, cases[i].height);
        post_file(cases[i].path, CAT, &with_picture); /* which changes nothing */
        assert_int_equal(with_picture.size, r.size);
        assert_memory_equal(with_picture.body, r.body, r.size);
        reply_clear(&with_picture);
        reply_clear(&r);
    }
}

/* ---- beside other work ----------------------------------------------------------------------------------------- */

/* Maps of many layers and heads ride in batches with pictures that want none: each is the one that it is alone. */
static void company_changes_nothing(void **state)
{
    enum { REQUESTS = 48 };
    static char paths[REQUESTS][96];
    static const char *const files[] = {CAT, "tests/data/cifar/ship.jpg", "tests/data/images/landscape.jpg"};
    struct request requests[REQUESTS];
    struct reply alone[REQUESTS], together[REQUESTS];
    uint8_t *bytes[ARRAY_LEN(files)];
    size_t sizes[ARRAY_LEN(files)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        bytes[i] = picture_file_read(files[i], &sizes[i]);
    for (unsigned i = 0; i < REQUESTS; i++) {
        if (i % 4 == 0)
            (void)snprintf(paths[i], sizeof paths[i], "/classify?model=cifar10-aft-conv");
        else
            (void)snprintf(paths[i], sizeof paths[i], "/explain?model=cifar10-aft-conv&side=64&layer=%u&head=%u", i % 6,
                           i % 16);
        requests[i] = picture_request(paths[i], bytes[i % ARRAY_LEN(files)], sizes[i % ARRAY_LEN(files)]);
        client_call(&aftd, &requests[i], &alone[i]);
        assert_int_equal(alone[i].status, 200);
    }
    client_call_all(&aftd, requests, together, REQUESTS, NULL);
    for (size_t i = 0; i < REQUESTS; i++) {
        if (alone[i].size != together[i].size || memcmp(alone[i].body, together[i].body, alone[i].size) != 0)
            fail_msg("%s answers differently in company", paths[i]);
        reply_clear(&alone[i]);
        reply_clear(&together[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        free(bytes[i]);
}

/* ---- what is wrong --------------------------------------------------------------------------------------------- */

static void wrong_parameters_are_named(void **state)
{
    static const struct {
        const char *path;
        long status;
        const char *code, *param, *says;
    } cases[] = {
        {"/explain?model=", 400, "invalid_value", "model", "is empty"},
        {"/explain?model=none", 404, "not_found", "model", "cifar10-sima"},
        {"/explain?model=enwik8-aft-local", 400, "invalid_value", "model", "is for text-generation"},
        {"/explain?model=text-attention&view=keys", 400, "invalid_value", "model", "is for text-classification"},
        {"/explain?model=none&view=biases", 404, "not_found", "model", "cifar10-sima"},
        {"/explain?model=bright&view=values", 400, "invalid_value", "view", "\"values\"; expected keys or biases"},
        {"/explain?model=bright&view", 400, "invalid_value", "view", "is empty"},
        {"/explain?model=bright&view=tokens", 400, "invalid_value", "view", "expected keys or biases"},
        {"/explain?model=cifar10-sima&view=keys", 400, "invalid_value", "view", "expected tokens or queries"},
        {"/explain?model=cifar10-sima&view=biases", 400, "invalid_value", "view", "expected tokens"},
        {"/explain?model=image-aft-simple&view=biases", 400, "invalid_value", "view", "expected keys"},
        {"/explain?model=text-attention&view=biases", 400, "invalid_value", "view", "expected none"},
        {"/explain?model=bright&layer=2", 400, "invalid_value", "layer", "\"2\"; expected a whole number from 0 to 1"},
        {"/explain?model=bright&layer=-1", 400, "invalid_value", "layer", "\"-1\""},
        {"/explain?model=bright&layer=1.0", 400, "invalid_value", "layer", "from 0 to 1"},
        {"/explain?model=bright&layer=99999999999999999999", 400, "invalid_value", "layer", "from 0 to 1"},
        {"/explain?model=bright&layer=4294967296", 400, "invalid_value", "layer", "from 0 to 1"},
        {"/explain?model=bright&layer=", 400, "invalid_value", "layer", "is empty"},
        {"/explain?model=bright&head=8", 400, "invalid_value", "head", "\"8\"; expected a whole number from 0 to 7"},
        {"/explain?model=bright&head=%200", 400, "invalid_value", "head", "from 0 to 7"},
        {"/explain?model=cifar10-sima&head=4", 400, "invalid_value", "head", "from 0 to 3"},
        {"/explain?model=image-aft-simple&head=32", 400, "invalid_value", "head", "from 0 to 31"},
        {"/explain?model=enwik8-aft-local&view=biases&head=1", 400, "invalid_value", "head", "from 0 to 0"},
        {"/explain?model=bright&side=15", 400, "invalid_value", "side", "from 16 to 2048"},
        {"/explain?model=bright&side=2049", 400, "invalid_value", "side", "from 16 to 2048"},
        {"/explain?model=bright&side=big", 400, "invalid_value", "side", "\"big\""},
        {"/explain?model=conv-k15-wider-than-grid&view=biases&side=16", 200, NULL, NULL, NULL}, /* a pixel each */
        {"/explain?model=bright&row=0", 400, "invalid_value", "row", "expected none but with the view biases"},
        {"/explain?model=conv-heads32-k11&view=biases&row=0", 400, "invalid_value", "row", "expected none"},
        {"/explain?model=image-aft-full-class-token&view=biases&row=8", 400, "invalid_value", "row", "from 0 to 7"},
        {"/explain?model=bright&top_k=1", 400, "invalid_value", "top_k", "there is no parameter \"top_k\""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        post_file(cases[i].path, CAT, &r);
        if (cases[i].code != NULL)
            reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        else
            assert_png(&r);
        reply_clear(&r);
    }
}

static void bodies_that_are_no_pictures_are_refused(void **state)
{
    static const struct {
        const char *type, *body;
        long status;
    } cases[] = {
        {"image/jpeg", "", 400},         {"image/jpeg", "GIF89a", 415}, {"image/jpeg", "\xFF\xD8\xFF\xE0garbage", 422},
        {"application/json", "{}", 415}, {"text/plain", "x", 415},
    };
    struct reply r;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct request request = {.method = "POST",
                                        .path = "/explain?model=bright",
                                        .type = cases[i].type,
                                        .body = cases[i].body,
                                        .size = strlen(cases[i].body)};
        client_call(&aftd, &request, &r);
        if (r.status != cases[i].status)
            fail_msg("case %zu: %ld, expected %ld: %s", i, r.status, cases[i].status, r.body);
        reply_clear(&r);
    }
    client_get(&aftd, "/explain?model=bright&view=biases", &r);
    assert_int_equal(r.status, 405);
    reply_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bright_square_is_found_at_its_place),
        cmocka_unit_test(a_bright_square_is_found_in_every_orientation),
        cmocka_unit_test(a_bright_square_is_found_in_pictures_of_odd_sizes),
        cmocka_unit_test(what_is_cropped_away_is_dimmed),
        cmocka_unit_test(views_of_a_picture),
        cmocka_unit_test(sheets_of_a_picture),
        cmocka_unit_test(heads_and_layers_differ),
        cmocka_unit_test(biases_need_no_picture),
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(wrong_parameters_are_named),
        cmocka_unit_test(bodies_that_are_no_pictures_are_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
