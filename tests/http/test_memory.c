/* test_memory.c - memory that is short: of one request after another each single allocation is refused, in its
 * turn (tests/preload/scarce_memory.c). Whatever it was for, the client is told 503, or its connection is cut where
 * there is no memory to say so; or the answer is whole. Nothing is lost, and the next request is served as ever. The
 * real daemon. */
#include <jansson.h>
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
#include "tests/support/pictures.h"
#include "tests/support/scarcity.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GOLDEN "tests/data/golden/"
#define JSON "application/json"
#define BODY(text) .body = (text), .size = sizeof(text) - 1

enum { LIMIT_S = 100, ALLOCATIONS_MAX = 30000 };

static struct scarce_memory *scarce;
static unsigned wrong;

/* ---- a daemon with the allocator ------------------------------------------------------------------------------- */

static void start(void)
{
    scarce = scarcity_begin(models_folder, "http");
    model_folder_put(models_folder, "picture", GOLDEN "conv-heads8-k5");
    model_folder_put(models_folder, "pixels", GOLDEN "pixels-local");
    model_folder_put(models_folder, "text", GOLDEN "lm-local-8");
    model_folder_put(models_folder, "words", GOLDEN "text-attention");
    scarcity_enter();
    administration_start("--http-threads=1", "--log-requests=false");
    scarcity_leave();
    assert_true(atomic_load(&scarce->live) > 0);
}

static int tear_down(void **state)
{
    scarcity_end(scarce);
    scarce = NULL;
    return administration_tear_down(state);
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

static struct request requests[] = {
    {.path = "/v1/models"},
    {.path = "/v1/models/text"},
    {.path = "/metrics"},
    {.path = "/openapi.json"},
    {.path = "/v2/models/text"},
    {.path = "/generate",
     .type = JSON,
     BODY("{\"prompt\": \"ab\", \"max_tokens\": 3, \"seed\": 1, \"stop\": [\"zz\"]}")},
    {.path = "/generate",
     .type = JSON,
     BODY("{\"prompt_base64\": \"YWI=\", \"max_tokens\": 3, \"seed\": 1, \"n\": 2, \"logprobs\": 1, \"echo\": true, "
          "\"bytes_base64\": true}")},
    {.path = "/generate",
     .type = JSON,
     BODY("{\"prompt\": \"ab\", \"max_tokens\": 3, \"seed\": 1, \"return_state\": true}")},
    {.path = "/generate", .type = JSON, BODY("{\"prompt\": \"ab\", \"max_tokens\": 3, \"seed\": 1, \"stream\": true}")},
    {.path = "/v1/completions", .type = JSON, BODY("{\"prompt\": [\"ab\", \"c\"], \"max_tokens\": 2, \"seed\": 1}")},
    {.path = "/v1/completions",
     .type = JSON,
     BODY("{\"prompt\": [97], \"max_tokens\": 2, \"seed\": 1, \"logprobs\": 1, \"stream\": true}")},
    {.path = "/classify?model=picture&top_k=2"},
    {.path = "/classify", .type = JSON, BODY("{\"text\": \"ab\", \"model\": \"words\"}")},
    {.path = "/explain?model=picture&side=32"},
    {.path = "/complete?seed=1&n=2&rows=2"},
    {.path = "/score", .type = JSON, BODY("{\"text\": \"abc\", \"model\": \"text\"}")},
    {.path = "/v1/compress", BODY("abcabc")},
    {.path = "/v2/models/text/infer",
     .type = JSON,
     BODY("{\"id\": \"1\", \"parameters\": {\"seed\": 1}, \"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", "
          "\"shape\": [1], \"data\": [\"a\"]}], \"outputs\": [{\"name\": \"text\"}]}")},
};

/* Remove what differs each time: times, and the ids of answers. */
static char *essence(const struct reply *r)
{
    static const char *const fleeting[] = {"timings", "id", "created"};
    json_t *value = json_loadb(r->body, r->size, JSON_ALLOW_NUL, NULL);
    if (value == NULL)
        return strdup(r->size > 0 && strstr(r->headers, "event-stream") == NULL &&
                              strstr(r->headers, "text/plain") == NULL
                          ? r->body
                          : "");
    for (size_t i = 0; i < ARRAY_LEN(fleeting); i++)
        (void)json_object_del(value, fleeting[i]);
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(value);
    return text;
}

/* How often the request was answered, refused, cut, or wrongly anything else. */
struct tally {
    unsigned answered, refused, cut, wrong;
};

static void check(const struct request *q, long n, const struct reply *r, const char *whole, struct tally *t)
{
    char *found = essence(r);
    if (r->status == 200 && strcmp(found, whole) == 0) {
        t->answered++;
    } else if (r->status == 503 && strstr(r->body, "memory") != NULL) {
        t->refused++;
    } else {
        t->wrong++;
        (void)fprintf(stderr, "%s without allocation %ld: expected 200 or 503, got %ld: %s\n", q->path, n, r->status,
                      found);
    }
    free(found);
}

static void sweep(const struct request *q)
{
    struct tally t = {0};
    struct reply r;
    long n = 1, live = 0;
    char *whole = NULL;
    for (int i = 0; i < 3; i++) { /* once for what stays */
        client_call(&administered, q, &r);
        if (r.status != 200)
            fail_msg("%s: %ld: %s", q->path, r.status, r.body);
        free(whole);
        whole = essence(&r);
        reply_clear(&r);
        test_sleep_ms(5);
        live = atomic_load(&scarce->live);
    }
    for (bool reached = true; reached; n += 1 + n / 100) { /* of very many, some */
        atomic_store(&scarce->until, n);
        const bool fine = client_try(&administered, q, &r);
        reached = atomic_exchange(&scarce->until, 0) <= 0;
        if (fine) {
            check(q, n, &r, whole, &t);
            reply_clear(&r);
        } else {
            t.cut++;
        }
        assert_true(n < ALLOCATIONS_MAX);
    }
    scarcity_await(scarce, live, q->path);
    print_message("%-32s %4ld allocations: %u answered, %u refused, %u cut\n", q->path, n - 2, t.answered, t.refused,
                  t.cut);
    wrong += t.wrong;
    free(whole);
}

static void each_allocation_may_fail(void **state)
{
    size_t size;
    (void)state;
    start();
    uint8_t *picture = picture_file_read("weights/models/cifar10-aft-conv/sample.jpg", &size);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        if (requests[i].body == NULL && requests[i].type == NULL && strchr(requests[i].path, '=') != NULL) {
            requests[i].body = picture;
            requests[i].size = size;
        }
        sweep(&requests[i]);
    }
    free(picture);
    daemon_stop(&administered);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_may_fail, administration_set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
