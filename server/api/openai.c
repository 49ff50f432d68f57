/* openai.c - OpenAI's POST /v1/completions, with the same jobs as /generate. HTTP threads.
 * A token is a byte. Its string is its character where it is ASCII, else bytes:\xNN, so that all 256 differ. Shapes are
 * those of OpenAI's reference, with every field that its clients may read. */
#include "server/api/route_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "engine/engine.h"
#include "server/api/api_request.h"
#include "server/api/events.h"
#include "server/api/reply.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/service.h"
#include "server/api/text_reader.h"
#include "server/core/text.h"
#include "server/models/registry.h"
#include "server/request/openai_request.h"

enum { ID_RANDOM_BYTES = 12, TOKEN_MAX = 16 };

/* The log probabilities of a choice's bytes; all NULL if none are reported. */
struct told {
    json_t *tokens, *token_logprobs, *top_logprobs, *text_offset;
};

/* A choice of a whole answer, assembled from its pieces. */
struct choice {
    FILE *text; /* into the buffer below */
    char *text_bytes;
    size_t text_size;
    struct told told;
    enum job_finish finish;
};

/* The exchange's state. */
struct completion {
    struct text_reader *reader;
    char id[8 + 2 * ID_RANDOM_BYTES];
    json_int_t created;
    bool include_usage;
    enum { TEXTS, USAGE, DONE, END } next; /* of a stream */
    json_int_t *characters;                /* [sample_count], in each text so far */
    struct choice *choices;                /* [sample_count], of a whole answer */
    uint32_t count;                        /* sample_count */
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void told_clear(struct told *t)
{
    json_decref(t->tokens);
    json_decref(t->token_logprobs);
    json_decref(t->top_logprobs);
    json_decref(t->text_offset);
    *t = (struct told){0};
}

/* likeliest: are the likeliest bytes reported too? False for want of memory. */
static bool told_init(struct told *t, bool likeliest)
{
    *t = (struct told){json_array(), json_array(), likeliest ? json_array() : json_null(), json_array()};
    return t->tokens != NULL && t->token_logprobs != NULL && t->top_logprobs != NULL && t->text_offset != NULL;
}

static void completion_free(void *arg)
{
    struct completion *c = arg;
    for (uint32_t i = 0; c->choices != NULL && i < c->count; i++) {
        if (c->choices[i].text != NULL)
            (void)fclose(c->choices[i].text);
        free(c->choices[i].text_bytes);
        told_clear(&c->choices[i].told);
    }
    free(c->choices);
    free(c->characters);
    text_reader_free(c->reader);
    free(c);
}

static bool make_choices(struct completion *c, const struct job *j)
{
    const uint32_t numbers = generate_job_of(j)->in.logprobs;
    c->choices = calloc(c->count, sizeof *c->choices);
    for (uint32_t i = 0; c->choices != NULL && i < c->count; i++) {
        struct choice *one = &c->choices[i];
        one->text = open_memstream(&one->text_bytes, &one->text_size);
        if (one->text == NULL || (numbers > 0 && !told_init(&one->told, numbers > 1)))
            return false;
    }
    return c->choices != NULL;
}

static struct completion *completion_create(struct exchange *x, const struct openai_request *r, struct job *j)
{
    uint8_t random[ID_RANDOM_BYTES] = {0};
    struct completion *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    x->api->state = c;
    x->api->state_free = completion_free;
    (void)!getrandom(random, sizeof random, 0); /* cannot fail once the kernel has started */
    size_t used = (size_t)snprintf(c->id, sizeof c->id, "cmpl-");
    for (size_t i = 0; i < sizeof random; i++)
        used += (size_t)snprintf(c->id + used, sizeof c->id - used, "%02x", random[i]);
    c->created = (json_int_t)time(NULL);
    c->include_usage = r->include_usage;
    c->count = generate_job_of(j)->sample_count;
    c->characters = calloc(c->count, sizeof *c->characters);
    if (c->characters == NULL || text_reader_create(&c->reader, j, r->echo) != OK ||
        !(r->in.stream || make_choices(c, j)))
        return NULL;
    return c;
}

/* ---- what whole answers and chunks both say --------------------------------------------------------------------- */

static void name_token(char out[TOKEN_MAX], size_t *size, uint8_t byte)
{
    if (byte < 0x80) {
        out[0] = (char)byte;
        *size = 1;
    } else {
        *size = (size_t)snprintf(out, TOKEN_MAX, "bytes:\\x%02x", byte);
    }
}

static int set_token(json_t *to, uint8_t byte, float logprob)
{
    char token[TOKEN_MAX];
    size_t size;
    name_token(token, &size, byte);
    return json_object_setn_new_nocheck(to, token, size, json_real((double)logprob));
}

/* The likeliest bytes, and the one that was chosen. */
static json_t *describe_top(const float *logprobs, const uint8_t *likeliest, size_t numbers, uint8_t byte)
{
    json_t *top = json_object();
    int failed = 0;
    for (size_t k = 1; k < numbers; k++)
        failed |= set_token(top, likeliest[k - 1], logprobs[k]);
    failed |= set_token(top, byte, logprobs[0]);
    if (failed == 0)
        return top;
    json_decref(top);
    return NULL;
}

/* Append a piece's bytes to `t`. *characters: the number of characters in the text before the piece; becomes that after
 * it. */
static bool tell(struct told *t, const struct text_piece *p, size_t numbers, json_int_t *characters)
{
    size_t left = 0; /* bytes of the character that the next byte belongs to */
    int failed = 0;
    for (size_t i = 0; i < p->size && failed == 0; i++) {
        char token[TOKEN_MAX];
        size_t size;
        const float *logprobs = p->logprobs + i * numbers;
        const bool known = !isnan(logprobs[0]);
        name_token(token, &size, p->bytes[i]);
        failed |= json_array_append_new(t->tokens, json_stringn_nocheck(token, size));
        failed |= json_array_append_new(t->token_logprobs, known ? json_real((double)logprobs[0]) : json_null());
        failed |= json_array_append_new(t->text_offset, json_integer(*characters));
        if (numbers > 1)
            failed |= json_array_append_new(
                t->top_logprobs,
                known ? describe_top(logprobs, p->likeliest + i * (numbers - 1), numbers, p->bytes[i]) : json_null());
        left = left > 0 ? left : utf8_first(p->bytes + i, p->size - i);
        *characters += --left == 0;
    }
    return failed == 0;
}

/* OpenAI's words are only stop and length; a text that ended early for another reason counts as length. */
static const char *finish_word(enum job_finish finish)
{
    return job_finish_word(finish == FINISH_STOP ? FINISH_STOP : FINISH_LENGTH);
}

/* finish: NULL while it goes on. Takes `text`; NULL for want of memory. */
static json_t *describe_choice(uint32_t index, json_t *text, const struct told *t, const char *finish)
{
    json_t *told = t->tokens == NULL
                       ? json_null()
                       : json_pack("{s:O, s:O, s:O, s:O}", "tokens", t->tokens, "token_logprobs", t->token_logprobs,
                                   "top_logprobs", t->top_logprobs, "text_offset", t->text_offset);
    return json_pack("{s:o, s:i, s:o, s:s?}", "text", text, "index", (int)index, "logprobs", told, "finish_reason",
                     finish);
}

static json_t *describe_usage(const struct job *j)
{
    const struct generate_job *g = generate_job_of(j);
    const json_int_t prompt = (json_int_t)g->in.prompt_bytes, generated = job_result(j)->generated;
    return json_pack("{s:I, s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", generated,
                     "total_tokens", prompt + generated, "prompt_tokens_dropped", (json_int_t)g->prompt_dropped,
                     "prompt_tokens_details", "cached_tokens", (json_int_t)g->prompt_cached);
}

/* Takes `choices` and, with has_usage, `usage`. NULL for want of memory. */
static json_t *describe_completion(const struct exchange *x, json_t *choices, bool has_usage, json_t *usage)
{
    const struct completion *c = x->api->state;
    const struct hosted_model *e = x->job->model;
    char fingerprint[64];
    (void)snprintf(fingerprint, sizeof fingerprint, "aftd-%s-%s", AFTD_VERSION, engine_info(e->engine)->precision);
    json_t *whole =
        json_pack("{s:s, s:s, s:I, s:s, s:o, s:s}", "id", c->id, "object", "text_completion", "created", c->created,
                  "model", e->model->name, "choices", choices, "system_fingerprint", fingerprint);
    if (has_usage && json_object_set_new(whole, "usage", usage) != 0) {
        json_decref(whole);
        return NULL;
    }
    return whole;
}

/* ---- whole answers --------------------------------------------------------------------------------------------- */

/* Read all that the finished job has generated. False for want of memory. */
static bool read_choices(struct completion *c, const struct job *j)
{
    struct text_piece p;
    enum job_event event;
    bool fine = true;
    while (fine && (event = text_reader_next(c->reader, &p)) != JOB_EVENT_END) {
        struct choice *one = &c->choices[p.sample];
        if (event == JOB_EVENT_SAMPLE_END)
            one->finish = p.finish;
        if (event == JOB_EVENT_BYTES)
            fine =
                fwrite(p.text, 1, p.text_bytes, one->text) == p.text_bytes &&
                (p.logprobs == NULL || tell(&one->told, &p, generate_job_of(j)->in.logprobs, &c->characters[p.sample]));
    }
    for (uint32_t i = 0; i < c->count && fine; i++)
        fine = fflush(c->choices[i].text) == 0;
    return fine;
}

static void answer_whole(struct exchange *x)
{
    struct completion *c = x->api->state;
    request_job_note_times(x);
    if (job_result(x->job)->status != OK) {
        reply_send_job_error(x, x->job);
        return;
    }
    bool fine = read_choices(c, x->job);
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->count && fine; i++) {
        const struct choice *one = &c->choices[i];
        json_t *text = json_stringn(one->text_bytes, one->text_size);
        fine = json_array_append_new(list, describe_choice(i, text, &one->told, finish_word(one->finish))) == 0;
    }
    if (!fine) {
        json_decref(list);
        list = NULL;
    }
    reply_send_json(x, 200, list != NULL ? describe_completion(x, list, true, describe_usage(x->job)) : NULL);
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* A chunk with one choice, which is taken. */
static enum http_piece say_chunk(const struct exchange *x, json_t *choice, char **piece, size_t *bytes)
{
    const struct completion *c = x->api->state;
    return event_say(describe_completion(x, json_pack("[o]", choice), c->include_usage, json_null()), piece, bytes);
}

static enum http_piece say_text(const struct exchange *x, const struct text_piece *p, char **piece, size_t *bytes)
{
    const struct completion *c = x->api->state;
    const size_t numbers = generate_job_of(x->job)->in.logprobs;
    struct told told = {0};
    enum http_piece said = HTTP_BROKEN;
    if (numbers == 0 || (told_init(&told, numbers > 1) && tell(&told, p, numbers, &c->characters[p->sample])))
        said =
            say_chunk(x, describe_choice(p->sample, json_stringn(p->text, p->text_bytes), &told, NULL), piece, bytes);
    told_clear(&told);
    return said;
}

/* What comes when all texts have ended. */
static enum http_piece say_end(struct exchange *x, char **piece, size_t *bytes)
{
    static const char done[] = "data: [DONE]\n\n";
    struct completion *c = x->api->state;
    if (c->next == TEXTS) {
        request_job_note_times(x);
        c->next = c->include_usage ? USAGE : DONE;
        if (job_result(x->job)->status != OK) {
            c->next = END;
            return event_say_error(x, piece, bytes);
        }
    }
    if (c->next == USAGE) {
        c->next = DONE;
        return event_say(describe_completion(x, json_array(), true, describe_usage(x->job)), piece, bytes);
    }
    if (c->next == END)
        return HTTP_END;
    c->next = END;
    *bytes = sizeof done - 1;
    *piece = strdup(done);
    return *piece != NULL ? HTTP_PIECE : HTTP_BROKEN;
}

static enum http_piece read_piece(struct exchange *x, char **piece, size_t *bytes)
{
    const struct completion *c = x->api->state;
    const struct told nothing = {0};
    struct text_piece p;
    switch (c->next == TEXTS ? text_reader_next(c->reader, &p) : JOB_EVENT_END) {
    case JOB_EVENT_LATER:
        return HTTP_LATER;
    case JOB_EVENT_PING:
        return event_say_ping(piece, bytes);
    case JOB_EVENT_BYTES:
        return say_text(x, &p, piece, bytes);
    case JOB_EVENT_SAMPLE_END:
        return say_chunk(x, describe_choice(p.sample, json_string(""), &nothing, finish_word(p.finish)), piece, bytes);
    default:
        return say_end(x, piece, bytes);
    }
}

static void answer_stream(struct exchange *x)
{
    events_reply(x, read_piece);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* The job takes what it needs from `r`. */
static enum status prepare(struct exchange *x, struct openai_request *r, struct job **ret, struct error *err)
{
    const uint32_t buffer = service_of(x)->settings->stream_buffer_bytes;
    const uint32_t most = r->in.max_tokens > 0 ? r->in.max_tokens : 1;
    struct hosted_model *e;
    enum status st = request_model_acquire(x, r->model[0] != '\0' ? r->model : NULL, TASK_TEXT_GENERATION, &e, err);
    if (st != OK)
        return st;
    st = generate_job_create(ret, e, &r->in, r->in.stream && buffer < most ? buffer : most);
    if (st == OK) {
        r->in.prompt = NULL; /* the job's now */
        st = completion_create(x, r, *ret) != NULL ? OK : ERR_NOMEM;
    }
    return st == OK ? OK : error_set(err, st, "out of memory for the request; try again later");
}

void api_openai_completions(struct exchange *x)
{
    const struct settings *s = service_of(x)->settings;
    struct openai_request r = {0};
    struct error err;
    struct job *j = NULL;
    if (request_job_refuse_if_full(x))
        return;
    enum status st = openai_request_parse(&r, x->body.bytes, x->body.size, s, &err);
    if (st == OK)
        st = prepare(x, &r, &j, &err);
    request_job_submit_or_refuse(x, st, &err, j, r.timeout_ms, r.in.stream ? answer_stream : answer_whole);
    openai_request_clear(&r);
}
