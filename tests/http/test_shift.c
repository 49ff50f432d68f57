/* test_shift.c - context_overflow shift where the context is of very few bytes: how many are kept, down to a context of
 * one. The real daemon. */
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

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"
#include "tests/support/temp_dir.h"

enum { LIMIT_S = 580, CONTEXT_MAX = 5, PROMPT = 9, WHOLE = 24, PART = 7 };

static char models[PATH_MAX];
static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16], name[16];
    temp_dir_create(models);
    for (int context = 1; context <= CONTEXT_MAX; context++) {
        (void)snprintf(name, sizeof name, "context-%d", context);
        model_variants_write_endless(models, name, "tests/data/golden/lm-attention", context);
    }
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    return 0;
}

/* The answer to `more`, which is taken, with what all requests have. */
static json_t *generate(int context, json_t *more)
{
    char name[16];
    struct reply r;
    (void)snprintf(name, sizeof name, "context-%d", context);
    assert_int_equal(json_object_update_new(more, json_pack("{s:s, s:s, s:b, s:i}", "model", name, "context_overflow",
                                                            "shift", "bytes_base64", 1, "temperature", 0)),
                     0);
    char *body = json_dumps(more, 0);
    json_decref(more);
    assert_non_null(body);
    client_call(&aftd,
                &(struct request){.path = "/generate", .type = "application/json", .body = body, .size = strlen(body)},
                &r);
    if (r.status != 200)
        fail_msg("%s", r.body);
    json_t *answer = reply_json(&r);
    free(body);
    reply_clear(&r);
    return answer;
}

/* `count` bytes after `prompt`. */
static json_t *after(int context, const uint8_t *prompt, size_t size, int count)
{
    char text[BASE64_ENCODE_RAW_LENGTH(PROMPT + WHOLE) + 1] = "";
    base64_encode_raw(text, size, prompt);
    text[BASE64_ENCODE_RAW_LENGTH(size)] = '\0';
    return generate(context,
                    json_pack("{s:s, s:i, s:b}", "prompt_base64", text, "max_tokens", count, "return_state", 1));
}

/* Append the answer's bytes to `all`, which has `size`; returns how many it has then. */
static size_t append(uint8_t *all, size_t size, const json_t *answer)
{
    const char *text = json_string_value(json_object_get(answer, "bytes_base64"));
    struct base64_decode_ctx base64;
    size_t n;
    assert_non_null(text);
    base64_decode_init(&base64);
    assert_int_equal(base64_decode_update(&base64, &n, all + size, strlen(text), text), 1);
    return size + n;
}

/* By definition: where T bytes were fed and one more must be, begin again from the last T / 2 of all, but at least one.
 * Each byte is asked for by itself, with what it depends on as prompt. */
static void shift_by_hand(uint8_t all[PROMPT + WHOLE + 3], size_t size, size_t from, int context)
{
    const size_t half = context / 2 > 1 ? (size_t)context / 2 : 1;
    for (; size < PROMPT + WHOLE;) {
        from = size - from > (size_t)context ? size - half : from;
        json_t *answer = after(context, all + from, size - from, 1);
        size = append(all, size, answer);
        json_decref(answer);
    }
}

static void a_context_of_one_byte_keeps_one(void **state)
{
    (void)state;
    for (int context = 1; context <= CONTEXT_MAX; context++)
        for (size_t given = 1; given <= PROMPT; given++) {
            const size_t half = context / 2 > 1 ? (size_t)context / 2 : 1;
            const size_t kept = given <= (size_t)context ? given : half, begin = PROMPT - given;
            uint8_t want[PROMPT + WHOLE + 3] = "The cat s", got[PROMPT + WHOLE + 3];
            memcpy(got, want, PROMPT);
            shift_by_hand(want, PROMPT, PROMPT - kept, context);
            json_t *whole = after(context, got + begin, given, WHOLE);
            const json_t *usage = json_object_get(whole, "usage");
            assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens_dropped")), given - kept);
            assert_int_equal(append(got, PROMPT, whole), PROMPT + WHOLE);
            assert_memory_equal(got, want, PROMPT + WHOLE);

            json_t *first = after(context, got + begin, given, PART);
            size_t size = append(got, PROMPT, first);
            json_t *second = generate(
                context, json_pack("{s:O, s:i}", "state", json_object_get(first, "state"), "max_tokens", WHOLE - PART));
            assert_int_equal(append(got, size, second), PROMPT + WHOLE);
            assert_memory_equal(got, want, PROMPT + WHOLE);
            json_decref(second);
            json_decref(first);
            json_decref(whole);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_of_one_byte_keeps_one),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
