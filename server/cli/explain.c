/* explain.c - aft explain MODEL [PICTURE] -o PNG, or [PICTURE] and a daemon: what the model sees in a picture, or its
 * position biases, drawn as POST /explain does it. Single threaded. */
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/media/drawing.h"
#include "server/media/explanation.h"
#include "server/media/picture.h"
#include "server/media/picture_fit.h"

/* What there is to do, and the values of the options, which are checked once the model is known. */
struct explain_run {
    struct explain_request request;
    struct cli_output out;
    struct cli_engine with;
    const char *picture; /* NULL: none was named */
    const struct model *model;
    struct engine *engine;
};

/* Run the picture through the model and draw its maps, a single one over the picture: *ret. Prints why not and returns
 * CLI_FAILED. */
static int draw_explained(struct picture *ret, const struct explain_run *run, const struct explanation *what,
                          const struct picture *picture)
{
    const struct model_config *c = &run->model->config;
    struct error err;
    struct picture_fit fit;
    float *maps = NULL;
    const int code = cli_see_picture(&fit, run->engine, run->model, run->with.size, picture, run->picture, what, &maps);
    if (code != CLI_OK) {
        free(maps);
        return code;
    }
    struct picture_box box = picture_crop_box(picture, fit.resize_to, fit.width, fit.height);
    enum status st = OK;
    if (!explain_is_sheet(what))
        st = explain_backdrop(ret, &box, picture, what->side, &err);
    if (st == OK)
        st = explain_draw(ret, &box, what, maps, fit.height / c->patch[0], fit.width / c->patch[1], &err);
    free(maps);
    return st == OK ? CLI_OK : cli_fail_error(&err);
}

static int explain(const struct explain_run *run)
{
    struct explanation what;
    struct error err;
    struct picture picture = {0}, drawn = {0};
    int code = CLI_OK;
    if (explain_resolve(&what, &run->request, run->model, run->engine, &err) != OK)
        return cli_fail_usage("%s", err.message);
    if (what.view == EXPLAIN_BIASES) {
        const struct sheet sheet = explain_biases(&what, run->engine);
        if (draw_sheet(&drawn, &sheet, what.side, &err) != OK)
            return cli_fail_usage("%s", err.message);
    } else if (run->picture == NULL) {
        return cli_fail_usage("--view %s is about a picture, and none is named", explain_view_word(what.view));
    } else {
        const struct picture_options options = {.shorter = picture_fit_shorter(run->with.size, &run->model->config),
                                                .longer = what.side};
        code = cli_read_picture(&picture, run->picture, &options);
        if (code == CLI_OK)
            code = draw_explained(&drawn, run, &what, &picture);
    }
    if (code == CLI_OK)
        code = cli_output_png(&run->out, &drawn, run->picture);
    picture_clear(&picture);
    picture_clear(&drawn);
    return code;
}

static int explain_ask(const struct remote *r, const struct explain_run *run)
{
    const struct explain_request *options = &run->request;
    const struct remote_parameter query[] = {{"model", r->model, false},      {"view", options->view, true},
                                             {"layer", options->layer, true}, {"head", options->head, true},
                                             {"row", options->row, true},     {"side", options->side, true},
                                             {"size", run->with.size, false}};
    if (run->picture == NULL && !explain_wants_biases(options))
        return cli_fail_usage("a picture is missing; only --view biases needs none");
    return remote_post_file(r, "/explain", query, sizeof query / sizeof query[0], run->picture, &run->out);
}

int cli_explain(int argc, char **argv)
{
    struct explain_run run = {.out = {.path = NULL}};
    struct remote remote = {0};
    const struct cli_option options[] = {
        {"output", CLI_TEXT, (void *)&run.out.path, 0, 0, "PNG", NULL, "file to write, required; - is standard output"},
        {"view", CLI_TEXT, (void *)&run.request.view, 0, 0, "VIEW", "keys or tokens",
         "what to draw: keys, tokens, queries or biases"},
        {"layer", CLI_TEXT, (void *)&run.request.layer, 0, 0, "N", "the last; for biases, each",
         "block to look at, counted from 0, or each"},
        {"head", CLI_TEXT, (void *)&run.request.head, 0, 0, "N", "all together; for biases, each",
         "head to look at, counted from 0, or each"},
        {"row", CLI_TEXT, (void *)&run.request.row, 0, 0, "N", "the middle one",
         "of biases by pairs of patches: all of that row"},
        {"side", CLI_TEXT, (void *)&run.request.side, 0, 0, "N", "512; of biases, what shows them",
         "longer side of the PNG in pixels"},
        CLI_SIZE_OPTIONS(&run.with) CLI_OUTPUT_JSON_OPTION(&run.out) CLI_ENGINE_OPTIONS(&run.with)
            REMOTE_OPTIONS(&remote){0},
    };
    int count;
    int code = remote_parse(&remote, &run.with, options, argc, argv, 0, 1, &count);
    if (code != CLI_OK || count < 0)
        return code;
    if (cli_output_check(&run.out) != CLI_OK)
        return CLI_USAGE;
    run.picture = count > 0 ? argv[1] : NULL;
    if (remote.asks)
        return explain_ask(&remote, &run);
    const enum model_task pictures = TASK_IMAGE_CLASSIFICATION;
    struct model *m = cli_load_model(remote.model, explain_wants_biases(&run.request) ? NULL : &pictures);
    struct engine_options o = {.pictures_max = 1, .streams_max = 1, .rows_max = 1};
    run.model = m;
    run.engine = cli_open_engine(m, &run.with, &o);
    code = run.engine != NULL ? explain(&run) : CLI_FAILED;
    engine_close(run.engine);
    model_free(m);
    return code;
}
