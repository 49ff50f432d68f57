/* bench.c - aft bench MODEL: what the model reaches on this machine. Every figure is the median of several runs, and
 * figures that are compared (step cost at two positions) are measured in turns, so that a machine that changes its
 * speed changes both. Single threaded. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"

#define STREAMS_LARGE 64
#define PREFILL_ROWS 64 /* as the daemon's pass_rows_max is by default */
#define STEPS_AROUND 8  /* steps timed on each side of a position */

struct bench {
    const struct model *model;
    struct engine *engine;
    uint32_t runs;
    uint32_t positions[2];
    json_t *result; /* object of figures, in the order measured */
    bool lost;      /* one could not be kept: no memory, or no number */
    bool json;
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

/* Keep a figure for --json. */
static void keep(struct bench *b, const char *key, double value)
{
    if (json_object_set_new(b->result, key, json_real(value)) != 0)
        b->lost = true;
}

static void say(const struct bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print a line for a person, at once: the next figure takes its time. */
static void say(const struct bench *b, const char *format, ...)
{
    va_list args;
    if (b->json)
        return;
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)fflush(stdout);
}

/* ---- classifiers ------------------------------------------------------------------------------------------------- */

/* Of pictures of the trained size, or texts as long as the context. */
static void bench_batch(struct bench *b, uint32_t batch, const uint8_t *const inputs[])
{
    const struct model_config *c = &b->model->config;
    const bool pictures = c->input == INPUT_IMAGE;
    double whole[BENCH_RUNS_MAX], block[BENCH_RUNS_MAX];
    for (uint32_t i = 0; i < b->runs + 2; i++) { /* two runs to warm up */
        double longest = 0.0;
        const double start = cli_now();
        if (pictures)
            engine_images_begin(b->engine, inputs, batch, c->size[0], c->size[1]);
        else
            engine_texts_begin(b->engine, inputs, batch, c->context);
        double last = cli_now();
        for (bool done = false; !done;) {
            done = engine_batch_step(b->engine);
            const double now = cli_now();
            longest = now - last > longest ? now - last : longest;
            last = now;
        }
        if (i >= 2) {
            whole[i - 2] = last - start;
            block[i - 2] = longest;
        }
    }
    char key[64];
    const double seconds = median(whole, b->runs), step = median(block, b->runs);
    (void)snprintf(key, sizeof key, "%s_per_second_batch_%u", pictures ? "images" : "texts", batch);
    keep(b, key, batch / seconds);
    (void)snprintf(key, sizeof key, "longest_block_ms_batch_%u", batch);
    keep(b, key, 1e3 * step);
    say(b, "batch %-3u            %10.1f %s/s  (%.2f ms; longest block %.2f ms)\n", batch, batch / seconds,
        pictures ? "images" : "texts", 1e3 * seconds, 1e3 * step);
}

static int run_batches(struct bench *b)
{
    const struct model_config *c = &b->model->config;
    const size_t size = c->input == INPUT_IMAGE ? (size_t)3 * c->size[0] * c->size[1] : c->context;
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

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static const uint8_t text[] = "The quick brown fox jumps over the lazy dog. ";

static uint8_t text_at(size_t i)
{
    return text[i % (sizeof text - 1)];
}

/* Reset a stream and feed it up to a position. */
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

static void bench_streams(struct bench *b, uint32_t streams, float *logits)
{
    const uint32_t context = b->model->config.context, steps = context < 16 ? context : 16;
    double seconds[BENCH_RUNS_MAX];
    char key[64];
    for (uint32_t i = 0; i < b->runs + 1; i++) {
        for (uint32_t s = 0; s < streams; s++)
            engine_stream_reset(b->engine, s);
        const double t = time_steps(b->engine, 0, streams, steps, logits);
        if (i >= 1)
            seconds[i - 1] = t / steps;
    }
    const double step = median(seconds, b->runs);
    (void)snprintf(key, sizeof key, "bytes_per_second_%u_streams", streams);
    keep(b, key, streams / step);
    say(b, "%2u stream%s          %10.0f bytes/s   (%.3f ms a step)\n", streams, streams == 1 ? " " : "s",
        streams / step, 1e3 * step);
}

static void bench_prefill(struct bench *b)
{
    const uint32_t context = b->model->config.context;
    double seconds[BENCH_RUNS_MAX];
    for (uint32_t i = 0; i < b->runs; i++) {
        const double start = cli_now();
        advance(b->engine, 0, context);
        seconds[i] = cli_now() - start;
    }
    const double rate = context / median(seconds, b->runs);
    keep(b, "prefill_bytes_per_second", rate);
    say(b, "prefill             %10.0f bytes/s   (one prompt of %u bytes)\n", rate, context);
}

/* The cost of a step around two positions, in turns. */
static void bench_positions(struct bench *b, float *logits)
{
    const uint32_t context = b->model->config.context;
    double seconds[2][BENCH_RUNS_MAX], ratios[BENCH_RUNS_MAX];
    uint32_t from[2], steps = 2 * STEPS_AROUND;
    for (int p = 0; p < 2; p++) {
        const uint32_t at = b->positions[p];
        from[p] = at < STEPS_AROUND ? 0 : at - STEPS_AROUND;
        if (from[p] + steps > context)
            from[p] = context < steps ? 0 : context - steps;
    }
    if (steps > context)
        steps = context;
    for (uint32_t i = 0; i < b->runs + 1; i++) {
        for (uint32_t p = 0; p < 2; p++) {
            /* The last few untimed: prefill leaves other things in the caches than steps do, the more the longer. */
            const uint32_t warm = from[p] < STEPS_AROUND ? from[p] : STEPS_AROUND;
            advance(b->engine, p, from[p] - warm);
            (void)time_steps(b->engine, p, 1, warm, logits);
            const double t = time_steps(b->engine, p, 1, steps, logits) / steps;
            if (i >= 1)
                seconds[p][i - 1] = t;
        }
        if (i >= 1)
            ratios[i - 1] = seconds[1][i - 1] / seconds[0][i - 1];
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

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int run(struct bench *b, uint64_t threads)
{
    const struct model_config *c = &b->model->config;
    struct engine_options o = {
        .threads = (uint32_t)threads, .images_max = 8, .streams_max = STREAMS_LARGE, .rows_max = PREFILL_ROWS};
    int code = CLI_FAILED;
    b->result = json_object();
    if (b->result == NULL)
        return cli_fail("out of memory");
    b->engine = cli_open_engine(b->model, &o);
    if (b->engine == NULL)
        goto done;
    const struct engine_info *info = engine_info(b->engine);
    (void)json_object_set_new(b->result, "model", json_string(b->model->name));
    (void)json_object_set_new(b->result, "isa", json_string(info->isa));
    (void)json_object_set_new(b->result, "threads", json_integer(info->threads));
    say(b, "%s: %s kernels, %u thread%s, medians of %u runs\n", b->model->name, info->isa, info->threads,
        info->threads == 1 ? "" : "s", b->runs);
    code = model_config_causal(c) ? run_streams(b) : run_batches(b);
    if (code == CLI_OK && b->lost)
        code = cli_fail("a figure could not be kept: out of memory, or it is no finite number");
    if (code == CLI_OK && b->json) {
        (void)json_dumpf(b->result, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        (void)printf("\n");
    }
done:
    json_decref(b->result);
    engine_close(b->engine);
    return code;
}

/* "A,B" -> two positions of the context; NULL: the usual ones. */
static int parse_positions(const char *list, uint32_t positions[2], uint32_t context)
{
    uint64_t first = context > 64 ? 64 : context - 1, second = context > 1000 ? 1000 : context - 1;
    const char *at = list;
    if (list != NULL && !(cli_read_digits(&first, &at) && *at++ == ',' && cli_read_digits(&second, &at) &&
                          *at == '\0' && first < context && second < context))
        return cli_fail_usage("--positions is \"%s\", expected two numbers below the context of %u, as in %u,%u", list,
                              context, context / 4, context / 2);
    positions[0] = (uint32_t)first;
    positions[1] = (uint32_t)second;
    return CLI_OK;
}

int cli_bench(int argc, char **argv)
{
    uint64_t runs = 51, threads = 0;
    const char *positions = NULL;
    struct bench b = {0};
    const struct cli_option options[] = {
        {"runs", CLI_UNSIGNED, &runs, 3, BENCH_RUNS_MAX, "runs of which each figure is the median (51)"},
        {"threads", CLI_UNSIGNED, &threads, 0, ENGINE_THREADS_MAX, "0: one for each processor (0)"},
        {"positions", CLI_TEXT, &positions, 0, 0, "A,B: where the cost of a step is compared (64 and min(1000, T-1))"},
        {"json", CLI_FLAG, &b.json, 0, 0, "print one JSON object"},
        {0},
    };
    int count;
    int code = cli_parse(options, argc, argv, 1, 1, &count);
    if (code != CLI_OK || count < 0)
        return code;
    struct model *m = cli_load_model(argv[1], NULL);
    if (m == NULL)
        return CLI_FAILED;
    const bool generates = model_config_causal(&m->config);
    b.model = m;
    b.runs = (uint32_t)runs;
    if (!generates && positions != NULL)
        code = cli_fail_usage("--positions is for models that generate text or pictures, and %s does not", m->name);
    else if (generates)
        code = parse_positions(positions, b.positions, m->config.context);
    if (code == CLI_OK)
        code = run(&b, threads);
    model_free(m);
    return code;
}
