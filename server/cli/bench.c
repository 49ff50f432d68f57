/* bench.c - aft bench: how fast a model runs here. Every figure is the median of several runs, and figures that are
 * compared (step cost at two positions) are measured alternately, so that a machine that changes its speed changes
 * both. Single threaded. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/digits.h"
#include "config/json_memory.h"
#include "config/limits.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "weights/synthetic.h"

#define STREAMS_LARGE 64
#define PREFILL_ROWS ENGINE_PROMPT_ROWS /* as the daemon feeds prompts by default */
#define STEPS 16                        /* of one run with several streams */
#define STEPS_AROUND 8                  /* steps timed on each side of a position */
#define POSITION_MOST 1048576           /* to compare, of a stream without an end */

struct bench {
    const struct model *model;
    struct engine *engine;
    uint32_t runs;
    uint32_t positions[2], limit; /* those to compare are below it */
    json_t *result;               /* object of figures, in the order measured */
    bool json;
    struct cli_progress progress; /* counts runs of all figures */
    size_t done;
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of values [n], which are sorted. */
static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

/* Keep a figure for --json. */
static void keep(struct bench *b, const char *key, double value)
{
    json_put(b->result, key, json_real(value));
}

static void show_run(struct bench *b)
{
    cli_progress_show(&b->progress, ++b->done, "measured");
}

/* Print for a person, at once: the next figure takes a while. Nothing with --json. */
__attribute__((format(printf, 2, 3))) static void say(struct bench *b, const char *format, ...)
{
    va_list args;
    if (b->json)
        return;
    cli_progress_wipe();
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)fflush(stdout);
}

/* Seconds of one run; the first of them is a warm-up, and made twice. */
typedef double run_figure(struct bench *b, uint32_t run, void *arg);

static double measure(struct bench *b, run_figure *figure, void *arg)
{
    double seconds[BENCH_RUNS_MAX];
    (void)figure(b, 0, arg);
    for (uint32_t i = 0; i < b->runs; i++) {
        seconds[i] = figure(b, i, arg);
        show_run(b);
    }
    return median(seconds, b->runs);
}

/* ---- classifiers ------------------------------------------------------------------------------------------------ */

/* A batch of pictures of the trained size, or of the longest texts. */
struct batch {
    const uint8_t *const *inputs;
    uint32_t count;
    double longest[BENCH_RUNS_MAX]; /* block of each run */
};

static double run_batch(struct bench *b, uint32_t run, void *arg)
{
    struct batch *batch = arg;
    const struct model_config *c = &b->model->config;
    const double start = cli_now();
    if (c->input == INPUT_IMAGE)
        engine_pictures_begin(b->engine, batch->inputs, batch->count, c->size[0], c->size[1]);
    else
        engine_texts_begin(b->engine, batch->inputs, batch->count, engine_info(b->engine)->elements_max);
    double longest = 0.0, last = cli_now();
    for (bool done = false; !done;) {
        done = engine_batch_step(b->engine);
        const double now = cli_now();
        longest = now - last > longest ? now - last : longest;
        last = now;
    }
    batch->longest[run] = longest;
    return last - start;
}

static void bench_batch(struct bench *b, uint32_t count, const uint8_t *const inputs[])
{
    const char *what = b->model->config.input == INPUT_IMAGE ? "images" : "texts";
    struct batch batch = {.inputs = inputs, .count = count};
    char key[64], block[64];
    const double seconds = measure(b, run_batch, &batch), step = median(batch.longest, b->runs);
    (void)snprintf(key, sizeof key, "%s_per_second_batch_%u", what, count);
    keep(b, key, count / seconds);
    (void)snprintf(block, sizeof block, "longest_block_ms_batch_%u", count);
    keep(b, block, 1e3 * step);
    say(b, "batch %-3u            %10.1f %s/s  (%.2f ms; longest block %.2f ms)\n", count, count / seconds, what,
        1e3 * seconds, 1e3 * step);
}

