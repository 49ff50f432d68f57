/* generation.c - see generation.h. */
#include "tests/support/generation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_MODEL "enwik8-aft-local"
#define EVENT_START "data: "

char *generate_body(json_t *fields)
{
    char *body = json_dumps(fields, JSON_COMPACT);
    assert_non_null(body);
    json_decref(fields);
    return body;
}

struct request generate_request(const char *body)
{
    return (struct request){.path = "/generate", .type = "application/json", .body = body, .size = strlen(body)};
}

static void add_text(struct generation *g, const char *text, size_t bytes)
{
    char *grown = realloc(g->text, g->bytes + bytes + 1);
    assert_non_null(grown);
    memcpy(grown + g->bytes, text, bytes);
    g->text = grown;
    g->bytes += bytes;
    g->text[g->bytes] = '\0';
}

/* Times are there and not negative; what is left out (an object's unknown key) fails by JSON_STRICT. */
static void check_timings(json_t *timings)
{
    static const char *const names[] = {"queue_ms", "prefill_ms", "decode_ms", "total_ms", "first_byte_ms"};
    assert_int_equal(json_object_size(timings), sizeof names / sizeof names[0]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *ms = json_object_get(timings, names[i]);
        if (!json_is_number(ms) || json_number_value(ms) < 0)
            fail_msg("timings.%s is missing or negative", names[i]);
    }
}

/* What a whole answer and a stream's last event share. */
static void read_end(struct generation *g, const char *finish, json_t *usage, json_t *timings, const char *model)
{
    json_int_t total;
    (void)snprintf(g->finish, sizeof g->finish, "%s", finish);
    (void)snprintf(g->model, sizeof g->model, "%s", model);
    check_timings(timings);
    assert_int_equal(json_unpack_ex(usage, NULL, JSON_STRICT, "{s:I, s:I, s:I, s:I}", "prompt_tokens",
                                    &g->prompt_tokens, "completion_tokens", &g->completion_tokens, "total_tokens",
                                    &total, "prompt_tokens_dropped", &g->dropped),
                     0);
    assert_int_equal(total, g->prompt_tokens + g->completion_tokens);
    assert_in_range(g->dropped, 0, g->prompt_tokens);
    assert_in_range(g->tokens, 0, g->completion_tokens);
}

static void read_whole(json_t *answer, struct generation *g)
{
    const char *model, *text, *finish;
    json_t *usage, *timings;
    size_t bytes;
    int index;
    json_error_t err;
    if (json_unpack_ex(answer, &err, JSON_STRICT, "{s:s, s:s%, s:i, s:I, s:s, s:I, s:o, s:o}", "model", &model, "text",
                       &text, &bytes, "index", &index, "tokens", &g->tokens, "finish_reason", &finish, "seed", &g->seed,
                       "usage", &usage, "timings", &timings) != 0)
        fail_msg("not a whole answer: %s", err.text);
    assert_int_equal(index, 0);
    add_text(g, text, bytes);
    read_end(g, finish, usage, timings, model);
}

/* One event's JSON. True if it was the last. */
static bool read_event(json_t *event, struct generation *g)
{
    const char *text, *finish, *model;
    json_t *usage, *timings;
    json_int_t tokens;
    size_t bytes;
    int index;
    json_error_t err;
    if (json_object_get(event, "text") == NULL) {
        if (json_unpack_ex(event, &err, JSON_STRICT, "{s:s, s:o, s:o, s:I, s:s}", "finish_reason", &finish, "usage",
                           &usage, "timings", &timings, "seed", &g->seed, "model", &model) != 0)
            fail_msg("not a last event: %s", err.text);
        read_end(g, finish, usage, timings, model);
        return true;
    }
    if (json_unpack_ex(event, &err, JSON_STRICT, "{s:s%, s:i, s:I}", "text", &text, &bytes, "index", &index, "tokens",
                       &tokens) != 0)
        fail_msg("not an event of text: %s", err.text);
    assert_int_equal(index, 0);
    assert_true(tokens > 0 && !g->has_part); /* text is "" only at the end: of the part of a character */
    g->has_part = bytes == 0;
    add_text(g, text, bytes);
    g->tokens += tokens;
    g->events++;
    return false;
}

static void read_stream(const char *body, size_t size, struct generation *g)
{
    bool ended = false;
    for (const char *at = body, *end = body + size; at < end;) {
        const char *blank = memmem(at, (size_t)(end - at), "\n\n", 2);
        json_error_t err;
        if (blank == NULL || ended) {
            fail_msg("a stream that %s", ended ? "goes on after its last event" : "ends inside an event");
            return;
        }
        if (*at != ':') {
            const size_t start = sizeof EVENT_START - 1;
            assert_int_equal(strncmp(at, "id: ", 4), 0); /* where the text could go on */
            at += strcspn(at, "\n") + 1;
            assert_int_equal(strncmp(at, EVENT_START, start), 0);
            json_t *event =
                json_loadb(at + start, (size_t)(blank - at) - start, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);
            if (event == NULL)
                fail_msg("an event that is not JSON of valid UTF-8: %s: %.*s", err.text, (int)(blank - at), at);
            ended = read_event(event, g);
            json_decref(event);
        }
        at = blank + 2;
    }
    assert_true(ended);
}

void generation_read(const struct reply *r, struct generation *ret)
{
    char type[64] = "";
    memset(ret, 0, sizeof *ret);
    if (r->status != 200)
        fail_msg("/generate answered %ld: %s", r->status, r->body);
    add_text(ret, "", 0);
    assert_true(reply_header(r, "Content-Type", type, sizeof type));
    if (strncmp(type, "text/event-stream", 17) == 0) {
        read_stream(r->body, r->size, ret);
        return;
    }
    json_t *answer = reply_json(r);
    read_whole(answer, ret);
    json_decref(answer);
}

void generate(const struct daemon *d, json_t *fields, struct generation *ret)
{
    struct reply r;
    char named[MODEL_NAME_MAX + 1] = TEXT_MODEL;
    const char *name = json_string_value(json_object_get(fields, "model"));
    if (name != NULL)
        (void)snprintf(named, sizeof named, "%s", name);
    do {
        char *body = generate_body(json_incref(fields));
        const struct request request = generate_request(body);
        client_call(d, &request, &r);
        free(body);
    } while (reply_is_late(&r, fields));
    json_decref(fields);
    generation_read(&r, ret);
    assert_string_equal(ret->model, named);
    reply_clear(&r);
}

void generation_clear(struct generation *g)
{
    free(g->text);
    memset(g, 0, sizeof *g);
}

void assert_same_text(const char *what, const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t at = 0;
    while (at < a_bytes && at < b_bytes && a[at] == b[at])
        at++;
    if (at == a_bytes && at == b_bytes)
        return;
    const size_t from = at < 20 ? 0 : at - 20;
    fail_msg("%s: texts of %zu and %zu bytes differ at byte %zu: \"%.40s\" and \"%.40s\"", what, a_bytes, b_bytes, at,
             a + from, b + from);
}
