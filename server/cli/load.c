/* load.c - aft load URL: many requests to a running daemon, and how it answers them; or, with --find-rate, the highest
 * rate of requests at which it answers in time. See load.h.
 *
 * The object of --json:
 *   url, loop ("closed" or "open"), concurrency, rate (requests/s asked for; null in a closed loop), seed,
 *   warmup_seconds, seconds (the window's length), interrupted,
 *   client_cpu_share (this program's CPU time over `seconds`: 1 is a whole core),
 *   requests, sent, unsent, answered, failed, aborted   requests = sent + unsent, sent = answered + failed + aborted
 *   failures [{what, count, detail (of the first)}]
 *   bytes                                               generated, of all measured requests
 *   offered_per_second, answered_per_second             requests
 *   bytes_per_second
 *   ttfb_ms, event_gap_ms, byte_gap_ms, e2e_ms, send_delay_ms
 *                                                       {count, mean, p50, p90, p99, max}; gaps of streams alone
 * and that of --find-rate --json:
 *   url, p99_ms (the goal), seconds (of each run), seed, rate (the highest that held; null: none did), interrupted,
 *   runs [{rate, answered_per_second, p50_ms, p99_ms, failed, unsent, holds}] in their order */
#include "server/cli/load.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/cli/pictures.h"
#include "server/media/picture.h"

#define DURATION_S 10.0    /* of a run that is given neither --duration nor --requests */
#define CPU_SHARE_HIGH 0.8 /* beyond it the times are partly this program's own */
#define FIND_NEAR 0.05     /* the rate that holds is found to a twentieth */

/* What the command line says beside the options of a run. */
struct words {
    double p99_ms;
    bool finds_rate, json;
};

/* ---- the bodies of requests ------------------------------------------------------------------------------------- */

void load_bodies_clear(struct load_bodies *b)
{
    for (size_t i = 0; i < b->count; i++)
        free(b->at[i].bytes);
    free(b->at);
}

/* Make room for so many. */
static int begin_bodies(struct load_bodies *b, size_t count)
{
    b->at = calloc(count, sizeof *b->at);
    return b->at != NULL ? CLI_OK : cli_fail("out of memory");
}

/* There is room for it. Takes bytes, even if it fails. */
static int add_body(struct load_bodies *b, uint8_t *bytes, size_t size)
{
    if (size > LOAD_BODIES_BYTES_MAX - b->bytes) {
        free(bytes);
        return cli_fail("the bodies of the requests take more than %" PRIu64 " bytes; give fewer pictures",
                        LOAD_BODIES_BYTES_MAX);
    }
    b->at[b->count++] = (struct load_body){bytes, size};
    b->bytes += size;
    return CLI_OK;
}

static int add_picture(struct load_bodies *b, const char *path)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    const int code = cli_read(&bytes, &size, path, HTTP_BODY_MAX);
    if (code != CLI_OK)
        return code;
    if (picture_media_type(bytes, size) == NULL) {
        free(bytes);
        return cli_fail("%s is not a picture: expected a JPEG, PNG or WebP", path);
    }
    return add_body(b, bytes, size);
}

static int add_pictures(struct load_bodies *b, const struct load_options *o)
{
    struct cli_pictures pictures = {.count = 0};
    int code = CLI_OK;
    for (size_t i = 0; i < o->picture_count && code == CLI_OK; i++)
        code = cli_pictures_add(&pictures, o->pictures[i], false);
    if (code == CLI_OK)
        code = begin_bodies(b, pictures.count);
    for (size_t i = 0; i < pictures.count && code == CLI_OK; i++)
        code = add_picture(b, pictures.paths[i]);
    cli_pictures_clear(&pictures);
    return code;
}

