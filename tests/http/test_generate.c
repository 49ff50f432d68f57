/* test_generate.c - the text of POST /generate: the same bytes as the command line's, whole and streamed, with any
 * seed; where it stops; that it is UTF-8 whatever the model says; what a context that overflows does. The real daemon
 * with a byte model. */
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
#include "tests/support/program.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, CONTEXT = 512, OPTIONS_MAX = 8 };

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    (void)setenv("OMP_WAIT_POLICY", "passive", 1); /* of aft: this machine does other work besides */
    daemon_start(&aftd, NULL);
    return 0;
}

/* ---- the command line's bytes ---------------------------------------------------------------------------------- */

/* What `aft generate` prints for this prompt; free it. options: more arguments, NULL at the end. */
static char *bytes_of_aft(const char *prompt, size_t prompt_bytes, unsigned max_tokens, const char *const options[],
                          size_t *size)
{
    char path[PATH_MAX], count[16];
    struct program_run p = {.argv = {path, "generate", "enwik8-aft-local", "--prompt", "-", "--max-tokens", count},
                            .input = prompt,
                            .input_size = prompt_bytes};
    size_t n = 7;
    program_find(path, "aft", "AFTD_TEST_AFT");
    (void)snprintf(count, sizeof count, "%u", max_tokens);
    for (size_t i = 0; options[i] != NULL; i++)
        p.argv[n++] = options[i];
    program_run(&p);
    if (p.exit_code != 0)
        fail_msg("aft generate ended with %d: %s", p.exit_code, p.err);
    *size = p.out_size;
    free(p.err);
    return p.out;
}

static bool is_utf8(const char *bytes, size_t size)
{
    json_t *text = json_stringn(bytes, size); /* NULL unless it is */
    json_decref(text);
    return text != NULL;
}

static size_t keep_ascii(char *out, const char *bytes, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)bytes[i] < 0x80)
            out[n++] = bytes[i];
    return n;
}

/* `text` is what a client must read of the model's bytes: the same if they are UTF-8; else at least valid, and no ASCII
 * character is lost, made up or moved. */
static void assert_text_of(const char *what, const char *bytes, size_t size, const struct generation *g)
{
    if (is_utf8(bytes, size)) {
        assert_same_text(what, bytes, size, g->text, g->bytes);
        return;
    }
    char *a = malloc(size + 1), *b = malloc(g->bytes + 1);
    assert_non_null(a);
    assert_non_null(b);
    assert_true(is_utf8(g->text, g->bytes));
    const size_t a_bytes = keep_ascii(a, bytes, size), b_bytes = keep_ascii(b, g->text, g->bytes);
    a[a_bytes] = b[b_bytes] = '\0';
    assert_same_text(what, a, a_bytes, b, b_bytes);
    free(a);
    free(b);
}

/* Generate whole and streamed; both must be the same. *ret is the whole answer. */
static void generate_both(json_t *fields, struct generation *ret)
{
    struct generation streamed;
    json_t *again = json_deep_copy(fields);
    assert_int_equal(json_object_set_new(again, "stream", json_true()), 0);
    generate(&aftd, fields, ret);
    generate(&aftd, again, &streamed);
    assert_same_text("whole and streamed", ret->text, ret->bytes, streamed.text, streamed.bytes);
    assert_string_equal(ret->finish, streamed.finish);
    assert_int_equal(ret->tokens, streamed.tokens);
    assert_int_equal(ret->completion_tokens, streamed.completion_tokens);
    assert_int_equal(ret->prompt_tokens, streamed.prompt_tokens);
    assert_int_equal(ret->dropped, streamed.dropped);
    generation_clear(&streamed);
}

static json_t *fields_of(const char *prompt, size_t prompt_bytes, int max_tokens)
{
    json_t *fields = json_pack("{s:s%, s:i, s:i, s:i}", "prompt", prompt, prompt_bytes, "max_tokens", max_tokens,
                               "temperature", 0, "seed", 1);
    assert_non_null(fields);
    return fields;
}

/* ---- the same text everywhere ---------------------------------------------------------------------------------- */

