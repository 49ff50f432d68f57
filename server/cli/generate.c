/* generate.c - aft generate MODEL, or a daemon: bytes to standard output as they are drawn, or as one JSON object.
 * Single threaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/sampler.h"
#include "server/cli/cli.h"
#include "server/cli/generate.h"
#include "server/cli/remote.h"
#include "server/cli/sampling.h"
#include "server/cli/text_output.h"
#include "server/core/text.h"
#include "server/stream/stream_window.h"

#define PREFILL_ROWS 64  /* bytes of a pass over the prompt */
#define RETRIES_MAX 1000 /* an hour */

/* ---- what a user should know ------------------------------------------------------------------------------------- */

void generate_tell_dropped(size_t size, size_t kept)
{
    (void)fprintf(stderr, "aft generate: the prompt has %zu bytes; its last %zu are used\n", size, kept);
}

void generate_tell_end_of_context(uint64_t generated)
{
    (void)fprintf(
        stderr, "aft generate: the context is full after %llu bytes; with --context-overflow shift the text goes on\n",
        (unsigned long long)generated);
}

int generate_print_json(const struct generate_options *r, const struct text_output *o, const char *model, uint64_t seed,
                        size_t prompt, const struct generate_ending *end)
{
    if (!r->json)
        return CLI_OK;
    json_t *text = cli_json_text(o->collected.bytes != NULL ? o->collected.bytes : "", o->collected.size);
    const json_int_t given = (json_int_t)prompt;
    return cli_print_json(json_pack("{s:s, s:o, s:I, s:s, s:I, s:{s:I, s:I, s:I, s:I}}", "model", model, "text", text,
                                    "tokens", end->generated, "finish_reason", end->finish, "seed", (json_int_t)seed,
                                    "usage", "prompt_tokens", given, "completion_tokens", end->generated,
                                    "total_tokens", given + end->generated, "prompt_tokens_dropped", end->dropped));
}

/* ---- by an engine of our own ------------------------------------------------------------------------------------- */

/* How many bytes to feed ahead beside one byte, so that all are fed where the context ends, if a text that may still
 * draw so many bytes comes to it. One that does not shift, or whose model does not feed ahead, has one state only. */
static uint32_t count_ahead(const struct stream_window *w, uint64_t draws)
{
    if (draws == 0 || w->ahead == w->stream)
        return 0;
    const struct stream_ahead a = stream_window_ahead(w);
    if (draws <= a.pushes)
        return 0;
    const uint32_t due = (a.left + a.pushes - 1) / a.pushes, rows = a.known < due ? a.known : due;
    return rows < PREFILL_ROWS ? rows : PREFILL_ROWS - 1;
}

/* Feed what the window has to be fed; logits: those of its last byte [256]. `draws`: as above; 0: it is a prompt. */
static void feed(struct stream_window *w, float *logits, uint64_t draws)
{
    while (w->fed < w->length) {
        const uint32_t left = w->length - w->fed, n = left < PREFILL_ROWS ? left : PREFILL_ROWS;
        struct engine_part parts[2] = {
            {.stream = w->stream, .count = n, .bytes = w->elements + w->fed, .logits = n == left ? logits : NULL}};
        const uint32_t ahead = n == 1 ? count_ahead(w, draws) : 0;
        if (ahead > 0)
            parts[1] = stream_window_feed_ahead(w, ahead);
        engine_feed(w->model->engine, parts, ahead > 0 ? 2 : 1);
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
        feed(w, logits, 0);
    }
    feed(w, logits, 0);
}

/* Draw and print from the logits of the last byte fed, until max_tokens, a stop text or, if the text does not shift,
 * the end of the context. The last byte drawn is not fed, so prompt and text together are then at most T + 1 bytes
 * long, or T after a start embedding. */
