/* test_prefix.c - states of prompts' beginnings as a client and a Prometheus server see them: what counts as a hit
 * and how much is not fed; one key's never serve another's prompts; they go with their model. The real daemon. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/generation.h"
#include "tests/support/keys.h"
#include "tests/support/model_copy.h"
#include "tests/support/model_folder.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define TEXT_A "tests/data/golden/lm-local-8"
#define TEXT_B "tests/data/golden/lm-local-no-global"

enum { LIMIT_S = 580 };

static struct daemon aftd;

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

/* ---- what was counted ------------------------------------------------------------------------------------------ */

/* Sums over all models. */
struct counts {
    double hits, misses, skipped, evictions, bytes;
};

static struct counts counts_of(const struct daemon *d)
{
    return (struct counts){
        .hits = client_metric(d, "aftd_prefix_cache_hits_total"),
        .misses = client_metric(d, "aftd_prefix_cache_misses_total"),
        .skipped = client_metric(d, "aftd_prefix_cache_skipped_bytes_total"),
        .evictions = client_metric(d, "aftd_prefix_cache_evictions_total"),
        .bytes = client_metric(d, "aftd_prefix_cache_bytes"),
    };
}

static void assert_counted(const char *what, const struct counts *before, const struct counts *now, double hits,
                           double misses, double skipped)
{
    if (now->hits - before->hits != hits || now->misses - before->misses != misses ||
        now->skipped - before->skipped != skipped)
        fail_msg("%s: %g hits, %g misses, %g bytes, expected %g, %g, %g", what, now->hits - before->hits,
                 now->misses - before->misses, now->skipped - before->skipped, hits, misses, skipped);
}

/* ---- asking ---------------------------------------------------------------------------------------------------- */

/* `size` bytes that begin as all texts of `letter` do, with `other` from byte `same` on. */
static char *make_prompt(char letter, size_t same, char other, size_t size)
{
    char *prompt = malloc(size + 1);
    assert_non_null(prompt);
    for (size_t i = 0; i < size; i++)
        prompt[i] = i < same ? (char)(i % 7 == 0 ? ' ' : letter) : other;
    prompt[size] = '\0';
    return prompt;
}

/* POST `fields`, which are taken, to `path`; the answer. `header` may be NULL. */
static json_t *ask_daemon(const struct daemon *d, const char *path, const char *header, json_t *fields)
{
    char *body = generate_body(fields);
    struct request q = generate_request(body);
    const char *const headers[] = {header, NULL};
    struct reply r;
    q.path = path;
    q.headers = headers;
    client_call(d, &q, &r);
    free(body);
    if (r.status != 200)
        fail_msg("%ld: %s", r.status, r.body);
    json_t *answer = reply_json(&r);
    reply_clear(&r);
    return answer;
}

static json_t *ask(const char *path, const char *header, json_t *fields)
{
    return ask_daemon(&aftd, path, header, fields);
}

static void ask_for(const char *header, const char *prompt)
{
    json_decref(ask("/generate", header, json_pack("{s:s, s:i}", "prompt", prompt, "max_tokens", 2)));
}

/* ---- hits ------------------------------------------------------------------------------------------------------ */

/* One after another. */
static const struct step {
    const char *name;
    char letter, other;
    size_t same, size;
    double hits, misses, skipped;
} steps[] = {
    {"one of a new kind", 'a', 'a', 200, 200, 0, 1, 0},
    {"the same again", 'a', 'a', 200, 200, 1, 0, 192},
    {"a longer one", 'a', 'b', 200, 300, 1, 0, 192},
    {"the longer one again", 'a', 'b', 200, 300, 1, 0, 256},
    {"one that parts early", 'a', 'c', 100, 300, 1, 0, 64},
    {"one that parts too early", 'a', 'c', 63, 300, 0, 1, 0},
    {"one that ends where a state is: its last byte is to be fed", 'a', 'a', 192, 192, 1, 0, 128},
    {"its first 65 bytes", 'a', 'a', 65, 65, 1, 0, 64},
    {"its first 64 bytes: nothing could be skipped", 'a', 'a', 64, 64, 0, 0, 0},
    {"a short one", 'a', 'a', 10, 10, 0, 0, 0},
    {"none", 'a', 'a', 0, 0, 0, 0, 0},
    {"more than the context, of which the last bytes are fed", 'd', 'd', 700, 700, 0, 1, 0},
    {"the same again", 'd', 'd', 700, 700, 1, 0, 448},
};