static void greedy_text_is_what_aft_prints(void **state)
{
    static const char *const greedy[] = {"--temperature", "0", NULL};
    static const char *const prompts[] = {
        "The ",
        "",
        "== History ==\n",
        "'''Alabama''' is a [[state]]",
        "\xd0\x9a\xd0\xb8\xd1\x97\xd0\xb2 \xe2\x80\x94 ",
        "[[ja:\xe3\x82\xa2\xe3\x83\xa9\xe3\x83\x90\xe3\x83\x9e\xe5\xb7\x9e]]\n[[ru:\xd0\x90\xd0\xbb",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
        struct generation g;
        size_t size;
        char *bytes = bytes_of_aft(prompts[i], strlen(prompts[i]), 200, greedy, &size);
        generate_both(fields_of(prompts[i], strlen(prompts[i]), 200), &g);
        assert_int_equal(size, 200);
        assert_text_of(prompts[i], bytes, size, &g);
        assert_string_equal(g.finish, "length");
        assert_int_equal(g.tokens, 200);
        assert_int_equal(g.prompt_tokens, strlen(prompts[i]));
        generation_clear(&g);
        free(bytes);
    }
}

/* Under ThreadSanitizer, which is there for the threads, a step takes thirty times as long. */
static bool is_part_enough(void)
{
    return program_slowness() >= 10;
}

static const struct {
    const char *fields;
    const char *options[OPTIONS_MAX + 1];
} samplers[] = {
    {"{\"seed\":7}", {"--seed", "7"}},
    {"{\"seed\":0,\"temperature\":1}", {"--seed", "0"}},
    {"{\"seed\":9007199254740991,\"temperature\":0.7}", {"--seed", "9007199254740991", "--temperature", "0.7"}},
    {"{\"seed\":3,\"top_k\":5}", {"--seed", "3", "--top-k", "5"}},
    {"{\"seed\":3,\"top_k\":256}", {"--seed", "3", "--top-k", "256"}},
    {"{\"seed\":4,\"top_p\":0.5,\"temperature\":1.5}", {"--seed", "4", "--top-p", "0.5", "--temperature", "1.5"}},
    {"{\"seed\":5,\"min_p\":0.1}", {"--seed", "5", "--min-p", "0.1"}},
    {"{\"seed\":6,\"repetition_penalty\":1.3}", {"--seed", "6", "--repetition-penalty", "1.3"}},
    {"{\"seed\":6,\"presence_penalty\":0.7,\"frequency_penalty\":-0.2}",
     {"--seed", "6", "--presence-penalty", "0.7", "--frequency-penalty", "-0.2"}},
    {"{\"seed\":6,\"utf8\":true,\"temperature\":5}", {"--seed", "6", "--utf8", "--temperature", "5"}},
    {"{\"seed\":6,\"repetition_penalty\":1.3,\"temperature\":0}",
     {"--seed", "1", "--repetition-penalty", "1.3", "--temperature", "0"}},
    {"{\"seed\":8,\"temperature\":5}", {"--seed", "8", "--temperature", "5"}},
    {"{\"seed\":8,\"temperature\":100}", {"--seed", "8", "--temperature", "100"}},
    {"{\"seed\":8,\"temperature\":100,\"top_k\":1}", {"--temperature", "0"}},
};

static void a_seed_gives_one_text_however_it_is_asked_for(void **state)
{
    static const char prompt[] = "The [[history]] of ";
    const int tokens = is_part_enough() ? 60 : 300;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(samplers); i++) {
        struct generation g;
        size_t size;
        char *bytes = bytes_of_aft(prompt, strlen(prompt), (unsigned)tokens, samplers[i].options, &size);
        json_t *fields = json_loads(samplers[i].fields, 0, NULL);
        assert_non_null(fields);
        assert_int_equal(json_object_set_new(fields, "prompt", json_string(prompt)), 0);
        assert_int_equal(json_object_set_new(fields, "max_tokens", json_integer(tokens)), 0);
        const json_int_t seed = json_integer_value(json_object_get(fields, "seed"));
        generate_both(fields, &g);
        assert_text_of(samplers[i].fields, bytes, size, &g);
        assert_int_equal(g.tokens, tokens);
        assert_int_equal(g.seed, seed);
        generation_clear(&g);
        free(bytes);
    }
}

static void a_drawn_seed_is_told_and_repeats_the_text(void **state)
{
    struct generation drawn, other, again;
    (void)state;
    generate(&aftd, json_pack("{s:s, s:i}", "prompt", "In ", "max_tokens", 100), &drawn);
    generate(&aftd, json_pack("{s:s, s:i}", "prompt", "In ", "max_tokens", 100), &other);
    generate(&aftd, json_pack("{s:s, s:i, s:I}", "prompt", "In ", "max_tokens", 100, "seed", drawn.seed), &again);
    assert_true(drawn.seed >= 0 && drawn.seed < (json_int_t)1 << 53);
    assert_int_not_equal(drawn.seed, other.seed);
    assert_true(strcmp(drawn.text, other.text) != 0);
    assert_same_text("the seed told", drawn.text, drawn.bytes, again.text, again.bytes);
    generation_clear(&drawn);
    generation_clear(&other);
    generation_clear(&again);
}