/* A prompt is sent in base64, as it may be any bytes. */
static int add_prompt(struct load_bodies *b, const struct load_options *o, const uint8_t *prompt, size_t size)
{
    const uint64_t seed = (o->seed + b->count) & SEED_MAX;
    json_t *object = json_pack("{s:o, s:f, s:I, s:I, s:b}", "prompt_base64", remote_base64(prompt, size), "temperature",
                               o->temperature, "seed", (json_int_t)seed, "max_tokens", (json_int_t)o->max_tokens,
                               "stream", o->whole ? 0 : 1);
    if (object != NULL && o->to.model != NULL && json_object_set_new(object, "model", json_string(o->to.model)) != 0) {
        json_decref(object);
        return cli_fail("--model is \"%s\", expected a name in UTF-8", o->to.model);
    }
    char *text = object != NULL ? json_print(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text != NULL ? add_body(b, (uint8_t *)text, strlen(text)) : cli_fail("out of memory");
}

/* Each prompt begins in the source where the one before ended, and the source starts over at its end. Each has its own
 * seed, so that texts differ where prompts do not. */
static int add_prompts(struct load_bodies *b, const struct load_options *o)
{
    uint8_t *source = NULL, *prompt = NULL;
    size_t size = 0, from = 0;
    int code = begin_bodies(b, LOAD_PROMPTS_MAX);
    if (code == CLI_OK)
        code = cli_read_text(&source, &size, o->prompt, o->prompt_file,
                             o->prompt_bytes > 0 ? LOAD_BODIES_BYTES_MAX : GENERATE_PROMPT_MAX);
    const size_t length = o->prompt_bytes > 0 ? (size_t)o->prompt_bytes : size;
    if (code == CLI_OK && size == 0 && length > 0)
        code = cli_fail("the prompt is empty, and --prompt-bytes is %zu: expected text to fill them with", length);
    prompt = malloc(length + 1);
    if (code == CLI_OK && prompt == NULL)
        code = cli_fail("out of memory");
    for (size_t n = 0; n < LOAD_PROMPTS_MAX && code == CLI_OK && b->bytes <= LOAD_BODIES_BYTES_MAX / 4; n++) {
        for (size_t i = 0; i < length; i++) {
            prompt[i] = source[from];
            from = from + 1 < size ? from + 1 : 0;
        }
        code = add_prompt(b, o, prompt, length);
    }
    free(prompt);
    free(source);
    return code;
}

int load_bodies_make(struct load_bodies *b, const struct load_options *o)
{
    return o->picture_count > 0 ? add_pictures(b, o) : add_prompts(b, o);
}

/* ---- the report ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *key, *title;
    bool of_streams; /* alone */
} times[LOAD_TIMES] = {
    [LOAD_TTFB] = {"ttfb_ms", "first byte", false},
    [LOAD_EVENT_GAP] = {"event_gap_ms", "between events", true},
    [LOAD_BYTE_GAP] = {"byte_gap_ms", "between bytes", true},
    [LOAD_E2E] = {"e2e_ms", "whole answer", false},
    [LOAD_DELAY] = {"send_delay_ms", "sent late", false},
};

static double per_second(const struct load_result *r, uint64_t count)
{
    return r->seconds > 0.0 ? (double)count / r->seconds : 0.0;
}

static double quantile_ms(const struct load_result *r, enum load_time what, double q)
{
    return 1e3 * load_times_quantile_s(&r->times[what], q);
}

static double mean_ms(const struct load_times *t)
{
    return t->count > 0 ? 1e3 * t->sum_s / (double)t->count : 0.0;
}

static bool has_times(const struct load_options *o, enum load_time what)
{
    return !times[what].of_streams || !(o->picture_count > 0 || o->whole);
}

static void print_counts(const struct load_result *r)
{
    (void)printf("requests          %" PRIu64 ": %" PRIu64 " answered, %" PRIu64 " failed", r->requests, r->answered,
                 r->failed);
    if (r->unsent > 0)
        (void)printf(", %" PRIu64 " not sent in time", r->unsent);
    if (r->aborted > 0)
        (void)printf(", %" PRIu64 " given up at the end", r->aborted);
    (void)printf("\n");
    for (size_t i = 0; i < r->failure_count; i++) {
        (void)printf("  %-15s %" PRIu64 ", the first: ", r->failures[i].what, r->failures[i].count);
        cli_print_field(stdout, r->failures[i].detail[0] != '\0' ? r->failures[i].detail : "no message");
        (void)printf("\n");
    }
}

