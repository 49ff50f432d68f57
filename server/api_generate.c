/* api_generate.c - POST /generate: a prompt in, its continuation out, whole or as server-sent events.
 * HTTP threads. The engine's bytes become UTF-8 here; a stream's headers are sent when its first byte is there, so that
 * whatever happens before it still has its own status. */
#include "server/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/events.h"
#include "server/generate_request.h"
#include "server/job.h"
#include "server/registry.h"
#include "server/text.h"
#include "weights/json.h"

/* What a stream has read from its job and not yet said; the exchange's state. */
struct stream {
    size_t held;      /* bytes of `raw` that wait for the rest of a character */
    bool said_finish; /* the last event was made */
    uint8_t raw[UTF8_INCOMPLETE_MAX + STREAM_EVENT_BYTES_MAX];
    char text[UTF8_GROWTH * (UTF8_INCOMPLETE_MAX + STREAM_EVENT_BYTES_MAX)];
};

/* ---- what whole answers and streams both say ------------------------------------------------------------------- */

static json_t *describe_usage(const struct job *j)
{
    const struct job_result *r = job_result(j);
    const json_int_t prompt = (json_int_t)j->in.text.prompt_bytes, generated = r->generated;
    return json_pack("{s:I, s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", generated, "total_tokens",
                     prompt + generated, "prompt_tokens_dropped", (json_int_t)r->prompt_dropped);
}

/* ---- whole answers --------------------------------------------------------------------------------------------- */

/* All that the job, which is done, has generated, as text. *tokens: how many bytes that are. */
static json_t *read_text(struct job *j, size_t *tokens)
{
    const size_t size_max = j->in.text.max_tokens;
    size_t size = 0, n;
    uint8_t *raw = malloc(size_max);
    char *text = malloc(UTF8_GROWTH * size_max);
    json_t *value = NULL;
    if (raw == NULL || text == NULL)
        goto done;
    while (size < size_max && job_read(j, raw + size, size_max - size, &n) == JOB_NEWS_BYTES)
        size += n;
    size_t text_bytes;
    *tokens = utf8_repair(text, &text_bytes, raw, size, true);
    value = json_stringn(text, text_bytes);
done:
    free(text);
    free(raw);
    return value;
}

static void answer_whole(struct exchange *x)
{
    struct job *j = x->job;
    const struct job_result *r = job_result(j);
    api_note_times(x);
    if (r->status != OK) {
        api_refuse_job(x, j);
        return;
    }
    size_t tokens = 0;
    json_t *text = read_text(j, &tokens);
    /* json_pack takes each "o", also when it fails, as it does when one is NULL */
    api_reply_json(x, 200,
                   json_pack("{s:s, s:o, s:i, s:I, s:s, s:I, s:o, s:o}", "model", j->model->model->name, "text", text,
                             "index", 0, "tokens", (json_int_t)tokens, "finish_reason", job_finish_word(r->finish),
                             "seed", (json_int_t)j->in.text.sampler.seed, "usage", describe_usage(j), "timings",
                             api_timings(x)));
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

static enum http_piece say_finish(struct exchange *x, char **piece, size_t *bytes)
{
    const struct job *j = x->job;
    const struct job_result *r = job_result(j);
    struct stream *s = x->state;
    s->said_finish = true;
    api_note_times(x);
    if (r->status != OK)
        return event_say_error(x, piece, bytes);
    return event_say(json_pack("{s:s, s:o, s:o, s:I, s:s}", "finish_reason", job_finish_word(r->finish), "usage",
                               describe_usage(j), "timings", api_timings(x), "seed",
                               (json_int_t)j->in.text.sampler.seed, "model", j->model->model->name),
                     piece, bytes);
}

/* The whole characters of what was read; `last`: no more will come. HTTP_LATER: there are none. */
static enum http_piece say_text(struct stream *s, bool last, char **piece, size_t *bytes)
{
    size_t text_bytes;
    const size_t used = utf8_repair(s->text, &text_bytes, s->raw, s->held, last);
    s->held -= used;
    memmove(s->raw, s->raw + used, s->held);
    if (used == 0)
        return HTTP_LATER;
    return event_say(
        json_pack("{s:o, s:i, s:I}", "text", json_stringn(s->text, text_bytes), "index", 0, "tokens", (json_int_t)used),
        piece, bytes);
}

static enum http_piece read_piece(struct exchange *x, char **piece, size_t *bytes)
{
    struct stream *s = x->state;
    for (;;) {
        size_t n = 0;
        enum http_piece said;
        switch (job_read(x->job, s->raw + s->held, STREAM_EVENT_BYTES_MAX, &n)) {
        case JOB_NEWS_LATER:
            return HTTP_LATER;
        case JOB_NEWS_PING:
            return event_say_ping(piece, bytes);
        case JOB_NEWS_END:
            said = say_text(s, true, piece, bytes);
            if (said != HTTP_LATER)
                return said;
            return s->said_finish ? HTTP_END : say_finish(x, piece, bytes);
        case JOB_NEWS_BYTES:
            s->held += n;
            said = say_text(s, false, piece, bytes);
            if (said != HTTP_LATER)
                return said;
            break; /* a part of a character: wait for the rest */
        }
    }
}

static void answer_stream(struct exchange *x)
{
    events_reply(x, read_piece);
}

/* ---- before the body ------------------------------------------------------------------------------------------- */

void api_generate_begin(struct exchange *x)
{
    const char *type = http_header(x, "Content-Type");
    struct error err;
    if (api_has_no_type(x) || api_has_type(x, "application/json"))
        return;
    (void)error_set_param(&err, ERR_MEDIA_TYPE, "Content-Type",
                          "the body is declared as \"%s\"; expected application/json", json_quote(type).text);
    api_refuse(x, &err);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* The job takes what it needs from `r`. */
static enum status prepare(struct exchange *x, struct generate_request *r, struct job **ret, struct error *err)
{
    const struct service *s = api_service(x);
    struct entry *e;
    enum status st = api_pick_model(x, r->model[0] != '\0' ? r->model : NULL, TASK_TEXT_GENERATION, &e, err);
    if (st != OK)
        return st;
    r->in.stream = events_wanted(x, r->stream);
    if (r->in.stream) {
        x->state = calloc(1, sizeof(struct stream));
        x->state_free = free;
        if (x->state == NULL)
            return error_set(err, ERR_NOMEM, "there is no memory for the request at the moment");
    }
    st = job_create_generate(ret, e, &r->in, r->in.stream ? s->settings->stream_buffer_bytes : r->in.max_tokens);
    if (st != OK)
        return error_set(err, st, "there is no memory for the request at the moment");
    r->in.prompt = NULL; /* the job's now */
    return OK;
}

void api_generate(struct exchange *x)
{
    const struct settings *s = api_service(x)->settings;
    struct generate_request r = {0};
    struct error err;
    struct job *j = NULL;
    if (api_refuse_if_full(x))
        return;
    enum status st = generate_request_parse(&r, x->body.bytes, x->body.size, s, &err);
    if (st == OK)
        st = prepare(x, &r, &j, &err);
    if (st == OK) {
        http_drop_body(x);
        api_submit(x, j, r.timeout_ms, r.in.stream ? answer_stream : answer_whole);
    } else {
        api_refuse(x, &err);
    }
    generate_request_clear(&r);
}