static void a_stream_comes_in_many_events(void **state)
{
    struct generation g;
    (void)state;
    json_t *fields = fields_of("The ", 4, 200);
    assert_int_equal(json_object_set_new(fields, "stream", json_true()), 0);
    generate(&aftd, fields, &g);
    assert_true(g.events >= 10);
    generation_clear(&g);
}

static void accept_asks_for_a_stream_too_and_stream_overrides_it(void **state)
{
    static const struct {
        const char *accept, *body;
        bool streams;
    } cases[] = {
        {"Accept: text/event-stream", "{\"max_tokens\":5}", true},
        {"Accept: application/json;q=0, text/event-stream; q=0.1", "{\"max_tokens\":5}", true},
        {"Accept: text/event-stream;q=0", "{\"max_tokens\":5}", false}, /* that is, not acceptable */
        {"Accept: text/event-stream; Q=0.0, */*", "{\"max_tokens\":5}", false},
        {"Accept: text/event-stream", "{\"max_tokens\":5,\"stream\":false}", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        char type[64] = "";
        const char *const headers[] = {cases[i].accept, NULL};
        struct request request = generate_request(cases[i].body);
        request.headers = headers;
        client_call(&aftd, &request, &r);
        assert_true(reply_header(&r, "Content-Type", type, sizeof type));
        assert_int_equal(strncmp(type, "text/event-stream", 17) == 0, cases[i].streams);
        reply_clear(&r);
    }
}

/* ---- UTF-8 ----------------------------------------------------------------------------------------------------- */

static void noise_is_read_as_utf8_and_no_ascii_is_lost(void **state)
{
    (void)state;
    for (int seed = 0; seed < (is_part_enough() ? 1 : 4); seed++) {
        char number[16];
        const char *const options[] = {"--temperature", "5", "--seed", number, NULL};
        struct generation g;
        size_t size;
        (void)snprintf(number, sizeof number, "%d", seed);
        char *bytes = bytes_of_aft("x", 1, CONTEXT, options, &size);
        generate_both(
            json_pack("{s:s, s:i, s:i, s:i}", "prompt", "x", "max_tokens", CONTEXT, "temperature", 5, "seed", seed),
            &g);
        assert_false(is_utf8(bytes, size)); /* or this test would show nothing */
        assert_text_of(number, bytes, size, &g);
        assert_non_null(memmem(g.text, g.bytes, "\xef\xbf\xbd", 3));
        assert_int_equal(g.tokens, CONTEXT);
        generation_clear(&g);
        free(bytes);
    }
}

static void a_character_cut_by_the_end_becomes_a_replacement(void **state)
{
    static const char prompt[] = "[[ja:\xe3\x82\xa2\xe3\x83\xa9\xe3\x83\x90\xe3\x83\x9e\xe5\xb7\x9e]]\n[[ru:"
                                 "\xd0\x90\xd0\xbb\xd0\xb0\xd0\xb1\xd0\xb0";
    static const char *const greedy[] = {"--temperature", "0", NULL};
    unsigned cut = 0;
    size_t size;
    (void)state;
    char *bytes = bytes_of_aft(prompt, strlen(prompt), 12, greedy, &size);
    for (size_t tokens = 1; tokens <= size; tokens++) {
        struct generation g;
        generate_both(fields_of(prompt, strlen(prompt), (int)tokens), &g);
        assert_text_of("cut", bytes, tokens, &g);
        cut += !is_utf8(bytes, tokens);
        assert_int_equal(g.tokens, tokens);
        generation_clear(&g);
    }
    free(bytes);
    assert_in_range(cut, 1, 11); /* some ends cut a character, some do not */
}

/* ---- prompts --------------------------------------------------------------------------------------------------- */

static void base64_is_the_same_prompt(void **state)
{
    static const struct {
        const char *prompt, *base64;
    } cases[] = {
        {"", ""}, {"T", "VA=="}, {"Th", "VGg="}, {"The", "VGhl"}, {"\xd0\x9a\xd0\xb8\xd1\x97\xd0\xb2", "0JrQuNGX0LI="},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct generation a, b;
        generate(&aftd, fields_of(cases[i].prompt, strlen(cases[i].prompt), 50), &a);
        json_t *fields = fields_of("", 0, 50);
        assert_int_equal(json_object_del(fields, "prompt"), 0);
        assert_int_equal(json_object_set_new(fields, "prompt_base64", json_string(cases[i].base64)), 0);
        generate(&aftd, fields, &b);
        assert_same_text(cases[i].base64, a.text, a.bytes, b.text, b.bytes);
        assert_int_equal(b.prompt_tokens, strlen(cases[i].prompt));
        generation_clear(&a);
        generation_clear(&b);
    }
}

static void a_prompt_may_be_any_bytes(void **state)
{
    static const char *const greedy[] = {"--temperature", "0", NULL};
    static const char bytes[] = "\xff\xfe\x00\x80"
                                "a";
    struct generation g;
    size_t size;
    (void)state;
    char *expected = bytes_of_aft(bytes, 5, 50, greedy, &size);
    generate(&aftd, json_pack("{s:s, s:i, s:i}", "prompt_base64", "//4AgGE=", "max_tokens", 50, "temperature", 0), &g);
    assert_text_of("bytes", expected, size, &g);
    assert_int_equal(g.prompt_tokens, 5);
    generation_clear(&g);
    free(expected);
}

static void no_prompt_is_an_implicit_newline_that_is_not_counted(void **state)
{
    struct generation none, empty, newline;
    (void)state;
    generate(&aftd, json_pack("{s:i, s:i}", "max_tokens", 60, "temperature", 0), &none);
    generate(&aftd, fields_of("", 0, 60), &empty);
    generate(&aftd, fields_of("\n", 1, 60), &newline);
    assert_same_text("none and empty", none.text, none.bytes, empty.text, empty.bytes);
    assert_same_text("none and newline", none.text, none.bytes, newline.text, newline.bytes);
    assert_int_equal(none.prompt_tokens, 0);
    assert_int_equal(newline.prompt_tokens, 1);
    generation_clear(&none);
    generation_clear(&empty);
    generation_clear(&newline);
}

/* ---- the context's end ----------------------------------------------------------------------------------------- */

/* A text of the model's kind, any length. */
static void fill_prompt(char *out, size_t size)
{
    static const char sentence[] = "The [[Alabama River]] was named by the state's first people. ";
    for (size_t i = 0; i < size; i++)
        out[i] = sentence[i % (sizeof sentence - 1)];
}

static const struct {
    size_t prompt_bytes;
    json_int_t dropped, completion;
} stops_at[] = {
    /* prompt and text together are at most T + 1 long; a longer prompt keeps T - 1 bytes */
    {0, 0, CONTEXT}, {1, 0, CONTEXT},     {300, 0, CONTEXT + 1 - 300},   {CONTEXT - 1, 0, 2},
    {CONTEXT, 1, 2}, {CONTEXT + 1, 2, 2}, {5000, 5000 - CONTEXT + 1, 2},
};

/* Nothing has to be asked for so that a text comes to the length that was asked for. */
static void a_text_goes_on_behind_the_context_unless_told_to_stop(void **state)
{
    static const char *const greedy[] = {"--temperature", "0", NULL};
    struct generation plain, shifted;
    char prompt[5000];
    (void)state;
    const int tokens = test_work(2000); /* some contexts */
    fill_prompt(prompt, sizeof prompt);
    for (size_t size = 0; size <= sizeof prompt; size += 2500) {
        json_t *fields = fields_of(prompt, size, tokens);
        assert_int_equal(json_object_set_new(fields, "context_overflow", json_string("shift")), 0);
        generate(&aftd, fields, &shifted);
        generate(&aftd, fields_of(prompt, size, tokens), &plain);
        assert_string_equal(plain.finish, "length");
        assert_int_equal(plain.completion_tokens, tokens);
        assert_int_equal(plain.dropped, size > CONTEXT ? size - CONTEXT / 2 : 0);
        assert_same_text("shifted and by default", shifted.text, shifted.bytes, plain.text, plain.bytes);
        size_t of_aft;
        char *bytes = bytes_of_aft(prompt, size, (unsigned)tokens, greedy, &of_aft);
        assert_int_equal(of_aft, tokens);
        assert_text_of("aft generate", bytes, of_aft, &plain);
        free(bytes);
        generation_clear(&plain);
        generation_clear(&shifted);
    }
}

static void a_full_context_ends_the_text(void **state)
{
    static const char *const greedy[] = {"--temperature", "0", NULL};
    char prompt[5000];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stops_at); i += is_part_enough() ? 2 : 1) {
        struct generation g;
        size_t size;
        fill_prompt(prompt, stops_at[i].prompt_bytes);
        const char *kept = prompt + stops_at[i].dropped;
        const size_t kept_bytes = stops_at[i].prompt_bytes - (size_t)stops_at[i].dropped;
        char *bytes = bytes_of_aft(kept, kept_bytes, (unsigned)stops_at[i].completion, greedy, &size);
        json_t *fields = fields_of(prompt, stops_at[i].prompt_bytes, 4000);
        assert_int_equal(json_object_set_new(fields, "context_overflow", json_string("stop")), 0);
        generate_both(fields, &g);
        assert_string_equal(g.finish, "context");
        assert_int_equal(g.prompt_tokens, stops_at[i].prompt_bytes);
        assert_int_equal(g.dropped, stops_at[i].dropped);
        assert_int_equal(g.completion_tokens, stops_at[i].completion);
        assert_text_of("at the end of the context", bytes, size, &g);
        generation_clear(&g);
        free(bytes);
    }
}

