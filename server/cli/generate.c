/* generate.c - aft generate MODEL, or a daemon: bytes to standard output as they are drawn. On a terminal they are
 * repaired to valid UTF-8 without control characters, so that a model cannot drive it; elsewhere they are written as
 * they are. Single threaded. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "config/json.h"
#include "engine/sampler.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/core/text.h"
#include "server/stream/stream_window.h"

#define PREFILL_ROWS 64 /* bytes of a pass over the prompt */

struct request {
    const char *prompt;
    uint64_t max_tokens;
    struct sampler_options sampler;
    bool shift; /* else the text ends where the context does */
};

/* Where the text goes. Invariant between calls: `pending` holds the incomplete character that a terminal waits for. */
struct output {
    bool terminal;
    uint8_t pending[UTF8_INCOMPLETE_MAX + 1];
    size_t count;
};

/* Replace all control characters in valid UTF-8 other than newline and tab by dots: C0, DEL, and C1, which UTF-8
 * encodes as C2 80 to C2 9F and some terminals obey. Returns the new size. */
static size_t disarm(char *text, size_t size)
{
    size_t to = 0;
    for (size_t from = 0; from < size; from++) {
        const unsigned char c = (unsigned char)text[from];
        const bool c0 = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        const bool c1 = c == 0xc2 && from + 1 < size && (unsigned char)text[from + 1] < 0xa0;
        text[to++] = c0 || c1 ? '.' : text[from];
        from += c1 ? 1 : 0;
    }
    return to;
}

static void print_pending(struct output *o, bool last)
{
    char text[UTF8_GROWTH * sizeof o->pending];
    size_t size = 0;
    const size_t used = utf8_repair(text, &size, o->pending, o->count, last);
    (void)fwrite(text, 1, disarm(text, size), stdout);
    o->count -= used;
    memmove(o->pending, o->pending + used, o->count);
}

/* Each byte goes out at once: that is what streaming is. */
static int output_byte(struct output *o, uint8_t byte)
{
    if (o->terminal) {
        o->pending[o->count++] = byte;
        print_pending(o, false);
    } else {
        (void)fwrite(&byte, 1, 1, stdout);
    }
    return cli_flush();
}

static void output_end(struct output *o)
{
    if (!o->terminal)
        return;
    print_pending(o, true);
    (void)printf("\n");
}

/* ---- what a user should know ------------------------------------------------------------------------------------- */

static void tell_dropped(size_t size, size_t kept)
{
    (void)fprintf(stderr, "aft generate: the prompt has %zu bytes; its last %zu are used\n", size, kept);
}

static void tell_end_of_context(uint64_t generated)
{
    (void)fprintf(
        stderr,
        "aft generate: the model's context ends after %llu bytes; with --context-overflow shift the text goes "
        "on\n",
        (unsigned long long)generated);
}

/* ---- by an engine of our own ------------------------------------------------------------------------------------- */

/* Feed what the window has to be fed; logits: those of its last byte [256]. */
static void feed(struct stream_window *w, float *logits)
{
    while (w->fed < w->length) {
        const uint32_t left = w->length - w->fed, n = left < PREFILL_ROWS ? left : PREFILL_ROWS;
        const struct engine_part part = {
            .count = n, .bytes = w->elements + w->fed, .logits = n == left ? logits : NULL};
        engine_feed(w->model->engine, &part, 1);
        w->fed += n;
    }
}

/* How many bytes of a prompt are used, the last ones, as by /generate. */
static size_t kept_of(const struct stream_model *m, bool shift, size_t size)
{
    const uint32_t most = m->context - (m->starts ? 1 : 0), half = m->context > 1 ? m->context / 2 : most;
    const uint32_t whole = shift || m->starts ? most : most > 1 ? most - 1 : 1;
    return size <= whole ? size : shift ? half : whole;
}

/* Begin with the prompt, or where there is none and no start embedding, with a newline. */
static void feed_prompt(struct stream_window *w, const uint8_t *prompt, size_t size, float *logits)
{
    static const uint8_t newline = '\n';
    stream_window_reset(w);
    if (size == 0 && !w->model->starts)
        (void)stream_window_fill(w, &newline, 1);
    for (size_t at = 0; at < size;) {
        if (w->fed == w->model->window_size) /* of a context without an end */
            stream_window_clear(w);
        at += stream_window_fill(w, prompt + at, size - at);
        feed(w, logits);
    }
    feed(w, logits);
}

/* Draw and print from the logits of the last byte fed, until max_tokens or, if the text does not shift, the end of the
 * context. The last byte drawn is not fed, so prompt and text together are then at most T + 1 bytes long, or T after a
 * start embedding. */
static int continue_text(struct stream_window *w, const struct request *r, struct sampler *sampler, float *logits)
{
    struct output out = {.terminal = isatty(STDOUT_FILENO) == 1};
    uint64_t n = 0;
    int code = CLI_FAILED;
    bool is_full = false;
    while (cli_check_logits(logits, BYTE_VALUES)) {
        const uint8_t byte = sampler_draw(sampler, logits);
        sampler_accept(sampler, byte);
        code = output_byte(&out, byte);
        if (code != CLI_OK || ++n == r->max_tokens)
            break;
        is_full = !stream_window_push(w, byte, r->shift);
        if (is_full)
            break;
        feed(w, logits);
        code = CLI_FAILED; /* unless the next byte is printed */
    }
    output_end(&out);
    if (is_full)
        tell_end_of_context(n);
    return code;
}