static void print_report(const struct load_options *o, const struct load_result *r)
{
    const double share = r->seconds > 0.0 ? r->cpu_seconds / r->seconds : 0.0;
    (void)printf("%s: ", remote_name(&o->to));
    if (o->rate > 0.0)
        (void)printf("%g requests/s on at most %" PRIu64 " connections", o->rate, o->concurrency);
    else
        (void)printf("%" PRIu64 " client%s, each with one request at a time", o->concurrency,
                     o->concurrency == 1 ? "" : "s");
    (void)printf(", %.1f s%s\n", r->seconds, r->interrupted ? ", interrupted" : "");
    (void)printf("aft load itself took %.2f of a core%s\n\n", share,
                 share > CPU_SHARE_HIGH ? ": it may be what limits the figures" : "");
    print_counts(r);
    (void)printf("throughput        %.1f %s/s", per_second(r, r->window_answered),
                 o->picture_count > 0 ? "pictures" : "answers");
    if (o->picture_count == 0)
        (void)printf(", %.0f bytes/s", per_second(r, r->window_bytes));
    if (o->rate > 0.0)
        (void)printf(" of %.1f requests/s due", per_second(r, r->requests));
    (void)printf("\n");
    if (r->answered == 0)
        return; /* gaps of streams that broke off are only in the JSON */
    (void)printf("%-17s %9s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90", "p99", "max");
    for (enum load_time i = 0; i < LOAD_TIMES; i++)
        if (r->times[i].count > 0 && (i != LOAD_DELAY || o->rate > 0.0))
            (void)printf("%-17s %9.3f %9.3f %9.3f %9.3f %9.3f\n", times[i].title, mean_ms(&r->times[i]),
                         quantile_ms(r, i, 0.5), quantile_ms(r, i, 0.9), quantile_ms(r, i, 0.99),
                         1e3 * r->times[i].max_s);
}

static json_t *describe_times(const struct load_result *r, enum load_time what)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)r->times[what].count, "mean",
                     mean_ms(&r->times[what]), "p50", quantile_ms(r, what, 0.5), "p90", quantile_ms(r, what, 0.9),
                     "p99", quantile_ms(r, what, 0.99), "max", 1e3 * r->times[what].max_s);
}

static json_t *describe_failures(const struct load_result *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->failure_count; i++) {
        const struct load_failure *f = &r->failures[i];
        json_append(list, json_pack("{s:s, s:I, s:o}", "what", f->what, "count", (json_int_t)f->count, "detail",
                                    cli_json_text(f->detail, strlen(f->detail))));
    }
    return list;
}

static int print_json(const struct load_options *o, const struct load_result *r)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:o, s:I, s:f, s:f, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:f, s:f, s:f}", "url",
        remote_name(&o->to), "loop", o->rate > 0.0 ? "open" : "closed", "concurrency", (json_int_t)o->concurrency,
        "rate", o->rate > 0.0 ? json_real(o->rate) : json_null(), "seed", (json_int_t)o->seed, "warmup_seconds",
        o->warmup_s, "seconds", r->seconds, "interrupted", r->interrupted ? 1 : 0, "client_cpu_share",
        r->seconds > 0.0 ? r->cpu_seconds / r->seconds : 0.0, "requests", (json_int_t)r->requests, "sent",
        (json_int_t)r->sent, "unsent", (json_int_t)r->unsent, "answered", (json_int_t)r->answered, "failed",
        (json_int_t)r->failed, "aborted", (json_int_t)r->aborted, "failures", describe_failures(r), "bytes",
        (json_int_t)r->bytes, "offered_per_second", per_second(r, r->requests), "answered_per_second",
        per_second(r, r->window_answered), "bytes_per_second", per_second(r, r->window_bytes));
    for (enum load_time i = 0; i < LOAD_TIMES; i++)
        if (has_times(o, i))
            json_put(object, times[i].key, describe_times(r, i));
    return cli_print_json(object);
}

/* ---- the rate that holds ---------------------------------------------------------------------------------------- */

