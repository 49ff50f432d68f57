/* load_answer.c - see load.h: times, and answers as their pieces arrive, cut anywhere. Knows no libcurl. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/cli/load.h"

/* ---- times ------------------------------------------------------------------------------------------------------ */

void load_times_add(struct load_times *t, double seconds, uint64_t count)
{
    const double ns = fmax(1.0, 1e9 * seconds);
    const int bucket = (int)fmin(LOAD_TIMES_PIECES * log2(ns), LOAD_TIMES_PIECES * LOAD_TIMES_DOUBLINGS - 1);
    t->counts[bucket] += count;
    t->count += count;
    t->sum_s += seconds * (double)count;
    t->max_s = fmax(t->max_s, seconds);
}

double load_times_quantile_s(const struct load_times *t, double q)
{
    /* 0.9 * 10 is a little more than 9 in binary, and would skip a rank */
    const double rank = ceil(q * (double)t->count * (1.0 - 1e-12));
    uint64_t below = 0;
    for (int b = 0; b < LOAD_TIMES_PIECES * LOAD_TIMES_DOUBLINGS; b++) {
        below += t->counts[b];
        if (below > 0 && (double)below >= rank)
            return fmin(1e-9 * exp2((b + 0.5) / LOAD_TIMES_PIECES), t->max_s);
    }
    return 0.0;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void set_fault(struct load_answer *a, const char *fault, const char *detail)
{
    if (a->fault != NULL)
        return; /* what follows the first is its consequence */
    a->fault = fault;
    (void)snprintf(a->detail, sizeof a->detail, "%s", detail);
}

static json_t *read_object(const char *text, size_t n)
{
    return json_loadb(text != NULL ? text : "", n, JSON_ALLOW_NUL, NULL); /* a model may write any byte */
}

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

static void take_bytes(struct load_answer *a, uint64_t count, double now_s)
{
    if (a->first_s <= 0.0) {
        a->first_s = now_s;
    } else if (a->into != NULL) {
        load_times_add(&a->into->times[LOAD_EVENT_GAP], now_s - a->last_s, 1);
        load_times_add(&a->into->times[LOAD_BYTE_GAP], (now_s - a->last_s) / (double)count, count);
    }
    a->last_s = now_s;
    a->bytes += count;
}

static void take_event(struct load_answer *a, const char *text, size_t n, double now_s)
{
    json_t *event = read_object(text, n);
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
        take_bytes(a, (uint64_t)count, now_s);
    }
    json_decref(event);
}

/* The daemon's events are one "data:" line each; other lines (": ping") and blank ones mean nothing here. */
static void take_lines(struct load_answer *a, const char *bytes, size_t n, double now_s)
{
    static const char data[] = "data:";
    const size_t name = sizeof data - 1;
    for (; held_line(&a->held, &bytes, &n, LOAD_ANSWER_MAX); a->held.size = 0)
        if (strncmp(a->held.bytes, data, name) == 0)
            take_event(a, a->held.bytes + name, a->held.size - name, now_s);
}

void load_answer_begin(struct load_answer *a, enum load_form form, struct load_result *into)
{
    *a = (struct load_answer){.form = form, .into = into, .held = {.bytes = a->held.bytes, .room = a->held.room}};
}

void load_answer_take(struct load_answer *a, const char *bytes, size_t n, double now_s)
{
    if (a->form == LOAD_EVENTS)
        take_lines(a, bytes, n, now_s);
    else if (a->first_s <= 0.0)
        a->first_s = now_s;
    if (a->form == LOAD_TEXT || (a->form == LOAD_ERROR && a->held.size < 16 * sizeof a->detail)) /* any page */
        (void)held_add(&a->held, bytes, n, LOAD_ANSWER_MAX);
    if (a->held.fault != NULL)
        set_fault(a, "answer", a->held.fault);
}

void load_answer_end(struct load_answer *a)
{
    json_t *object = a->form == LOAD_TEXT || a->form == LOAD_ERROR ? read_object(a->held.bytes, a->held.size) : NULL;
    const char *reason = json_string_value(json_object_get(object, "finish_reason"));
    if (a->form == LOAD_TEXT && a->fault == NULL) {
        const json_int_t count = json_integer_value(json_object_get(object, "tokens"));
        a->bytes = count > 0 ? (uint64_t)count : 0;
        if (reason == NULL)
            set_fault(a, "answer", "it is not a JSON object with a finish_reason");
        else
            take_finish(a, reason);
    } else if (a->form == LOAD_EVENTS && !a->finished) {
        set_fault(a, "stream", "it ended without its last event");
    } else if (a->form == LOAD_ERROR && error_message(object) != NULL) {
        (void)snprintf(a->detail, sizeof a->detail, "%s", error_message(object));
    }
    json_decref(object);
}
