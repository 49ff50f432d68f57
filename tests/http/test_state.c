/* test_state.c - /generate with return_state and state: a text that is stopped, and goes on in another daemon, has
 * the bytes of one that never was; what is no state of the model is refused. Two real daemons. */
#include <float.h>
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

#include "server/core/little_endian.h"
#include "server/session/state_blob.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"
#include "tests/support/random.h"
#include "tests/support/sessions.h"
#include "tests/support/state_seal.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden"
#define LM "enwik8-aft-local"

enum { LIMIT_S = 580, WHOLE = 60, MUTATED = 200, CUTS = 12, BASE64_SLACK = 4 };

static char models[PATH_MAX];
static struct daemon here, there;

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    temp_dir_create(models);
    model_variants_link(models, "tests/data/models", LM);
    model_variants_link(models, GOLDEN, "lm-attention");
    model_variants_link(models, GOLDEN, "lm-local-no-global");
    model_variants_write(models);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&here, (const char *const[]){flag, NULL});
    daemon_start(&there, (const char *const[]){flag, "--streams-max=3", "--pass-rows-max=5", NULL});
    return 0;
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

/* POST /generate with `fields`, which are taken. */
static void ask(const struct daemon *d, json_t *fields, struct reply *ret)
{
    char *body = json_dumps(fields, 0);
    json_decref(fields);
    assert_non_null(body);
    const struct request r = {.path = "/generate", .type = "application/json", .body = body, .size = strlen(body)};
    client_call(d, &r, ret);
    free(body);
}

static json_t *generate(const struct daemon *d, json_t *fields)
{
    struct reply r;
    do
        ask(d, json_incref(fields), &r);
    while (reply_is_late(&r, fields));
    json_decref(fields);
    if (r.status != 200)
        fail_msg("%s", r.body);
    json_t *answer = reply_json(&r);
    reply_clear(&r);
    return answer;
}

/* Append the answer's bytes to out; returns how many it has then. */
static size_t append_bytes(uint8_t *out, size_t size, const json_t *answer)
{
    const char *text = json_string_value(json_object_get(answer, "bytes_base64"));
    struct base64_decode_ctx base64;
    size_t n;
    assert_non_null(text);
    base64_decode_init(&base64);
    assert_int_equal(base64_decode_update(&base64, &n, out + size, strlen(text), text), 1);
    return size + n;
}

static json_t *fields_of(const char *model, int max_tokens)
{
    return json_pack("{s:s, s:i, s:b, s:s}", "model", model, "max_tokens", max_tokens, "bytes_base64", 1,
                     "context_overflow", "shift");
}

static json_t *first_fields(const char *model, int max_tokens)
{
    json_t *fields = fields_of(model, max_tokens);
    assert_int_equal(
        json_object_update_new(fields, json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:b, s:{s:f}}", "prompt",
                                                 "The history of ", "seed", 5, "temperature", 0.9, "top_p", 0.95,
                                                 "repetition_penalty", 1.2, "presence_penalty", 0.5,
                                                 "frequency_penalty", 0.1, "utf8", 1, "logit_bias", "97", 1.5)),
        0);
    return fields;
}

/* ---- going on --------------------------------------------------------------------------------------------------- */

/* In turns of any length, here and there: the sampler's options, its place in its random numbers and the penalty's
 * memory go along, over the end of the context too. */
static void a_moved_text_goes_on_as_if_it_never_was(void **state)
{
    (void)state;
    static const char *const names[] = {LM, "lm-attention", "lm-local-no-global", "starting", "endless"};
    static const int turns[] = {1, 17, 1, 2, 15, 24};
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        uint8_t want[2 * WHOLE], got[2 * WHOLE];
        json_t *whole = generate(&here, first_fields(names[m], WHOLE)), *kept = NULL;
        size_t n = 0;
        assert_int_equal(append_bytes(want, 0, whole), WHOLE);
        json_decref(whole);
        for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
            json_t *fields = i == 0 ? first_fields(names[m], turns[0]) : fields_of(names[m], turns[i]);
            if (kept != NULL)
                assert_int_equal(json_object_set_new(fields, "state", kept), 0);
            assert_int_equal(json_object_set_new(fields, "return_state", json_true()), 0);
            json_t *answer = generate(i % 2 == 0 ? &here : &there, fields);
            n = append_bytes(got, n, answer);
            assert_int_equal(json_integer_value(json_object_get(answer, "seed")), 5);
            assert_int_equal(json_integer_value(json_object_get(json_object_get(answer, "usage"), "prompt_tokens")),
                             i == 0 ? (int)strlen("The history of ") : 0);
            kept = json_incref(json_object_get(answer, "state"));
            assert_true(json_is_string(kept));
            json_decref(answer);
        }
        json_decref(kept);
        assert_int_equal(n, WHOLE);
        assert_memory_equal(got, want, WHOLE);
    }
}

