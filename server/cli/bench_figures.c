/* bench_figures.c - what a model reaches on this machine. Every figure is the median of several runs, with what the
 * machine allows measured in between (bench_limits.c), and figures that are compared (step cost at two positions) are
 * measured alternately, so that a machine that changes its speed changes both. Single threaded. */
#include <stdio.h>
#include <stdlib.h>

#include "server/cli/bench.h"
#include "server/cli/cli.h"

#define STEPS 16       /* of one run with several streams */
#define STEPS_AROUND 8 /* steps timed on each side of a position */

/* Seconds of one run; `run` stays the same if the run before it was a warm-up. */
typedef double run_figure(struct bench *b, uint32_t run, void *arg);

static double measure(struct bench *b, struct bench_probe *p, run_figure *figure, void *arg)
{
    double seconds[BENCH_RUNS_MAX];
    for (uint32_t i = 0; i < b->runs; i++) {
        if (bench_limits_probe(b, p, i))
            (void)figure(b, i, arg);
        seconds[i] = figure(b, i, arg);
        bench_show_run(b);
    }
    return bench_median(seconds, b->runs);
}

/* ---- classifiers ------------------------------------------------------------------------------------------------- */

/* A batch of pictures of the trained size, or of texts as long as the context. */
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
        engine_images_begin(b->engine, batch->inputs, batch->count, c->size[0], c->size[1]);
    else
        engine_texts_begin(b->engine, batch->inputs, batch->count, c->context);
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
    struct bench_probe probe = {.bytes = 0};
    char key[64], block[64];
    const double seconds = measure(b, &probe, run_batch, &batch), step = bench_median(batch.longest, b->runs);
    (void)snprintf(key, sizeof key, "%s_per_second_batch_%u", what, count);
    bench_keep(b, b->result, key, count / seconds);
    (void)snprintf(block, sizeof block, "longest_block_ms_batch_%u", count);
    bench_keep(b, b->result, block, 1e3 * step);
    bench_say(b, "batch %-3u            %10.1f %s/s  (%.2f ms; longest block %.2f ms)", count, count / seconds, what,
              1e3 * seconds, 1e3 * step);
    bench_limits_batch(b, key, count / seconds, &probe);
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

uint8_t bench_text_at(size_t i)
{
    return text[i % (sizeof text - 1)];
}

void bench_advance(struct engine *e, uint32_t stream, uint32_t position)
{
    uint8_t bytes[BENCH_PREFILL_ROWS];
    engine_stream_reset(e, stream);
    for (uint32_t at = 0; at < position;) {
        const uint32_t n = position - at < BENCH_PREFILL_ROWS ? position - at : BENCH_PREFILL_ROWS;
        for (uint32_t i = 0; i < n; i++)
            bytes[i] = bench_text_at(at + i);
        const struct engine_part part = {.stream = stream, .count = n, .bytes = bytes};
        engine_feed(e, &part, 1);
        at += n;
    }
}

/* Seconds of `steps` passes of one byte for each of `streams` streams, logits included. */
static double time_steps(struct engine *e, uint32_t first, uint32_t streams, uint32_t steps, float *logits)
{
    struct engine_part parts[BENCH_STREAMS_LARGE];
    const double start = cli_now();
    for (uint32_t s = 0; s < steps; s++) {
        const uint8_t byte = bench_text_at(s);
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
            bench_advance(b->engine, i, s->from);
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
    struct bench_probe probe = {.bytes = bench_limits_bytes(b, streams == 1 ? 0 : streams)};
    char key[64];
    for (uint32_t i = 0; i < streams; i++)
        bench_advance(b->engine, i, steps.from);
    const double step = measure(b, &probe, run_steps, &steps);
    (void)snprintf(key, sizeof key, "bytes_per_second_%u_streams", streams);
    bench_keep(b, b->result, key, streams / step);
    bench_say(b, "%2u stream%s          %10.0f bytes/s   (%.3f ms a step)", streams, streams == 1 ? " " : "s",
              streams / step, 1e3 * step);
    bench_limits_streams(b, key, streams / step, streams, &probe);
}

static double run_prompt(struct bench *b, uint32_t run, void *arg)
{
    const double start = cli_now();
    (void)run;
    (void)arg;
    bench_advance(b->engine, 0, b->model->config.context);
    return cli_now() - start;
}

static void bench_prefill(struct bench *b)
{
    const uint32_t context = b->model->config.context;
    struct bench_probe probe = {.bytes = 0};
    const double rate = context / measure(b, &probe, run_prompt, NULL);
    bench_keep(b, b->result, "prefill_bytes_per_second", rate);
    bench_say(b, "prefill             %10.0f bytes/s   (one prompt of %u bytes)", rate, context);
    bench_limits_prefill(b, "prefill_bytes_per_second", rate, &probe);
}

/* The cost of a step around two positions, measured alternately. */
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
            /* The last few steps untimed: prefill leaves other data in the caches than steps do, all the more if it is
             * long. */
            const uint32_t warm = from[p] < STEPS_AROUND ? from[p] : STEPS_AROUND;
            bench_advance(b->engine, p, from[p] - warm);
            (void)time_steps(b->engine, p, 1, warm, logits);
            const double t = time_steps(b->engine, p, 1, steps, logits) / steps;
            if (i >= 1)
                seconds[p][i - 1] = t;
        }
        if (i >= 1)
            ratios[i - 1] = seconds[1][i - 1] / seconds[0][i - 1];
        bench_show_run(b);
    }
    const double cost[2] = {bench_median(seconds[0], b->runs), bench_median(seconds[1], b->runs)};
    for (int p = 0; p < 2; p++) {
        char key[64];
        (void)snprintf(key, sizeof key, "step_ms_at_%u", b->positions[p]);
        bench_keep(b, b->result, key, 1e3 * cost[p]);
        bench_say(b, "step at byte %-6u %10.4f ms\n", b->positions[p], 1e3 * cost[p]);
    }
    const double ratio = bench_median(ratios, b->runs);
    bench_keep(b, b->result, "step_ratio", ratio);
    bench_say(b, "byte %u over byte %u: %.3f\n", b->positions[1], b->positions[0], ratio);
}

static int run_streams(struct bench *b)
{
    float *logits = malloc(sizeof *logits * BENCH_STREAMS_LARGE * BYTE_VALUES);
    if (logits == NULL)
        return cli_fail("out of memory");
    bench_streams(b, 1, logits);
    bench_streams(b, 8, logits);
    bench_streams(b, BENCH_STREAMS_LARGE, logits);
    bench_prefill(b);
    bench_positions(b, logits);
    free(logits);
    return CLI_OK;
}

int bench_figures(struct bench *b)
{
    enum { STREAM_FIGURES = 5, BATCH_FIGURES = 2 };
    const bool generates = model_config_causal(&b->model->config);
    b->progress = cli_progress_begin(generates ? STREAM_FIGURES * b->runs + 1 : BATCH_FIGURES * b->runs);
    return generates ? run_streams(b) : run_batches(b);
}
