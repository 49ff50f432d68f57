/* complete.c - aft complete MODEL [PICTURE] -o PNG, or [PICTURE] and a daemon: the first rows of a picture are kept,
 * the rest is drawn by a model of sub-pixels, as POST /complete does it. Single threaded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/cli/cli.h"
#include "server/cli/local_lane.h"
#include "server/cli/remote.h"
#include "server/cli/sampling.h"
#include "server/media/picture.h"
#include "server/media/picture_grid.h"
#include "server/operation/complete.h"

#define ROWS_UNSET UINT64_MAX

/* What the command line says. */
struct options {
    const char *picture; /* NULL: none was named */
    struct cli_output out;
    uint64_t rows, samples, scale;
    struct cli_sampling sampling;
    struct cli_engine with;
    struct remote remote;
};

/* ---- by an engine of our own ------------------------------------------------------------------------------------ */

/* What the model decides of the wish: *known rows. */
static int check(const struct options *w, const struct model *m, const struct picture_grid *g, uint32_t *known)
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

/* Draw all samples, in a grid. */
static int draw(const struct options *w, struct local_lane *l, const struct picture_grid *g)
{
    const struct complete_job *c = complete_job_of(l->job);
    struct picture picture = {0};
    struct error err;
    struct cli_progress progress = cli_progress_begin((size_t)l->job->max_output);
    for (bool goes_on = true; goes_on;) {
        goes_on = local_lane_step(l);
        cli_progress_show(&progress, job_look(l->job).generated, "drawn");
    }
    cli_progress_end(&progress);
    int code = local_lane_end(l);
    if (code != CLI_OK)
        return code;
    if (picture_grid_paint(&picture, g, c->in.samples, c->pixels, l->model->model->config.size, &err) != OK)
        return cli_fail_error(&err);
    code = cli_output_png(&w->out, &picture, w->picture);
    picture_clear(&picture);
    return code;
}

static int complete(const struct options *w, struct local_lane *l)
{
    const struct model *m = l->model->model;
    const uint32_t samples = (uint32_t)w->samples, *size = m->config.size, row = 3 * size[1];
    const struct picture_grid g = picture_grid_lay_out(samples, size, (uint32_t)w->scale);
    struct complete_input in = {.total = row * size[0], .row_count = row, .samples = samples};
    struct error err;
    uint8_t *known = NULL;
    uint32_t rows = 0;
    int code = check(w, m, &g, &rows);
    in.known_count = row * rows;
    if (code == CLI_OK)
        code = cli_sampling_read(&w->sampling, &in.sampler);
    if (code == CLI_OK && rows > 0)
        code = cli_read_pixels(&known, w->picture, &m->config, NULL);
    in.known = known;
    if (code == CLI_OK)
        code = local_lane_submit(l, complete_begin(l->job, &in, &err));
    if (code == CLI_OK)
        code = draw(w, l, &g);
    free(known);
    return code;
}

/* ---- by a daemon ------------------------------------------------------------------------------------------------ */

enum { NUMBER_BYTES = 32 };

static const char *number(char out[NUMBER_BYTES], double value)
{
    (void)snprintf(out, NUMBER_BYTES, "%.17g", value);
    return out;
}

static int complete_ask(const struct options *w)
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

/* ---- the verb --------------------------------------------------------------------------------------------------- */

int cli_complete(int argc, char **argv)
{
    struct options w = {.rows = ROWS_UNSET, .samples = 1, .scale = 1, .sampling = CLI_SAMPLING_DEFAULT};
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
        return complete_ask(&w);
    struct local_lane l = {.model = NULL};
    code = local_lane_open(&l, w.remote.model, TASK_IMAGE_GENERATION, &w.with, (uint32_t)w.samples, false);
    if (code == CLI_OK)
        code = complete(&w, &l);
    local_lane_close(&l);
    return code;
}