/* A prompt behind a state is as a prompt behind the text that the state was made of. */
static void a_prompt_goes_behind_a_state(void **state)
{
    (void)state;
    uint8_t want[128], got[128];
    json_t *first = generate(&here, json_pack("{s:s, s:s, s:i, s:i, s:b}", "model", LM, "prompt", "Rome is a ",
                                              "max_tokens", 20, "temperature", 0, "return_state", 1));
    char prompt[256];
    (void)snprintf(prompt, sizeof prompt, "Rome is a %s. [[London]] ",
                   json_string_value(json_object_get(first, "text")));
    json_t *whole = generate(&here, json_pack("{s:s, s:s, s:i, s:i, s:b}", "model", LM, "prompt", prompt, "max_tokens",
                                              30, "temperature", 0, "bytes_base64", 1));
    json_t *moved =
        generate(&there, json_pack("{s:s, s:O, s:s, s:i, s:b}", "model", LM, "state", json_object_get(first, "state"),
                                   "prompt", ". [[London]] ", "max_tokens", 30, "bytes_base64", 1));
    assert_int_equal(append_bytes(want, 0, whole), 30);
    assert_int_equal(append_bytes(got, 0, moved), 30);
    assert_memory_equal(got, want, 30);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(moved, "usage"), "prompt_tokens")), 13);
    json_decref(moved);
    json_decref(whole);
    json_decref(first);
}

/* A state's pending byte does not count as one of the request's, neither in the answer nor in the log. */
static void what_is_pending_is_not_given_again(void **state)
{
    (void)state;
    struct reply r;
    json_t *first = generate(
        &here, json_pack("{s:s, s:s, s:i, s:b}", "model", LM, "prompt", "The ", "max_tokens", 5, "return_state", 1));
    json_t *fields = json_pack("{s:s, s:O, s:s, s:i}", "model", LM, "state", json_object_get(first, "state"), "prompt",
                               "ab", "max_tokens", 1);
    char *body = json_dumps(fields, 0);
    assert_non_null(body);
    client_call(&here,
                &(struct request){.path = "/generate",
                                  .type = "application/json",
                                  .body = body,
                                  .size = strlen(body),
                                  .headers = (const char *const[]){"X-Request-Id: pending", NULL}},
                &r);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"prompt_tokens\":2,"));
    daemon_await_log(&here, " id=pending\n");
    char *log = daemon_log(&here);
    *strstr(log, " id=pending\n") = '\0';
    assert_non_null(strstr(strrchr(log, '\n'), " prompt_tokens=2 "));
    free(log);
    free(body);
    reply_clear(&r);
    json_decref(fields);
    json_decref(first);
}

/* Several texts from one state: the first is what the state's own stream would say. */
static void a_state_forks(void **state)
{
    (void)state;
    json_t *first = generate(&here, json_pack("{s:s, s:s, s:i, s:i, s:b}", "model", LM, "prompt", "The ", "max_tokens",
                                              5, "seed", 3, "return_state", 1));
    json_t *one = generate(
        &there, json_pack("{s:s, s:O, s:i}", "model", LM, "state", json_object_get(first, "state"), "max_tokens", 20));
    json_t *three = generate(&there, json_pack("{s:s, s:O, s:i, s:i}", "model", LM, "state",
                                               json_object_get(first, "state"), "max_tokens", 20, "n", 3));
    const json_t *choices = json_object_get(three, "choices");
    assert_int_equal(json_array_size(choices), 3);
    const char *texts[3];
    for (size_t i = 0; i < 3; i++)
        texts[i] = json_string_value(json_object_get(json_array_get(choices, i), "text"));
    assert_string_equal(texts[0], json_string_value(json_object_get(one, "text")));
    assert_string_not_equal(texts[1], texts[0]);
    assert_string_not_equal(texts[2], texts[1]);
    json_decref(three);
    json_decref(one);
    json_decref(first);
}

static void a_stream_tells_it_last(void **state)
{
    (void)state;
    struct reply r;
    ask(&here,
        json_pack("{s:s, s:s, s:i, s:i, s:b, s:b}", "model", LM, "prompt", "The ", "max_tokens", 5, "seed", 3,
                  "return_state", 1, "stream", 1),
        &r);
    json_t *whole = generate(&here, json_pack("{s:s, s:s, s:i, s:i, s:b}", "model", LM, "prompt", "The ", "max_tokens",
                                              5, "seed", 3, "return_state", 1));
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(strstr(r.body, "finish_reason"), json_string_value(json_object_get(whole, "state"))));
    json_decref(whole);
    reply_clear(&r);
}

