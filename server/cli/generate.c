/* generate.c - aft generate MODEL: bytes to standard output as they are drawn. On a terminal they are repaired to valid
 * UTF-8 without control characters, so that a model cannot drive it; elsewhere they are written as they are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/sampler.h"
#include "server/cli/cli.h"
#include "server/text.h"

struct request {
    const char *prompt;
    uint64_t max_tokens;
    struct sampler_options sampler;
};

/* What a terminal gets: whole characters, control bytes other than newline and tab as dots. */
static void print_terminal(uint8_t *pending, size_t *count, bool last)
{
    char out[UTF8_GROWTH * (UTF8_INCOMPLETE_MAX + 1)];
    size_t size = 0;
    const size_t used = utf8_repair(out, &size, pending, *count, last);
    for (size_t i = 0; i < size; i++)
        if (((unsigned char)out[i] < 0x20 && out[i] != '\n' && out[i] != '\t') || out[i] == 0x7f)
            out[i] = '.';
    (void)fwrite(out, 1, size, stdout);
    (void)fflush(stdout);
    *count -= used;
    memmove(pending, pending + used, *count);
}

/* Feed the prompt, rows_max bytes a pass; logits [256] of its last byte. */
static void prefill(struct engine *e, const uint8_t *prompt, size_t size, uint32_t rows_max, float *logits)
{
    for (size_t at = 0; at < size; at += rows_max) {
        const size_t left = size - at;
        const struct engine_part part = {
            .count = (uint32_t)(left < rows_max ? left : rows_max), .bytes = prompt + at, .logits = logits};
        engine_feed(e, &part, 1);
    }
}

static int generate(const struct model *m, const struct request *r, const uint8_t *prompt, size_t size)
{
    const uint32_t context = m->config.context;
    struct engine_options o = {.streams_max = 1, .rows_max = 64};
    struct engine *e = cli_open_engine(m, &o);
    if (e == NULL)
        return CLI_FAILED;
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    const size_t kept_max = context > 1 ? context - 1 : 1;
    float logits[BYTE_VALUES];
    uint8_t pending[UTF8_INCOMPLETE_MAX + 1], byte = '\n';
    size_t pending_count = 0;
    struct sampler sampler;
    sampler_init(&sampler, &r->sampler);
    if (size > kept_max) {
        (void)fprintf(stderr, "aft generate: the prompt has %zu bytes; its last %zu are used\n", size, kept_max);
        prompt += size - kept_max;
        size = kept_max;
    }
    for (size_t i = 0; i < size; i++)
        sampler_accept(&sampler, prompt[i]);
    prefill(e, size > 0 ? prompt : &byte, size > 0 ? size : 1, o.rows_max, logits);
    for (uint64_t n = 0; n < r->max_tokens; n++) {
        byte = sampler_draw(&sampler, logits);
        sampler_accept(&sampler, byte);
        pending[pending_count++] = byte;
        if (terminal) {
            print_terminal(pending, &pending_count, false);
        } else {
            (void)fwrite(&byte, 1, 1, stdout);
            (void)fflush(stdout);
            pending_count = 0;
        }
        if (ferror(stdout) || engine_stream_position(e, 0) == context)
            break; /* the last byte is not fed: prompt and text are at most T + 1 long */
        const struct engine_part part = {.count = 1, .bytes = &byte, .logits = logits};
        engine_feed(e, &part, 1);
    }
    if (terminal) {
        print_terminal(pending, &pending_count, true);
        (void)printf("\n");
    }
    engine_close(e);
    return CLI_OK;
}

static int read_prompt(uint8_t **ret, size_t *size, const char *prompt)
{
    struct error err;
    if (strcmp(prompt, "-") == 0)
        return cli_read(ret, size, "-", GENERATE_PROMPT_MAX, &err) == OK ? CLI_OK : cli_fail_error(&err);
    *size = strlen(prompt);
    *ret = (uint8_t *)strdup(prompt);
    return *ret != NULL ? CLI_OK : cli_fail("out of memory");
}

static int parse(struct request *r, int argc, char **argv, int *count)
{
    double temperature = 1.0, top_p = 1.0, min_p = 0.0, penalty = 1.0;
    uint64_t top_k = 0, seed = UINT64_MAX;
    const struct cli_option options[] = {
        {"prompt", CLI_TEXT, &r->prompt, 0, 0, "text to continue; - reads it from standard input (empty)"},
        {"max-tokens", CLI_UNSIGNED, &r->max_tokens, 1, GENERATE_TOKENS_MAX, "bytes to generate (256)"},
        {"temperature", CLI_NUMBER, &temperature, 0, 100, "0 always takes the likeliest byte (1)"},
        {"top-k", CLI_UNSIGNED, &top_k, 0, BYTE_VALUES, "draw from the k likeliest; 0 is off (0)"},
        {"top-p", CLI_NUMBER, &top_p, 1e-9, 1, "draw from the smallest set that reaches p (1)"},
        {"min-p", CLI_NUMBER, &min_p, 0, 1, "leave out what is rarer than p times the likeliest (0)"},
        {"repetition-penalty", CLI_NUMBER, &penalty, 1e-3, 100, "against the last 64 bytes; 1 is off (1)"},
        {"seed", CLI_UNSIGNED, &seed, 0, (double)SEED_MAX, "the same seed gives the same text (drawn)"},
        {0},
    };
    const int code = cli_parse(options, argc, argv, 1, 1, count);
    if (code != CLI_OK)
        return code;
    if (seed == UINT64_MAX && getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed)
        seed &= SEED_MAX;
    r->sampler = (struct sampler_options){.seed = seed & SEED_MAX,
                                          .temperature = (float)temperature,
                                          .top_k = (uint32_t)top_k,
                                          .top_p = (float)top_p,
                                          .min_p = (float)min_p,
                                          .repetition_penalty = (float)penalty};
    return CLI_OK;
}

int cli_generate(int argc, char **argv)
{
    struct request r = {.prompt = "", .max_tokens = 256};
    uint8_t *prompt = NULL;
    size_t size = 0;
    int count;
    int code = parse(&r, argc, argv, &count);
    if (code != CLI_OK || count < 0)
        return code;
    struct model *m = cli_load_model(argv[1], &(enum model_task){TASK_TEXT_GENERATION});
    if (m == NULL)
        return CLI_FAILED;
    code = read_prompt(&prompt, &size, r.prompt);
    if (code == CLI_OK)
        code = generate(m, &r, prompt, size);
    free(prompt);
    model_free(m);
    return code;
}
