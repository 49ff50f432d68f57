/* generate.c - POST /generate: a prompt in, its continuation out, whole or as server-sent events.
 * HTTP threads. The engine's bytes become UTF-8 here; a stream's headers are sent when its first byte is ready, so
 * that an error before it still has its own status. */
#include "config/settings.h"
#include "server/api/route_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/json_memory.h"
#include "server/api/generate_request.h"
#include "server/api/generate_session.h"
#include "server/api/session_work.h"
#include "server/api/stream_offset.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/models/registry.h"
#include "server/operation/text_reader.h"
#include "server/request/events.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"
#include "server/session/sessions.h"
#include "server/session/state_blob.h"

/* The request's state. */
struct generation {
    struct text_reader *reader;
    bool bytes_base64, return_state;
    bool said_finish;             /* the last event was made */
    bool is_cut_off;              /* because the daemon stops: another one, or the next, can go on with the text */
    struct stream_offset offset;  /* of a stream: what the client has of the text, with the event that is being made */
    uint64_t silent_ns;           /* since when what the client has is left out */
    struct session_work *session; /* the session that the text continues; NULL: none */
};

/* ---- what whole answers and streams both say ------------------------------------------------------------------- */

/* Did the request ask for several texts? Then the answer has a list of them. */
static bool is_several(const struct job *j)
{
    return generate_job_of(j)->in.n > 1;
}

/* How many bytes there were. NULL for want of memory, as of all that follow. */
static json_t *describe_usage(const struct job *j)
{
    const struct job_result *r = job_result(j);
    const json_int_t prompt = (json_int_t)j->input_len, generated = r->generated;
    return json_pack("{s:I, s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", generated, "total_tokens",
                     prompt + generated, "prompt_tokens_dropped", (json_int_t)j->dropped);
}

/* {"byte", "logprob"}, the latter null if it is not known; NULL for want of memory. */
static json_t *describe_byte(uint8_t byte, float logprob)
{
    return json_pack("{s:i, s:o}", "byte", (int)byte, "logprob",
                     isnan(logprob) ? json_null() : json_real((double)logprob));
}

static void append_logprobs(json_t *list, const struct text_piece *p, size_t numbers)
{
    for (size_t i = 0; i < p->size; i++) {
        const float *logprobs = p->logprobs + i * numbers;
        json_t *byte = describe_byte(p->bytes[i], logprobs[0]);
        if (numbers > 1) {
            json_t *top = json_array();
            for (size_t k = 1; k < numbers && !isnan(logprobs[0]); k++)
                json_append(top, describe_byte(p->likeliest[i * (numbers - 1) + k - 1], logprobs[k]));
            json_put(byte, "top", top);
        }
        json_append(list, byte);
    }
}

/* The state that the request asked for, in base64; null if there is none. */
static json_t *describe_state(const struct job *j)
{
    uint8_t *blob;
    size_t size;
    const struct generate_job *generated = generate_job_of(j);
    if (!generated->has_saved)
        return json_null();
    if (state_blob_make(&blob, &size, &generated->saved, &j->model->identity, NULL) != OK)
        return NULL;
    json_t *value = reply_base64(blob, size);
    free(blob);
    return value;
}

/* ---- whole answers --------------------------------------------------------------------------------------------- */

static void generate_tell(void *job, struct whole_text *t, const struct text_piece *p)
{
    const uint32_t numbers = ((const struct generate_job *)job)->in.logprobs;
    if (numbers == 0)
        return;
    if (t->told == NULL)
        t->told = json_array();
    append_logprobs(t->told, p, numbers);
}

/* Describe one text in `to`. */
static void describe_text(json_t *to, const struct generation *g, const struct whole_text *t, uint32_t index)
{
    json_put(to, "text", json_stringn(t->text, t->text_bytes));
    json_put(to, "index", json_integer(index));
    json_put(to, "tokens", json_integer((json_int_t)t->generated));
    json_put(to, "finish_reason", json_string(job_finish_words[t->finish]));
    if (g->bytes_base64)
        json_put(to, "bytes_base64", reply_base64((const uint8_t *)t->bytes, t->size));
    if (t->told != NULL)
        json_put(to, "logprobs", json_incref(t->told));
}

