/* test_compress.c - POST /v1/compress and /v1/decompress: what goes in comes out, for every kind of bytes and of
 * model; English text gets smaller than xz makes it, noise hardly grows; and what was changed on the way, or made by
 * another model, is refused. The real daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/operation/archive.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

#define GOLDEN "tests/data/golden"
#define HELD_OUT_TEXT "tests/data/enwik8-held-out.xz" /* of enwik8, bytes 4,000,000 to 4,074,999 */
#define LM "enwik8-aft-local"

enum { LIMIT_S = 580, HELD_OUT = 75000, HEADER_MAX = 56 + MODEL_ARITHMETIC_BYTES };

static char models[PATH_MAX];
static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    temp_dir_create(models);
    model_variants_link(models, "tests/data/models", LM);
    model_variants_link(models, GOLDEN, "lm-attention");
    model_variants_write(models);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, "--timeout-ms=600000", "--body-bytes-max=2000000", NULL});
    return 0;
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

static void call(const char *what, const char *model, const void *body, size_t size, struct reply *ret)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/v1/%s?model=%s", what, model);
    const struct request r = {
        .method = "POST", .path = path, .type = "application/octet-stream", .body = size > 0 ? body : "", .size = size};
    client_call(&aftd, &r, ret);
}

/* Compress and restore; returns the size in between. */
static size_t go_around(const char *model, const uint8_t *text, size_t size)
{
    struct reply small, again;
    char type[64];
    call("compress", model, text, size, &small);
    if (small.status != 200)
        fail_msg("%s", small.body);
    assert_true(reply_header(&small, "Content-Type", type, sizeof type));
    assert_string_equal(type, "application/octet-stream");
    call("decompress", model, small.body, small.size, &again);
    if (again.status != 200)
        fail_msg("%s", again.body);
    assert_int_equal(again.size, size);
    if (size > 0)
        assert_memory_equal(again.body, text, size);
    const size_t between = small.size;
    reply_clear(&again);
    reply_clear(&small);
    return between;
}

static void fill_with_noise(uint8_t *out, size_t size, uint64_t seed)
{
    struct random rng = {seed};
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)random_below(&rng, 256);
}

/* Words like those that the model has seen. */
static void fill_with_text(uint8_t *out, size_t size)
{
    static const char words[] = "The [[history]] of the [[Roman Empire]] is one of the most important of all. ";
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)words[(i + i / 1000) % (sizeof words - 1)];
}

/* ---- round trips ------------------------------------------------------------------------------------------------ */

static void any_bytes_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {LM, "lm-attention", "starting", "endless"};
    static const size_t sizes[] = {0, 1, 2, 3, 5, 6, 7, 47, 48, 49, 50, 90, 97, 600, 1500};
    uint8_t text[1500], noise[1500], zeros[1500] = {0};
    fill_with_noise(noise, sizeof noise, 1);
    fill_with_text(text, sizeof text);
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const size_t n = sizes[i];
            assert_true(go_around(names[m], noise, n) <= n + HEADER_MAX + 2);
            (void)go_around(names[m], text, n);
            if (i % 3 == 0)
                (void)go_around(names[m], zeros, n);
        }
}

/* Several blocks, some of noise, the last of one byte: this costs at most two bytes a block. */
static void blocks_are_coded_each_by_itself(void **state)
{
    (void)state;
    enum { BLOCKS = 4, SIZE = (BLOCKS - 1) * ARCHIVE_BLOCK_BYTES + 1 };
    uint8_t *bytes = malloc(SIZE);
    assert_non_null(bytes);
    fill_with_noise(bytes, SIZE, 2);
    assert_true(go_around("lm-attention", bytes, SIZE) <= SIZE + HEADER_MAX + 2 * BLOCKS);
    fill_with_text(bytes + ARCHIVE_BLOCK_BYTES, 2000);
    assert_true(go_around("lm-attention", bytes, SIZE) <= SIZE + HEADER_MAX + 2 * BLOCKS);
    free(bytes);
}