static int generate(const struct model *m, const struct request *r, const uint8_t *prompt, size_t size)
{
    struct engine_options o = {.streams_max = 1, .rows_max = PREFILL_ROWS};
    struct engine *e = cli_open_engine(m, NULL, &o);
    if (e == NULL)
        return CLI_FAILED;
    const struct stream_model model = stream_model_of(e, m->config.context);
    struct stream_window w = {.model = &model, .elements = malloc(model.window_size)};
    int code = CLI_FAILED;
    if (w.elements != NULL) {
        float logits[BYTE_VALUES];
        struct sampler sampler;
        const size_t kept = kept_of(&model, r->shift, size);
        sampler_init(&sampler, &r->sampler);
        for (size_t i = 0; i < size; i++)
            sampler_accept(&sampler, prompt[i]);
        if (kept < size)
            tell_dropped(size, kept);
        feed_prompt(&w, prompt + (size - kept), kept, logits);
        code = continue_text(&w, r, &sampler, logits);
    } else {
        (void)cli_fail("out of memory");
    }
    free(w.elements);
    engine_close(e);
    return code;
}

static int read_prompt(uint8_t **ret, size_t *size, const char *prompt)
{
    struct error err;
    if (strcmp(prompt, "-") == 0)
        return cli_read(ret, size, "-", GENERATE_PROMPT_MAX, &err) == OK ? CLI_OK : cli_fail_error(&err);
    char *copy = strdup(prompt);
    if (copy == NULL) {
        (void)cli_fail("out of memory");
        return CLI_FAILED;
    }
    *ret = (uint8_t *)copy;
    *size = strlen(copy);
    return CLI_OK;
}

/* ---- by a daemon ------------------------------------------------------------------------------------------------- */

/* What receives the events of a daemon. */
struct listener {
    struct output out;
    const char *finish; /* of the last event: a literal, or NULL */
    json_int_t dropped, generated;
    int code;
};

static bool fail_listener(struct listener *l, const char *what)
{
    output_end(&l->out);
    l->code = cli_fail("%s", what);
    return false;
}

/* Bytes as they were drawn, which need not be UTF-8, in base64. */
static bool on_bytes(struct listener *l, const json_t *base64)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (base64 == NULL)
        return true;
    if (!remote_read_base64(&bytes, &size, base64))
        return fail_listener(l, "the daemon's answer has an event whose bytes are not base64");
    for (size_t i = 0; i < size && l->code == CLI_OK; i++)
        l->code = output_byte(&l->out, bytes[i]);
    free(bytes);
    return l->code == CLI_OK;
}

static bool on_event(void *arg, json_t *event)
{
    static const char *const words[] = {"length", "stop", "context", "timeout", "cancelled"};
    struct listener *l = arg;
    const char *finish = json_string_value(json_object_get(event, "finish_reason")), *message = NULL;
    if (json_unpack(event, "{s:{s:s}}", "error", "message", &message) == 0)
        return fail_listener(l, message);
    for (size_t i = 0; finish != NULL && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(finish, words[i]) == 0)
            l->finish = words[i];
    (void)json_unpack(event, "{s:{s:I, s:I}}", "usage", "prompt_tokens_dropped", &l->dropped, "completion_tokens",
                      &l->generated);
    return on_bytes(l, json_object_get(event, "bytes_base64"));
}