/* Wherever the deadline falls: behind a byte, or where a context has just begun again. */
static void a_text_that_was_cut_goes_on(void **state)
{
    (void)state;
    static const char *const names[] = {LM, "lm-attention", "starting"};
    for (size_t i = 0; i < CUTS; i++) {
        const char *name = names[i % (sizeof names / sizeof names[0])];
        json_t *fields = first_fields(name, 65536);
        assert_int_equal(json_object_update_new(fields, json_pack("{s:i, s:b}", "timeout_ms", 60, "return_state", 1)),
                         0);
        json_t *cut = generate(&here, fields);
        assert_string_equal(json_string_value(json_object_get(cut, "finish_reason")), "timeout");
        const int tokens = (int)json_integer_value(json_object_get(cut, "tokens"));
        assert_in_range(tokens, 1, 65535);
        fields = fields_of(name, WHOLE);
        assert_int_equal(json_object_set(fields, "state", json_object_get(cut, "state")), 0);
        json_t *rest = generate(&there, fields), *whole = generate(&here, first_fields(name, tokens + WHOLE));
        const size_t room = (size_t)tokens + WHOLE + BASE64_SLACK;
        uint8_t *want = malloc(room), *got = malloc(room);
        assert_true(want != NULL && got != NULL);
        const size_t n = append_bytes(want, 0, whole);
        assert_int_equal(n, tokens + WHOLE);
        assert_int_equal(append_bytes(got, append_bytes(got, 0, cut), rest), n);
        assert_memory_equal(got, want, n);
        free(got);
        free(want);
        json_decref(whole);
        json_decref(rest);
        json_decref(cut);
    }
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static void expect_refusal(json_t *fields, const char *param, const char *says)
{
    struct reply r;
    ask(&there, fields, &r);
    reply_assert_error(&r, 400, "invalid_value", param, says);
    reply_clear(&r);
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    json_t *first = generate(&here, json_pack("{s:s, s:s, s:i, s:b}", "model", "lm-attention", "prompt", "The ",
                                              "max_tokens", 30, "return_state", 1));
    json_t *kept = json_object_get(first, "state");
    expect_refusal(json_pack("{s:s, s:b, s:i}", "model", LM, "return_state", 1, "n", 2), "return_state", "expected 1");
    expect_refusal(json_pack("{s:s, s:O, s:b}", "model", "lm-attention", "state", kept, "echo", 1), "echo", "state");
    expect_refusal(json_pack("{s:s, s:O}", "model", LM, "state", kept), "state", "of another model");
    expect_refusal(json_pack("{s:s, s:s}", "model", LM, "state", "AAAA===="), "state", "base64");
    expect_refusal(json_pack("{s:s, s:s}", "model", LM, "state", "AAAA"), "state", "expected at least");
    expect_refusal(json_pack("{s:s, s:i}", "model", LM, "state", 5), "state", "string");
    expect_refusal(json_pack("{s:s, s:O, s:s, s:s}", "model", "lm-attention", "state", kept, "prompt",
                             "so much more that it goes beyond the end of it", "context_overflow", "stop"),
                   "state", "context_overflow");
    json_decref(first);
}

/* A state's options and the request's may each be fine, and leave nothing to draw together. */
static void options_that_leave_nothing_to_draw_are_refused(void **state)
{
    (void)state;
    json_t *first = generate(&here, json_pack("{s:s, s:s, s:i, s:b, s:b}", "model", LM, "prompt", "The ", "max_tokens",
                                              3, "return_state", 1, "utf8", 1));
    json_t *kept = json_object_get(first, "state");
    expect_refusal(json_pack("{s:s, s:O, s:[i]}", "model", LM, "state", kept, "allowed_bytes", 128), "allowed_bytes",
                   "utf8");
    json_t *fields = json_pack("{s:s, s:O, s:[i]}", "model", LM, "state", kept, "allowed_bytes", 128);
    char *body = json_dumps(fields, 0);
    json_decref(fields);
    struct reply r;
    client_call(
        &here,
        &(struct request){.path = "/v1/sessions", .type = "application/json", .body = body, .size = strlen(body)}, &r);
    reply_assert_error(&r, 400, "invalid_value", "allowed_bytes", "utf8");
    reply_clear(&r);
    free(body);
    json_decref(first);
}

/* Wrong states: not a state, another version, another length, other bytes. */
static void what_is_wrong_with_a_state_is_said(void **state)
{
    (void)state;
    json_t *first = generate(&here, json_pack("{s:s, s:s, s:i, s:b}", "model", "lm-attention", "prompt", "The ",
                                              "max_tokens", 20, "return_state", 1));
    char *text = strdup(json_string_value(json_object_get(first, "state")));
    assert_non_null(text);
    const size_t size = strlen(text);
    const struct {
        size_t at; /* of the base64, which has six bits in each place */
        const char *says;
    } cases[] = {{0, "not an aftd state"},
                 {8 * 8 / 6 + 1, "another version of aftd made it"},
                 {size / 2, "the state's checksum is wrong"},
                 {size - 8, "the state's checksum is wrong"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char was = text[cases[i].at];
        text[cases[i].at] = was == 'A' ? 'B' : 'A';
        expect_refusal(json_pack("{s:s, s:s}", "model", "lm-attention", "state", text), "state", cases[i].says);
        text[cases[i].at] = was;
    }
    memmove(text + size / 2, text + size / 2 + 4, size - size / 2 - 3); /* three bytes less */
    expect_refusal(json_pack("{s:s, s:s}", "model", "lm-attention", "state", text), "state", "according to its header");
    free(text);
    json_decref(first);
}

static void mutated_states_are_refused(void **state)
{
    (void)state;
    struct random rng = {31};
    json_t *first = generate(&here, json_pack("{s:s, s:s, s:i, s:b}", "model", "lm-attention", "prompt", "The ",
                                              "max_tokens", 20, "return_state", 1));
    char *text = strdup(json_string_value(json_object_get(first, "state")));
    assert_non_null(text);
    for (int i = 0; i < MUTATED; i++) {
        const size_t at = random_below(&rng, (uint32_t)strlen(text) - 8);
        const char was = text[at];
        text[at] = was == 'A' ? 'B' : 'A';
        expect_refusal(json_pack("{s:s, s:s}", "model", "lm-attention", "state", text), "state", NULL);
        text[at] = was;
    }
    free(text);
    json_decref(first);
}

/* A session that was put at the last position that a state may have takes one step beyond it, and none from there. */
static void a_session_ends_where_positions_do(void **state)
{
    (void)state;
    enum { POSITION_AT = 20 };
    char id[TEST_SESSION_ID_BYTES];
    uint8_t out[1];
    size_t n = 0;
    struct reply r;
    session_create(&here, json_pack("{s:s, s:s}", "model", "endless", "prompt", "The history of "), id);
    session_state(&here, id, &r);
    uint8_t *blob = (uint8_t *)r.body, *position = blob + POSITION_AT;
    le_put(&position, ENGINE_POSITION_MAX, 4);
    state_seal(blob, r.size);
    session_put(&here, id, blob, r.size);
    reply_clear(&r);
    json_decref(session_generate(&here, id, json_pack("{s:i}", "max_tokens", 1), out, &n));
    assert_int_equal(n, 1);
    session_try(&here, id, json_pack("{s:i}", "max_tokens", 1), &r);
    reply_assert_error(&r, 400, "invalid_value", "session", "position");
    reply_clear(&r);
}

/* All that can be checked of a state before it is used is right, and yet no model gave it: the one who sent it is at
 * fault, not the model. */
static void a_made_up_state_is_its_senders_fault(void **state)
{
    (void)state;
    enum { ENGINE_BYTES_AT = 24 };
    static const char *const names[] = {LM, "lm-attention", "endless"};
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        char id[TEST_SESSION_ID_BYTES];
        struct reply r;
        session_create(&here, json_pack("{s:s, s:s}", "model", names[m], "prompt", "The "), id);
        session_state(&here, id, &r);
        const uint8_t *at = (const uint8_t *)r.body + ENGINE_BYTES_AT;
        const size_t engine = (size_t)le_take(&at, 8), end = r.size - STATE_BLOB_CHECKSUM_BYTES;
        const float most = FLT_MAX;
        for (size_t i = end - engine; i < end; i += sizeof most)
            memcpy(r.body + i, &most, sizeof most);
        state_seal((uint8_t *)r.body, r.size);
        session_put(&here, id, r.body, r.size);
        reply_clear(&r);
        for (int again = 0; again < 2; again++) {
            session_try(&here, id, json_pack("{s:i}", "max_tokens", 8), &r);
            reply_assert_error(&r, 400, "invalid_value", NULL, "the state that was sent leads to logits");
            reply_clear(&r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_text_goes_on_as_if_it_never_was),
        cmocka_unit_test(a_prompt_goes_behind_a_state),
        cmocka_unit_test(what_is_pending_is_not_given_again),
        cmocka_unit_test(a_state_forks),
        cmocka_unit_test(a_stream_tells_it_last),
        cmocka_unit_test(a_text_that_was_cut_goes_on),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(options_that_leave_nothing_to_draw_are_refused),
        cmocka_unit_test(what_is_wrong_with_a_state_is_said),
        cmocka_unit_test(mutated_states_are_refused),
        cmocka_unit_test(a_session_ends_where_positions_do),
        cmocka_unit_test(a_made_up_state_is_its_senders_fault),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_state", tests, start, daemons_end);
}
