/* test_mutations.c - requests that are nearly right: what every endpoint takes, changed in a few places, cut, or
 * empty. Each is answered, by what a client is to blame for at most, and leaves nothing behind. The real daemon; the
 * sanitizers' builds see what a plain one would not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_folder.h"
#include "tests/support/model_variants.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define PICTURE_FILE "tests/data/cifar/airplane.jpg"
#define JSON "application/json"
#define BYTES "application/octet-stream"
#define MULTIPART "multipart/form-data; boundary=b"
#define PART_HEAD "--b\r\nContent-Disposition: form-data; name=\"image\"\r\nContent-Type: image/jpeg\r\n\r\n"
#define PART_END "\r\n--b--\r\n"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, ROUNDS = 100, CHANGES_MAX = 5, INSERTED_MAX = 8 };

struct original {
    const char *path, *type;
    uint8_t *body;
    size_t size;
    const char *header; /* NULL: none */
};

static const struct {
    const char *path, *body, *header;
} texts[] = {
    {"/generate", "{\"model\": \"text\", \"prompt\": \"abc\", \"max_tokens\": 9, \"stop\": [\"x\"], \"logprobs\": 2}",
     NULL},
    {"/generate", "{\"model\": \"text\", \"prompt_base64\": \"YWJj\", \"n\": 2, \"max_tokens\": 9, \"stream\": true}",
     NULL},
    {"/score", "{\"model\": \"text\", \"text\": \"some text, and more\"}", NULL},
    {"/classify", "{\"model\": \"texts\", \"text\": \"some text\", \"top_k\": 2}", NULL},
    {"/v1/completions",
     "{\"model\": \"text\", \"prompt\": [\"a\", \"bc\"], \"max_tokens\": 5, \"logprobs\": 1, \"echo\": true}", NULL},
    {"/v1/embeddings", "{\"model\": \"text\", \"input\": [[97, 98], [99]], \"encoding_format\": \"base64\"}", NULL},
    {"/v1/chat/completions",
     "{\"model\": \"text-chat\", \"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
     "\"content\": [{\"type\": \"text\", \"text\": \"b\"}]}], \"max_tokens\": 5, \"logprobs\": true}",
     NULL},
    {"/v2/models/text/infer",
     "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"ab\"]}], "
     "\"parameters\": "
     "{\"max_tokens\": 4}}",
     NULL},
    {"/v2/models/text/infer",
     "{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"parameters\": "
     "{\"binary_data_size\": "
     "6}}]}\2\0\0\0ab",
     "Inference-Header-Content-Length: 106"},
};

static struct original originals[ARRAY_LEN(texts) + 8];
static size_t original_count;

static void add(const char *path, const char *type, const void *body, size_t size, const char *header)
{
    uint8_t *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, body, size);
    originals[original_count++] = (struct original){path, type, copy, size, header};
}

static void call(const struct original *o, const uint8_t *body, size_t size, struct reply *ret)
{
    const char *const headers[] = {o->header, NULL};
    client_call(&administered,
                &(struct request){.path = o->path,
                                  .type = o->type,
                                  .body = size > 0 ? body : (const void *)"",
                                  .size = size,
                                  .headers = headers},
                ret);
}

/* Binary inputs: pictures, and what the daemon itself makes of a text. */
static void add_bytes(void)
{
    static const char text[] = "what is compressed is given back as it was, was it not?";
    size_t size;
    struct reply r;
    char *picture = temp_read(PICTURE_FILE, &size);
    add("/classify?model=pictures", "image/jpeg", picture, size, NULL);
    add("/explain?model=pictures", "image/jpeg", picture, size, NULL);
    add("/complete?model=pixels", "image/jpeg", picture, size, NULL);
    char *parts = malloc(sizeof PART_HEAD + size + sizeof PART_END);
    assert_non_null(parts);
    memcpy(parts, PART_HEAD, sizeof PART_HEAD - 1);
    memcpy(parts + sizeof PART_HEAD - 1, picture, size);
    memcpy(parts + sizeof PART_HEAD - 1 + size, PART_END, sizeof PART_END - 1);
    add("/classify?model=pictures", MULTIPART, parts, size + sizeof PART_HEAD + sizeof PART_END - 2, NULL);
    free(parts);
    free(picture);
    add("/v1/compress?model=text", BYTES, text, sizeof text - 1, NULL);
    call(&originals[original_count - 1], (const uint8_t *)text, sizeof text - 1, &r);
    assert_int_equal(r.status, 200);
    add("/v1/decompress?model=text", BYTES, r.body, r.size, NULL);
    reply_clear(&r);
}