static void what_begins_as_before_is_not_fed_again(void **state)
{
    (void)state;
    struct counts last = counts_of(&aftd);
    assert_true(last.bytes == 0);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        const struct step *s = &steps[i];
        char *prompt = make_prompt(s->letter, s->same, s->other, s->size);
        const double given = client_metric(&aftd, "aftd_prompt_bytes_total");
        json_t *answer =
            ask("/v1/completions", NULL,
                json_pack("{s:s, s:i, s:s}", "prompt", prompt, "max_tokens", 2, "context_overflow", "stop"));
        const json_t *usage = json_object_get(answer, "usage"),
                     *details = json_object_get(usage, "prompt_tokens_details");
        const struct counts now = counts_of(&aftd);
        assert_counted(s->name, &last, &now, s->hits, s->misses, s->skipped);
        assert_int_equal(json_integer_value(json_object_get(details, "cached_tokens")), s->skipped);
        assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), s->size);
        assert_true(client_metric(&aftd, "aftd_prompt_bytes_total") - given == (s->size < 511 ? (double)s->size : 511));
        assert_true(now.bytes >= last.bytes && now.bytes < 32 << 20);
        last = now;
        json_decref(answer);
        free(prompt);
    }
    assert_true(last.bytes >
                15 * 317952); /* 3 states of the first kind, 1, 4 and 4 more, and 7 at the end; less than 23 */
    assert_true(last.bytes < 23 * 317952);
    assert_true(last.evictions == 0);
}

/* With several texts of a prompt, or several prompts in a request, each prompt is looked up once. */
static void a_list_of_prompts_is_counted_by_prompt(void **state)
{
    (void)state;
    char *known = make_prompt('e', 130, 'e', 130), *other = make_prompt('f', 200, 'f', 200);
    const struct counts start = counts_of(&aftd);
    ask_for(NULL, known);
    const struct counts before = counts_of(&aftd);
    assert_counted("the first", &start, &before, 0, 1, 0);
    json_t *answer = ask("/v1/completions", NULL,
                         json_pack("{s:[s, s, s], s:i, s:i}", "prompt", known, other, known, "n", 3, "max_tokens", 3));
    const struct counts now = counts_of(&aftd);
    const json_t *usage = json_object_get(answer, "usage"), *details = json_object_get(usage, "prompt_tokens_details");
    assert_counted("the list", &before, &now, 2, 1, 2 * 128);
    assert_int_equal(json_integer_value(json_object_get(details, "cached_tokens")), 2 * 128);
    json_decref(answer);
    free(other);
    free(known);
}

/* But it leaves states. */
static void a_prompt_whose_bytes_are_told_is_fed_whole(void **state)
{
    (void)state;
    char *prompt = make_prompt('g', 150, 'g', 150);
    const struct counts before = counts_of(&aftd);
    json_t *first = ask(
        "/generate", NULL,
        json_pack("{s:s, s:i, s:b, s:i, s:i}", "prompt", prompt, "max_tokens", 2, "echo", 1, "logprobs", 1, "seed", 1));
    json_t *again = ask(
        "/generate", NULL,
        json_pack("{s:s, s:i, s:b, s:i, s:i}", "prompt", prompt, "max_tokens", 2, "echo", 1, "logprobs", 1, "seed", 1));
    const struct counts then = counts_of(&aftd);
    assert_counted("told", &before, &then, 0, 0, 0);
    assert_int_equal(json_array_size(json_object_get(again, "logprobs")), 152);
    assert_true(json_equal(json_object_get(first, "logprobs"), json_object_get(again, "logprobs")));
    ask_for(NULL, prompt);
    const struct counts now = counts_of(&aftd);
    assert_counted("not told", &then, &now, 1, 0, 128);
    json_decref(again);
    json_decref(first);
    free(prompt);
}

static int start_plain(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    return 0;
}

/* ---- bounds ---------------------------------------------------------------------------------------------------- */

/* A megabyte has room for two states of the text model; a prompt gets one, however long it is. */
static void memory_is_bounded_and_the_oldest_goes(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--prefix-cache-mb=1", NULL});
    const struct counts start = counts_of(&aftd);
    char *prompts[3];
    for (size_t i = 0; i < 3; i++) {
        prompts[i] = make_prompt((char)('a' + i), 500, 'x', 500);
        ask_for(NULL, prompts[i]);
        const struct counts now = counts_of(&aftd);
        assert_true(now.bytes < 1 << 20);
        assert_true(now.evictions == (i == 2 ? 1 : 0));
    }
    ask_for(NULL, prompts[1]);
    ask_for(NULL, prompts[2]);
    const struct counts both = counts_of(&aftd);
    assert_counted("the later two", &start, &both, 2, 3, 2 * 256);
    ask_for(NULL, prompts[0]);
    const struct counts now = counts_of(&aftd);
    assert_counted("the first", &both, &now, 0, 1, 0);
    for (size_t i = 0; i < 3; i++)
        free(prompts[i]);
    daemon_stop(&aftd);
}

