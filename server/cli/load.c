/* load.c - aft load URL: many requests to a running daemon, and how it answers them. See load.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/load.h"

#define DURATION_S 10.0 /* of a run that is given neither --duration nor --requests */

/* Options whose defaults are filled in later: 0, or less where 0 is a value, means that the option was not given. */
struct words {
    double duration_s, mix, slo_ttfb_ms, slo_e2e_ms, slo_gap_ms, temperature;
    uint64_t requests, max_tokens;
};

/* The name of the first option given that is about generated text; NULL: none. */
static const char *text_option(const struct load_options *o, const struct words *w)
{
    const struct {
        const char *name;
        bool given;
    } options[] = {
        {"prompt", o->prompt != NULL},         {"prompt-file", o->prompt_file != NULL},
        {"prompt-bytes", o->prompt_bytes > 0}, {"max-tokens", w->max_tokens > 0},
        {"temperature", w->temperature >= 0},  {"no-stream", o->whole},
        {"slo-gap-ms", w->slo_gap_ms > 0},     {"sessions", o->sessions},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].given)
            return options[i].name;
    return NULL;
}

/* "Name: value" with a name of RFC 9110's token characters and no line break, after which anything could follow. */
static bool is_header(const char *line)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const size_t name = strspn(line, token);
    return name > 0 && line[name] == ':' && strpbrk(line, "\r\n") == NULL;
}

static int check_kinds(const struct load_options *o, const struct words *w)
{
    const char *of_text = text_option(o, w);
    if (o->kinds[LOAD_CLASSIFY] && o->picture_count == 0)
        return cli_fail_usage("--classify needs pictures after the URL: files, or folders of them");
    if (!o->kinds[LOAD_CLASSIFY] && o->picture_count > 0)
        return cli_fail_usage("\"%s\" is a picture, and pictures are for --classify", o->pictures[0]);
    if (!o->kinds[LOAD_CLASSIFY] && o->models[LOAD_CLASSIFY] != NULL)
        return cli_fail_usage("--classify-model is for --classify");
    if (!o->kinds[LOAD_GENERATE] && of_text != NULL)
        return cli_fail_usage("--%s is for --generate", of_text);
    if (w->mix >= 0 && !(o->kinds[LOAD_CLASSIFY] && o->kinds[LOAD_GENERATE]))
        return cli_fail_usage("--mix is for --classify and --generate together");
    if (o->prompt != NULL && o->prompt_file != NULL)
        return cli_fail_usage("--prompt and --prompt-file are two prompts; give one");
    if (o->whole && w->slo_gap_ms > 0)
        return cli_fail_usage("--slo-gap-ms is for streams, and --no-stream asks for none");
    for (size_t i = 0; i < o->headers.count; i++)
        if (!is_header(o->headers.at[i]))
            return cli_fail_usage("--header is \"%s\", expected \"Name: value\" on one line", o->headers.at[i]);
    return CLI_OK;
}

static double goal_s(double ms)
{
    return ms > 0 ? 1e-3 * ms : INFINITY;
}

/* Fill in what was not given. */
static void complete(struct load_options *o, const struct words *w)
{
    const bool bounded = w->requests > 0;
    const char **model = &o->models[o->kinds[LOAD_GENERATE] ? LOAD_GENERATE : LOAD_CLASSIFY];
    *model = *model == NULL ? o->to.model : *model;
    o->mix = w->mix >= 0 ? w->mix : 0.5;
    if (!o->kinds[LOAD_CLASSIFY] || !o->kinds[LOAD_GENERATE])
        o->mix = o->kinds[LOAD_CLASSIFY] ? 1.0 : 0.0;
    o->requests = bounded ? w->requests : UINT64_MAX;
    o->duration_s = w->duration_s > 0 ? w->duration_s : bounded ? INFINITY : DURATION_S;
    if (o->concurrency == 0)
        o->concurrency = o->rate <= 0 ? 1 : o->sessions ? LOAD_CLIENTS_SESSIONS : LOAD_CLIENTS_OPEN;
    o->max_tokens = w->max_tokens > 0 ? w->max_tokens : 256;
    o->temperature = w->temperature >= 0 ? w->temperature : 1.0;
    o->slo_ttfb_s = goal_s(w->slo_ttfb_ms);
    o->slo_e2e_s = goal_s(w->slo_e2e_ms);
    o->slo_gap_s = goal_s(w->slo_gap_ms);
}