static int set_up(void **state)
{
    original_count = 0;
    return administration_set_up(state);
}

static int tear_down(void **state)
{
    for (size_t i = 0; i < original_count; i++)
        free(originals[i].body);
    original_count = 0;
    return administration_tear_down(state);
}

/* A few bytes changed, taken out or put in, or the end cut off. Returns the new size, at most CHANGES_MAX *
 * INSERTED_MAX more. */
static size_t mutate(uint8_t *body, size_t size, struct random *rng)
{
    static const char likely[] = "\"[]{},:0-9\\=\r\n\0\xff";
    const uint32_t changes = 1 + random_below(rng, CHANGES_MAX);
    for (uint32_t i = 0; i < changes && size > 0; i++) {
        const size_t at = random_below(rng, (uint32_t)size);
        const size_t most = 1 + random_below(rng, INSERTED_MAX), n = most < size - at ? most : size - at;
        switch (random_below(rng, 8)) {
        case 0:
            size = at;
            break;
        case 1:
        case 2:
            memmove(body + at, body + at + n, size - at - n);
            size -= n;
            break;
        case 3:
        case 4:
            memmove(body + at + most, body + at, size - at);
            for (size_t k = 0; k < most; k++)
                body[at + k] = (uint8_t)likely[random_below(rng, sizeof likely)];
            size += most;
            break;
        default:
            body[at] = (uint8_t)random_below(rng, 256);
        }
    }
    return size;
}

static void try(const struct original *o, const uint8_t *body, size_t size, unsigned long counts[6])
{
    struct reply r;
    call(o, body, size, &r);
    if (r.status < 200 || r.status > 499)
        fail_msg("%s, %zu bytes: %ld %s", o->path, size, r.status, r.body);
    if (r.status >= 400) {
        json_t *answer = reply_json(&r);
        assert_non_null(json_object_get(answer, "error"));
        json_decref(answer);
    }
    counts[r.status / 100]++;
    reply_clear(&r);
}

static void requests_that_are_nearly_right_are_answered(void **state)
{
    struct random rng = {.state = 11};
    unsigned long counts[6] = {0};
    (void)state;
    model_folder_put(models_folder, "text", GOLDEN "lm-local-8");
    model_variants_write_chat(models_folder, "text-chat", GOLDEN "lm-local-8", "A: ", "\n");
    model_folder_put(models_folder, "texts", GOLDEN "text-attention");
    model_folder_put(models_folder, "pictures", GOLDEN "conv-heads8-k5");
    model_folder_put(models_folder, "pixels", GOLDEN "pixels-local");
    administration_start("--log-requests=false", NULL);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const size_t behind = texts[i].header != NULL ? 6 : 0; /* with NULs */
        add(texts[i].path, behind > 0 ? BYTES : JSON, texts[i].body,
            strlen(texts[i].body) + (behind > 0 ? behind - 1 : 0), texts[i].header);
    }
    add_bytes();
    for (size_t i = 0; i < original_count; i++) {
        const struct original *o = &originals[i];
        struct reply r;
        call(o, o->body, o->size, &r);
        if (r.status != 200)
            fail_msg("%s, as it should be: %ld %s", o->path, r.status, r.body);
        reply_clear(&r);
    }
    const struct daemon_usage before = daemon_usage(&administered);
    for (size_t i = 0; i < original_count; i++) {
        const struct original *o = &originals[i];
        uint8_t *body = malloc(o->size + (size_t)CHANGES_MAX * INSERTED_MAX);
        assert_non_null(body);
        try(o, body, 0, counts);
        for (int round = 0; round < ROUNDS; round++) {
            memcpy(body, o->body, o->size);
            try(o, body, mutate(body, o->size, &rng), counts);
        }
        free(body);
    }
    print_message("%lu answered as if nothing was, %lu refused\n", counts[2], counts[4]);
    assert_true(counts[2] > 0 && counts[4] > counts[2]);
    (void)client_await_metric(&administered, "aftd_streams_running", 0, HANG_MS);
    daemon_assert_usage(&administered, &before, HANG_MS);
    daemon_stop(&administered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_that_are_nearly_right_are_answered, set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