/* Shifting by its definition: whenever T bytes were fed and one more must be, begin again from the last T / 2 bytes of
 * all there is. Each part between is a generation of its own. `all` begins with the prompt's kept bytes. */
static size_t shift_by_hand(char *all, size_t kept, size_t total)
{
    static const char *const greedy[] = {"--temperature", "0", NULL};
    size_t size = kept, from = 0;
    if (kept == CONTEXT) { /* `aft` takes no such prompt, but the byte drawn is known from the one before */
        char first[CONTEXT];
        size_t n;
        memcpy(first, all, CONTEXT);
        char *bytes = bytes_of_aft(first, CONTEXT - 1, 2, greedy, &n);
        assert_int_equal(n, 2);
        assert_int_equal(bytes[0], first[CONTEXT - 1]); /* chosen to be so */
        all[size++] = bytes[1];
        free(bytes);
        from = size - CONTEXT / 2;
    }
    while (size < total) {
        size_t n;
        const size_t room = CONTEXT + 1 - (size - from);
        const size_t wanted = room < total - size ? room : total - size;
        char *bytes = bytes_of_aft(all + from, size - from, (unsigned)wanted, greedy, &n);
        assert_int_equal(n, wanted);
        memcpy(all + size, bytes, n);
        free(bytes);
        size += n;
        from = size - CONTEXT / 2;
    }
    return size;
}

