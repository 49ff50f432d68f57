/* complete.c - aft complete MODEL [PICTURE] -o PNG, or [PICTURE] and a daemon: the first rows of a picture are kept,
 * the rest is drawn by a model of sub-pixels, as POST /complete does it. Single threaded. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/cli/sampling.h"
#include "server/media/picture.h"
#include "server/media/picture_grid.h"

enum { PREFILL_ROWS = 64 }; /* sub-pixels of a pass over what is given */
#define ROWS_UNSET UINT64_MAX

/* What the command line says. */
struct wish {
    const char *picture; /* NULL: none was named */
    struct cli_output out;
    uint64_t rows, samples, scale;
    struct cli_sampling sampling;
    struct cli_engine with;
    struct remote remote;
};

/* Samples that are drawn side by side, each in a stream of its own. */
struct drawing {
    const struct model_config *config;
    struct engine *engine;
    uint32_t samples, total, known; /* total, known: sub-pixels of a picture */
    uint8_t *pixels;                /* [samples, total] */
    float *logits;                  /* [samples, BYTE_VALUES] */
    struct sampler samplers[COMPLETE_SAMPLES_MAX];
};

/* ---- by an engine of our own ------------------------------------------------------------------------------------- */

/* The first rows of the model's view of the picture, for each sample. */
static int read_known(struct drawing *d, const char *path)
{
    uint8_t *pixels = NULL;
    const int code = cli_read_pixels(&pixels, path, d->config);
    for (uint32_t i = 0; i < d->samples && code == CLI_OK; i++)
        memcpy(d->pixels + (size_t)i * d->total, pixels, d->known);
    free(pixels);
    return code;
}

/* Feed the first stream what is given, and let the others go on from there. The logits are those of the next
 * sub-pixel. */
static void feed_known(struct drawing *d, bool starts)
{
    static const uint8_t start = 0; /* its place in the stream is the start embedding's */
    const uint32_t first = starts ? 1 : 0, size = d->known + first;
    engine_stream_reset(d->engine, 0);
    for (uint32_t at = 0; at < size;) {
        const uint32_t left = size - at, n = at < first ? 1 : left < PREFILL_ROWS ? left : PREFILL_ROWS;
        const struct engine_part part = {.count = n,
                                         .bytes = at < first ? &start : d->pixels + (at - first),
                                         .logits = n == left ? d->logits : NULL};
        engine_feed(d->engine, &part, 1);
        at += n;
    }
    for (uint32_t i = 1; i < d->samples; i++) {
        engine_stream_copy(d->engine, 0, i);
        memcpy(d->logits + (size_t)i * BYTE_VALUES, d->logits, BYTE_VALUES * sizeof *d->logits);
    }
}

/* One sub-pixel of each sample, drawn from the logits, and fed unless it is the last. */
static bool draw_next(struct drawing *d, uint32_t at)
{
    struct engine_part parts[COMPLETE_SAMPLES_MAX];
    for (uint32_t i = 0; i < d->samples; i++) {
        float *logits = d->logits + (size_t)i * BYTE_VALUES;
        uint8_t *value = d->pixels + (size_t)i * d->total + at;
        if (!cli_check_logits(logits, BYTE_VALUES))
            return false;
        *value = sampler_draw(&d->samplers[i], logits);
        sampler_accept(&d->samplers[i], *value);
        parts[i] = (struct engine_part){.stream = i, .count = 1, .bytes = value, .logits = logits};
    }
    if (at + 1 < d->total)
        engine_feed(d->engine, parts, d->samples);
    return true;
}

/* False, and why is printed, if the model's logits are not finite. */
static bool draw(struct drawing *d, bool starts)
{
    struct cli_progress progress = cli_progress_begin(d->total - d->known);
    bool fine = true;
    feed_known(d, starts);
    for (uint32_t at = d->known; at < d->total && fine; at++) {
        fine = draw_next(d, at);
        cli_progress_show(&progress, at + 1 - d->known, "drawn");
    }
    cli_progress_end(&progress);
    return fine;
}

static int write_grid(const struct drawing *d, const struct picture_grid *g, const struct wish *w)
{
    struct picture picture = {0};
    struct error err;
    if (picture_grid_paint(&picture, g, d->samples, d->pixels, d->config->size, &err) != OK)
        return cli_fail_error(&err);
    const int code = cli_output_png(&w->out, &picture, w->picture);
    picture_clear(&picture);
    return code;
}

/* What the model decides of the wish: *known rows. */
static int check(const struct wish *w, const struct model *m, const struct picture_grid *g, uint32_t *known)
{
    const uint32_t *size = m->config.size;
    const uint64_t rows = w->rows != ROWS_UNSET ? w->rows : w->picture != NULL ? size[0] / 2 : 0;
    if (rows >= size[0])
        return cli_fail_usage("--rows is %" PRIu64 ", expected 0 to %u: the pictures of %s have %u rows of %u pixels",
                              rows, size[0] - 1, m->name, size[0], size[1]);
    if (rows > 0 && w->picture == NULL)
        return cli_fail_usage("--rows is %" PRIu64 ", and no picture is named to take them from", rows);
    if (rows == 0 && m->start_embed == NULL)
        return cli_fail_usage("%s cannot begin a picture by itself, expected a picture and at least 1 row of it",
                              m->name);
    if ((uint64_t)g->width * g->height > COMPLETE_PIXELS_MAX)
        return cli_fail_usage("the picture would have %u x %u pixels, expected at most %u in all: a smaller --scale",
                              g->width, g->height, COMPLETE_PIXELS_MAX);
    *known = (uint32_t)rows;
    return CLI_OK;
}