static char *describe(const struct request *r, const char *model, const uint8_t *prompt, size_t size)
{
    const struct sampler_options *s = &r->sampler;
    json_t *object = json_pack(
        "{s:b, s:b, s:s, s:o, s:I, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:b, s:I, s:s*}", "stream", 1, "bytes_base64", 1,
        "context_overflow", r->shift ? "shift" : "stop", "prompt_base64", remote_base64(prompt, size), "max_tokens",
        (json_int_t)r->max_tokens, "temperature", (double)s->temperature, "top_k", (int)s->top_k, "top_p",
        (double)s->top_p, "min_p", (double)s->min_p, "repetition_penalty", (double)s->repetition_penalty,
        "presence_penalty", (double)s->presence_penalty, "frequency_penalty", (double)s->frequency_penalty, "utf8",
        (int)s->utf8, "seed", (json_int_t)s->seed, "model", model);
    char *text = object != NULL ? json_print(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

static int ask(const struct remote *remote, const struct request *r, const uint8_t *prompt, size_t size)
{
    struct listener l = {.out = {.terminal = isatty(STDOUT_FILENO) == 1}};
    struct remote_answer answer = {0};
    char *body = describe(r, remote->model, prompt, size);
    if (body == NULL)
        return cli_fail("out of memory");
    const struct remote_request request = {.path = "/generate",
                                           .type = "application/json",
                                           .body = body,
                                           .size = strlen(body),
                                           .on_event = on_event,
                                           .arg = &l};
    int code = remote_post(remote, &request, &answer, NULL);
    free(answer.bytes);
    free(body);
    if (code != CLI_OK)
        return l.code != CLI_OK ? l.code : code;
    output_end(&l.out);
    if (l.dropped > 0)
        tell_dropped(size, size - (size_t)l.dropped);
    if (l.finish == NULL)
        return cli_fail("the daemon's answer ends in the middle");
    if (strcmp(l.finish, "context") == 0)
        tell_end_of_context((uint64_t)l.generated);
    if (strcmp(l.finish, "timeout") == 0 || strcmp(l.finish, "cancelled") == 0)
        return cli_fail("the daemon cut the text off: %s", l.finish);
    return CLI_OK;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int parse(struct request *r, struct remote *remote, int argc, char **argv, int *count)
{
    double temperature = 1.0, top_p = 1.0, min_p = 0.0, penalty = 1.0, presence = 0.0, frequency = 0.0;
    bool utf8 = false;
    uint64_t top_k = 0, seed = UINT64_MAX;
    const char *overflow = "shift";
    const struct cli_option options[] = {
        {'p', "prompt", CLI_TEXT, &r->prompt, 0, 0, "TEXT", "empty",
         "text to continue; - reads it from standard input"},
        {'n', "max-tokens", CLI_UNSIGNED, &r->max_tokens, 1, GENERATE_TOKENS_MAX, "N", "256",
         "how many bytes to generate"},
        {0, "context-overflow", CLI_CHOICE, &overflow, 0, 0, "shift|stop", "shift",
         "at the end of the context: go on from its last half, or stop"},
        {0, "temperature", CLI_NUMBER, &temperature, 0, 100, "X", "1",
         "randomness; 0 always takes the most likely byte"},
        {'k', "top-k", CLI_UNSIGNED, &top_k, 0, BYTE_VALUES, "N", "0",
         "draw from the N most likely bytes only; 0 turns this off"},
        {0, "top-p", CLI_NUMBER, &top_p, 1e-9, 1, "X", "1",
         "draw from the most likely bytes that together reach probability X"},
        {0, "min-p", CLI_NUMBER, &min_p, 0, 1, "X", "0",
         "leave out bytes less likely than X times the most likely one"},
        {0, "repetition-penalty", CLI_NUMBER, &penalty, 1e-3, 100, "X", "1",
         "make the last 64 bytes less likely; 1 turns this off"},
        {0, "presence-penalty", CLI_NUMBER, &presence, -SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX, "X", "0",
         "take X off the logit of each of the last 64 bytes"},
        {0, "frequency-penalty", CLI_NUMBER, &frequency, -SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX, "X", "0",
         "take X off for each time that a byte is among the last 64"},
        {0, "utf8", CLI_FLAG, &utf8, 0, 0, NULL, NULL, "draw no byte that cannot come next in UTF-8"},
        {'s', "seed", CLI_UNSIGNED, &seed, 0, (double)SEED_MAX, "N", "random", "the same seed gives the same text"},
        REMOTE_OPTIONS(remote){0},
    };
    const int code = cli_parse(options, argc, argv, 0, 1, count);
    if (code != CLI_OK)
        return code;
    r->shift = strcmp(overflow, "shift") == 0;
    if (*count >= 0 && seed == UINT64_MAX && getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return cli_fail("cannot draw a random seed: %s; give one with --seed N", strerror(errno));
    struct sampler_options *o = &r->sampler;
    sampler_options_default(o);
    o->seed = seed & SEED_MAX;
    o->temperature = (float)temperature;
    o->top_k = (uint32_t)top_k;
    o->top_p = (float)top_p;
    o->min_p = (float)min_p;
    o->repetition_penalty = (float)penalty;
    o->presence_penalty = (float)presence;
    o->frequency_penalty = (float)frequency;
    o->utf8 = utf8;
    return CLI_OK;
}

int cli_generate(int argc, char **argv)
{
    struct request r = {.prompt = "", .max_tokens = 256};
    struct remote remote = {0};
    bool asks = false;
    uint8_t *prompt = NULL;
    size_t size = 0;
    int count;
    int code = parse(&r, &remote, argc, argv, &count);
    if (code == CLI_OK && count >= 0)
        code = remote_check(&remote, &asks);
    if (code != CLI_OK || count < 0)
        return code;
    if (asks && count > 0)
        return cli_fail_usage("\"%s\" is one argument too many: the daemon's model is named by --model", argv[1]);
    if (!asks && count < 1)
        return cli_fail_usage("too few arguments");
    struct model *m = asks ? NULL : cli_load_model(argv[1], &(enum model_task){TASK_TEXT_GENERATION});
    if (!asks && m == NULL)
        return CLI_FAILED;
    code = read_prompt(&prompt, &size, r.prompt);
    if (code == CLI_OK)
        code = asks ? ask(&remote, &r, prompt, size) : generate(m, &r, prompt, size);
    free(prompt);
    model_free(m);
    return code;
}
