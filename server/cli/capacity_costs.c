/* capacity_costs.c - what a model's passes or batches take here. Each figure is the mean of runs of some tenths of a
 * second together: not their median, as those that others on the machine make longer come in service, too. Where
 * engines are to share a machine, as many of them compute beside the one that is measured, to see how far they get in
 * each other's way. Single threaded but for these. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/logits.h"
#include "engine/sampler.h"
#include "server/cli/bench.h"
#include "server/cli/capacity.h"

#define SECONDS 0.1 /* of a figure in one of ... */
#define SWEEPS 3    /* ... so many, as a machine is slower for a while and then faster */
#define RUNS_MIN 3
#define STEPS 16         /* of a run */
#define PROMPT_ROWS 4    /* passes' worth of a prompt at most that a run feeds */
#define DRAWS_TO_SHARE 8 /* as stream_lane.c has it */
#define IDLE_ROUNDS 5
#define IDLE_TIMES 10
#define IDLE_NS 20000000
#define IDLE_BUSY_S 0.2
#define WATCHED 16 /* rows of the passes that are watched */
#define WINDOW_S 0.01
#define NEIGHBOURS_MAX 16 /* of one thread: more would need more memory than tell anything */

/* Few streams wait for weights, which others push out of a cache; many compute. */
enum { CROWD_POINTS = 6, CROWD_ROUNDS = 6 };
static const uint32_t crowd_counts[CROWD_POINTS] = {1, 2, 4, 8, 16, ENGINE_STREAMS_MAX};

struct probe {
    const struct capacity_plan *plan;
    const struct model *model;
    struct engine *engine;
    uint32_t threads, start; /* where a stream is when it is measured: half of its text is drawn */
    float *logits;           /* [streams_max, BYTE_VALUES] */
    struct sampler *samplers;
    uint8_t *input; /* of a picture or text that is classified */
};

typedef double run_figure(struct probe *p, uint32_t count);