static int continue_text(struct stream_window *w, const struct generate_options *r, struct sampler *sampler,
                         float *logits, struct text_output *out, struct generate_ending *end)
{
    uint8_t text[GENERATE_STOP_BYTES_MAX];
    size_t size;
    struct stop_matcher matcher;
    int code = CLI_OK;
    struct cli_progress progress = {.on = false};
    if (out->collects || cli_output_goes_to_file())
        progress = cli_progress_begin((size_t)r->max_tokens);
    stop_matcher_init(&matcher, &r->stops);
    while (end->finish == NULL && code == CLI_OK) {
        if (!cli_check_logits(logits, BYTE_VALUES)) {
            code = CLI_FAILED;
            break;
        }
        const uint8_t byte = sampler_draw(sampler, logits);
        sampler_accept(sampler, byte);
        end->generated++;
        if (stop_matcher_feed(&matcher, byte, text, &size))
            end->finish = "stop";
        else if ((uint64_t)end->generated == r->max_tokens)
            end->finish = "length";
        else if (!stream_window_push(w, byte, r->shift))
            end->finish = "context";
        code = text_output_bytes(out, text, size);
        if (code == CLI_OK && end->finish == NULL)
            feed(w, logits, r->max_tokens - (uint64_t)end->generated);
        cli_progress_show(&progress, (size_t)end->generated, "generated");
    }
    cli_progress_end(&progress);
    if (code == CLI_OK)
        code = text_output_bytes(out, text, stop_matcher_flush(&matcher, text));
    text_output_end(out);
    if (end->finish != NULL && strcmp(end->finish, "context") == 0)
        generate_tell_end_of_context((uint64_t)end->generated);
    return code;
}

static int generate(const struct model *m, const struct generate_options *r, const uint8_t *prompt, size_t size)
{
    const uint32_t ahead = r->shift && model_config_feeds_ahead(&m->config, m->pos_embed != NULL) ? 1 : 0;
    struct engine_options o = {.streams_max = 1 + ahead, .rows_max = PREFILL_ROWS};
    struct engine *e = cli_open_engine(m, &r->with, &o);
    if (e == NULL)
        return CLI_FAILED;
    const struct stream_model model = stream_model_of(e, m->config.context);
    struct stream_window w = {.model = &model, .ahead = ahead, .elements = malloc(model.window_size)};
    struct text_output out = text_output_begin(r->json);
    struct generate_ending end = {.finish = NULL};
    int code = CLI_FAILED;
    if (w.elements != NULL) {
        float logits[BYTE_VALUES];
        struct sampler sampler;
        const size_t kept = kept_of(&model, r->shift, size);
        end.dropped = (json_int_t)(size - kept);
        sampler_init(&sampler, &r->sampler);
        for (size_t i = 0; i < size; i++)
            sampler_accept(&sampler, prompt[i]);
        if (kept < size)
            generate_tell_dropped(size, kept);
        feed_prompt(&w, prompt + (size - kept), kept, logits);
        code = r->echo ? text_output_bytes(&out, prompt, size) : CLI_OK;
        if (code == CLI_OK)
            code = continue_text(&w, r, &sampler, logits, &out, &end);
        if (code == CLI_OK)
            code = generate_print_json(r, &out, m->name, r->sampler.seed, size, &end);
    } else {
        (void)cli_fail("out of memory");
    }
    text_output_clear(&out);
    free(w.elements);
    engine_close(e);
    return code;
}