static json_t *probe(const char *prompt)
{
    json_t *answer =
        ask("/generate", NULL,
            json_pack("{s:s, s:i, s:i, s:i}", "prompt", prompt, "max_tokens", 4, "seed", 1, "logprobs", 20));
    assert_int_equal(json_object_del(answer, "timings"), 0);
    return answer;
}

/* A text goes on for long behind a prompt that ends where a state is kept; that state makes room for others
 * meanwhile. */
static void a_text_leaves_no_states(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--prefix-cache-mb=1", NULL});
    static const long starts_ms[4] = {0, 10, 15, 20};
    char *prompts[4], *bodies[4], *longer = make_prompt('p', 64, 'x', 80);
    struct request requests[4];
    struct reply replies[4];
    json_t *want = probe(longer);
    for (size_t i = 0; i < 4; i++) {
        prompts[i] = i == 0 ? make_prompt('p', 64, 'p', 64) : make_prompt((char)('a' + i), 500, 'x', 500);
        bodies[i] = generate_body(
            json_pack("{s:s, s:i, s:i}", "prompt", prompts[i], "max_tokens", i == 0 ? 440 : 1, "temperature", 0));
        requests[i] = generate_request(bodies[i]);
    }
    client_call_all(&aftd, requests, replies, 4, starts_ms);
    json_t *got = probe(longer);
    assert_true(json_equal(got, want));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(replies[i].status, 200);
        reply_clear(&replies[i]);
        free(bodies[i]);
        free(prompts[i]);
    }
    json_decref(got);
    json_decref(want);
    free(longer);
    daemon_stop(&aftd);
}

/* There is room for fifteen states: a prompt gets three of them, evenly spaced. Texts that come after one of their
 * prompt find what that has left, and are not told of. */
static void a_prompt_takes_a_part_of_the_memory(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--prefix-cache-mb=5", "--streams-max=1", NULL});
    char *prompt = make_prompt('a', 500, 'a', 500);
    const struct counts start = counts_of(&aftd);
    ask_for(NULL, prompt);
    const struct counts before = counts_of(&aftd);
    assert_true(before.bytes > 3 * 317952 && before.bytes < 4 * 317952);
    json_t *answer =
        ask("/v1/completions", NULL, json_pack("{s:s, s:i, s:i}", "prompt", prompt, "max_tokens", 2, "n", 3));
    const struct counts now = counts_of(&aftd);
    assert_counted("the first", &start, &before, 0, 1, 0);
    assert_counted("three texts", &before, &now, 3, 0, 3 * 384);
    const json_t *details = json_object_get(json_object_get(answer, "usage"), "prompt_tokens_details");
    assert_int_equal(json_integer_value(json_object_get(details, "cached_tokens")), 384);
    json_decref(answer);
    free(prompt);
    daemon_stop(&aftd);
}

static void nothing_is_kept_where_that_is_off(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--prefix-cache-mb=0", NULL});
    char *prompt = make_prompt('a', 300, 'a', 300);
    ask_for(NULL, prompt);
    ask_for(NULL, prompt);
    const struct counts none = {0}, now = counts_of(&aftd);
    assert_counted("off", &none, &now, 0, 0, 0);
    assert_true(now.bytes == 0);
    free(prompt);
    daemon_stop(&aftd);
}

/* Keys and values of 16,384 bytes take more than the megabyte. */
static void states_that_are_larger_than_the_memory_are_not_kept(void **state)
{
    (void)state;
    struct model_copy c;
    char path[PATH_MAX];
    temp_path(path, models_folder, "large");
    assert_int_equal(mkdir(path, 0700), 0);
    model_copy_read(&c, "tests/data/golden/lm-attention");
    model_copy_drop(&c, "pos_embed");
    assert_int_equal(json_object_set_new(json_object_get(c.config, "input"), "context", json_integer(16384)), 0);
    model_copy_write(&c, path);
    model_copy_clear(&c);
    administration_start("--prefix-cache-mb=1", NULL);
    char *log = daemon_log(&administered);
    assert_non_null(strstr(log, "model large: no states of prompts are kept"));
    free(log);
    free(model_text("large"));
    daemon_stop(&administered);
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

static void keys_are_apart(bool shared)
{
    char dir[PATH_MAX], file[PATH_MAX], flag[PATH_MAX + 16], anne[KEYS_TEXT_MAX], bob[KEYS_TEXT_MAX];
    char of_anne[KEYS_TEXT_MAX + 32], of_bob[KEYS_TEXT_MAX + 32];
    temp_dir_create(dir);
    temp_path(file, dir, "keys.json");
    keys_add(file, "anne", NULL, anne);
    keys_add(file, "bob", NULL, bob);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    (void)snprintf(of_anne, sizeof of_anne, "Authorization: Bearer %s", anne);
    (void)snprintf(of_bob, sizeof of_bob, "X-API-Key: %s", bob);
    daemon_start(&aftd, (const char *const[]){flag, shared ? "--prefix-cache-shared=true" : NULL, NULL});
    char *prompt = make_prompt('a', 300, 'a', 300);
    struct counts last = counts_of(&aftd);
    const char *const headers[] = {of_anne, of_anne, of_bob, of_bob, of_anne};
    for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
        const bool first = i == 0 || (i == 2 && !shared);
        ask_for(headers[i], prompt);
        const struct counts now = counts_of(&aftd);
        assert_counted(headers[i] == of_anne ? "anne" : "bob", &last, &now, first ? 0 : 1, first ? 1 : 0,
                       first ? 0 : 256);
        if ((now.bytes > last.bytes) != first)
            fail_msg("request %zu: %g bytes, then %g", i, last.bytes, now.bytes);
        last = now;
    }
    free(prompt);
    daemon_stop(&aftd);
    temp_dir_remove(dir);
}