/* Of one thread its processor time, which has nothing of what others on the machine take meanwhile. */
static double clock_of(const struct probe *p)
{
    struct timespec now;
    if (p->threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
        return cli_now();
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- runs: seconds of one pass or batch of `count` --------------------------------------------------------------- */

/* What the lane does with a pass's logits. */
static void draw(struct probe *p, uint32_t count)
{
#pragma omp parallel for schedule(static) num_threads(p->threads) if (count >= DRAWS_TO_SHARE)
    for (uint32_t i = 0; i < count; i++) {
        const float *logits = p->logits + (size_t)i * BYTE_VALUES;
        if (logits_are_finite(logits, BYTE_VALUES))
            sampler_accept(&p->samplers[i], sampler_draw(&p->samplers[i], logits));
    }
}

static uint32_t run_steps(const struct probe *p)
{
    const uint32_t context = engine_info(p->engine)->context;
    return context < STEPS ? context : STEPS;
}

static double run_step(struct probe *p, uint32_t count)
{
    struct engine_part parts[ENGINE_STREAMS_MAX];
    const uint32_t context = engine_info(p->engine)->context, steps = run_steps(p);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = engine_stream_position(p->engine, i);
        if (at < p->start || at + steps > context)
            bench_advance(p->engine, i, p->start + steps <= context ? p->start : context - steps);
    }
    const double begun = clock_of(p);
    for (uint32_t s = 0; s < steps; s++) {
        const uint8_t byte = bench_text_at(s);
        for (uint32_t i = 0; i < count; i++)
            parts[i] = (struct engine_part){
                .stream = i, .count = 1, .bytes = &byte, .logits = p->logits + (size_t)i * BYTE_VALUES};
        engine_feed(p->engine, parts, count);
        draw(p, count);
    }
    return (clock_of(p) - begun) / steps;
}

/* Of one prompt, from its beginning, in pieces of that size. */
static double run_prompt(struct probe *p, uint32_t count)
{
    uint8_t bytes[ENGINE_ROWS_MAX];
    const uint32_t context = engine_info(p->engine)->context, most = PROMPT_ROWS * p->plan->rows_max;
    const uint32_t mean = capacity_mean_kind(p->plan).prompt_bytes, length = mean < most ? mean : most;
    uint32_t pieces = length > count ? length / count : 1;
    if (pieces > context / count)
        pieces = context / count;
    for (uint32_t i = 0; i < count; i++)
        bytes[i] = bench_text_at(i);
    const struct engine_part part = {.stream = 0, .count = count, .bytes = bytes};
    engine_stream_reset(p->engine, 0);
    const double begun = clock_of(p);
    for (uint32_t i = 0; i < pieces; i++)
        engine_feed(p->engine, &part, 1);
    return (clock_of(p) - begun) / pieces;
}

static double run_batch(struct probe *p, uint32_t count)
{
    const struct model_config *c = &p->model->config;
    const uint8_t *inputs[ENGINE_IMAGES_MAX];
    for (uint32_t i = 0; i < count; i++)
        inputs[i] = p->input;
    const double begun = clock_of(p);
    if (c->input == INPUT_IMAGE)
        engine_images_begin(p->engine, inputs, count, c->size[0], c->size[1]);
    else
        engine_texts_begin(p->engine, inputs, count, c->context);
    while (!engine_batch_step(p->engine))
        ;
    return clock_of(p) - begun;
}

static double measure(struct probe *p, run_figure *run, uint32_t count)
{
    double seconds = 0.0;
    uint32_t runs = 0;
    (void)run(p, count); /* into the caches */
    const double begun = cli_now();
    for (; runs < RUNS_MIN || cli_now() - begun < SECONDS; runs++)
        seconds += run(p, count);
    return seconds / runs;
}

static run_figure *usual_figure(const struct capacity_plan *p)
{
    return p->costs.generates ? run_step : run_batch;
}

/* One request alone: a pass of its prompt and some steps of its text, or one picture or text that is classified. */
static double run_request(struct probe *p)
{
    if (!p->plan->costs.generates)
        return run_batch(p, 1);
    const uint32_t rows = capacity_mean_kind(p->plan).prompt_bytes, most = p->plan->rows_max;
    const uint32_t context = engine_info(p->engine)->context, first = rows < most ? rows : most;
    const double prompt = run_prompt(p, first < context ? first : context);
    const uint32_t fed = engine_stream_position(p->engine, 0), left = context - fed;
    const double begun = clock_of(p);
    for (uint32_t i = 0; i < left && i < STEPS; i++) {
        const uint8_t byte = bench_text_at(fed + i);
        const struct engine_part part = {.stream = 0, .count = 1, .bytes = &byte, .logits = p->logits};
        engine_feed(p->engine, &part, 1);
        draw(p, 1);
    }
    return prompt + clock_of(p) - begun;
}

static double run_requests(struct probe *p, double seconds)
{
    double sum = 0.0;
    uint32_t runs = 0;
    for (const double until = cli_now() + seconds; cli_now() < until; runs++)
        sum += run_request(p);
    return sum / (runs > 0 ? runs : 1);
}

/* How much longer a request takes that comes after a long idle time than one of many behind each other. */
static double measure_idle(struct probe *p)
{
    double more = 0.0;
    for (uint32_t round = 0; round < IDLE_ROUNDS; round++) {
        (void)run_requests(p, 0.5 * IDLE_BUSY_S); /* a processor's clock rises for tens of milliseconds */
        more -= run_requests(p, 0.5 * IDLE_BUSY_S);
        for (uint32_t i = 0; i < IDLE_TIMES; i++) {
            (void)nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL);
            more += run_request(p) / IDLE_TIMES;
        }
    }
    const double lost = capacity_lost_share(1e-9 * IDLE_NS);
    return more > 0.0 ? more / IDLE_ROUNDS / lost : 0.0;
}

/* ---- how steady the machine is ----------------------------------------------------------------------------------- */

struct window {
    double seconds; /* of the runs in it so far */
    uint32_t runs;
};

/* A run that takes several windows is in all of these. */
static void note_run(struct capacity_slowness *s, struct window *w, double seconds)
{
    w->seconds += seconds;
    w->runs++;
    const float each = (float)(w->seconds / w->runs);
    if (w->seconds < WINDOW_S)
        return;
    const uint32_t room = CAPACITY_WINDOWS_MAX - s->windows;
    const double taken = round(w->seconds / WINDOW_S);
    for (uint32_t i = taken < room ? (uint32_t)taken : room; i > 0; i--)
        s->times[s->windows++] = each;
    *w = (struct window){.runs = 0};
}

/* By the time on the wall: what others on the machine take, a hypervisor above all, counts. Each run does the same, as
 * run_step does not, which moves on in its streams. */
