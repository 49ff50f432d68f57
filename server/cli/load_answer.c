/* load_answer.c - see load_answer.h. The daemon's events are one "data:" line each; other lines (": ping") and blank
 * ones mean nothing here. */
#include "server/cli/load_answer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void set_fault(struct load_answer *a, const char *fault, const char *detail)
{
    if (a->fault != NULL)
        return; /* what follows the first is its consequence */
    a->fault = fault;
    (void)snprintf(a->detail, sizeof a->detail, "%s", detail);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* {"error": {"message": text}}, or NULL. */
static const char *error_message(const json_t *object)
{
    return json_string_value(json_object_get(json_object_get(object, "error"), "message"));
}

/* A text that ends because its deadline passed or the daemon drained was not what was asked for. */
static void take_finish(struct load_answer *a, const char *reason)
{
    a->finished = true;
    if (strcmp(reason, "timeout") == 0)
        set_fault(a, "finish_reason timeout", "the text was cut off at its deadline");
    else if (strcmp(reason, "cancelled") == 0)
        set_fault(a, "finish_reason cancelled", "the text was cut off by the daemon");
}

static void take_gap(struct load_answer *a, uint64_t tokens, double now_s)
{
    const double gap_s = now_s - a->last_s;
    a->longest_gap_s = gap_s > a->longest_gap_s ? gap_s : a->longest_gap_s;
    if (a->event_gaps != NULL)
        load_histogram_add_s(a->event_gaps, gap_s, 1);
    if (a->byte_gaps != NULL)
        load_histogram_add_s(a->byte_gaps, gap_s / (double)tokens, tokens);
}

static uint64_t take_event(struct load_answer *a, const char *text, size_t n, double now_s)
{
    uint64_t tokens = 0;
    json_t *event = json_loadb(text, n, JSON_ALLOW_NUL, NULL); /* a model may write any byte */
    const char *reason = json_string_value(json_object_get(event, "finish_reason"));
    const json_int_t count = json_integer_value(json_object_get(event, "tokens"));
    if (!json_is_object(event)) {
        set_fault(a, "stream", "an event is not a JSON object");
    } else if (json_object_get(event, "error") != NULL) {
        const char *message = error_message(event);
        set_fault(a, "error in the stream", message != NULL ? message : "without a message");
    } else if (reason != NULL) {
        take_finish(a, reason);
    } else if (count > 0) {
        tokens = (uint64_t)count;
        if (a->first_s > 0.0)
            take_gap(a, tokens, now_s);
        else
            a->first_s = now_s;
        a->last_s = now_s;
    }
    json_decref(event);
    return tokens;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static bool hold(struct load_answer *a, const char *bytes, size_t n)
{
    if (n > LOAD_ANSWER_MAX - a->used) {
        set_fault(a, "answer", "it is larger than any answer that was asked for");
        return false;
    }
    if (n > a->room - a->used) {
        const size_t room = 2 * (a->used + n);
        char *more = realloc(a->held, room);
        if (more == NULL) {
            set_fault(a, "answer", "no memory to keep it");
            return false;
        }
        a->held = more;
        a->room = room;
    }
    if (n > 0)
        memcpy(a->held + a->used, bytes, n);
    a->used += n;
    return true;
}

static uint64_t take_line(struct load_answer *a, const char *line, size_t n, double now_s)
{
    static const char data[] = "data:";
    const size_t name = sizeof data - 1;
    return n >= name && memcmp(line, data, name) == 0 ? take_event(a, line + name, n - name, now_s) : 0;
}

static uint64_t take_lines(struct load_answer *a, const char *bytes, size_t n, double now_s)
{
    uint64_t tokens = 0;
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        const size_t size = end != NULL ? (size_t)(end - bytes) : n;
        const bool begun = a->used > 0;
        if ((begun || end == NULL) && !hold(a, bytes, size))
            return tokens;
        if (end == NULL)
            return tokens;
        tokens += take_line(a, begun ? a->held : bytes, begun ? a->used : size, now_s);
        a->used = 0;
        bytes += size + 1;
        n -= size + 1;
    }
    return tokens;
}

uint64_t load_answer_take(struct load_answer *a, const char *bytes, size_t n, double now_s)
{
    uint64_t tokens = 0;
    if (a->form == LOAD_FORM_EVENTS)
        tokens = take_lines(a, bytes, n, now_s);
    else if (a->first_s <= 0.0)
        a->first_s = now_s;
    if (a->form == LOAD_FORM_TEXT)
        (void)hold(a, bytes, n);
    if (a->form == LOAD_FORM_ERROR && a->used < 16 * sizeof a->detail) /* an error page may be anything */
        (void)hold(a, bytes, n);
    a->bytes += tokens;
    return tokens;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

void load_answer_begin(struct load_answer *a, enum load_form form, struct load_histogram *event_gaps,
                       struct load_histogram *byte_gaps)
{
    char *held = a->held;
    const size_t room = a->room;
    *a = (struct load_answer){
        .form = form, .event_gaps = event_gaps, .byte_gaps = byte_gaps, .held = held, .room = room};
}

static uint64_t end_text(struct load_answer *a)
{
    json_t *object = json_loadb(a->held != NULL ? a->held : "", a->used, JSON_ALLOW_NUL, NULL);
    const char *reason = json_string_value(json_object_get(object, "finish_reason"));
    const json_int_t count = json_integer_value(json_object_get(object, "tokens"));
    if (reason == NULL)
        set_fault(a, "answer", "it is not a JSON object with a finish_reason");
    else
        take_finish(a, reason);
    json_decref(object);
    return count > 0 ? (uint64_t)count : 0;
}

static void end_error(struct load_answer *a)
{
    json_t *object = json_loadb(a->held != NULL ? a->held : "", a->used, JSON_ALLOW_NUL, NULL);
    const char *message = error_message(object);
    if (message != NULL)
        (void)snprintf(a->detail, sizeof a->detail, "%s", message);
    json_decref(object);
}

uint64_t load_answer_end(struct load_answer *a)
{
    uint64_t tokens = 0;
    switch (a->form) {
    case LOAD_FORM_OPAQUE:
        break;
    case LOAD_FORM_TEXT:
        tokens = a->fault == NULL ? end_text(a) : 0;
        break;
    case LOAD_FORM_EVENTS:
        if (!a->finished)
            set_fault(a, "stream", "it ended without its last event");
        break;
    case LOAD_FORM_ERROR:
        end_error(a);
        break;
    }
    a->bytes += tokens;
    return tokens;
}

void load_answer_clear(struct load_answer *a)
{
    free(a->held);
    memset(a, 0, sizeof *a);
}
