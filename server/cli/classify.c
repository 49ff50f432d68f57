/* classify.c - aft classify MODEL PICTURE..., or PICTURE... and a daemon: labels and probabilities, one picture after
 * the other. Single threaded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/logits.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/media/picture.h"
#include "server/media/picture_fit.h"

static void print_best(const struct model *m, const float *logits, struct prediction *best, size_t top_k)
{
    logits_top(best, top_k, logits, m->config.classes);
    for (size_t i = 0; i < top_k; i++)
        (void)printf("%.4f %s\n", best[i].probability, m->config.labels[best[i].index]);
}

/* False, and why is printed, if the picture cannot be read or the model's logits are not finite. size: as for
 * picture_fit_choose. */
static bool classify_one(struct engine *e, const struct model *m, const char *path, const char *size)
{
    struct picture picture = {0};
    struct picture_fit fit;
    struct error err, why;
    uint8_t *pixels = NULL;
    enum status st = cli_read_picture(
        &picture, path, &(const struct picture_wish){.shorter = picture_fit_shorter(size, &m->config)}, &err);
    if (st == OK) {
        st = picture_fit_choose(&fit, size, &picture, m, e, &why);
        if (st == OK)
            st = picture_fit_apply(&pixels, &fit, &picture, &m->config, &why);
        if (st != OK)
            (void)error_set(&err, st, "%s: %s", path, why.message);
    }
    picture_clear(&picture);
    if (st != OK) {
        (void)cli_fail_error(&err);
        return false;
    }
    engine_images_begin(e, &(const uint8_t *){pixels}, 1, fit.height, fit.width);
    free(pixels);
    while (!engine_batch_step(e))
        ;
    return cli_check_logits(engine_batch_logits(e, 0), m->config.classes);
}

/* All pictures; one that fails does not stop the others. */
static int classify(struct engine *e, const struct model *m, char **paths, int count, const char *size, uint64_t top_k)
{
    const size_t shown = top_k < m->config.classes ? (size_t)top_k : m->config.classes;
    struct prediction *best = malloc(shown * sizeof *best);
    const char *separator = "";
    int code = CLI_OK;
    if (best == NULL)
        return cli_fail("out of memory");
    for (int i = 0; i < count; i++) {
        if (!classify_one(e, m, paths[i], size)) {
            code = CLI_FAILED;
            continue;
        }
        if (count > 1)
            (void)printf("%s%s:\n", separator, paths[i]);
        print_best(m, engine_batch_logits(e, 0), best, shown);
        separator = "\n";
    }
    free(best);
    return code;
}

/* ---- by a daemon ------------------------------------------------------------------------------------------------- */

static int print_predictions(json_t *answer)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(answer, "predictions"), i, each)
    {
        double probability = 0.0;
        const char *label = NULL;
        if (json_unpack(each, "{s:F, s:s}", "probability", &probability, "label", &label) != 0)
            return cli_fail("the daemon's answer has a prediction without label or probability");
        (void)printf("%.4f %s\n", probability, label);
    }
    return CLI_OK;
}

static int ask_one(const struct remote *r, const char *path, const char *size, const char *top_k, json_t **ret)
{
    const struct remote_parameter query[] = {{"model", r->model}, {"size", size}, {"top_k", top_k}};
    uint8_t *bytes = NULL;
    struct remote_request request = {.path = "/classify",
                                     .type = "application/octet-stream",
                                     .query = query,
                                     .query_count = sizeof query / sizeof query[0],
                                     .subject = path};
    struct error err;
    if (cli_read(&bytes, &request.size, path, HTTP_BODY_MAX, &err) != OK)
        return cli_fail_error(&err);
    request.body = bytes;
    const int code = remote_post_json(r, &request, ret);
    free(bytes);
    return code;
}

/* The same as classify(), by a daemon instead of a local model. */
static int ask(const struct remote *r, char **paths, int count, const char *size, uint64_t top_k)
{
    const char *separator = "";
    char number[24];
    int code = CLI_OK;
    (void)snprintf(number, sizeof number, "%" PRIu64, top_k);
    for (int i = 0; i < count; i++) {
        json_t *answer = NULL;
        int one = ask_one(r, paths[i], size, number, &answer);
        if (one == CLI_OK && count > 1)
            (void)printf("%s%s:\n", separator, paths[i]);
        if (one == CLI_OK) {
            one = print_predictions(answer);
            separator = "\n";
        }
        json_decref(answer);
        if (one == CLI_USAGE)
            return one;
        code = one != CLI_OK ? one : code;
    }
    return code;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

int cli_classify(int argc, char **argv)
{
    uint64_t top_k = 5, tokens_max = 0;
    const char *size = NULL;
    struct remote remote = {0};
    bool asks = false;
    const struct cli_option options[] = {
        {'k', "top-k", CLI_UNSIGNED, &top_k, 1, CLASSIFY_TOP_K_MAX, "N", "5", "how many labels to print"},
        {0, "size", CLI_TEXT, (void *)&size, 0, 0, "SIZE", "the model's",
         "size that the model sees: HxW, or native for the picture's own"},
        {0, "tokens-max", CLI_UNSIGNED, &tokens_max, 1, MODEL_TOKENS_MAX, "N", "4096",
         "most patches that --size may lead to"},
        REMOTE_OPTIONS(&remote){0},
    };
    int count;
    int code = cli_parse(options, argc, argv, 1, argc, &count);
    if (code == CLI_OK && count >= 0)
        code = remote_check(&remote, &asks);
    if (code != CLI_OK || count < 0)
        return code;
    if (asks && tokens_max != 0)
        return cli_fail_usage("--tokens-max is not for a daemon, which has the setting picture_tokens_max instead");
    if (asks)
        return ask(&remote, argv + 1, count, size, top_k);
    if (count < 2)
        return cli_fail_usage("too few arguments");
    struct model *m = cli_load_model(argv[1], &(enum model_task){TASK_IMAGE_CLASSIFICATION});
    if (m == NULL)
        return CLI_FAILED;
    struct engine_options o = {.images_max = 1,
                               .tokens_max = size == NULL      ? 0
                                             : tokens_max != 0 ? (uint32_t)tokens_max
                                                               : PICTURE_TOKENS_DEFAULT};
    struct engine *e = cli_open_engine(m, NULL, &o);
    code = e != NULL ? classify(e, m, argv + 2, count - 1, size, top_k) : CLI_FAILED;
    engine_close(e);
    model_free(m);
    return code;
}
