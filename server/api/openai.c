/* openai.c - OpenAI's POST /v1/completions, and POST /v1/chat/completions for models that have a chat_template: it
 * makes a prompt of the messages, and the rest is the same but for the shape of answers. The jobs are those of
 * /generate. HTTP threads. */
#include "server/api/route_table.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "config/json_memory.h"
#include "config/settings.h"
#include "config/utf8.h"
#include "engine/engine.h"
#include "server/api/openai_request.h"
#include "server/models/registry.h"
#include "server/operation/text_reader.h"
#include "server/request/events.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"

enum {
    ID_PREFIX_MAX = 16,
    ID_RANDOM_BYTES = 12,
    NUMBER_MORE_BYTES = 40, /* of a log probability as a chat's JSON, beyond those in /v1/completions */
};

/* The request's state. */
struct completion {
    bool is_chat;
    struct text_reader *reader;
    char id[ID_PREFIX_MAX + 2 * ID_RANDOM_BYTES];
    json_int_t created;
    bool include_usage;
    enum { TEXTS, USAGE, DONE, END } next; /* of a stream */
    uint32_t begun;                        /* a chat's texts whose beginning was said */
    json_int_t *characters;                /* [sample_count], in each text so far */
    uint32_t count;                        /* sample_count */
    uint32_t returned;                     /* choices of a prompt, the best of its samples */
    uint32_t logprobs;                     /* as generate_input's, of those that are told */
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

static enum status completion_create(struct request *x, bool is_chat, const struct openai_request *r, struct error *err)
{
    uint8_t random[ID_RANDOM_BYTES] = {0};
    struct completion *c = x->state = job_alloc(&x->job, sizeof *c, err);
    if (c == NULL)
        return ERR_NOMEM;
    c->is_chat = is_chat;
    (void)!getrandom(random, sizeof random, 0); /* cannot fail once the kernel has started */
    size_t used = (size_t)snprintf(c->id, sizeof c->id, "%s", is_chat ? "chatcmpl-" : "cmpl-");
    for (size_t i = 0; i < sizeof random; i++)
        used += (size_t)snprintf(c->id + used, sizeof c->id - used, "%02x", random[i]);
    c->created = (json_int_t)time(NULL);
    c->include_usage = r->include_usage;
    c->count = r->in.prompt_count * r->in.n;
    c->returned = r->returned;
    c->logprobs = r->logprobs;
    c->characters = job_alloc(&x->job, c->count * sizeof *c->characters, err);
    return c->characters != NULL ? OK : ERR_NOMEM;
}

/* ---- choices, with every field that OpenAI's clients may read --------------------------------------------------- */

enum { TOKEN_MAX = 16 };

/* What a choice carries: a whole text; in a stream its beginning, without text, a piece of it, or its end. */
enum openai_part { OPENAI_WHOLE, OPENAI_BEGIN, OPENAI_PIECE, OPENAI_END };

/* What a chat has in place of "text". */
static json_t *describe_message(enum openai_part part, const char *text, size_t size)
{
    switch (part) {
    case OPENAI_WHOLE:
    case OPENAI_BEGIN:
        return json_pack("{s:{s:s, s:o, s:n}}", part == OPENAI_WHOLE ? "message" : "delta", "role", "assistant",
                         "content", json_stringn(text, size), "refusal");
    case OPENAI_PIECE:
        return json_pack("{s:{s:o}}", "delta", "content", json_stringn(text, size));
    case OPENAI_END:
        break;
    }
    return json_pack("{s:{}}", "delta");
}

/* A choice with a text [size] of valid UTF-8. told: NULL: no log probabilities; finish: NULL while the text goes on.
 * NULL for want of memory, as of what follows. */
static json_t *describe_choice(bool is_chat, enum openai_part part, const char *text, size_t size, uint32_t index,
                               json_t *told, const char *finish)
{
    json_t *choice =
        is_chat ? describe_message(part, text, size) : json_pack("{s:o}", "text", json_stringn(text, size));
    json_put(choice, "index", json_integer(index));
    json_put(choice, "logprobs", told != NULL ? json_incref(told) : json_null());
    json_put(choice, "finish_reason", finish != NULL ? json_string(finish) : json_null());
    return choice;
}

/* ---- log probabilities ------------------------------------------------------------------------------------------ */

/* A byte's string: its character where that is ASCII, else bytes:\xNN, so that all 256 differ. */
static size_t name_token(char out[TOKEN_MAX], uint8_t byte)
{
    if (byte >= 0x80)
        return (size_t)snprintf(out, TOKEN_MAX, "bytes:\\x%02x", byte);
    out[0] = (char)byte;
    return 1;
}

/* An object for the log probabilities of a text, with those of the likeliest bytes or without. */
static json_t *create_told(bool is_chat, bool likeliest)
{
    if (is_chat)
        return json_pack("{s:[], s:n}", "content", "refusal");
    return json_pack("{s:[], s:[], s:o, s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     likeliest ? json_array() : json_null(), "text_offset");
}

static int set_token(json_t *to, uint8_t byte, float logprob)
{
    char token[TOKEN_MAX];
    const size_t size = name_token(token, byte);
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
    return json_unless(failed != 0, top);
}

static void tell_completion(json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters)
{
    json_t *tokens = json_object_get(told, "tokens"), *token_logprobs = json_object_get(told, "token_logprobs"),
           *top_logprobs = json_object_get(told, "top_logprobs"), *text_offset = json_object_get(told, "text_offset");
    size_t left = 0; /* bytes of the character that the next byte belongs to */
    for (size_t i = 0; i < p->size; i++) {
        char token[TOKEN_MAX];
        const size_t size = name_token(token, p->bytes[i]);
        const float *logprobs = p->logprobs + i * numbers;
        const bool known = !isnan(logprobs[0]);
        json_append(tokens, json_stringn_nocheck(token, size));
        json_append(token_logprobs, known ? json_real((double)logprobs[0]) : json_null());
        json_append(text_offset, json_integer(*characters));
        if (numbers > 1)
            json_append(top_logprobs,
                        known ? describe_top(logprobs, p->likeliest + i * (numbers - 1), numbers, p->bytes[i])
                              : json_null());
        left = left > 0 ? left : utf8_first(p->bytes + i, p->size - i);
        *characters += --left == 0;
    }
}

static json_t *describe_token(uint8_t byte, float logprob)
{
    char token[TOKEN_MAX];
    const size_t size = name_token(token, byte);
    return json_pack("{s:o, s:f, s:[i]}", "token", json_stringn_nocheck(token, size), "logprob", (double)logprob,
                     "bytes", (int)byte);
}

static void tell_chat(json_t *told, const struct text_piece *p, size_t numbers)
{
    json_t *content = json_object_get(told, "content");
    for (size_t i = 0; i < p->size; i++) {
        const float *logprobs = p->logprobs + i * numbers;
        json_t *token = describe_token(p->bytes[i], logprobs[0]), *top = json_array();
        for (size_t k = 1; k < numbers; k++)
            json_append(top, describe_token(p->likeliest[i * (numbers - 1) + k - 1], logprobs[k]));
        json_put(token, "top_logprobs", top);
        json_append(content, token);
    }
}

/* Append a piece's bytes to it; p->logprobs has `numbers` > 0 of each. *characters: the number of characters in the
 * text before the piece; becomes that after it. */
static void openai_tell(bool is_chat, json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters)
{
    if (is_chat)
        tell_chat(told, p, numbers);
    else
        tell_completion(told, p, numbers, characters);
}

/* ---- what whole answers and chunks both say --------------------------------------------------------------------- */

/* OpenAI's words are only stop and length; a text that ended early for another reason counts as length. */
static const char *finish_word(enum job_finish finish)
{
    return job_finish_words[finish == FINISH_STOP ? FINISH_STOP : FINISH_LENGTH];
}

static json_t *describe_usage(const struct job *j)
{
    const struct generate_job *g = generate_job_of(j);
    const json_int_t prompt = (json_int_t)g->in.prompt_bytes, generated = job_result(j)->generated;
    return json_pack("{s:I, s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", generated,
                     "total_tokens", prompt + generated, "prompt_tokens_dropped", (json_int_t)j->dropped,
                     "prompt_tokens_details", "cached_tokens", (json_int_t)g->prompt_cached);
}

/* A whole answer, or a chunk of one. Takes `choices` and, with has_usage, `usage`. NULL for want of memory. */
static json_t *describe_completion(const struct request *x, bool is_chunk, json_t *choices, bool has_usage,
                                   json_t *usage)
{
    const struct completion *c = x->state;
    const char *object = !c->is_chat ? "text_completion" : is_chunk ? "chat.completion.chunk" : "chat.completion";
    const struct hosted_model *e = x->job.model;
    char fingerprint[64];
    (void)snprintf(fingerprint, sizeof fingerprint, "aftd-%s-%s", AFTD_VERSION, engine_info(e->engine)->precision);
    json_t *whole = json_pack("{s:s, s:s, s:I, s:s, s:o, s:s}", "id", c->id, "object", object, "created", c->created,
                              "model", e->model->name, "choices", choices, "system_fingerprint", fingerprint);
    if (has_usage)
        json_put(whole, "usage", usage);
    return whole;
}

/* ---- whole answers --------------------------------------------------------------------------------------------- */

static void tell_piece(void *completion, struct whole_text *t, const struct text_piece *p)
{
    struct completion *c = completion;
    if (c->logprobs == 0)
        return;
    if (t->told == NULL)
        t->told = create_told(c->is_chat, c->logprobs > 1);
    openai_tell(c->is_chat, t->told, p, c->logprobs, &c->characters[p->sample]);
}

static double mean_logprob(const struct whole_text *t)
{
    return t->generated > 0 ? t->logprob / (double)t->generated : -INFINITY; /* a text of nothing comes last */
}

/* Of the `count` samples from `all` on, the best that is not told yet, as OpenAI chooses: of the highest mean of its
 * bytes' log probabilities. */
static uint32_t best_of(const struct whole_text *all, uint32_t count, bool told[GENERATE_SAMPLES_MAX])
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++)
        if (!told[i] && (best == count || mean_logprob(&all[i]) > mean_logprob(&all[best])))
            best = i;
    told[best] = true;
    return best;
}

