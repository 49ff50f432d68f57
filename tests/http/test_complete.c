/* test_complete.c - POST /complete with the shipped pixel model: the rows given are kept, the rest is a function
 * of the seed, whole or as events, whatever runs beside it; wrong requests; clients and deadlines that end it. */
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
#include "server/media/picture.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/pictures.h"
#include "tests/support/raw_socket.h"

#define MODEL "weights/models/cifar10-pixels-16"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, SIDE = 16, ROW = 3 * SIDE, TOTAL = SIDE * ROW, SLOTS = 3 };

static struct daemon aftd;
static uint8_t *truck; /* a JPEG */
static size_t truck_bytes;
static uint8_t wanted[TOTAL]; /* as the model sees it */

static int start(void **state)
{
    (void)state;
    struct picture picture = {0};
    truck = picture_file_read("tests/data/cifar/truck.jpg", &truck_bytes);
    assert_int_equal(picture_decode(&picture, truck, truck_bytes, NULL, NULL), OK);
    assert_int_equal(picture_prepare(wanted, SIDE, SIDE, &picture, SIDE, INTERPOLATION_BICUBIC, NULL), OK);
    picture_clear(&picture);
    daemon_start(&aftd,
                 (const char *const[]){"--models-dir=weights/models", "--streams-max=3", "--timeout-ms=600000", NULL});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(&aftd);
    free(truck);
    return 0;
}

static struct request truck_request(const char *path)
{
    return (struct request){.path = path, .type = "image/jpeg", .body = truck, .size = truck_bytes};
}

/* ---- whole pictures --------------------------------------------------------------------------------------------- */

static void read_picture(const struct reply *r, struct picture *ret)
{
    char type[64], seed[64];
    if (r->status != 200)
        fail_msg("/complete answered %ld: %s", r->status, r->body);
    assert_true(reply_header(r, "Content-Type", type, sizeof type));
    assert_string_equal(type, "image/png");
    assert_true(reply_header(r, "X-Seed", seed, sizeof seed));
    ret->pixels = png_read(r->body, r->size, &ret->width, &ret->height);
}

static void complete(const char *path, bool empty, struct picture *ret)
{
    struct request request = truck_request(path);
    struct reply r;
    if (empty)
        request = (struct request){.path = path, .body = "", .size = 0, .method = "POST"};
    client_call(&aftd, &request, &r);
    read_picture(&r, ret);
    reply_clear(&r);
}

/* Sample `i` of a grid, [TOTAL]. */
static void cut_sample(const struct picture *grid, uint32_t columns, uint32_t i, uint8_t out[TOTAL])
{
    for (uint32_t y = 0; y < SIDE; y++) {
        const size_t line = (size_t)(i / columns * (SIDE + 1) + y) * grid->width + (size_t)(i % columns) * (SIDE + 1);
        memcpy(out + (size_t)y * ROW, grid->pixels + 3 * line, ROW);
    }
}

static void the_rows_given_are_kept_and_the_rest_is_drawn(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint32_t rows;
    } cases[] = {{"/complete?seed=1", SIDE / 2}, {"/complete?seed=1&rows=1", 1}, {"/complete?seed=1&rows=15", 15}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct picture p;
        complete(cases[i].path, false, &p);
        assert_int_equal(p.width, SIDE);
        assert_int_equal(p.height, SIDE);
        assert_memory_equal(p.pixels, wanted, (size_t)cases[i].rows * ROW);
        assert_memory_not_equal(p.pixels + (size_t)cases[i].rows * ROW, wanted + (size_t)cases[i].rows * ROW, ROW);
        picture_clear(&p);
    }
}

/* As `curl -F` sends it: the same as by themselves, whichever part comes first. */
static void a_form_is_taken(void **state)
{
    static const char before[] = "--XX\r\nContent-Disposition: form-data; name=\"seed\"\r\n\r\n3\r\n"
                                 "--XX\r\nContent-Disposition: form-data; name=\"image\"; filename=\"t.jpg\"\r\n"
                                 "Content-Type: image/jpg\r\n\r\n",
                      after[] = "\r\n--XX\r\nContent-Disposition: form-data; name=\"rows\"\r\n\r\n5\r\n--XX--\r\n";
    const struct request picture = truck_request("/complete");
    const size_t size = sizeof before - 1 + picture.size + sizeof after - 1;
    char *body = malloc(size);
    struct picture alone, form;
    struct reply r;
    (void)state;
    assert_non_null(body);
    memcpy(body, before, sizeof before - 1);
    memcpy(body + sizeof before - 1, picture.body, picture.size);
    memcpy(body + sizeof before - 1 + picture.size, after, sizeof after - 1);
    struct request request = {
        .path = "/complete", .type = "multipart/form-data; boundary=XX", .body = body, .size = size};
    client_call(&aftd, &request, &r);
    read_picture(&r, &form);
    reply_clear(&r);
    complete("/complete?seed=3&rows=5", false, &alone);
    assert_memory_equal(form.pixels, alone.pixels, (size_t)SIDE * ROW);
    picture_clear(&alone);
    picture_clear(&form);
    request.path = "/complete?rows=4";
    client_call(&aftd, &request, &r);
    reply_assert_error(&r, 400, "invalid_value", "rows", "given twice");
    reply_clear(&r);
    body[44] = 'x'; /* the name of the first part */
    request.path = "/complete";
    client_call(&aftd, &request, &r);
    reply_assert_error(&r, 400, "invalid_value", NULL, "did you mean \"seed\"");
    reply_clear(&r);
    free(body);
}