struct search {
    const struct load_bodies *bodies;
    double low, high; /* low holds, or is 0; high does not, if it is `exceeded`, else it is to be tried */
    bool exceeded;
    double p99_ms; /* of low */
    bool interrupted;
    json_t *runs; /* NULL: for people */
};

static bool holds(const struct load_result *r, double goal_ms)
{
    return r->answered > 0 && r->failed + r->unsent + r->aborted == 0 && quantile_ms(r, LOAD_E2E, 0.99) <= goal_ms;
}

static int tell_run(const struct search *s, double rate, const struct load_result *r, bool held)
{
    const double p50_ms = quantile_ms(r, LOAD_E2E, 0.5), p99_ms = quantile_ms(r, LOAD_E2E, 0.99);
    if (s->runs == NULL) {
        (void)printf("%10.1f %12.1f %9.3f %9.3f  %s", rate, per_second(r, r->window_answered), p50_ms, p99_ms,
                     held ? "holds" : "no");
        if (r->failed + r->unsent > 0)
            (void)printf(", %" PRIu64 " failed, %" PRIu64 " not sent in time", r->failed, r->unsent);
        (void)printf("\n");
        return cli_flush();
    }
    json_t *run = json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:b}", "rate", rate, "answered_per_second",
                            per_second(r, r->window_answered), "p50_ms", p50_ms, "p99_ms", p99_ms, "failed",
                            (json_int_t)r->failed, "unsent", (json_int_t)r->unsent, "holds", held ? 1 : 0);
    return json_array_append_new(s->runs, run) == 0 ? CLI_OK : cli_fail("out of memory");
}

/* The search begins with what clients get who each wait for their answer. */
static int find_beginning(struct search *s, const struct load_options *o, struct load_result *r)
{
    struct load_options waiting = *o;
    waiting.rate = 0.0;
    waiting.concurrency = LOAD_CLIENTS_FIND;
    memset(r, 0, sizeof *r);
    const int code = load_run(&waiting, s->bodies, r);
    s->interrupted = r->interrupted;
    s->high = fmin(per_second(r, r->answered), LOAD_RATE_MAX);
    if (code == CLI_OK && !s->interrupted && s->high <= 0.0)
        return cli_fail("no request was answered as it should be%s%s", r->failure_count > 0 ? ": " : "",
                        r->failure_count > 0 ? r->failures[0].detail : "");
    return code;
}

/* Twice the rate as long as it holds, then bisection. */
static int search(struct search *s, const struct load_options *o, double goal_ms, struct load_result *r)
{
    int code = find_beginning(s, o, r);
    while (code == CLI_OK && !s->interrupted && s->high - s->low > FIND_NEAR * s->high && s->high > LOAD_RATE_MIN) {
        struct load_options run = *o;
        run.rate = s->exceeded ? 0.5 * (s->low + s->high) : s->high;
        memset(r, 0, sizeof *r);
        code = load_run(&run, s->bodies, r);
        s->interrupted = r->interrupted;
        if (code != CLI_OK || s->interrupted)
            break;
        const bool held = holds(r, goal_ms);
        *(held ? &s->low : &s->high) = run.rate;
        s->exceeded |= !held;
        if (!s->exceeded)
            s->high = fmin(2.0 * s->low, LOAD_RATE_MAX);
        s->p99_ms = held ? quantile_ms(r, LOAD_E2E, 0.99) : s->p99_ms;
        code = tell_run(s, run.rate, r, held);
        if (s->low <= 0.0 && s->high * (double)o->duration_s < 1.0)
            break; /* a run of less than one request says nothing */
    }
    return code;
}