static void text_gets_small(void **state)
{
    (void)state;
    uint8_t text[3000];
    fill_with_text(text, sizeof text);
    assert_true(go_around(LM, text, sizeof text) < sizeof text / 3);
}

/* Run a command of the shell; its output is in the result. */
static void run_shell(struct program_run *p, const char *command, const void *input, size_t size)
{
    *p = (struct program_run){.argv = {"/bin/sh", "-c", command}, .input = input, .input_size = size};
    program_run(p);
}

/* The model's held-out text; what xz -9 makes of it is measured beside. */
static void held_out_text_gets_smaller_than_by_xz(void **state)
{
    (void)state;
    struct program_run text, xz;
    struct reply small;
    if (program_slowness() > 1) {
        print_message("skipped: how small a text gets is the same in every build and takes minutes in this one\n");
        skip();
    }
    run_shell(&text, "xz -dc " HELD_OUT_TEXT, NULL, 0);
    assert_int_equal(text.out_size, HELD_OUT);
    const size_t size = (size_t)test_work(HELD_OUT);
    run_shell(&xz, "xz -9 -c", text.out, size);
    assert_true(xz.out_size > 0);
    call("compress", LM, text.out, size, &small);
    assert_int_equal(small.status, 200);
    print_message("  %zu bytes of text: %zu, xz -9: %zu\n", size, small.size, xz.out_size);
    assert_true(small.size < xz.out_size * 7 / 10);
    reply_clear(&small);
    /* all of it would take a while byte by byte */
    (void)go_around(LM, (const uint8_t *)text.out, 2 * ARCHIVE_BLOCK_BYTES + 100);
    program_run_clear(&xz);
    program_run_clear(&text);
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static void expect_refusal(const void *body, size_t size, const char *says)
{
    struct reply r;
    call("decompress", LM, body, size, &r);
    reply_assert_error(&r, 400, "invalid_value", "body", says);
    reply_clear(&r);
}

static void what_was_changed_is_refused(void **state)
{
    (void)state;
    uint8_t text[200];
    struct reply small, r;
    fill_with_text(text, sizeof text);
    call("compress", LM, text, sizeof text, &small);
    assert_int_equal(small.status, 200);
    static const struct {
        size_t at;
        uint8_t to;
        const char *says;
    } changes[] = {
        {0, 'A', "not an aftz archive"},    {4, 1, "version is 1"},
        {5, 200, "what computed it"},       {6, 1, "must be zero"},
        {8, 201, "does not give the text"}, {12, 1, "at most 1048576"},
        {16, 0, "does not give the text"},  {24, 0, "of another model"},
        {44, '?', "cannot be used by"},
    };
    uint8_t *body = malloc(small.size + 1);
    assert_non_null(body);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(body, small.body, small.size);
        body[changes[i].at] = body[changes[i].at] == changes[i].to ? 0x55 : changes[i].to;
        expect_refusal(body, small.size, changes[i].says);
    }
    memcpy(body, small.body, small.size);
    body[small.size] = 0;
    expect_refusal(body, small.size + 1, "after its last block");
    expect_refusal(body, small.size - 1, "within a block");
    expect_refusal(body, 39, "within its header");
    expect_refusal(body, 0, "not an aftz archive");
    body[small.size - 10] ^= 1;
    expect_refusal(body, small.size, "does not give the text");
    call("decompress", "lm-attention", small.body, small.size, &r);
    reply_assert_error(&r, 400, "invalid_value", "body", "of another model");
    reply_clear(&r);
    free(body);
    reply_clear(&small);
}

/* Bytes that were never an archive, or no longer are, are always just refused. */
static void hostile_archives_do_no_harm(void **state)
{
    (void)state;
    struct random rng = {9};
    uint8_t text[300];
    struct reply small;
    fill_with_text(text, sizeof text);
    call("compress", "lm-attention", text, sizeof text, &small);
    assert_int_equal(small.status, 200);
    for (int i = 0; i < 300; i++) {
        uint8_t *body = malloc(small.size);
        struct reply r;
        size_t size = small.size;
        assert_non_null(body);
        memcpy(body, small.body, small.size);
        if (i % 3 == 0)
            size = random_below(&rng, (uint32_t)size);
        else
            body[random_below(&rng, (uint32_t)(i % 3 == 1 ? 56 : size))] ^= (uint8_t)(1 + random_below(&rng, 255));
        call("decompress", "lm-attention", body, size, &r);
        reply_assert_error(&r, 400, "invalid_value", "body", NULL);
        reply_clear(&r);
        free(body);
    }
    reply_clear(&small);
}