/* The choices of the prompt that has the `samples` texts from `all` on. */
static void list_choices(json_t *list, const struct completion *c, const struct whole_text *all, uint32_t samples)
{
    bool told[GENERATE_SAMPLES_MAX] = {false};
    for (uint32_t i = 0; i < c->returned; i++) {
        const uint32_t which = samples > c->returned ? best_of(all, samples, told) : i;
        const struct whole_text *one = &all[which];
        json_append(list, describe_choice(c->is_chat, OPENAI_WHOLE, one->text, one->text_bytes,
                                          (uint32_t)json_array_size(list), one->told, finish_word(one->finish)));
    }
}

static enum status answer_whole(struct request *x, struct error *err)
{
    struct completion *c = x->state;
    const uint32_t samples = generate_job_of(&x->job)->in.n;
    (void)err;
    const struct whole_text *texts = text_reader_read_all(c->reader, false, tell_piece, c);
    json_t *list = json_unless(texts == NULL, json_array());
    for (uint32_t i = 0; i < c->count && texts != NULL; i += samples)
        list_choices(list, c, texts + i, samples);
    text_reader_free_texts(c->reader); /* of which the list has copies: its client may read slowly */
    return reply_send_json(x, 200, describe_completion(x, false, list, true, describe_usage(&x->job)));
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* A chunk with one choice, which is taken. */
static enum request_piece say_chunk(const struct request *x, json_t *choice, char **piece, size_t *bytes)
{
    const struct completion *c = x->state;
    json_t *chunk = describe_completion(x, true, json_pack("[o]", choice), c->include_usage, json_null());
    return event_say(NULL, chunk, piece, bytes);
}

static enum request_piece say_text(const struct request *x, const struct text_piece *p, char **piece, size_t *bytes)
{
    const struct completion *c = x->state;
    const size_t numbers = generate_job_of(&x->job)->in.logprobs;
    json_t *told = numbers > 0 ? create_told(c->is_chat, numbers > 1) : NULL;
    if (numbers > 0)
        openai_tell(c->is_chat, told, p, numbers, &c->characters[p->sample]);
    json_t *choice = describe_choice(c->is_chat, OPENAI_PIECE, p->text, p->text_bytes, p->sample, told, NULL);
    json_decref(told);
    return say_chunk(x, choice, piece, bytes);
}

/* What comes when all texts have ended. */
static enum request_piece say_end(struct request *x, char **piece, size_t *bytes)
{
    static const char done[] = "data: [DONE]\n\n";
    struct completion *c = x->state;
    if (c->next == TEXTS) {
        c->next = c->include_usage ? USAGE : DONE;
        if (job_result(&x->job)->status != OK) {
            c->next = END;
            return event_say(NULL, event_describe_error(x), piece, bytes);
        }
    }
    if (c->next == USAGE) {
        c->next = DONE;
        return event_say(NULL, describe_completion(x, true, json_array(), true, describe_usage(&x->job)), piece, bytes);
    }
    if (c->next == END)
        return REQUEST_END;
    c->next = END;
    *bytes = sizeof done - 1;
    *piece = strdup(done);
    return *piece != NULL ? REQUEST_PIECE : REQUEST_BROKEN;
}

static enum request_piece read_piece(struct request *x, char **piece, size_t *bytes)
{
    struct completion *c = x->state;
    struct text_piece p;
    if (c->is_chat && c->begun < c->count)
        return say_chunk(x, describe_choice(true, OPENAI_BEGIN, "", 0, c->begun++, NULL, NULL), piece, bytes);
    switch (c->next == TEXTS ? text_reader_next(c->reader, &p) : JOB_EVENT_END) {
    case JOB_EVENT_LATER:
        return REQUEST_LATER;
    case JOB_EVENT_PING:
        return event_say_ping(piece, bytes);
    case JOB_EVENT_BYTES:
        return say_text(x, &p, piece, bytes);
    case JOB_EVENT_SAMPLE_END:
        return say_chunk(x, describe_choice(c->is_chat, OPENAI_END, "", 0, p.sample, NULL, finish_word(p.finish)),
                         piece, bytes);
    default:
        return say_end(x, piece, bytes);
    }
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Make the prompt of the messages, as the model was taught to read them. */
static enum status write_prompt(struct openai_request *r, const struct hosted_model *e, struct error *err)
{
    const struct chat_template *t = &e->model->config.chat;
    struct generate_input *in = &r->in;
    if (!chat_template_exists(t))
        return error_set_param(
            err, ERR_NOT_FOUND, "model",
            "the model \"%s\" continues a text; it has no chat_template, and so answers no messages: "
            "POST the text to /v1/completions or /generate",
            e->model->name);
    const size_t size = chat_template_write(t, r->messages.list, r->messages.count, NULL);
    if (size > GENERATE_PROMPT_MAX)
        return error_set_param(err, ERR_ARGUMENT, "messages",
                               "the \"messages\" are a prompt of %zu bytes by the chat_template of \"%s\"; expected at "
                               "most %d",
                               size, e->model->name, GENERATE_PROMPT_MAX);
    in->prompt = malloc(size);
    if (in->prompt == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the prompt; try again later");
    in->prompt_bytes = chat_template_write(t, r->messages.list, r->messages.count, in->prompt);
    in->ends[0] = in->prompt_bytes;
    for (uint32_t i = 0; i < t->stop_count; i++) {
        const bool fits = stop_set_add(&in->stops, t->stops[i], strlen(t->stops[i]));
        assert(fits);
        (void)fits;
    }
    return OK;
}

/* Begin the job of a request that has its prompt, which the job takes. */
static enum status begin_job(struct request *x, bool is_chat, struct openai_request *r, struct error *err)
{
    struct completion *c = x->state;
    const enum status st =
        text_reader_begin(&c->reader, &x->job, &r->in, x->service->settings->stream_buffer_bytes, r->echo, err);
    if (st == OK && is_chat && !r->in.stream)
        x->job.answer_bytes += (size_t)r->in.n * r->in.max_tokens * r->in.logprobs * NUMBER_MORE_BYTES;
    return st;
}

enum status api_openai_complete(struct request *x, struct error *err)
{
    const bool is_chat = x->route->fields == &chat_fields;
    struct openai_request r = {0};
    struct hosted_model *e;
    enum status st = openai_request_parse(&r, is_chat, x->body.bytes, x->body.size, x->service->settings, err);
    x->timeout_ms = r.timeout_ms;
    if (st == OK)
        st = request_model_acquire(x, r.model[0] != '\0' ? r.model : NULL, TASK_TEXT_GENERATION, &e, err);
    if (st == OK && is_chat)
        st = write_prompt(&r, e, err);
    if (st == OK)
        st = completion_create(x, is_chat, &r, err);
    if (st == OK)
        st = begin_job(x, is_chat, &r, err);
    x->reader = read_piece;
    if (st == OK)
        st = request_job_made(x, r.in.stream ? events_answer : answer_whole);
    openai_request_clear(&r);
    return st;
}