static int complete(const struct wish *w, const struct model *m)
{
    struct engine_options o = {.streams_max = (uint32_t)w->samples, .rows_max = PREFILL_ROWS};
    const uint32_t *size = m->config.size;
    const struct picture_grid g = picture_grid_lay_out((uint32_t)w->samples, size, (uint32_t)w->scale);
    struct drawing d = {.config = &m->config, .samples = (uint32_t)w->samples, .total = 3 * size[0] * size[1]};
    struct sampler_options sampler;
    uint32_t rows = 0;
    int code = check(w, m, &g, &rows);
    if (code == CLI_OK)
        code = cli_sampling_read(&w->sampling, &sampler);
    if (code != CLI_OK)
        return code;
    for (uint32_t i = 0; i < d.samples; i++) {
        sampler.sample = i;
        sampler_init(&d.samplers[i], &sampler);
    }
    d.known = 3 * size[1] * rows;
    assert(d.samples > 0 && d.total > d.known);
    code = CLI_FAILED;
    uint8_t *pixels = malloc((size_t)d.samples * d.total);
    float *logits = malloc((size_t)d.samples * BYTE_VALUES * sizeof *logits);
    d.pixels = pixels;
    d.logits = logits;
    if (pixels == NULL || logits == NULL)
        (void)cli_fail("out of memory");
    else if ((d.known == 0 || read_known(&d, w->picture) == CLI_OK) &&
             (d.engine = cli_open_engine(m, &w->with, &o)) != NULL && draw(&d, m->start_embed != NULL))
        code = write_grid(&d, &g, w);
    engine_close(d.engine);
    free(logits);
    free(pixels);
    return code;
}

/* ---- by a daemon ------------------------------------------------------------------------------------------------- */

enum { NUMBER_BYTES = 32 };

static const char *number(char out[NUMBER_BYTES], double value)
{
    (void)snprintf(out, NUMBER_BYTES, "%.17g", value);
    return out;
}

static int ask(const struct wish *w)
{
    char text[8][NUMBER_BYTES];
    const struct cli_sampling *s = &w->sampling;
    const struct remote_parameter query[] = {
        {"model", w->remote.model, false},
        {"rows", w->rows != ROWS_UNSET ? number(text[0], (double)w->rows) : NULL, true},
        {"n", number(text[1], (double)w->samples), true},
        {"scale", number(text[2], (double)w->scale), true},
        {"temperature", number(text[3], s->temperature), false},
        {"top_k", number(text[4], (double)s->top_k), false},
        {"top_p", number(text[5], s->top_p), false},
        {"min_p", number(text[6], s->min_p), false},
        {"seed", s->seed != UINT64_MAX ? number(text[7], (double)s->seed) : NULL, false},
    };
    return remote_post_file(&w->remote, "/complete", query, sizeof query / sizeof query[0], w->picture, &w->out);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

int cli_complete(int argc, char **argv)
{
    struct wish w = {.rows = ROWS_UNSET, .samples = 1, .scale = 1, .sampling = CLI_SAMPLING_DEFAULT};
    const struct cli_option options[] = {
        {"output", CLI_TEXT, (void *)&w.out.path, 0, 0, "PNG", NULL, "file to write, required; - is standard output"},
        {"rows", CLI_UNSIGNED, &w.rows, 0, MODEL_PICTURE_SIDE_MAX, "N", "half of them; 0 without PICTURE",
         "how many rows to keep, from the top"},
        {"samples", CLI_UNSIGNED, &w.samples, 1, COMPLETE_SAMPLES_MAX, "N", "1",
         "how many pictures to draw, in a grid"},
        {"scale", CLI_UNSIGNED, &w.scale, 1, COMPLETE_SCALE_MAX, "N", "1", "enlarge each pixel to N x N"},
        CLI_SAMPLING_OPTIONS(&w.sampling, "value") CLI_OUTPUT_JSON_OPTION(&w.out) CLI_ENGINE_OPTIONS(&w.with)
            REMOTE_OPTIONS(&w.remote){0},
    };
    int count;
    int code = remote_parse(&w.remote, &w.with, options, argc, argv, 0, 1, &count);
    if (code != CLI_OK || count < 0)
        return code;
    if (cli_output_check(&w.out) != CLI_OK)
        return CLI_USAGE;
    w.picture = count > 0 ? argv[1] : NULL;
    if (w.remote.asks)
        return ask(&w);
    struct model *m = cli_load_model(w.remote.model, &(enum model_task){TASK_IMAGE_GENERATION});
    code = m != NULL ? complete(&w, m) : CLI_FAILED;
    model_free(m);
    return code;
}
