/* test_prefix_bits.c - answers of a daemon that keeps states of prompts' beginnings are those of one that keeps
 * none, to the last bit of what is told of each byte and
 * of the state at the end: random prompts that share beginnings, of models of all kinds,
 * many at a time, with so little memory that states come and go, and clients that leave. Two real daemons. */
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
#include "tests/support/generation.h"
#include "tests/support/model_variants.h"
#include "tests/support/random.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden"
#define LM "enwik8-aft-local"

enum { LIMIT_S = 580, ROUNDS = 16, TOGETHER = 6, PROMPT_MAX = 640 };

static char models[PATH_MAX];
static struct daemon plain, keeping;

static const char *const goldens[] = {"lm-attention", "lm-full", "lm-simple", "lm-local-no-global",
                                      "lm-conv-heads4-k5"};

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    temp_dir_create(models);
    model_variants_link(models, "tests/data/models", LM);
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++)
        model_variants_link(models, GOLDEN, goldens[i]);
    model_variants_write(models);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&plain, (const char *const[]){flag, "--prefix-cache-mb=0", NULL});
    daemon_start(&keeping, (const char *const[]){flag, "--prefix-cache-mb=4", "--prefix-cache-bytes=8",
                                                 "--streams-max=4", "--pass-rows-max=5", NULL});
    return 0;
}

/* ---- asking ---------------------------------------------------------------------------------------------------- */

/* Prompts are cut at random from few texts and gone on with at random, so that they share beginnings of any length. */
static void random_prompt(struct random *r, size_t size_max, char out[PROMPT_MAX + 1])
{
    struct random text = {random_below(r, 3)};
    const size_t size = 1 + random_below(r, (uint32_t)size_max), same = random_below(r, (uint32_t)size + 1);
    for (size_t i = 0; i < size; i++)
        out[i] = (char)('a' + random_below(i < same ? &text : r, 26));
    out[size] = '\0';
}

static char *random_request(struct random *r, const char *model, size_t size_max)
{
    char prompt[PROMPT_MAX + 1];
    const bool several = random_below(r, 3) == 0;
    random_prompt(r, size_max, prompt);
    return generate_body(json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:b, s:b}", "model", model, "prompt", prompt,
                                   "max_tokens", (int)(1 + random_below(r, 8)), "logprobs", 20, "n", several ? 3 : 1,
                                   "seed", (int)random_below(r, 1000), "context_overflow",
                                   random_below(r, 2) == 0 ? "stop" : "shift", "echo", random_below(r, 4) == 0,
                                   "return_state", !several));
}

/* An answer without its timings. */
static json_t *said(const struct reply *r)
{
    if (r->status != 200)
        fail_msg("%ld: %s", r->status, r->body);
    json_t *answer = reply_json(r);
    assert_int_equal(json_object_del(answer, "timings"), 0);
    return answer;
}

static void assert_same_answers(const char *body, const struct reply *a, const struct reply *b)
{
    json_t *want = said(a), *got = said(b);
    if (!json_equal(want, got))
        fail_msg("%s\nis answered\n%s\nand with states kept\n%s", body, a->body, b->body);
    json_decref(want);
    json_decref(got);
}

static void ask_both(const char *body)
{
    const struct request q = generate_request(body);
    struct reply want, got;
    client_call(&plain, &q, &want);
    client_call(&keeping, &q, &got);
    assert_same_answers(body, &want, &got);
    reply_clear(&want);
    reply_clear(&got);
}

static double metric_of(const char *name, const char *model)
{
    char series[160];
    (void)snprintf(series, sizeof series, "%s{model=\"%s\"}", name, model);
    return client_metric(&keeping, series);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void ask_rounds(const char *model, size_t size_max, unsigned rounds)
{
    struct random r = {size_max};
    for (unsigned round = 0; round < rounds; round++) {
        char *bodies[TOGETHER];
        struct request requests[TOGETHER];
        struct reply want[TOGETHER], got[TOGETHER];
        for (size_t i = 0; i < TOGETHER; i++) {
            bodies[i] = random_request(&r, model, size_max);
            requests[i] = generate_request(bodies[i]);
        }
        client_call_all(&plain, requests, want, TOGETHER, NULL);
        client_call_all(&keeping, requests, got, TOGETHER, NULL);
        for (size_t i = 0; i < TOGETHER; i++) {
            assert_same_answers(bodies[i], &want[i], &got[i]);
            reply_clear(&want[i]);
            reply_clear(&got[i]);
            free(bodies[i]);
        }
    }
    if (metric_of("aftd_prefix_cache_hits_total", model) < 3 || metric_of("aftd_prefix_cache_misses_total", model) < 3)
        fail_msg("%s: %g hits and %g misses show nothing", model, metric_of("aftd_prefix_cache_hits_total", model),
                 metric_of("aftd_prefix_cache_misses_total", model));
    assert_true(metric_of("aftd_prefix_cache_bytes", model) > 0);
    assert_true(metric_of("aftd_prefix_cache_bytes", model) < 4 << 20);
}

static void small_models_say_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++)
        ask_rounds(goldens[i], 64, ROUNDS); /* over the end of their contexts */
    ask_rounds("starting", 64, ROUNDS);
    ask_rounds("endless", 200, ROUNDS);
}