/* What the sampler chooses at temperature 0: the likeliest value each time. */
static void a_picture_is_what_the_engine_makes_of_it(void **state)
{
    (void)state;
    struct model *m = NULL;
    struct engine *e = NULL;
    const struct engine_options options = {.threads = 1, .streams_max = 1, .rows_max = 1};
    struct picture p;
    uint8_t drawn[TOTAL], fed = 0;
    float logits[BYTE_VALUES];
    assert_int_equal(model_load(&m, MODEL, NULL, NULL, NULL), OK);
    assert_int_equal(engine_open(&e, m, &options, NULL), OK);
    assert_true(engine_info(e)->starts);
    for (size_t i = 0; i < TOTAL; i++) {
        const struct engine_part part = {.count = 1, .bytes = &fed, .logits = logits};
        engine_feed(e, &part, 1);
        drawn[i] = wanted[i];
        if (i >= TOTAL / 2) {
            drawn[i] = 0;
            for (size_t value = 1; value < BYTE_VALUES; value++)
                if (logits[value] > logits[drawn[i]])
                    drawn[i] = (uint8_t)value;
        }
        fed = drawn[i];
    }
    complete("/complete?temperature=0", false, &p);
    assert_memory_equal(p.pixels, drawn, TOTAL);
    picture_clear(&p);
    engine_close(e);
    model_free(m);
}

static void a_model_with_a_start_embedding_needs_no_picture(void **state)
{
    (void)state;
    struct picture a, b;
    complete("/complete?seed=5", true, &a);
    complete("/complete?seed=5&rows=0", false, &b);
    assert_int_equal(a.width, SIDE);
    assert_memory_equal(a.pixels, b.pixels, TOTAL);
    picture_clear(&a);
    picture_clear(&b);
}

static void samples_stand_in_a_grid_and_scale_makes_squares(void **state)
{
    (void)state;
    struct picture small, large;
    complete("/complete?seed=2&n=3", false, &small);
    complete("/complete?seed=2&n=3&scale=5", false, &large);
    assert_int_equal(small.width, 2 * SIDE + 1);
    assert_int_equal(small.height, 2 * SIDE + 1);
    assert_int_equal(large.width, 5 * small.width);
    for (uint32_t y = 0; y < large.height; y++)
        for (uint32_t x = 0; x < large.width; x++)
            assert_memory_equal(large.pixels + 3 * ((size_t)y * large.width + x),
                                small.pixels + 3 * ((size_t)(y / 5) * small.width + x / 5), 3);
    picture_clear(&small);
    picture_clear(&large);
}