static int find_rate(const struct load_options *o, const struct load_bodies *bodies, const struct words *w,
                     struct load_result *r)
{
    struct search s = {.bodies = bodies, .runs = w->json ? json_array() : NULL};
    if (!w->json)
        (void)printf("%s: whole answers, 99 of 100 within %g ms; runs of %g s\n%10s %12s %9s %9s\n",
                     remote_name(&o->to), w->p99_ms, o->duration_s, "requests/s", "answered/s", "p50, ms", "p99, ms");
    int code = search(&s, o, w->p99_ms, r);
    if (w->json && json_array_size(s.runs) + (code == CLI_OK ? 1 : 0) > 0) { /* what was found before it failed, too */
        const int printed = cli_print_json(
            json_pack("{s:s, s:f, s:f, s:I, s:o, s:b, s:O}", "url", remote_name(&o->to), "p99_ms", w->p99_ms, "seconds",
                      o->duration_s, "seed", (json_int_t)o->seed, "rate", s.low > 0.0 ? json_real(s.low) : json_null(),
                      "interrupted", s.interrupted ? 1 : 0, "runs", s.runs));
        code = code != CLI_OK ? code : printed;
    } else if (s.low > 0.0) {
        (void)printf("%.1f requests/s hold: 99 of 100 within %.3f ms%s\n", s.low, s.p99_ms,
                     s.interrupted ? "; interrupted" : "");
    }
    json_decref(s.runs);
    if (code != CLI_OK || s.low > 0.0)
        return code;
    return cli_fail(s.interrupted ? "interrupted before a rate held" : "no rate holds that was tried");
}

/* ---- the command line ------------------------------------------------------------------------------------------- */

/* "Name: value" with a name of RFC 9110's token characters and no line break, after which anything could follow. */
static bool is_header(const char *line)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const size_t name = strspn(line, token);
    return name > 0 && line[name] == ':' && strpbrk(line, "\r\n") == NULL;
}

/* The name of the first option given that is about generated text; NULL: none. */
static const char *text_option(const struct load_options *o)
{
    return o->prompt != NULL        ? "prompt"
           : o->prompt_file != NULL ? "prompt-file"
           : o->prompt_bytes > 0    ? "prompt-bytes"
           : o->max_tokens > 0      ? "max-tokens"
           : o->temperature >= 0    ? "temperature"
           : o->whole               ? "no-stream"
                                    : NULL;
}

static int load_check(const struct load_options *o, const struct words *w)
{
    if (o->picture_count > 0 && text_option(o) != NULL)
        return cli_fail_usage("--%s is for texts, and \"%s\" is a picture", text_option(o), o->pictures[0]);
    if (o->prompt != NULL && o->prompt_file != NULL)
        return cli_fail_usage("--prompt and --prompt-file are two prompts; give one");
    if (w->finds_rate != (w->p99_ms > 0))
        return cli_fail_usage("--find-rate and --p99 go together: which rate is answered within how many milliseconds");
    if (w->finds_rate && (o->rate > 0 || o->requests > 0))
        return cli_fail_usage("--find-rate chooses the rate of runs of --duration; leave out --rate and --requests");
    for (size_t i = 0; i < o->headers.count; i++)
        if (!is_header(o->headers.at[i]))
            return cli_fail_usage("--header is \"%s\", expected \"Name: value\" on one line", o->headers.at[i]);
    return CLI_OK;
}

/* Fill in what was not given. */
static void complete(struct load_options *o, const struct words *w)
{
    if (o->duration_s <= 0)
        o->duration_s = o->requests > 0 ? INFINITY : DURATION_S;
    if (o->requests == 0)
        o->requests = UINT64_MAX;
    if (o->concurrency == 0)
        o->concurrency = o->rate > 0 || w->finds_rate ? LOAD_CLIENTS_OPEN : 1;
    if (o->max_tokens == 0)
        o->max_tokens = 256;
    if (o->prompt == NULL && o->prompt_file == NULL)
        o->prompt = "The history of ";
    if (o->temperature < 0)
        o->temperature = 1.0;
}

