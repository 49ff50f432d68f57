/* bench.h - what the parts of aft bench share: bench.c reads the command line, bench_figures.c measures a model,
 * bench_limits.c says what the machine would allow it, bench_roofline.c measures the machine alone. Single threaded. */
#ifndef SERVER_CLI_BENCH_H
#define SERVER_CLI_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "engine/bench/roofline.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "weights/model.h"

#define BENCH_STREAMS_LARGE 64
#define BENCH_PREFILL_ROWS ENGINE_PROMPT_ROWS /* as the daemon feeds prompts by default */

struct bench {
    const struct model *model;
    struct engine *engine;
    struct roofline *roofline; /* NULL: no limits are wanted */
    uint32_t runs;
    uint32_t positions[2];
    json_t *result; /* object of figures, in the order measured */
    json_t *shares; /* its "limits"."figures"; borrowed */
    bool lost;      /* a figure could not be kept: out of memory, or not a number */
    bool json;
    struct cli_progress progress; /* counts runs of all figures */
    size_t done;
};

/* The median of values [n], which are sorted. */
double bench_median(double *values, uint32_t n);
/* Keep a figure for --json. */
void bench_keep(struct bench *b, json_t *object, const char *key, double value);
/* Print for a person, at once: the next figure takes a while. Nothing with --json. */
void bench_say(struct bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One more run of a figure was made. */
void bench_show_run(struct bench *b);

/* A text that streams are fed, and a stream that was reset and then fed the first `position` bytes of it. */
uint8_t bench_text_at(size_t i);
void bench_advance(struct engine *e, uint32_t stream, uint32_t position);

/* Measure all figures of b->model. Prints why and returns the exit code if it cannot. */
int bench_figures(struct bench *b);

/* ---- limits ------------------------------------------------------------------------------------------------------ */

#define BENCH_PROBES_MAX 9

/* What the machine did between the runs of one figure. */
struct bench_probe {
    uint64_t bytes; /* the working set that is read; 0: arithmetic alone */
    uint32_t count;
    /* Per second: FLOP in the engine's precision, FLOP in fp32, bytes read. */
    double flop[BENCH_PROBES_MAX], fp32[BENCH_PROBES_MAX], read[BENCH_PROBES_MAX];
};

/* Open b->roofline for b->engine's figures, with as many threads. */
int bench_limits_open(struct bench *b);
/* Say which formulas the limits come from, and keep their numbers. */
void bench_limits_explain(struct bench *b);
/* Before run `run` of a figure: measure the machine, if it is time. True: the caches hold other data now, and a run
 * should go untimed. */
bool bench_limits_probe(struct bench *b, struct bench_probe *p, uint32_t run);

/* The working set of a step of so many streams. */
uint64_t bench_limits_bytes(const struct bench *b, uint32_t streams);

/* The limit per second, by the probes: of pictures or texts; of bytes of so many streams; of bytes of a prompt. Keep
 * and print what share of it the figure is, and end the figure's line. */
void bench_limits_batch(struct bench *b, const char *key, double figure, struct bench_probe *p);
void bench_limits_streams(struct bench *b, const char *key, double figure, uint32_t streams, struct bench_probe *p);
void bench_limits_prefill(struct bench *b, const char *key, double figure, struct bench_probe *p);

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* All of aft bench --roofline, in at most so many rounds. */
int bench_roofline(uint32_t rounds, uint32_t threads, bool json);

#endif