/* The daemon has fewer slots than there are samples, and other requests in between. */
static void the_same_seed_gives_the_same_picture_at_any_batch_size(void **state)
{
    (void)state;
    enum { CALLS = 8, COLUMNS = 3 };
    struct picture alone, grid;
    uint8_t sample[TOTAL], other[TOTAL];
    struct request requests[CALLS];
    struct reply replies[CALLS];
    complete("/complete?seed=11&rows=13", false, &alone);
    complete("/complete?seed=11&n=7&rows=13", false, &grid);
    cut_sample(&grid, COLUMNS, 0, sample);
    assert_memory_equal(sample, alone.pixels, TOTAL);
    cut_sample(&grid, COLUMNS, 1, other);
    assert_memory_not_equal(sample, other, TOTAL);
    for (size_t i = 0; i < CALLS; i++)
        requests[i] = truck_request(i % 2 == 0 ? "/complete?seed=11&n=7&rows=13" : "/complete?seed=3&n=2&rows=14");
    client_call_all(&aftd, requests, replies, CALLS, NULL);
    for (size_t i = 0; i < CALLS; i++) {
        struct picture p;
        read_picture(&replies[i], &p);
        if (i % 2 == 0)
            assert_memory_equal(p.pixels, grid.pixels, (size_t)3 * grid.width * grid.height);
        picture_clear(&p);
        reply_clear(&replies[i]);
    }
    picture_clear(&alone);
    picture_clear(&grid);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

/* Put the rows of one event, the only JSON of `text`, where they belong; false if it is the last event. */
static bool read_event(const char *text, size_t size, uint8_t pixels[][TOTAL], uint32_t rows_read[])
{
    json_t *event = json_loadb(text, size, 0, NULL);
    int index, row, rows, width, height;
    const char *rgb;
    size_t rgb_bytes, bytes = 0;
    assert_non_null(event);
    const bool last = json_object_get(event, "finish_reason") != NULL;
    if (last) {
        const char *finish, *model;
        json_int_t prompt, completion, total, seed;
        json_t *timings;
        assert_int_equal(json_unpack_ex(event, NULL, JSON_STRICT, "{s:s, s:{s:I, s:I, s:I}, s:o, s:I, s:s}",
                                        "finish_reason", &finish, "usage", "prompt_tokens", &prompt,
                                        "completion_tokens", &completion, "total_tokens", &total, "timings", &timings,
                                        "seed", &seed, "model", &model),
                         0);
        assert_string_equal(finish, "stop");
        assert_int_equal(prompt + completion, total);
    } else {
        struct base64_decode_ctx base64;
        assert_int_equal(json_unpack_ex(event, NULL, JSON_STRICT, "{s:i, s:i, s:i, s:i, s:i, s:s%}", "index", &index,
                                        "row", &row, "rows", &rows, "width", &width, "height", &height, "rgb_base64",
                                        &rgb, &rgb_bytes),
                         0);
        assert_true(width == SIDE && height == SIDE && rows > 0 && row + rows <= SIDE);
        assert_int_equal(rgb_bytes, BASE64_ENCODE_RAW_LENGTH((size_t)rows * ROW));
        assert_int_equal(row, rows_read[index]); /* in order, and once */
        rows_read[index] += (uint32_t)rows;
        base64_decode_init(&base64);
        assert_int_equal(base64_decode_update(&base64, &bytes, pixels[index] + (size_t)row * ROW, rgb_bytes, rgb), 1);
        assert_int_equal(bytes, (size_t)rows * ROW);
    }
    json_decref(event);
    return !last;
}

static void rows_are_streamed_while_they_are_drawn(void **state)
{
    (void)state;
    enum { SAMPLES = 4 };
    static uint8_t pixels[SAMPLES][TOTAL];
    uint32_t rows_read[SAMPLES] = {0};
    struct picture grid;
    struct reply r;
    const struct request request = truck_request("/complete?seed=9&n=4&rows=12&stream=true");
    bool ended = false;
    size_t events = 0;
    complete("/complete?seed=9&n=4&rows=12", false, &grid);
    client_call(&aftd, &request, &r);
    assert_int_equal(r.status, 200);
    for (const char *at = r.body, *end = r.body + r.size; at < end;) {
        const char *blank = strstr(at, "\n\n");
        assert_non_null(blank);
        assert_false(ended);
        if (*at != ':') {
            assert_int_equal(strncmp(at, "data: ", 6), 0);
            ended = !read_event(at + 6, (size_t)(blank - at) - 6, pixels, rows_read);
            events++;
        }
        at = blank + 2;
    }
    assert_true(ended && events > SAMPLES + 1);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint8_t sample[TOTAL];
        assert_int_equal(rows_read[i], SIDE);
        cut_sample(&grid, 2, i, sample);
        assert_memory_equal(pixels[i], sample, TOTAL);
    }
    reply_clear(&r);
    picture_clear(&grid);
}

/* ---- ends ------------------------------------------------------------------------------------------------------- */

static void what_is_late_is_an_error_or_ends_the_stream(void **state)
{
    (void)state;
    struct reply r;
    struct request request = truck_request("/complete?n=16&rows=0&timeout_ms=20");
    client_call(&aftd, &request, &r);
    reply_assert_error(&r, 408, "deadline_exceeded", NULL, "deadline");
    reply_clear(&r);
    request = truck_request("/complete?n=16&rows=0&stream=true&timeout_ms=150");
    client_call(&aftd, &request, &r);
    if (r.status == 200) /* a slow machine does not come to the first sub-pixel */
        assert_non_null(strstr(r.body, "\"finish_reason\":\"timeout\""));
    else
        reply_assert_error(&r, 408, "deadline_exceeded", NULL, "deadline");
    reply_clear(&r);
    (void)client_await_metric(&aftd, "aftd_streams_running{model=\"cifar10-pixels-16\"}", 0, HANG_MS);
}