static int load_parse(struct load_options *o, struct words *w, int argc, char **argv, int *count)
{
    const struct cli_option options[] = {
        {"concurrency", CLI_UNSIGNED, &o->concurrency, 1, LOAD_CLIENTS_MAX, "N", "1, 256 with --rate",
         "clients that each wait for an answer; connections of --rate"},
        {"rate", CLI_NUMBER, &o->rate, LOAD_RATE_MIN, LOAD_RATE_MAX, "X", NULL,
         "open loop: X requests per second at random times, however slow the answers are"},
        {"find-rate", CLI_FLAG, &w->finds_rate, 0, 0, NULL, NULL,
         "find the highest rate whose answers are whole within --p99, by bisection"},
        {"p99", CLI_NUMBER, &w->p99_ms, 1e-3, 1e3 * LOAD_DURATION_MAX_S, "MS", NULL,
         "what 99 of 100 answers of --find-rate may take"},
        {"duration", CLI_NUMBER, &o->duration_s, LOAD_DURATION_MIN_S, LOAD_DURATION_MAX_S, "SECONDS",
         "10, or as long as --requests takes", "how long to send"},
        {"requests", CLI_UNSIGNED, &o->requests, 1, LOAD_REQUESTS_MAX, "N", NULL, "send at most N requests"},
        {"warmup", CLI_NUMBER, &o->warmup_s, 0, LOAD_DURATION_MAX_S, "SECONDS", "0",
         "how long to send before measuring starts"},
        {"timeout", CLI_NUMBER, &o->timeout_s, 1e-3, LOAD_TIMEOUT_MAX_S, "SECONDS", "120",
         "give up a request after that"},
        {"seed", CLI_UNSIGNED, &o->seed, 0, (double)SEED_MAX, "N", "0",
         "seed of the times of --rate and of the generated texts"},
        {"prompt", CLI_TEXT, (void *)&o->prompt, 0, 0, "TEXT", NULL,
         "text to continue; - reads it from standard input"},
        {"prompt-file", CLI_TEXT, (void *)&o->prompt_file, 0, 0, "FILE", NULL, "read the text to continue from a file"},
        {"prompt-bytes", CLI_UNSIGNED, &o->prompt_bytes, 1, GENERATE_PROMPT_MAX, "N", NULL,
         "cut the text into prompts of N bytes, sent in turn; it is repeated as needed"},
        {"max-tokens", CLI_UNSIGNED, &o->max_tokens, 1, GENERATE_TOKENS_MAX, "N", "256", "how many bytes to generate"},
        {"temperature", CLI_NUMBER, &o->temperature, 0, SAMPLER_TEMPERATURE_MAX, "X", "1",
         "randomness; 0 always takes the most likely byte"},
        {"no-stream", CLI_FLAG, &o->whole, 0, 0, NULL, NULL, "ask for the whole text in one answer"},
        {"model", CLI_TEXT, (void *)&o->to.model, 0, 0, "NAME", "the daemon's own", "model to ask for"},
        {"header", CLI_TEXTS, &o->headers, 0, 0, "HEADER", NULL,
         "\"Name: value\" to send with each request; may be repeated"},
        {"json", CLI_FLAG, &w->json, 0, 0, NULL, NULL, "print one JSON object on one line"},
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
    code = remote_check(&o->to);
    if (code == CLI_OK)
        code = load_check(o, w);
    complete(o, w);
    return code;
}

static int report(const struct load_options *o, const struct words *w, const struct load_result *r)
{
    const int code = w->json ? print_json(o, r) : CLI_OK;
    if (!w->json)
        print_report(o, r);
    return code != CLI_OK || r->answered > 0 ? code : cli_fail("no request was answered as it should be");
}

int cli_load(int argc, char **argv)
{
    struct load_options o = {.timeout_s = 120, .temperature = -1};
    struct words w = {.json = false};
    struct load_bodies bodies = {.count = 0};
    int count;
    int code = load_parse(&o, &w, argc, argv, &count);
    if (code != CLI_OK || count < 0)
        return code;
    struct load_result *r = calloc(1, sizeof *r); /* too large for the stack */
    code = r != NULL ? load_bodies_make(&bodies, &o) : cli_fail("out of memory");
    if (code == CLI_OK && w.finds_rate)
        code = find_rate(&o, &bodies, &w, r);
    else if (code == CLI_OK && (code = load_run(&o, &bodies, r)) == CLI_OK)
        code = report(&o, &w, r);
    load_bodies_clear(&bodies);
    free(r);
    return code;
}