/* A dozen of its states fit. */
static void a_trained_model_says_the_same_while_states_come_and_go(void **state)
{
    (void)state;
    ask_rounds(LM, PROMPT_MAX, ROUNDS / 2);
    assert_true(metric_of("aftd_prefix_cache_evictions_total", LM) > 3);
}

/* The states that a prompt has left by the time its client goes away are used, and right. */
static void a_prompt_that_is_left_halfway_leaves_good_states(void **state)
{
    (void)state;
    struct random r = {9};
    char *prompt = malloc(200001);
    assert_non_null(prompt);
    for (unsigned round = 0; round < 4; round++) {
        for (size_t i = 0; i < 200000; i++)
            prompt[i] = (char)('a' + random_below(&r, 26));
        prompt[200000] = '\0';
        char *body = generate_body(json_pack("{s:s, s:s, s:i}", "model", "endless", "prompt", prompt, "max_tokens", 1));
        char *post = raw_post("/generate", body, "");
        const double cancelled = client_metric(&keeping, "aftd_requests_cancelled_total");
        const int fd = raw_connect(keeping.port);
        assert_true(raw_send(fd, post, strlen(post), HANG_MS));
        (void)client_await_metric(&keeping, "aftd_streams_running{model=\"endless\"}", 1, HANG_MS);
        test_sleep_ms(5 * (long)round);
        raw_close(fd);
        (void)client_await_metric(&keeping, "aftd_requests_cancelled_total", cancelled + 1, HANG_MS);
        free(post);
        free(body);
        prompt[1000] = '\0';
        body = generate_body(json_pack("{s:s, s:s, s:i, s:i, s:i}", "model", "endless", "prompt", prompt, "max_tokens",
                                       8, "logprobs", 20, "seed", 1));
        ask_both(body);
        free(body);
    }
    free(prompt);
}

/* The state of a new session with a prompt; the session is ended. */
static void session_state(const struct daemon *d, const char *body, struct reply *ret)
{
    char path[160];
    struct request q = generate_request(body);
    struct reply r;
    q.path = "/v1/sessions";
    client_call(d, &q, &r);
    if (r.status != 201)
        fail_msg("%ld: %s", r.status, r.body);
    json_t *session = reply_json(&r);
    const char *id = json_string_value(json_object_get(session, "id"));
    (void)snprintf(path, sizeof path, "/v1/sessions/%s/state", id);
    client_get(d, path, ret);
    assert_int_equal(ret->status, 200);
    (void)snprintf(path, sizeof path, "/v1/sessions/%s", id);
    json_decref(session);
    reply_clear(&r);
    client_call(d, &(struct request){.method = "DELETE", .path = path}, &r);
    reply_clear(&r);
}

/* After a state without any byte a prompt is like any other. */
static void sessions_begin_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"lm-full", "starting", "endless", LM};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const double hits = metric_of("aftd_prefix_cache_hits_total", names[i]);
        struct random r = {i};
        for (size_t n = 0; n < 20; n++) {
            char prompt[PROMPT_MAX + 1];
            struct reply want, got;
            random_prompt(&r, 44, prompt);
            char *body = generate_body(json_pack("{s:s, s:s, s:i}", "model", names[i], "prompt", prompt, "seed", 1));
            session_state(&plain, body, &want);
            session_state(&keeping, body, &got);
            assert_int_equal(got.size, want.size);
            assert_memory_equal(got.body, want.body, want.size);
            reply_clear(&want);
            reply_clear(&got);
            free(body);
        }
        assert_true(metric_of("aftd_prefix_cache_hits_total", names[i]) > hits);
    }
}

/* A state that a client brings may be made up: a prompt behind it neither leaves states nor goes on from any. */
static void a_prompt_behind_a_clients_state_is_fed_whole(void **state)
{
    (void)state;
    struct reply r;
    char *body = generate_body(json_pack("{s:s, s:s, s:i, s:b}", "model", "endless", "prompt", "0123456789",
                                         "max_tokens", 1, "return_state", 1));
    struct request q = generate_request(body);
    client_call(&keeping, &q, &r);
    json_t *first = said(&r);
    reply_clear(&r);
    free(body);
    const double hits = metric_of("aftd_prefix_cache_hits_total", "endless"),
                 misses = metric_of("aftd_prefix_cache_misses_total", "endless"),
                 bytes = metric_of("aftd_prefix_cache_bytes", "endless");
    body = generate_body(
        json_pack("{s:s, s:O, s:s, s:i, s:i, s:i}", "model", "endless", "state", json_object_get(first, "state"),
                  "prompt", "a prompt that nobody else has asked with", "max_tokens", 8, "logprobs", 20, "seed", 1));
    ask_both(body);
    ask_both(body);
    assert_true(metric_of("aftd_prefix_cache_hits_total", "endless") == hits);
    assert_true(metric_of("aftd_prefix_cache_misses_total", "endless") == misses);
    assert_true(metric_of("aftd_prefix_cache_bytes", "endless") == bytes);
    free(body);
    json_decref(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models_say_the_same),
        cmocka_unit_test(a_trained_model_says_the_same_while_states_come_and_go),
        cmocka_unit_test(a_prompt_that_is_left_halfway_leaves_good_states),
        cmocka_unit_test(sessions_begin_the_same),
        cmocka_unit_test(a_prompt_behind_a_clients_state_is_fed_whole),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
