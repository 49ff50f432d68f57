/* test_reload.c - a hundred reloads of a model while clients use it, every second one of files that are not
 * accepted: no request fails, each gets the whole of its text from one set of weights, what is refused changes nothing,
 * and nothing is left behind. The real daemon. */
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
#include "tests/support/model_folder.h"
#include "tests/support/pictures.h"
#include "tests/support/temp_dir.h"

#define PICTURE_FILE "tests/data/cifar/ship.jpg"

enum {
    LIMIT_S = 580,
    ROUNDS = 100,
    WARM_ROUNDS = 20, /* after these memory is what it is */
    TEXTS = 8,
    PICTURES = 4,
    RELOAD = TEXTS / 2, /* its place among the requests of a round, which start in order */
    REQUESTS = TEXTS + 1 + PICTURES,
    TOKENS = 200,
    RELOAD_AFTER_MS = 2, /* of a round: the texts before it are being written */
    REST_AFTER_MS = 12,
    GROWTH_MAX = 16 << 20, /* bytes; one model takes 9 MB, and forty would be left */
};

/* The sanitizers keep what was freed for a while. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MEMORY_IS_TOLD 0
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_IS_TOLD 0
#endif
#endif
#ifndef MEMORY_IS_TOLD
#define MEMORY_IS_TOLD 1
#endif

static const char *const weights[2] = {"tests/data/golden/lm-local-8", "tests/data/golden/lm-local-no-global"};
static struct daemon aftd;
static char folder[PATH_MAX];
static uint8_t *picture;

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(folder);
    free(picture);
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

/* Number i asks for what no other asks for. */
static void text_body(char out[256], int i)
{
    (void)snprintf(out, 256,
                   "{\"model\": \"text\", \"prompt\": \"%d bottles\", \"max_tokens\": %d, \"seed\": %d, "
                   "\"context_overflow\": \"shift\"}",
                   i, TOKENS, i);
}

static struct request text_request(const char *body)
{
    return (struct request){.path = "/generate", .type = "application/json", .body = body, .size = strlen(body)};
}

/* The text of an answer that must be one; free it. */
static char *text_of(const struct reply *r)
{
    if (r->status != 200)
        fail_msg("a request failed: %ld %s", r->status, r->body);
    json_t *answer = reply_json(r);
    char *text = strdup(json_string_value(json_object_get(answer, "text")));
    json_decref(answer);
    assert_non_null(text);
    return text;
}