static void one_keys_prompts_are_nothing_to_another(void **state)
{
    (void)state;
    keys_are_apart(false);
}

static void keys_share_where_a_setting_says_so(void **state)
{
    (void)state;
    keys_are_apart(true);
}

/* ---- models that go -------------------------------------------------------------------------------------------- */

/* The text that it generates after a prompt that leaves states; free it. */
static char *text_of_model(void)
{
    json_t *answer = ask_daemon(
        &administered, "/generate", NULL,
        json_pack("{s:s, s:i, s:i}", "prompt", "The history of Rome is long", "max_tokens", 16, "temperature", 0));
    char *text = strdup(json_string_value(json_object_get(answer, "text")));
    assert_non_null(text);
    json_decref(answer);
    return text;
}

static void assert_writes(const char *expected)
{
    char *text = text_of_model();
    assert_string_equal(text, expected);
    free(text);
}

static void states_go_with_their_model(void **state)
{
    (void)state;
    model_folder_put(models_folder, "text", TEXT_B);
    administration_start("--prefix-cache-bytes=8", NULL);
    char *want = text_of_model();
    daemon_stop(&administered);

    model_folder_put(models_folder, "text", TEXT_A);
    administration_start("--prefix-cache-bytes=8", NULL);
    char *old = text_of_model();
    assert_string_not_equal(old, want);
    assert_writes(old);
    const struct counts before = counts_of(&administered);
    assert_true(before.hits == 1 && before.misses == 1 && before.bytes > 0);
    model_folder_put(models_folder, "text", TEXT_B);
    admin_act_well("text", "reload");
    (void)client_await_metric(&administered, "aftd_prefix_cache_bytes", 0, HANG_MS);
    assert_writes(want); /* not from a state of the old weights */
    const struct counts fresh = counts_of(&administered);
    assert_counted("reloaded", &before, &fresh, 0, 1, 0);
    assert_true(fresh.bytes > 0);
    assert_writes(want);
    admin_act_well("text", "unload");
    assert_true(client_metric(&administered, "aftd_prefix_cache_bytes") == 0);
    admin_act_well("text", "load");
    (void)client_await_metric(&administered, "aftd_prefix_cache_bytes", 0, HANG_MS);
    assert_writes(want);
    const struct counts now = counts_of(&administered);
    assert_counted("loaded again", &fresh, &now, 1, 1, now.skipped - fresh.skipped);
    free(old);
    free(want);
    daemon_stop(&administered);
}

int main(void)
{
    const struct CMUnitTest of_one[] = {
        cmocka_unit_test(what_begins_as_before_is_not_fed_again),
        cmocka_unit_test(a_list_of_prompts_is_counted_by_prompt),
        cmocka_unit_test(a_prompt_whose_bytes_are_told_is_fed_whole),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test_teardown(memory_is_bounded_and_the_oldest_goes, tear_down),
        cmocka_unit_test_teardown(a_text_leaves_no_states, tear_down),
        cmocka_unit_test_teardown(a_prompt_takes_a_part_of_the_memory, tear_down),
        cmocka_unit_test_teardown(nothing_is_kept_where_that_is_off, tear_down),
        cmocka_unit_test_teardown(one_keys_prompts_are_nothing_to_another, tear_down),
        cmocka_unit_test_teardown(keys_share_where_a_setting_says_so, tear_down),
        cmocka_unit_test_setup_teardown(states_that_are_larger_than_the_memory_are_not_kept, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(states_go_with_their_model, administration_set_up, administration_tear_down),
    };
    test_limit_s(LIMIT_S);
    const int failed = cmocka_run_group_tests(of_one, start_plain, tear_down);
    return failed + cmocka_run_group_tests(others, NULL, NULL);
}
