/* test_classify.c - POST /classify against the reference implementation: ten pictures that are here, and 500 of
 * the data set where that is; top_k, models, bodies that are no picture. The real
 * daemon with the shipped classifier. */
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

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define CIFAR_DIR "tests/data/cifar/"
#define ARCHIVE "tests/data/cifar/pictures-500.tar.xz"
#define PROBABILITY_TOLERANCE 1e-3

enum { LIMIT_S = 580, CLASSES = 10, CASES_MAX = 500, AT_A_TIME = 50 };

static const char *const labels[CLASSES] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                            "dog",      "frog",       "horse", "ship", "truck"};

/* A line of make_shipped_cases.py. */
struct case_line {
    char file[64];
    double probabilities[CLASSES];
};

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    return 0;
}

/* ---- the reference --------------------------------------------------------------------------------------------- */

static size_t read_cases(const char *path, struct case_line *cases, size_t max)
{
    size_t size, count = 0;
    char *text = temp_read(path, &size), *rest = text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        assert_true(count < max);
        struct case_line *c = &cases[count++];
        char *at = strchr(line, ' ');
        assert_non_null(at);
        (void)snprintf(c->file, sizeof c->file, "%.*s", (int)(at - line), line);
        for (size_t i = 0; i < CLASSES; i++)
            c->probabilities[i] = strtod(at, &at);
        assert_int_equal(*at, '\0');
    }
    free(text);
    return count;
}

static size_t likeliest(const double p[CLASSES])
{
    size_t best = 0;
    for (size_t i = 1; i < CLASSES; i++)
        best = p[i] > p[best] ? i : best;
    return best;
}

/* The answer's probabilities by class, 0 where it has none; its list must be in falling order. Returns its length. */
static size_t read_answer(const struct reply *r, double p[CLASSES], int *width, int *height)
{
    const char *model = NULL;
    json_t *list = NULL, *answer = reply_json(r);
    double before = 2;
    if (r->status != 200)
        fail_msg("/classify answered %ld: %s", r->status, r->body);
    assert_int_equal(json_unpack_ex(answer, NULL, JSON_STRICT, "{s:s, s:o, s:{s:i, s:i}}", "model", &model,
                                    "predictions", &list, "image", "width", width, "height", height),
                     0);
    assert_string_equal(model, "cifar10-aft-conv");
    for (size_t i = 0; i < CLASSES; i++)
        p[i] = 0;
    const size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        const char *label = NULL;
        double probability = 0;
        int index = -1;
        assert_int_equal(json_unpack_ex(json_array_get(list, i), NULL, JSON_STRICT, "{s:s, s:i, s:f}", "label", &label,
                                        "index", &index, "probability", &probability),
                         0);
        assert_in_range(index, 0, CLASSES - 1);
        assert_string_equal(label, labels[index]);
        assert_true(probability <= before && probability >= 0 && p[index] == 0);
        p[index] = before = probability;
    }
    json_decref(answer);
    return count;
}