static char *ask_text(int i)
{
    char body[256];
    struct reply r;
    text_body(body, i);
    const struct request q = text_request(body);
    client_call(&aftd, &q, &r);
    char *text = text_of(&r);
    reply_clear(&r);
    return text;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------- */

/* The expected answers: each text with each set of weights, and the picture. */
static char *texts[2][TEXTS];
static char *labels;
static unsigned of_old, of_new; /* texts of rounds that changed the weights */

static void check_reload(const struct reply *r, bool accepted)
{
    if (accepted && r->status != 200)
        fail_msg("the reload failed: %ld %s", r->status, r->body);
    if (!accepted)
        reply_assert_error(r, 422, "file_refused", NULL, NULL);
}

/* The place of text i among the requests: half of them come before the reload. */
static int place_of(int i)
{
    return i < RELOAD ? i : i + 1;
}

/* All at once, and in the midst of it the reload, which ends with `after` in the place of `before`. */
static void run_round(int before, int after, bool accepted, size_t picture_size)
{
    static const char action[] = "{\"action\": \"reload\"}";
    struct request requests[REQUESTS];
    struct reply replies[REQUESTS];
    long starts_ms[REQUESTS] = {0};
    char bodies[TEXTS][256];
    for (int i = 0; i < TEXTS; i++) {
        text_body(bodies[i], i);
        requests[place_of(i)] = text_request(bodies[i]);
    }
    for (int i = RELOAD; i < REQUESTS; i++)
        starts_ms[i] = i == RELOAD ? RELOAD_AFTER_MS : REST_AFTER_MS;
    for (int i = TEXTS + 1; i < REQUESTS; i++)
        requests[i] = (struct request){
            .path = "/classify?model=picture", .type = "image/jpeg", .body = picture, .size = picture_size};
    requests[RELOAD] = (struct request){.path = "/admin/models/text",
                                        .type = "application/json",
                                        .body = action,
                                        .size = strlen(action),
                                        .port = aftd.admin_port};
    client_call_all(&aftd, requests, replies, REQUESTS, starts_ms);
    check_reload(&replies[RELOAD], accepted);
    for (int i = 0; i < TEXTS; i++) {
        char *text = text_of(&replies[place_of(i)]);
        const bool is_old = strcmp(text, texts[before][i]) == 0, is_new = strcmp(text, texts[after][i]) == 0;
        if (!is_old && !is_new)
            fail_msg("text %d is of neither weights: %s", i, text);
        of_old += before != after && is_old;
        of_new += before != after && is_new;
        free(text);
    }
    for (int i = TEXTS + 1; i < REQUESTS; i++) {
        assert_int_equal(replies[i].status, 200);
        assert_string_equal(replies[i].body, labels);
    }
    for (int i = 0; i < REQUESTS; i++)
        reply_clear(&replies[i]);
    char *text = ask_text(0);
    assert_string_equal(text, texts[after][0]);
    free(text);
}

/* Learn what each weights write, by reloading between them. */
static void learn(size_t picture_size)
{
    struct reply r;
    const struct request q = {
        .path = "/classify?model=picture", .type = "image/jpeg", .body = picture, .size = picture_size};
    client_call(&aftd, &q, &r);
    assert_int_equal(r.status, 200);
    labels = strdup(r.body);
    reply_clear(&r);
    for (int w = 0; w < 2; w++) {
        const struct request reload = {.method = "POST", .path = "/admin/config/reload", .port = aftd.admin_port};
        model_folder_put(folder, "text", weights[w]);
        client_call(&aftd, &reload, &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
        for (int i = 0; i < TEXTS; i++)
            texts[w][i] = ask_text(i);
    }
    assert_string_not_equal(texts[0][0], texts[1][0]);
}

static void a_hundred_reloads_under_load_fail_no_request(void **state)
{
    char flag[PATH_MAX + 16];
    size_t picture_size;
    double warm_bytes = 0;
    (void)state;
    temp_dir_create(folder);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", folder);
    model_folder_put(folder, "text", weights[0]);
    model_folder_put(folder, "picture", "tests/data/golden/conv-heads8-k5");
    picture = picture_file_read(PICTURE_FILE, &picture_size);
    daemon_start(&aftd, (const char *const[]){flag, "--admin-address=127.0.0.1", "--admin-port=0", "--streams-max=16",
                                              "--pass-rows-max=4096", "--picture-tokens-max=64", NULL});
    const struct daemon_usage before = daemon_usage(&aftd);
    learn(picture_size);
    int now = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const bool accepted = round % 2 == 0;
        const int next = accepted ? 1 - now : now;
        if (accepted)
            model_folder_put(folder, "text", weights[next]);
        else
            model_folder_break(folder, "text", weights[now], (enum model_fault)(round / 2 % MODEL_FAULTS));
        run_round(now, next, accepted, picture_size);
        now = next;
        if (round + 1 == WARM_ROUNDS)
            warm_bytes = client_metric(&aftd, "process_resident_memory_bytes");
    }
    const double bytes = client_metric(&aftd, "process_resident_memory_bytes");
    print_message("  texts beside a change of weights: %u of the old, %u of the new; %.1f MB resident, then %.1f\n",
                  of_old, of_new, warm_bytes / 1e6, bytes / 1e6);
    if (MEMORY_IS_TOLD)
        assert_true(bytes < warm_bytes + GROWTH_MAX);
    daemon_assert_usage(&aftd, &before, HANG_MS);
    for (int i = 0; i < 2 * TEXTS; i++)
        free(texts[i / TEXTS][i % TEXTS]);
    free(labels);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_hundred_reloads_under_load_fail_no_request, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
