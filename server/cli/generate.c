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
#include "server/cli/local_lane.h"
#include "server/cli/remote.h"
#include "server/cli/sampling.h"
#include "server/cli/text_output.h"
#include "server/operation/generate.h"
#include "server/operation/stops.h"

#define RING_BYTES 4096  /* of text that waits to be put out, which is done after each pass */
#define RETRIES_MAX 1000 /* an hour */

/* ---- what a user should know ------------------------------------------------------------------------------------ */

struct cli_progress generate_progress(const struct generate_options *r)
{
    if (!r->json && !cli_output_goes_to_file())
        return (struct cli_progress){.on = false};
    return cli_progress_begin((size_t)r->max_tokens);
}

int generate_conclude(const struct generate_options *r, const struct text_output *o, size_t prompt,
                      const struct generate_ending *end)
{
    const json_int_t given = (json_int_t)prompt;
    if (end->dropped > 0)
        (void)fprintf(stderr, "aft generate: the prompt has %zu bytes; its last %zu are used\n", prompt,
                      prompt - (size_t)end->dropped);
    if (strcmp(end->finish, "context") == 0)
        (void)fprintf(stderr,
                      "aft generate: the context is full after %" JSON_INTEGER_FORMAT
                      " bytes; with --context-overflow shift the text goes on\n",
                      end->generated);
    if (!r->json)
        return CLI_OK;
    json_t *text = cli_json_text(o->collected.bytes != NULL ? o->collected.bytes : "", o->collected.size);
    return cli_print_json(json_pack("{s:s, s:o, s:I, s:s, s:I, s:{s:I, s:I, s:I, s:I}}", "model", end->model, "text",
                                    text, "tokens", end->generated, "finish_reason", end->finish, "seed", end->seed,
                                    "usage", "prompt_tokens", given, "completion_tokens", end->generated,
                                    "total_tokens", given + end->generated, "prompt_tokens_dropped", end->dropped));
}

/* ---- by an engine of our own ------------------------------------------------------------------------------------ */

static void ignore(void *arg)
{
    (void)arg;
}

/* Put out what was drawn since the last time. */
static int read_news(struct job *j, struct text_output *out)
{
    static const struct job_waiter nobody = {.suspend = ignore, .resume = ignore}; /* the next pass is ours to make */
    uint8_t bytes[RING_BYTES];
    struct generate_reading reading = {.size_max = sizeof bytes, .to.bytes = bytes};
    int code = CLI_OK;
    job_attach(j, &nobody);
    while (code == CLI_OK && generate_read(j, &reading) == JOB_EVENT_BYTES)
        code = text_output_bytes(out, bytes, reading.size);
    job_detach(j);
    return code;
}

/* Draw and put out all of the text. */
static int draw(struct local_lane *l, const struct generate_options *r, struct text_output *out)
{
    int code = CLI_OK;
    struct cli_progress progress = generate_progress(r);
    for (bool goes_on = true; goes_on && code == CLI_OK;) {
        goes_on = local_lane_step(l);
        code = read_news(l->job, out);
        cli_progress_show(&progress, job_look(l->job).generated, "generated");
    }
    cli_progress_end(&progress);
    const int ended = local_lane_end(l);
    text_output_end(out);
    return code == CLI_OK ? ended : code;
}

/* Takes the prompt. */
static int generate(struct local_lane *l, const struct generate_options *r, uint8_t *prompt, size_t size)
{
    const struct generate_input in = {.prompt = prompt,
                                      .prompt_bytes = size,
                                      .ends = {size},
                                      .prompt_count = 1,
                                      .n = 1,
                                      .max_tokens = (uint32_t)r->max_tokens,
                                      .stream = true,
                                      .shift = r->shift,
                                      .sampler = r->sampler,
                                      .stops = r->stops};
    struct job *j = l->job;
    struct error err;
    enum status begun = ERR_NOMEM;
    struct text_output out = text_output_begin(r->json);
    int code = r->echo ? text_output_bytes(&out, prompt, size) : CLI_OK;
    if (code == CLI_OK)
        code = local_lane_submit(l, begun = generate_begin(j, &in, RING_BYTES, &err));
    if (begun != OK)
        free(prompt);
    if (code == CLI_OK)
        code = draw(l, r, &out);
    if (code == CLI_OK) {
        struct generate_ending end = {.finish = job_finish_words[job_result(j)->finish],
                                      .generated = job_result(j)->generated,
                                      .dropped = j->dropped,
                                      .seed = (json_int_t)r->sampler.seed};
        (void)snprintf(end.model, sizeof end.model, "%s", l->model->model->name);
        code = generate_conclude(r, &out, size, &end);
    }
    text_output_clear(&out);
    return code;
}

/* Is standard input a pipe or a file? What else it may be has nothing to say, or might never say it. */
static bool is_piped(void)
{
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode));
}

/* ---- the verb --------------------------------------------------------------------------------------------------- */

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

static int generate_parse(struct generate_options *r, struct remote *remote, int argc, char **argv, int *count)
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
    struct local_lane l = {.model = NULL};
    uint8_t *prompt = NULL;
    size_t size = 0;
    int count;
    int code = generate_parse(&r, &remote, argc, argv, &count);
    if (code != CLI_OK || count < 0)
        return code;
    if (!remote.asks)
        code = local_lane_open(&l, remote.model, TASK_TEXT_GENERATION, &r.with, 1, r.shift);
    if (r.prompt == NULL && r.prompt_file == NULL && is_piped())
        r.prompt = "-";
    if (code == CLI_OK)
        code = cli_read_text(&prompt, &size, r.prompt, r.prompt_file, GENERATE_PROMPT_MAX);
    if (code == CLI_OK)
        code = remote.asks ? generate_by_daemon(&remote, &r, prompt, size) : generate(&l, &r, prompt, size);
    local_lane_close(&l);
    return code;
}