static void measure_slowness(struct capacity_slowness *s, struct probe *p, double seconds,
                             struct cli_progress *progress)
{
    const uint32_t context = engine_info(p->engine)->context, rows = context < WATCHED ? context : WATCHED;
    struct window w = {.runs = 0};
    uint64_t runs = 0;
    *s = (struct capacity_slowness){.window_s = WINDOW_S};
    const double begun = cli_now();
    double now = begun;
    while (now - begun < seconds && s->windows < CAPACITY_WINDOWS_MAX) {
        if (p->plan->costs.generates)
            (void)run_prompt(p, rows);
        else
            (void)run_batch(p, 1);
        const double before = now;
        now = cli_now();
        note_run(s, &w, now - before);
        runs++;
        cli_progress_show(progress, 0, "measuring");
    }
    const double mean = (now - begun) / (double)(runs > 0 ? runs : 1);
    for (uint32_t i = 0; i < s->windows; i++)
        s->times[i] = (float)(fmax(1.0, round(100.0 * (double)s->times[i] / mean)) / 100.0); /* as it is recorded */
}

/* ---- engines beside each other ----------------------------------------------------------------------------------- */

struct neighbour {
    pthread_t thread;
    bool runs;
    uint32_t count; /* of the passes that it computes */
    struct probe probe;
    atomic_bool *stop;
};

static void *compute(void *arg)
{
    struct neighbour *n = arg;
    while (!atomic_load(n->stop))
        (void)usual_figure(n->probe.plan)(&n->probe, n->count);
    return NULL;
}

static void probe_clear(struct probe *p)
{
    free(p->input);
    free(p->samplers);
    free(p->logits);
    engine_close(p->engine);
}

static int probe_init(struct probe *p, const struct capacity_plan *plan, const struct model *m,
                      const struct cli_engine *with)
{
    struct engine_options o = {
        .images_max = plan->batch_max, .streams_max = plan->streams_max, .rows_max = plan->rows_max};
    const struct model_config *c = &m->config;
    const size_t size = c->input == INPUT_IMAGE ? (size_t)3 * c->size[0] * c->size[1] : c->context;
    struct sampler_options sampling;
    *p = (struct probe){.plan = plan, .model = m};
    p->logits = malloc(sizeof *p->logits * BYTE_VALUES * plan->streams_max);
    p->samplers = malloc(sizeof *p->samplers * plan->streams_max);
    p->input = malloc(size);
    if (p->logits == NULL || p->samplers == NULL || p->input == NULL)
        return cli_fail("out of memory");
    sampler_options_default(&sampling);
    for (uint32_t i = 0; i < plan->streams_max; i++)
        sampler_init(&p->samplers[i], &sampling);
    for (size_t i = 0; i < size; i++)
        p->input[i] = (uint8_t)(i * 2654435761u >> 13);
    p->engine = cli_open_engine(m, with, &o);
    if (p->engine == NULL)
        return CLI_FAILED;
    p->threads = engine_info(p->engine)->threads;
    const struct capacity_kind mean = capacity_mean_kind(plan);
    p->start = mean.prompt_bytes + mean.max_tokens / 2;
    if (p->start > c->context / 2)
        p->start = c->context / 2;
    return CLI_OK;
}

/* Means of a round, alone and while the neighbours compute, are added to the two. */
static int crowd(double *alone, double *beside, struct probe *p, struct neighbour *n, uint32_t neighbours,
                 uint32_t count)
{
    atomic_bool stop = false;
    int code = CLI_OK;
    *alone += measure(p, usual_figure(p->plan), count);
    for (uint32_t i = 0; i < neighbours && code == CLI_OK; i++) {
        n[i].stop = &stop;
        n[i].count = count;
        const int error = pthread_create(&n[i].thread, NULL, compute, &n[i]);
        n[i].runs = error == 0;
        code = error == 0 ? CLI_OK : cli_fail("cannot start a thread: %s", strerror(error));
    }
    if (code == CLI_OK)
        *beside += measure(p, usual_figure(p->plan), count);
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < neighbours; i++)
        if (n[i].runs) {
            (void)pthread_join(n[i].thread, NULL);
            n[i].runs = false;
        }
    return code;
}

/* The other engines of a machine. Where each is one thread, whose processor time is measured, there may be more of them
 * than cores: their weights are in the same caches. */
static uint32_t neighbour_count(const struct capacity_plan *p, uint32_t cores)
{
    const uint32_t others = p->per_machine - 1, room = cores > p->threads ? (cores - p->threads) / p->threads : 0;
    const uint32_t most = p->threads > 1 || room == 0 ? room : NEIGHBOURS_MAX;
    return others < most ? others : most;
}