static json_t *describe_texts(const struct request *x, const struct whole_text *texts)
{
    const struct job *j = &x->job;
    const struct generate_job *generated = generate_job_of(j);
    const struct generation *g = x->state;
    json_t *whole = json_pack("{s:s}", "model", j->model->model->name);
    if (!is_several(j)) {
        describe_text(whole, g, &texts[0], 0);
    } else {
        json_t *list = json_array();
        for (uint32_t i = 0; i < generated->sample_count; i++) {
            json_t *one = json_object();
            describe_text(one, g, &texts[i], i);
            json_append(list, one);
        }
        json_put(whole, "choices", list); /* which frees it where it does not fit */
    }
    json_put(whole, "seed", json_integer((json_int_t)generated->in.sampler.seed));
    json_put(whole, "usage", describe_usage(j));
    json_put(whole, "timings", request_job_timings(x));
    if (g->return_state)
        json_put(whole, "state", describe_state(j));
    return whole;
}

static enum status answer_whole(struct request *x, struct error *err)
{
    struct job *j = &x->job;
    struct generation *g = x->state;
    const struct whole_text *texts =
        text_reader_read_all(g->reader, g->bytes_base64, generate_tell, generate_job_of(j));
    json_t *answer = texts != NULL ? describe_texts(x, texts) : NULL;
    char *text = json_print(answer, REPLY_JSON_FLAGS);
    json_decref(answer);
    /* Whoever is not answered finds the session where it was, and whoever finds it there is not answered. */
    const enum status st = generate_session_end(x, text != NULL, err);
    text_reader_free_texts(g->reader); /* of which the answer has copies: its client may read slowly */
    if (st != OK) {
        free(text);
        return st;
    }
    return reply_send_text(x, 200, text);
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* An event, with the id of the place after it. */
static enum request_piece say(const struct generation *g, json_t *event, char **piece, size_t *bytes)
{
    char id[STREAM_OFFSET_MAX + 1];
    stream_offset_print(&g->offset, id);
    return event_say(id, event, piece, bytes);
}

/* Does the text of the id that the client sent have more bytes than this one? */
static bool is_beyond_end(const struct generation *g, const struct job *j)
{
    return job_result(j)->finish < FINISH_TIMEOUT && text_reader_to_skip(g->reader) > 0;
}

static enum request_piece say_failure(struct request *x, char **piece, size_t *bytes)
{
    const struct generation *g = x->state;
    struct error err;
    (void)generate_session_end(x, false, &err);
    if (job_result(&x->job)->status != OK)
        return say(g, event_describe_error(x), piece, bytes);
    x->error = error_set_param(&err, ERR_CONFLICT, "Last-Event-ID",
                               "the text ends before the place that the id names: it is not the same text");
    return say(g, reply_describe_error(&err), piece, bytes);
}

static enum request_piece say_finish(struct request *x, char **piece, size_t *bytes)
{
    const struct job *j = &x->job;
    const struct job_result *r = job_result(j);
    struct generation *g = x->state;
    g->said_finish = true;
    g->offset.is_end = !g->is_cut_off;
    if (r->status != OK || is_beyond_end(g, j))
        return say_failure(x, piece, bytes);
    json_t *event = json_pack("{s:s, s:o, s:o, s:I, s:s}", "finish_reason", job_finish_words[r->finish], "usage",
                              describe_usage(j), "timings", request_job_timings(x), "seed",
                              (json_int_t)generate_job_of(j)->in.sampler.seed, "model", j->model->model->name);
    if (g->return_state)
        json_put(event, "state", describe_state(j));
    const enum request_piece said = say(g, event, piece, bytes);
    struct error err;
    const enum status st = generate_session_end(x, said == REQUEST_PIECE && r->finish <= FINISH_TIMEOUT, &err);
    if (st == OK)
        return said;
    free(*piece);
    x->error = st;
    return say(g, reply_describe_error(&err), piece, bytes);
}

static enum request_piece say_text(const struct request *x, const struct text_piece *p, char **piece, size_t *bytes)
{
    struct generation *g = x->state;
    json_t *event = json_pack("{s:o, s:i, s:I}", "text", json_stringn(p->text, p->text_bytes), "index", (int)p->sample,
                              "tokens", (json_int_t)p->generated);
    if (g->bytes_base64)
        json_put(event, "bytes_base64", reply_base64(p->bytes, p->size));
    if (p->logprobs != NULL) {
        json_t *list = json_array();
        append_logprobs(list, p, generate_job_of(&x->job)->in.logprobs);
        json_put(event, "logprobs", list);
    }
    g->offset.bytes = (uint32_t)(p->offset + p->size);
    return say(g, event, piece, bytes);
}

/* While all that comes is left out, the job is never silent, so that no ping is due by itself. */
static bool is_silent_for_long(const struct request *x)
{
    struct generation *g = x->state;
    const uint64_t now_ns = clock_now_ns();
    if (now_ns - g->silent_ns < x->service->settings->ping_ms * CLOCK_NS_PER_MS)
        return false;
    g->silent_ns = now_ns;
    return true;
}

static enum request_piece read_piece(struct request *x, char **piece, size_t *bytes)
{
    struct generation *g = x->state;
    struct text_piece p;
    for (;;) {
        switch (text_reader_next(g->reader, &p)) {
        case JOB_EVENT_LATER:
            return REQUEST_LATER;
        case JOB_EVENT_PING:
            return event_say_ping(piece, bytes);
        case JOB_EVENT_BYTES:
            if (p.size > 0)
                return say_text(x, &p, piece, bytes);
            if (is_silent_for_long(x))
                return event_say_ping(piece, bytes);
            break;
        case JOB_EVENT_END:
            return g->said_finish ? REQUEST_END : say_finish(x, piece, bytes);
        case JOB_EVENT_SAMPLE_END:
            g->is_cut_off |= p.is_cut_off;
            if (is_several(&x->job))
                return say(g,
                           json_pack("{s:i, s:s}", "index", (int)p.sample, "finish_reason", job_finish_words[p.finish]),
                           piece, bytes);
            break; /* with one text, its end is the last event */
        }
    }
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Where a stream's text begins, or goes on: after what the client has, which is at `from`. */
static enum status find_offset(struct request *x, const struct generate_request *r, const struct stream_offset *from,
                               const struct hosted_model *e, struct error *err)
{
    struct generation *g = x->state;
    if (!r->in.stream)
        return OK;
    g->offset = stream_offset_begin(r, e);
    g->silent_ns = clock_now_ns();
    const enum status st = stream_offset_check(from, &g->offset, r, e, err);
    g->offset.bytes = from->bytes;
    return st;
}

/* Begin the job, which takes what it needs from `r`; not if the session must be fetched first. */
static enum status begin_job(struct request *x, struct generate_request *r, const struct stream_offset *from,
                             struct error *err)
{
    struct hosted_model *e;
    struct generation *g = x->state;
    g->bytes_base64 = r->bytes_base64;
    g->return_state = r->return_state;
    enum status st = generate_session_begin(&g->session, x, r, err);
    if (st == OK && generate_session_must_fetch(g->session))
        return OK;
    if (st == OK)
        st = request_model_acquire(x, r->model[0] != '\0' ? r->model : NULL, TASK_TEXT_GENERATION, &e, err);
    if (st == OK)
        st = generate_session_open(g->session, r, e, err);
    if (st == OK)
        st = find_offset(x, r, from, e, err);
    if (st != OK)
        return st;
    /* a state is behind all that was made, and who goes on from it gets nothing of that again */
    r->in.hold_partial_stop = r->in.stream && r->in.n == 1 && !r->return_state;
    st = text_reader_begin(&g->reader, &x->job, &r->in, x->service->settings->stream_buffer_bytes, r->echo, err);
    if (st != OK)
        return st;
    if (from->bytes > 0)
        text_reader_skip(g->reader, from->bytes);
    if (g->session != NULL)
        session_work_follow(g->session, &x->job);
    return OK;
}

static request_step generate;

/* The client has all of the text. Of an answer with 204 an EventSource knows that (HTML standard, 9.2.3): it would
 * ask again for ever. */
static enum status answer_nothing(struct request *x)
{
    request_add_header(x, "Cache-Control", "no-cache");
    return request_reply(x, 204, NULL, NULL, 0);
}

/* Of what was read into `r` and `from`. */
static enum status generate_run(struct request *x, struct generate_request *r, const struct stream_offset *from,
                                struct error *err)
{
    const struct generation *g = x->state;
    x->timeout_ms = r->timeout_ms;
    x->reader = read_piece;
    const enum status st = begin_job(x, r, from, err);
    if (st == OK && generate_session_must_fetch(g->session))
        return session_work_run(x, g->session, session_work_fetch, generate, err);
    return st == OK ? request_job_made(x, r->in.stream ? events_answer : answer_whole) : st;
}

static enum status generate(struct request *x, struct error *err)
{
    struct generate_request r = {0};
    struct stream_offset from = {.is_given = false};
    enum status st = generate_request_parse(&r, x->body.bytes, x->body.size, x->service->settings, err);
    if (st == OK)
        st = generate_request_name_session(&r, request_header(x, SESSION_HEADER), err);
    r.in.stream = events_wanted(x, r.stream);
    if (st == OK)
        st = stream_offset_take(&from, request_header(x, STREAM_OFFSET_HEADER), &r, err);
    if (st == OK)
        st = from.is_end ? answer_nothing(x) : generate_run(x, &r, &from, err);
    generate_request_clear(&r);
    return st;
}

enum status api_generate(struct request *x, struct error *err)
{
    x->state = job_alloc(&x->job, sizeof(struct generation), err);
    return x->state != NULL ? generate(x, err) : ERR_NOMEM;
}

/* ---- GET /generate ---------------------------------------------------------------------------------------------- */

/* Nothing that merely follows a link or shows a picture of another site may have anything computed; EventSource sends
 * its origin there. */
static enum status check_site(struct request *x, struct error *err)
{
    const char *site = request_header(x, "Sec-Fetch-Site");
    if (site == NULL || request_header(x, "Origin") != NULL || strcmp(site, "same-origin") == 0 ||
        strcmp(site, "none") == 0)
        return OK;
    return error_set_param(err, ERR_FORBIDDEN, "Sec-Fetch-Site",
                           "the request comes from a page of another site, without its Origin; expected an "
                           "EventSource, which sends it");
}

enum status api_generate_events(struct request *x, struct error *err)
{
    struct generate_request r = {0};
    struct stream_offset from = {.is_given = false};
    enum status st = check_site(x, err);
    if (st == OK)
        st = generate_request_read_query(&r, x->query, x->service->settings, err);
    r.in.stream = true;
    if (st == OK)
        st = stream_offset_take(&from, request_header(x, STREAM_OFFSET_HEADER), &r, err);
    if (st == OK && from.is_end)
        st = answer_nothing(x);
    else if (st == OK && strcmp(x->method, "HEAD") == 0) /* nobody would read the text */
        st = request_reply(x, 200, EVENT_STREAM, NULL, 0);
    else {
        if (st == OK)
            st = request_job_check_room(x, err);
        if (st == OK && (x->state = job_alloc(&x->job, sizeof(struct generation), err)) == NULL)
            st = ERR_NOMEM;
        if (st == OK)
            st = generate_run(x, &r, &from, err);
    }
    generate_request_clear(&r);
    return st;
}