static int parse(struct load_options *o, int argc, char **argv, int *count)
{
    struct words w = {.mix = -1, .temperature = -1};
    const double day_ms = 1e3 * LOAD_DURATION_MAX_S;
    const struct cli_option options[] = {
        {"generate", CLI_FLAG, &o->kinds[LOAD_GENERATE], 0, 0, NULL, NULL,
         "send prompts to /generate; the default without --classify"},
        {"classify", CLI_FLAG, &o->kinds[LOAD_CLASSIFY], 0, 0, NULL, NULL,
         "send the PICTUREs, files or folders, to /classify in turn"},
        {"mix", CLI_NUMBER, &w.mix, 0, 1, "X", "0.5", "share of requests that classify, when --generate is given too"},
        {"concurrency", CLI_UNSIGNED, &o->concurrency, 1, LOAD_CLIENTS_MAX, "N", "1, 256 with --rate",
         "clients that each wait for an answer; connections of --rate"},
        {"rate", CLI_NUMBER, &o->rate, LOAD_RATE_MIN, LOAD_RATE_MAX, "X", NULL,
         "open loop: X requests per second at random times, however slow the answers are"},
        {"duration", CLI_NUMBER, &w.duration_s, LOAD_DURATION_MIN_S, LOAD_DURATION_MAX_S, "SECONDS",
         "10, or as long as --requests takes", "how long to send"},
        {"requests", CLI_UNSIGNED, &w.requests, 1, LOAD_REQUESTS_MAX, "N", NULL, "send at most N requests"},
        {"warmup", CLI_NUMBER, &o->warmup_s, 0, LOAD_DURATION_MAX_S, "SECONDS", "0",
         "how long to send before measuring starts"},
        {"timeout", CLI_NUMBER, &o->timeout_s, 1e-3, LOAD_TIMEOUT_MAX_S, "SECONDS", "120",
         "give up a request after that"},
        {"seed", CLI_UNSIGNED, &o->seed, 0, (double)SEED_MAX, "N", "0",
         "seed of the times of --rate and of the generated texts"},
        {"prompt", CLI_TEXT, &o->prompt, 0, 0, "TEXT", NULL, "text to continue; - reads it from standard input"},
        {"prompt-file", CLI_TEXT, &o->prompt_file, 0, 0, "FILE", NULL, "read the text to continue from a file"},
        {"prompt-bytes", CLI_UNSIGNED, &o->prompt_bytes, 1, GENERATE_PROMPT_MAX, "N", NULL,
         "cut the text into prompts of N bytes, sent in turn; it is repeated as needed"},
        {"max-tokens", CLI_UNSIGNED, &w.max_tokens, 1, GENERATE_TOKENS_MAX, "N", "256", "how many bytes to generate"},
        {"temperature", CLI_NUMBER, &w.temperature, 0, SAMPLER_TEMPERATURE_MAX, "X", "1",
         "randomness; 0 always takes the most likely byte"},
        {"no-stream", CLI_FLAG, &o->whole, 0, 0, NULL, NULL, "ask for the whole text in one answer"},
        {"sessions", CLI_FLAG, &o->sessions, 0, 0, NULL, NULL,
         "each client begins a session, and its requests go on with it; with --rate 64 clients"},
        {"model", CLI_TEXT, (void *)&o->to.model, 0, 0, "NAME", "the daemon's own", "model to ask for"},
        {"classify-model", CLI_TEXT, &o->models[LOAD_CLASSIFY], 0, 0, "NAME", "the daemon's own",
         "model that classifies beside --generate"},
        {"header", CLI_TEXTS, &o->headers, 0, 0, "HEADER", NULL,
         "\"Name: value\" to send with each request; may be repeated"},
        {"slo-ttfb-ms", CLI_NUMBER, &w.slo_ttfb_ms, 1e-3, day_ms, "MS", NULL, "objective: the first byte within MS"},
        {"slo-e2e-ms", CLI_NUMBER, &w.slo_e2e_ms, 1e-3, day_ms, "MS", NULL, "objective: the whole answer within MS"},
        {"slo-gap-ms", CLI_NUMBER, &w.slo_gap_ms, 1e-3, day_ms, "MS", NULL, "objective: at most MS between two events"},
        {"json", CLI_FLAG, &o->json, 0, 0, NULL, NULL, "print one JSON object on one line"},
        REMOTE_DAEMON_OPTIONS(&o->to) REMOTE_KEY_OPTION(&o->to){0},
    };
    int code = cli_parse(options, argc, argv, 0, argc, count);
    if (code != CLI_OK || *count < 0)
        return code;
    const bool named = o->to.url != NULL || o->to.unix_path != NULL; /* else by the first argument */
    if (!named && *count == 0)
        return cli_fail_few(NULL);
    if (!named)
        o->to.url = argv[1];
    o->pictures = argv + (named ? 1 : 2);
    o->picture_count = (size_t)*count - (named ? 0 : 1);
    if (!o->kinds[LOAD_CLASSIFY] && !o->kinds[LOAD_GENERATE])
        o->kinds[LOAD_GENERATE] = true;
    code = remote_check(&o->to);
    if (code == CLI_OK)
        code = check_kinds(o, &w);
    complete(o, &w);
    return code;
}

static int report(const struct load_options *o, const struct load_result *r)
{
    const int code = o->json ? load_report_json(o, r) : CLI_OK;
    if (!o->json)
        load_report_print(o, r);
    if (code != CLI_OK || r->tallies[LOAD_CLASSIFY].answered + r->tallies[LOAD_GENERATE].answered > 0)
        return code;
    return cli_fail("no request was answered as it should be");
}

int cli_load(int argc, char **argv)
{
    struct load_options o = {.timeout_s = 120};
    struct load_bodies bodies[LOAD_KINDS] = {{0}}, sessions = {.count = 0};
    struct load_result *r = NULL;
    char *url = NULL;
    int count;
    int code = parse(&o, argc, argv, &count);
    if (code != CLI_OK || count < 0)
        return code;
    code = cli_url_make(&url, o.to.url);
    if (code != CLI_OK)
        goto done;
    o.to.url = url;
    r = calloc(1, sizeof *r); /* histograms: too large for the stack */
    if (r == NULL) {
        code = cli_fail("out of memory");
        goto done;
    }
    code = load_bodies_make(bodies, &o);
    if (code == CLI_OK)
        code = load_bodies_make_sessions(&sessions, &o);
    if (code == CLI_OK)
        code = load_run(&o, bodies, &sessions, r);
    if (code == CLI_OK)
        code = report(&o, r);
done:
    for (enum load_kind k = 0; k < LOAD_KINDS; k++)
        load_bodies_clear(&bodies[k]);
    load_bodies_clear(&sessions);
    free(r);
    free(url);
    return code;
}