static int measure_crowding(struct capacity_plan *p, struct probe *probe, const struct model *m,
                            const struct cli_engine *with, uint32_t cores, struct cli_progress *progress)
{
    struct capacity_curve *c = &p->costs.crowding;
    const uint32_t neighbours = neighbour_count(p, cores);
    struct neighbour *n = calloc(neighbours > 0 ? neighbours : 1, sizeof *n);
    int code = CLI_OK;
    if (n == NULL)
        return cli_fail("out of memory");
    *c = (struct capacity_curve){.points = 1, .count = {1}, .value = {1.0}};
    for (uint32_t i = 0; i < neighbours && code == CLI_OK; i++)
        code = probe_init(&n[i].probe, p, m, with);
    for (uint32_t i = 0; neighbours > 0 && i < CROWD_POINTS && code == CLI_OK; i++) {
        const uint32_t most = capacity_slots(p), count = crowd_counts[i] < most ? crowd_counts[i] : most;
        const double busy = (double)neighbours * p->threads / (double)(cores - p->threads); /* of all other cores */
        double alone = 0.0, beside = 0.0;
        for (uint32_t round = 0; round < CROWD_ROUNDS && code == CLI_OK; round++) {
            code = crowd(&alone, &beside, probe, n, neighbours, count);
            cli_progress_show(progress, 0, "measuring");
        }
        c->count[i] = count;
        c->value[i] = beside > alone ? 1.0 + (beside / alone - 1.0) / (busy < 1.0 ? busy : 1.0) : 1.0;
        c->points = i + 1;
        if (count == most)
            break;
    }
    for (uint32_t i = c->points - 1; i-- > 0;) /* fewer wait more for weights, for each that they compute with */
        c->value[i] = c->value[i] > c->value[i + 1] ? c->value[i] : c->value[i + 1];
    p->costs.per_machine = p->per_machine;
    for (uint32_t i = 0; i < neighbours; i++)
        probe_clear(&n[i].probe);
    free(n);
    return code;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* At powers of two up to `most` and half way between them, since products come in tiles, and at `most`. */
static void measure_curve(struct capacity_curve *c, struct probe *p, run_figure *run, uint32_t most,
                          struct cli_progress *progress)
{
    uint32_t count = 1, power = 1;
    *c = (struct capacity_curve){.points = 0};
    while (c->points < CAPACITY_POINTS_MAX) {
        c->count[c->points++] = count;
        if (count == most)
            break;
        if (count > power || power == 1)
            count = power *= 2;
        else
            count += power / 2;
        count = count < most ? count : most;
    }
    for (uint32_t sweep = 0; sweep < SWEEPS; sweep++)
        for (uint32_t i = 0; i < c->points; i++) {
            c->value[i] += measure(p, run, c->count[i]) / SWEEPS;
            cli_progress_show(progress, 0, "measuring");
        }
    for (uint32_t i = c->points - 1; i-- > 0;) /* a larger one contains it */
        c->value[i] = c->value[i] < c->value[i + 1] ? c->value[i] : c->value[i + 1];
}

int capacity_measure(struct capacity_plan *p, struct capacity_whose *w, const struct model *m,
                     const struct cli_engine *with, double watch_s)
{
    struct capacity_costs *c = &p->costs;
    struct probe probe = {.engine = NULL};
    struct engine_info here = {.threads = 0};
    struct error err;
    struct cli_progress progress = {.on = false};
    int code = CLI_OK;
    c->generates = model_config_causal(&m->config);
    if (engine_describe(&here, &(struct engine_options){.threads = 0}, &err) != OK)
        return cli_fail_error(&err);
    code = probe_init(&probe, p, m, with);
    if (code != CLI_OK)
        goto done;
    const struct engine_info *info = engine_info(probe.engine);
    w->threads = info->threads;
    (void)snprintf(w->model, sizeof w->model, "%s", m->name);
    (void)snprintf(w->isa, sizeof w->isa, "%s", info->isa);
    (void)snprintf(w->precision, sizeof w->precision, "%s", info->precision);
    c->context = info->context != ENGINE_CONTEXT_UNLIMITED ? info->context : 0;
    c->starts = info->starts;
    c->ahead = model_config_feeds_ahead(&m->config, m->pos_embed != NULL);
    progress = cli_progress_begin(0);
    if (c->generates) {
        measure_curve(&c->step, &probe, run_step, p->streams_max, &progress);
        measure_curve(&c->prompt, &probe, run_prompt, p->rows_max < info->context ? p->rows_max : info->context,
                      &progress);
    } else {
        measure_curve(&c->batch, &probe, run_batch, p->batch_max, &progress);
    }
    c->idle_s = measure_idle(&probe);
    measure_slowness(&c->slowness, &probe, watch_s, &progress);
    code = capacity_measure_wakes(c);
    if (code == CLI_OK)
        code = measure_crowding(p, &probe, m, with, here.threads, &progress);
    cli_progress_end(&progress);
done:
    probe_clear(&probe);
    return code;
}