static int run_batches(struct bench *b)
{
    const struct model_config *c = &b->model->config;
    const size_t size =
        c->input == INPUT_IMAGE ? (size_t)3 * c->size[0] * c->size[1] : engine_info(b->engine)->elements_max;
    uint8_t *input = malloc(size);
    if (input == NULL)
        return cli_fail("out of memory");
    for (size_t i = 0; i < size; i++)
        input[i] = (uint8_t)(i * 2654435761u >> 13);
    const uint8_t *const batch[8] = {input, input, input, input, input, input, input, input};
    bench_batch(b, 1, batch);
    bench_batch(b, 8, batch);
    free(input);
    return CLI_OK;
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

static const uint8_t text[] = "The quick brown fox jumps over the lazy dog. ";

static uint8_t text_at(size_t i)
{
    return text[i % (sizeof text - 1)];
}

/* A stream that is reset and then fed the first `position` bytes of the text. */
static void advance(struct engine *e, uint32_t stream, uint32_t position)
{
    uint8_t bytes[PREFILL_ROWS];
    engine_stream_reset(e, stream);
    for (uint32_t at = 0; at < position;) {
        const uint32_t n = position - at < PREFILL_ROWS ? position - at : PREFILL_ROWS;
        for (uint32_t i = 0; i < n; i++)
            bytes[i] = text_at(at + i);
        const struct engine_part part = {.stream = stream, .count = n, .bytes = bytes};
        engine_feed(e, &part, 1);
        at += n;
    }
}

/* Seconds of `steps` passes of one byte for each of `streams` streams, logits included. */
static double time_steps(struct engine *e, uint32_t first, uint32_t streams, uint32_t steps, float *logits)
{
    struct engine_part parts[STREAMS_LARGE];
    const double start = cli_now();
    for (uint32_t s = 0; s < steps; s++) {
        const uint8_t byte = text_at(s);
        for (uint32_t i = 0; i < streams; i++)
            parts[i] = (struct engine_part){
                .stream = first + i, .count = 1, .bytes = &byte, .logits = logits + (size_t)i * BYTE_VALUES};
        engine_feed(e, parts, streams);
    }
    return cli_now() - start;
}

/* Streams that are under way: if the mixer has a window, it is full. */
struct steps {
    uint32_t streams;
    uint32_t from; /* where they begin, after a reset */
    bool again;    /* start over with each run: the cost would change with the position */
    float *logits;
};

static double run_steps(struct bench *b, uint32_t run, void *arg)
{
    const struct steps *s = arg;
    const uint32_t context = b->model->config.context, steps = context < STEPS ? context : STEPS;
    (void)run;
    if (s->again || engine_stream_position(b->engine, 0) + steps > context ||
        engine_stream_position(b->engine, s->streams - 1) != engine_stream_position(b->engine, 0))
        for (uint32_t i = 0; i < s->streams; i++)
            advance(b->engine, i, s->from);
    return time_steps(b->engine, 0, s->streams, steps, s->logits) / steps;
}

static void bench_streams(struct bench *b, uint32_t streams, float *logits)
{
    const struct model_config *c = &b->model->config;
    const bool grows = mixer_facts(c->mixer.type)->streams == STREAMS_GROWING;
    const uint32_t window = mixer_has(c->mixer.type, OPTION_WINDOW)   ? c->mixer.window
                            : mixer_has(c->mixer.type, OPTION_KERNEL) ? c->mixer.kernel[0] * c->mixer.kernel[1]
                                                                      : 0;
    const uint32_t room = c->context > STEPS ? c->context - STEPS : 0;
    struct steps steps = {.streams = streams, .from = window < room ? window : room, .again = grows, .logits = logits};
    char key[64];
    for (uint32_t i = 0; i < streams; i++)
        advance(b->engine, i, steps.from);
    const double step = measure(b, run_steps, &steps);
    (void)snprintf(key, sizeof key, "bytes_per_second_%u_streams", streams);
    keep(b, key, streams / step);
    say(b, "%2u stream%s          %10.0f bytes/s   (%.3f ms a step)\n", streams, streams == 1 ? " " : "s",
        streams / step, 1e3 * step);
}

static double run_prompt(struct bench *b, uint32_t run, void *arg)
{
    const double start = cli_now();
    (void)run;
    (void)arg;
    advance(b->engine, 0, b->model->config.context);
    return cli_now() - start;
}

static void bench_prefill(struct bench *b)
{
    const uint32_t context = b->model->config.context;
    const double rate = context / measure(b, run_prompt, NULL);
    keep(b, "prefill_bytes_per_second", rate);
    say(b, "prefill             %10.0f bytes/s   (one prompt of %u bytes)\n", rate, context);
}

/* The cost of a step around two positions, measured alternately. */
static void bench_positions(struct bench *b, float *logits)
{
    const uint32_t limit = b->limit;
    double seconds[2][BENCH_RUNS_MAX], ratios[BENCH_RUNS_MAX];
    uint32_t from[2], steps = 2 * STEPS_AROUND;
    for (uint32_t p = 0; p < 2; p++) {
        const uint32_t at = b->positions[p];
        from[p] = at < STEPS_AROUND ? 0 : at - STEPS_AROUND;
        if (from[p] + steps > limit)
            from[p] = limit < steps ? 0 : limit - steps;
    }
    if (steps > limit)
        steps = limit;
    uint32_t warm[2];
    for (uint32_t p = 0; p < 2; p++) {
        warm[p] = from[p] < STEPS_AROUND ? from[p] : STEPS_AROUND;
        advance(b->engine, 2 + p, from[p] - warm[p]);
    }
    for (uint32_t i = 0; i < b->runs + 1; i++) {
        for (uint32_t p = 0; p < 2; p++) {
            /* The last few steps untimed: a copy leaves other data in the caches than steps do. */
            engine_stream_copy(b->engine, 2 + p, p);
            (void)time_steps(b->engine, p, 1, warm[p], logits);
            const double t = time_steps(b->engine, p, 1, steps, logits) / steps;
            if (i >= 1)
                seconds[p][i - 1] = t;
        }
        if (i >= 1)
            ratios[i - 1] = seconds[1][i - 1] / seconds[0][i - 1];
        show_run(b);
    }
    const double cost[2] = {median(seconds[0], b->runs), median(seconds[1], b->runs)};
    for (int p = 0; p < 2; p++) {
        char key[64];
        (void)snprintf(key, sizeof key, "step_ms_at_%u", b->positions[p]);
        keep(b, key, 1e3 * cost[p]);
        say(b, "step at byte %-6u %10.4f ms\n", b->positions[p], 1e3 * cost[p]);
    }
    const double ratio = median(ratios, b->runs);
    keep(b, "step_ratio", ratio);
    say(b, "byte %u over byte %u: %.3f\n", b->positions[1], b->positions[0], ratio);
}

static int run_streams(struct bench *b)
{
    float *logits = malloc(sizeof *logits * STREAMS_LARGE * BYTE_VALUES);
    if (logits == NULL)
        return cli_fail("out of memory");
    bench_streams(b, 1, logits);
    bench_streams(b, 8, logits);
    bench_streams(b, STREAMS_LARGE, logits);
    bench_prefill(b);
    bench_positions(b, logits);
    free(logits);
    return CLI_OK;
}

static int run_figures(struct bench *b)
{
    enum { STREAM_FIGURES = 5, BATCH_FIGURES = 2 };
    const bool generates = model_config_causal(&b->model->config);
    b->progress = cli_progress_begin(generates ? STREAM_FIGURES * b->runs + 1 : BATCH_FIGURES * b->runs);
    return generates ? run_streams(b) : run_batches(b);
}

/* ---- the command line ------------------------------------------------------------------------------------------- */

static int bench_run(struct bench *b, const struct cli_engine *with)
{
    struct engine_options o = {.pictures_max = 8, .streams_max = STREAMS_LARGE, .rows_max = PREFILL_ROWS};
    b->engine = cli_open_engine(b->model, with, &o);
    if (b->engine == NULL)
        return CLI_FAILED;
    b->result = json_object();
    const struct engine_info *info = engine_info(b->engine);
    json_put(b->result, "model", json_string(b->model->name));
    json_put(b->result, "isa", json_string(info->isa));
    json_put(b->result, "threads", json_integer(info->threads));
    say(b, "%s: %s kernels, %s, %u thread%s, medians of %u runs\n", b->model->name, info->isa, info->precision,
        info->threads, info->threads == 1 ? "" : "s", b->runs);
    int code = run_figures(b);
    cli_progress_end(&b->progress);
    if (code == CLI_OK && b->json)
        code = cli_print_json(json_incref(b->result));
    json_decref(b->result);
    engine_close(b->engine);
    return code;
}

/* "A,B" -> two positions of a stream; NULL: the usual ones. */
static int parse_positions(const char *list, struct bench *b)
{
    const bool ends = model_config_limited(&b->model->config, b->model->pos_embed != NULL);
    const uint32_t limit = b->limit = ends ? b->model->config.context : POSITION_MOST;
    uint64_t first = limit > 64 ? 64 : limit - 1, second = limit > 1000 ? 1000 : limit - 1;
    const char *at = list;
    if (list != NULL && !(digits_read(&first, &at) && *at++ == ',' && digits_read(&second, &at) && *at == '\0' &&
                          first < limit && second < limit))
        return cli_fail_usage("--positions is \"%s\", expected two numbers below %s%u, as in %u,%u", list,
                              ends ? "the context of " : "", limit, limit / 4, limit / 2);
    b->positions[0] = (uint32_t)first;
    b->positions[1] = (uint32_t)second;
    return CLI_OK;
}

static struct model *make_model(const char *name)
{
    struct model *m = NULL;
    struct error err;
    if (synthetic_model(&m, name, &err) != OK)
        (void)cli_fail_error(&err);
    return m;
}

int cli_bench(int argc, char **argv)
{
    struct cli_engine with = {0};
    const char *positions = NULL, *synthetic = NULL;
    uint64_t runs = 51;
    struct bench b = {0};
    char names[256];
    (void)snprintf(names, sizeof names, "random weights, no MODEL: %s", synthetic_names());
    const struct cli_option options[] = {
        {"synthetic", CLI_TEXT, &synthetic, 0, 0, "NAME", NULL, names},
        CLI_ENGINE_OPTIONS(&with){"runs", CLI_UNSIGNED, &runs, 3, BENCH_RUNS_MAX, "N", "51",
                                  "number of runs; each figure is their median"},
        {"positions", CLI_TEXT, &positions, 0, 0, "A,B", "64,1000 or the last",
         "compare the cost of a step at these two positions"},
        {"json", CLI_FLAG, &b.json, 0, 0, NULL, NULL, "print one JSON object on one line"},
        {0},
    };
    int count;
    int code = cli_parse(options, argc, argv, 0, 1, &count);
    if (code != CLI_OK || count < 0)
        return code;
    if ((count > 0) == (synthetic != NULL))
        return cli_fail_usage("expected either MODEL or --synthetic NAME");
    if (synthetic != NULL && !synthetic_has(synthetic))
        return cli_fail_usage("unknown synthetic model \"%.100s\", expected one of %s", synthetic, synthetic_names());
    struct model *m = synthetic != NULL ? make_model(synthetic) : cli_load_model(argv[1], NULL);
    if (m == NULL)
        return CLI_FAILED;
    b.model = m;
    b.runs = (uint32_t)runs;
    if (model_config_causal(&m->config))
        code = parse_positions(positions, &b);
    else if (positions != NULL)
        code = cli_fail_usage("--positions is for models that generate text or pictures, and %s does not", m->name);
    if (code == CLI_OK)
        code = bench_run(&b, &with);
    model_free(m);
    return code;
}