static void a_client_that_leaves_frees_all_of_its_slots(void **state)
{
    (void)state;
    char head[256];
    struct picture p;
    const int n =
        snprintf(head, sizeof head,
                 "POST /complete?n=16&rows=0&stream=true HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 truck_bytes);
    const double before = client_metric(&aftd, "aftd_requests_cancelled_total");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send(fd, head, (size_t)n, 2000));
    assert_true(raw_send(fd, truck, truck_bytes, 2000));
    (void)client_await_metric(&aftd, "aftd_streams_running{model=\"cifar10-pixels-16\"}", SLOTS, HANG_MS);
    raw_close(fd);
    (void)client_await_metric(&aftd, "aftd_streams_running{model=\"cifar10-pixels-16\"}", 0, HANG_MS);
    (void)client_await_metric(&aftd, "aftd_requests_cancelled_total", before + 1, HANG_MS);
    complete("/complete?rows=15", false, &p);
    picture_clear(&p);
}

/* ---- wrong requests --------------------------------------------------------------------------------------------- */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        long status;
        const char *code, *param, *says;
    } cases[] = {
        {"rows=16", 400, "invalid_value", "rows", "0 to 15"},
        {"rows=99999", 400, "invalid_value", "rows", "whole number"},
        {"rows=-1", 400, "invalid_value", "rows", "whole number"},
        {"rows=half", 400, "invalid_value", "rows", "half"},
        {"rows=4&rows=5", 400, "invalid_value", "rows", "twice"},
        {"n=0", 400, "invalid_value", "n", "1 to 16"},
        {"n=17", 400, "invalid_value", "n", "1 to 16"},
        {"scale=0", 400, "invalid_value", "scale", "1 to 32"},
        {"temperature=-0.5", 400, "invalid_value", "temperature", "0 to 100"},
        {"top_p=0", 400, "invalid_value", "top_p", "above 0"},
        {"seed=9007199254740992", 400, "invalid_value", "seed", "9007199254740991"},
        {"seed=", 400, "invalid_value", "seed", "is empty; expected a whole number"},
        {"stream=yes", 400, "invalid_value", "stream", "true or false"},
        {"timeout_ms=0", 400, "invalid_value", "timeout_ms", "1 to"},
        {"column=3", 400, "invalid_value", "column", "rows"},
        {"model=enwik8-aft-conv", 400, "invalid_value", "model", "text-generation"},
        {"model=cifar10-sima", 400, "invalid_value", "model", "image-classification"},
        {"model=cifar10-sima%00x", 400, "invalid_value", "model", "NUL"},
        {"model=nobody", 404, "not_found", "model", "cifar10-pixels-16"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[128];
        struct reply r;
        (void)snprintf(path, sizeof path, "/complete?%s", cases[i].query);
        print_message("  %s\n", cases[i].query);
        const struct request request = truck_request(path);
        client_call(&aftd, &request, &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
}

static void what_is_no_picture_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *type, *body;
        long status;
        const char *code, *param;
    } cases[] = {
        {"/complete?rows=3", "image/jpeg", "", 400, "invalid_value", "rows"},
        {"/complete", "image/jpeg", "a text", 415, "unsupported_media", NULL},
        {"/complete", "application/json", "{}", 415, "unsupported_media", "Content-Type"},
        {"/complete", "image/jpeg", "\xff\xd8\xff\xe0 and no more", 422, "undecodable_picture", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct request request = {.method = "POST",
                                        .path = cases[i].path,
                                        .type = cases[i].type,
                                        .body = cases[i].body,
                                        .size = strlen(cases[i].body)};
        struct reply r;
        client_call(&aftd, &request, &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, NULL);
        reply_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rows_given_are_kept_and_the_rest_is_drawn),
        cmocka_unit_test(a_form_is_taken),
        cmocka_unit_test(a_picture_is_what_the_engine_makes_of_it),
        cmocka_unit_test(a_model_with_a_start_embedding_needs_no_picture),
        cmocka_unit_test(samples_stand_in_a_grid_and_scale_makes_squares),
        cmocka_unit_test(the_same_seed_gives_the_same_picture_at_any_batch_size),
        cmocka_unit_test(rows_are_streamed_while_they_are_drawn),
        cmocka_unit_test(what_is_late_is_an_error_or_ends_the_stream),
        cmocka_unit_test(a_client_that_leaves_frees_all_of_its_slots),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_no_picture_is_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, stop);
}