/* Is standard input a pipe or a file? What else it may be has nothing to say, or might never say it. */
static bool is_piped(void)
{
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

/* The prompt that is named or, where none is, piped in; free *ret. */
static int read_prompt(uint8_t **ret, size_t *size, const struct generate_options *r)
{
    const char *file = r->prompt_file;
    struct error err;
    if (r->prompt != NULL ? strcmp(r->prompt, "-") == 0 : file == NULL && is_piped())
        file = "-";
    if (file != NULL)
        return cli_read(ret, size, file, GENERATE_PROMPT_MAX, &err) == OK ? CLI_OK : cli_fail_error(&err);
    char *copy = strdup(r->prompt != NULL ? r->prompt : "");
    if (copy == NULL)
        return cli_fail("out of memory");
    *ret = (uint8_t *)copy;
    *size = strlen(copy);
    return CLI_OK;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int read_stops(struct generate_options *r)
{
    for (size_t i = 0; i < r->stop_texts.count; i++) {
        const char *text = r->stop_texts.at[i];
        json_t *utf8 = json_string(text); /* as the daemon's JSON has it */
        json_decref(utf8);
        if (utf8 == NULL || !stop_set_add(&r->stops, text, strlen(text)))
            return cli_fail_usage("--stop is \"%.80s\", expected at most %d texts of 1 to %d bytes each, in UTF-8",
                                  text, GENERATE_STOPS_MAX, GENERATE_STOP_BYTES_MAX);
    }
    return CLI_OK;
}

static int parse(struct generate_options *r, struct remote *remote, int argc, char **argv, int *count)
{
    double penalty = 1.0, presence = 0.0, frequency = 0.0;
    bool utf8 = false;
    struct cli_sampling sampling = CLI_SAMPLING_DEFAULT;
    const char *overflow = "shift";
    const struct cli_option options[] = {
        {"prompt", CLI_TEXT, &r->prompt, 0, 0, "TEXT", "what is piped in", "in place of TEXT; - reads standard input"},
        {"prompt-file", CLI_TEXT, &r->prompt_file, 0, 0, "FILE", NULL, "read the text to continue from a file"},
        {"max-tokens", CLI_UNSIGNED, &r->max_tokens, 1, GENERATE_TOKENS_MAX, "N", "256", "how many bytes to generate"},
        {"stop", CLI_TEXTS, &r->stop_texts, 0, 0, "TEXT", NULL, "end before this text; may be repeated"},
        {"echo", CLI_FLAG, &r->echo, 0, 0, NULL, NULL, "print the text to continue before what continues it"},
        {"context-overflow", CLI_CHOICE, &overflow, 0, 0, "shift|stop", "shift",
         "when the context is full: keep its last half and go on, or stop"},
        CLI_SAMPLING_OPTIONS(&sampling, "byte"){"repetition-penalty", CLI_NUMBER, &penalty, 1e-3, 100, "X", "1",
                                                "make the last 64 bytes less likely; 1 turns this off"},
        {"presence-penalty", CLI_NUMBER, &presence, -SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX, "X", "0",
         "take X off the logit of each of the last 64 bytes"},
        {"frequency-penalty", CLI_NUMBER, &frequency, -SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX, "X", "0",
         "take X off for each time that a byte is among the last 64"},
        {"utf8", CLI_FLAG, &utf8, 0, 0, NULL, NULL, "draw no byte that cannot come next in UTF-8"},
        {"retries", CLI_UNSIGNED, &r->retries, 0, RETRIES_MAX, "N", "8",
         "resume a daemon's broken stream; give up after N fruitless tries"},
        CLI_JSON_OPTION(&r->json) CLI_ENGINE_OPTIONS(&r->with) REMOTE_OPTIONS(remote){0},
    };
    int code = remote_parse(remote, &r->with, options, argc, argv, 0, 1, count);
    if (code != CLI_OK || *count < 0)
        return code;
    if ((*count > 0) + (r->prompt != NULL) + (r->prompt_file != NULL) > 1)
        return cli_fail_usage("TEXT, --prompt and --prompt-file are prompts; give one of them");
    if (*count > 0)
        r->prompt = argv[1];
    if (!remote->asks && r->retries != UINT64_MAX)
        return cli_fail_usage("--retries is for a daemon, and neither --url nor --unix names one");
    r->shift = strcmp(overflow, "shift") == 0;
    code = read_stops(r);
    if (code == CLI_OK)
        code = cli_sampling_read(&sampling, &r->sampler);
    r->sampler.repetition_penalty = (float)penalty;
    r->sampler.presence_penalty = (float)presence;
    r->sampler.frequency_penalty = (float)frequency;
    r->sampler.utf8 = utf8;
    return code;
}

int cli_generate(int argc, char **argv)
{
    struct generate_options r = {.max_tokens = 256, .retries = UINT64_MAX};
    struct remote remote = {0};
    uint8_t *prompt = NULL;
    size_t size = 0;
    int count;
    int code = parse(&r, &remote, argc, argv, &count);
    if (code != CLI_OK || count < 0)
        return code;
    struct model *m = remote.asks ? NULL : cli_load_model(remote.model, &(enum model_task){TASK_TEXT_GENERATION});
    if (!remote.asks && m == NULL)
        return CLI_FAILED;
    code = read_prompt(&prompt, &size, &r);
    if (code == CLI_OK)
        code = remote.asks ? generate_by_daemon(&remote, &r, prompt, size) : generate(m, &r, prompt, size);
    free(prompt);
    model_free(m);
    return code;
}