/* How far the furthest probability is off. */
static double distance(const double a[CLASSES], const double b[CLASSES])
{
    double furthest = 0;
    for (size_t i = 0; i < CLASSES; i++)
        furthest = fmax(furthest, fabs(a[i] - b[i]));
    return furthest;
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

static void ten_pictures_match_the_reference(void **state)
{
    static struct case_line cases[CLASSES];
    (void)state;
    assert_int_equal(read_cases(CIFAR_DIR "oracle-10.txt", cases, CLASSES), CLASSES);
    for (size_t i = 0; i < CLASSES; i++) {
        char path[PATH_MAX];
        struct reply r;
        double p[CLASSES], sum = 0;
        int width, height;
        temp_path(path, CIFAR_DIR, cases[i].file);
        post_file("/classify?top_k=10&model=cifar10-aft-conv", path, &r);
        assert_int_equal(read_answer(&r, p, &width, &height), CLASSES);
        for (size_t c = 0; c < CLASSES; c++)
            sum += p[c];
        assert_true(fabs(sum - 1) < 1e-5);
        assert_int_equal(width, 32);
        assert_int_equal(height, 32);
        assert_int_equal(likeliest(p), likeliest(cases[i].probabilities));
        if (distance(p, cases[i].probabilities) > PROBABILITY_TOLERANCE)
            fail_msg("%s: a probability is %g off", cases[i].file, distance(p, cases[i].probabilities));
        reply_clear(&r);
    }
}

static void unpack(const char *dir, const struct case_line *cases, size_t count)
{
    struct program_run tar = {.argv = {"/bin/tar", "-xJf", ARCHIVE, "-C", dir, "--no-same-owner", "-T", "-"}};
    char *names = malloc(count * sizeof cases->file);
    assert_non_null(names);
    for (size_t i = 0; i < count; i++)
        tar.input_size += (size_t)snprintf(names + tar.input_size, sizeof cases->file + 1, "%s\n", cases[i].file);
    tar.input = names;
    program_run(&tar);
    if (tar.exit_code != 0)
        fail_msg("tar ended with %d: %s", tar.exit_code, tar.err);
    program_run_clear(&tar);
    free(names);
}

static void five_hundred_pictures_match_the_reference(void **state)
{
    static struct case_line cases[CASES_MAX];
    char dir[PATH_MAX];
    size_t same = 0;
    double furthest = 0;
    (void)state;
    assert_int_equal(read_cases(CIFAR_DIR "oracle-500.txt", cases, CASES_MAX), CASES_MAX);
    temp_dir_create(dir);
    unpack(dir, cases, CASES_MAX);
    for (size_t first = 0; first < CASES_MAX; first += AT_A_TIME) {
        struct request requests[AT_A_TIME];
        struct reply replies[AT_A_TIME];
        uint8_t *bytes[AT_A_TIME];
        for (size_t i = 0; i < AT_A_TIME; i++) {
            char path[PATH_MAX];
            size_t size;
            temp_path(path, dir, cases[first + i].file);
            bytes[i] = picture_file_read(path, &size);
            requests[i] = picture_request("/classify?top_k=10", bytes[i], size);
        }
        client_call_all(&aftd, requests, replies, AT_A_TIME, NULL);
        for (size_t i = 0; i < AT_A_TIME; i++) {
            double p[CLASSES];
            int width, height;
            assert_int_equal(read_answer(&replies[i], p, &width, &height), CLASSES);
            same += likeliest(p) == likeliest(cases[first + i].probabilities);
            furthest = fmax(furthest, distance(p, cases[first + i].probabilities));
            reply_clear(&replies[i]);
            free(bytes[i]);
        }
    }
    temp_dir_remove(dir);
    print_message("  %zu of %d choices are the same; the furthest probability is %g off\n", same, CASES_MAX, furthest);
    assert_true(same >= CASES_MAX - 1);
    assert_true(furthest <= PROBABILITY_TOLERANCE);
}

/* ---- the query ------------------------------------------------------------------------------------------------- */

static void top_k_says_how_many_and_never_more_than_there_are(void **state)
{
    static const struct {
        const char *path;
        size_t count;
    } cases[] = {{"/classify", 5},           {"/classify?top_k=1", 1},   {"/classify?top_k=3", 3},
                 {"/classify?top_k=10", 10}, {"/classify?top_k=11", 10}, {"/classify?top_k=1000", 10}};
    double all[CLASSES] = {0};
    (void)state;
    for (size_t i = ARRAY_LEN(cases); i-- > 0;) {
        struct reply r;
        double p[CLASSES];
        int width, height;
        post_file(cases[i].path, CIFAR_DIR "cat.jpg", &r);
        assert_int_equal(read_answer(&r, p, &width, &height), cases[i].count);
        if (cases[i].count == CLASSES)
            memcpy(all, p, sizeof all);
        for (size_t c = 0; c < CLASSES; c++)
            assert_true(p[c] == 0 || p[c] == all[c]);
        assert_true(p[likeliest(all)] == all[likeliest(all)]);
        reply_clear(&r);
    }
}

static void a_wrong_query_is_refused_by_name(void **state)
{
    static const struct {
        const char *query;
        long status;
        const char *code, *param, *says;
    } cases[] = {
        {"top_k=0", 400, "invalid_value", "top_k", "from 1 to 1000"},
        {"top_k=1001", 400, "invalid_value", "top_k", "1001"},
        {"top_k=-1", 400, "invalid_value", "top_k", "-1"},
        {"top_k=1.5", 400, "invalid_value", "top_k", "1.5"},
        {"top_k=abc", 400, "invalid_value", "top_k", "abc"},
        {"top_k=", 400, "invalid_value", "top_k", "whole number"},
        {"top_k", 400, "invalid_value", "top_k", "whole number"},
        {"top_k=%201", 400, "invalid_value", "top_k", "whole number"},
        {"top_k=1%20", 400, "invalid_value", "top_k", "whole number"},
        {"top_k=1&top_k=2", 400, "invalid_value", "top_k", "given twice"},
        {"top_k=99999999999999999999", 400, "invalid_value", "top_k", "whole number"},
        {"model=nothing", 404, "not_found", "model", "cifar10-aft-conv"},
        {"model=", 400, "invalid_value", "model", "is empty; expected the name of a model"},
        {"model", 400, "invalid_value", "model", "is empty; expected the name of a model"},
        {"model=%00", 400, "invalid_value", "model", "expected the name of a model"},
        {"model=enwik8-aft-local", 400, "invalid_value", "model", "text-generation"},
        {"topk=3", 400, "invalid_value", "topk", "did you mean \"top_k\"? Expected: model, top_k, size"},
        {"top_k%00=3", 400, "invalid_value", "(a name with a NUL)", "expected: model, top_k, size"},
        {"top_k=3&size=2", 400, "invalid_value", "size", "size"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[128];
        struct reply r;
        (void)snprintf(path, sizeof path, "/classify?%s", cases[i].query);
        post_file(path, CIFAR_DIR "dog.jpg", &r);
        print_message("  %s\n", cases[i].query);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------------------------- */

static void pictures_are_told_in_their_upright_size(void **state)
{
    static const struct {
        const char *file;
        int width, height;
    } cases[] = {
        {PICTURES_DIR "landscape.jpg", 640, 427},
        {PICTURES_DIR "orientation-2.jpg", 320, 240},
        {PICTURES_DIR "orientation-3.jpg", 320, 240},
        {PICTURES_DIR "orientation-4.jpg", 320, 240},
        {PICTURES_DIR "orientation-5.jpg", 240, 320},
        {PICTURES_DIR "orientation-6.jpg", 240, 320},
        {PICTURES_DIR "orientation-7.jpg", 240, 320},
        {PICTURES_DIR "orientation-8.jpg", 240, 320},
        {PICTURES_DIR "gray.jpg", 400, 300},
        {PICTURES_DIR "cmyk.jpg", 300, 300},
        {PICTURES_DIR "progressive-444.jpg", 513, 511},
        {PICTURES_DIR "tall-thin.jpg", 40, 900},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        double p[CLASSES];
        int width, height;
        post_file("/classify", cases[i].file, &r);
        assert_int_equal(read_answer(&r, p, &width, &height), 5);
        print_message("  %s: %d x %d\n", cases[i].file, width, height);
        assert_int_equal(width, cases[i].width);
        assert_int_equal(height, cases[i].height);
        reply_clear(&r);
    }
}

static void what_is_no_picture_is_refused(void **state)
{
    static const char png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", gif[] = "GIF89a\1\0\1\0",
                      webp[] = "RIFF\x24\0\0\0WEBPVP8 ";
    static const char text[] = "this is not a picture", start_only[] = "\xff\xd8\xff", json[] = "{\"images\": []}";
    static const struct {
        const char *name, *body;
        size_t size;
        long status;
        const char *code, *says;
    } cases[] = {
        {"the start of a PNG", png, sizeof png - 1, 422, "undecodable_picture", "PNG"},
        {"a GIF", gif, sizeof gif - 1, 415, "unsupported_media", "GIF"},
        {"the start of a WebP", webp, sizeof webp - 1, 422, "undecodable_picture", "WebP"},
        {"a text", text, sizeof text - 1, 415, "unsupported_media", "JPEG"},
        {"JSON", json, sizeof json - 1, 415, "unsupported_media", "JPEG"},
        {"a single byte", "\xff", 1, 415, "unsupported_media", "JPEG"},
        {"the start of a JPEG", start_only, sizeof start_only - 1, 422, "undecodable_picture", NULL},
        {"nothing", "", 0, 400, "invalid_value", "empty"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct request request = picture_request("/classify", cases[i].body, cases[i].size);
        struct reply r;
        request.type = "application/octet-stream";
        client_call(&aftd, &request, &r);
        print_message("  %s\n", cases[i].name);
        reply_assert_error(&r, cases[i].status, cases[i].code, NULL, cases[i].says);
        reply_clear(&r);
    }
}

static void a_truncated_picture_is_422(void **state)
{
    size_t size;
    uint8_t *bytes = picture_file_read(CIFAR_DIR "horse.jpg", &size);
    (void)state;
    for (size_t left = 3; left < size - 2; left += left < 40 ? 1 : 37) {
        const struct request request = picture_request("/classify", bytes, left);
        struct reply r;
        client_call(&aftd, &request, &r);
        reply_assert_error(&r, 422, "undecodable_picture", NULL, NULL);
        reply_clear(&r);
    }
    free(bytes);
}

static void a_picture_that_claims_to_be_huge_is_422(void **state)
{
    size_t size;
    uint8_t *bytes = picture_file_read(CIFAR_DIR "ship.jpg", &size);
    (void)state;
    uint8_t *frame = memmem(bytes, size, "\xff\xc0", 2);
    assert_non_null(frame);
    memset(frame + 5, 0xfe, 4); /* height and width */
    const struct request request = picture_request("/classify", bytes, size);
    struct reply r;
    client_call(&aftd, &request, &r);
    reply_assert_error(&r, 422, "undecodable_picture", NULL, "65278");
    reply_clear(&r);
    free(bytes);
}

static void the_declared_type_is_looked_at(void **state)
{
    static const struct {
        const char *type;
        long status;
    } cases[] = {
        {NULL, 200},
        {"image/jpeg", 200},
        {"IMAGE/JPEG", 200},
        {"image/jpeg; name=x", 200},
        {"application/octet-stream", 200},
        {"image/jpg", 200}, /* what many say instead */
        {"image/*", 200},
        {"binary/octet-stream", 200},
        {"image/png", 415},
        {"image/x-png", 415},
        {"image/jpg2", 415},
        {"text/plain", 415},
        {"application/json", 400},                  /* read as JSON, which a picture's bytes are not */
        {"application/x-www-form-urlencoded", 200}, /* what curl sends by default */
        {"image/gif", 415},
        {"multipart/form-data; boundary=x", 400},
    };
    size_t size;
    uint8_t *bytes = picture_file_read(CIFAR_DIR "truck.jpg", &size);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct request request = picture_request("/classify", bytes, size);
        struct reply r;
        request.type = cases[i].type;
        client_call(&aftd, &request, &r);
        print_message("  %s\n", cases[i].type != NULL ? cases[i].type : "none");
        if (cases[i].status == 415)
            reply_assert_error(&r, 415, "unsupported_media", NULL, "image/jpeg");
        if (cases[i].status == 400)
            reply_assert_error(&r, 400, "invalid_value", NULL,
                               i + 1 < ARRAY_LEN(cases) ? "the body is a picture" : "boundary");
        assert_int_equal(r.status, cases[i].status);
        reply_clear(&r);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_pictures_match_the_reference),
        cmocka_unit_test(five_hundred_pictures_match_the_reference),
        cmocka_unit_test(top_k_says_how_many_and_never_more_than_there_are),
        cmocka_unit_test(a_wrong_query_is_refused_by_name),
        cmocka_unit_test(pictures_are_told_in_their_upright_size),
        cmocka_unit_test(what_is_no_picture_is_refused),
        cmocka_unit_test(a_truncated_picture_is_422),
        cmocka_unit_test(a_picture_that_claims_to_be_huge_is_422),
        cmocka_unit_test(the_declared_type_is_looked_at),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