static void shifting_goes_on_from_the_last_half(void **state)
{
    static const struct {
        size_t prompt_bytes, dropped;
        int max_tokens;
    } cases[] = {{4, 0, 1500},
                 {CONTEXT - 1, 0, 700},
                 {CONTEXT, 0, 700},
                 {CONTEXT + 1, CONTEXT / 2 + 1, 700},
                 {5000, 5000 - CONTEXT / 2, 600}};
    char prompt[5000], all[CONTEXT + 2000];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i += is_part_enough() ? 2 : 1) {
        struct generation g;
        const size_t kept = cases[i].prompt_bytes - cases[i].dropped;
        fill_prompt(prompt, cases[i].prompt_bytes);
        if (kept == CONTEXT) { /* end it with the byte that the model would choose */
            static const char *const greedy[] = {"--temperature", "0", NULL};
            size_t n;
            char *bytes = bytes_of_aft(prompt, CONTEXT - 1, 1, greedy, &n);
            prompt[CONTEXT - 1] = bytes[0];
            free(bytes);
        }
        memcpy(all, prompt + cases[i].dropped, kept);
        const size_t size = shift_by_hand(all, kept, kept + (size_t)cases[i].max_tokens);
        json_t *fields = fields_of(prompt, cases[i].prompt_bytes, cases[i].max_tokens);
        assert_int_equal(json_object_set_new(fields, "context_overflow", json_string("shift")), 0);
        generate_both(fields, &g);
        assert_string_equal(g.finish, "length");
        assert_int_equal(g.completion_tokens, cases[i].max_tokens);
        assert_int_equal(g.dropped, cases[i].dropped);
        assert_text_of("shifted", all + kept, size - kept, &g);
        generation_clear(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_what_aft_prints),
        cmocka_unit_test(a_seed_gives_one_text_however_it_is_asked_for),
        cmocka_unit_test(a_drawn_seed_is_told_and_repeats_the_text),
        cmocka_unit_test(a_stream_comes_in_many_events),
        cmocka_unit_test(accept_asks_for_a_stream_too_and_stream_overrides_it),
        cmocka_unit_test(noise_is_read_as_utf8_and_no_ascii_is_lost),
        cmocka_unit_test(a_character_cut_by_the_end_becomes_a_replacement),
        cmocka_unit_test(base64_is_the_same_prompt),
        cmocka_unit_test(a_prompt_may_be_any_bytes),
        cmocka_unit_test(no_prompt_is_an_implicit_newline_that_is_not_counted),
        cmocka_unit_test(a_text_goes_on_behind_the_context_unless_told_to_stop),
        cmocka_unit_test(a_full_context_ends_the_text),
        cmocka_unit_test(shifting_goes_on_from_the_last_half),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