static void too_much_is_refused(void **state)
{
    (void)state;
    struct reply r;
    uint8_t *bytes = calloc(COMPRESS_BYTES_MAX + 1, 1);
    assert_non_null(bytes);
    call("compress", LM, bytes, COMPRESS_BYTES_MAX + 1, &r);
    reply_assert_error(&r, 413, "body_too_large", "body", "at most 1048576");
    reply_clear(&r);
    static const char *const in_chunks[] = {"Transfer-Encoding: chunked", NULL}; /* its size is known at its end */
    const struct request chunked = {
        .path = "/v1/compress?model=" LM, .headers = in_chunks, .body = bytes, .size = COMPRESS_BYTES_MAX + 1};
    client_call(&aftd, &chunked, &r);
    reply_assert_error(&r, 413, "body_too_large", "body", "at most 1048576");
    reply_clear(&r);
    free(bytes);
}

/* The client asks before it sends the body, and is not told to. */
static void too_much_is_refused_before_it_is_sent(void **state)
{
    static const char *const paths[] = {"/v1/compress", "/v1/decompress"};
    static struct raw_input in;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        char header[256];
        const int size = snprintf(header, sizeof header,
                                  "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12000000\r\n"
                                  "Expect: 100-continue\r\n\r\n",
                                  paths[i]);
        assert_int_equal(raw_exchange(aftd.port, header, (size_t)size, &in, HANG_MS), RAW_CLOSED);
        assert_int_equal(raw_status(&in), 413);
        assert_int_equal(raw_count_answers(&in), 1);
    }
}

static void a_deadline_ends_it(void **state)
{
    (void)state;
    struct reply r;
    uint8_t *bytes = malloc(COMPRESS_BYTES_MAX);
    assert_non_null(bytes);
    fill_with_text(bytes, COMPRESS_BYTES_MAX);
    const struct request q = {
        .path = "/v1/compress?timeout_ms=300&model=" LM, .body = bytes, .size = COMPRESS_BYTES_MAX};
    client_call(&aftd, &q, &r);
    reply_assert_error(&r, 408, "deadline_exceeded", NULL, NULL);
    reply_clear(&r);
    free(bytes);
}

static void the_default_model_answers_where_none_is_named(void **state)
{
    (void)state;
    struct reply r, back;
    const struct request unnamed = {.path = "/v1/compress", .body = "x", .size = 1};
    client_call(&aftd, &unnamed, &r);
    assert_int_equal(r.status, 200);
    client_call(&aftd, &(struct request){.path = "/v1/decompress", .body = r.body, .size = r.size}, &back);
    assert_int_equal(back.status, 200);
    assert_string_equal(back.body, "x");
    reply_clear(&back);
    reply_clear(&r);
}

static void an_unknown_parameter_is_refused(void **state)
{
    (void)state;
    struct reply r;
    const struct request unknown = {.path = "/v1/decompress?level=9", .body = "x", .size = 1};
    client_call(&aftd, &unknown, &r);
    reply_assert_error(&r, 400, "invalid_value", "level", NULL);
    reply_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(blocks_are_coded_each_by_itself),
        cmocka_unit_test(text_gets_small),
        cmocka_unit_test(held_out_text_gets_smaller_than_by_xz),
        cmocka_unit_test(what_was_changed_is_refused),
        cmocka_unit_test(hostile_archives_do_no_harm),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(too_much_is_refused_before_it_is_sent),
        cmocka_unit_test(a_deadline_ends_it),
        cmocka_unit_test(the_default_model_answers_where_none_is_named),
        cmocka_unit_test(an_unknown_parameter_is_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_compress", tests, start, daemons_end);
}
