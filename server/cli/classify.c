/* classify.c - aft classify MODEL PICTURE...: labels and probabilities, one picture after the other.
 * Single threaded. */
#include <stdio.h>
#include <stdlib.h>

#include "server/cli/cli.h"
#include "server/logits.h"
#include "server/picture.h"

static void print_best(const struct model *m, const float *logits, struct prediction *best, size_t top_k)
{
    logits_top(best, top_k, logits, m->config.classes);
    for (size_t i = 0; i < top_k; i++)
        (void)printf("%.4f %s\n", best[i].probability, m->config.labels[best[i].index]);
}

/* The picture as the model wants it, pixels [H, W, 3]. */
static enum status read_picture(uint8_t *pixels, const struct model_config *c, const char *path, struct error *err)
{
    struct picture picture = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct error why;
    enum status st = cli_read(&bytes, &size, path, HTTP_BODY_MAX, err);
    if (st != OK)
        goto done;
    st = picture_decode(&picture, bytes, size, &why);
    if (st != OK) {
        (void)error_set(err, st, "%s: %s", path, why.message);
        goto done;
    }
    st = image_prepare(pixels, c->size[1], c->size[0], &picture, c->resize_to, c->interpolation, &why);
    if (st != OK)
        (void)error_set(err, st, "%s: %s", path, why.message);
done:
    picture_clear(&picture);
    free(bytes);
    return st;
}

/* False, and why is printed, if the picture cannot be read or the model's answer is none. */
static bool classify_one(struct engine *e, const struct model_config *c, const char *path, uint8_t *pixels)
{
    const uint8_t *batch[1] = {pixels};
    struct error err;
    if (read_picture(pixels, c, path, &err) != OK) {
        (void)cli_fail_error(&err);
        return false;
    }
    engine_images_begin(e, batch, 1, c->size[0], c->size[1]);
    while (!engine_batch_step(e))
        ;
    return cli_check_logits(engine_batch_logits(e, 0), c->classes);
}

/* All pictures; one that fails does not keep the others from their turn. */
static int classify(const struct model *m, char **paths, int count, uint64_t top_k)
{
    const struct model_config *c = &m->config;
    struct engine_options o = {.images_max = 1};
    struct engine *e = NULL;
    uint8_t *pixels = malloc((size_t)3 * c->size[0] * c->size[1]);
    const size_t shown = top_k < c->classes ? (size_t)top_k : c->classes;
    struct prediction *best = malloc(shown * sizeof *best);
    const char *separator = "";
    int code = CLI_OK;
    if (pixels == NULL || best == NULL) {
        code = cli_fail("out of memory");
        goto done;
    }
    e = cli_open_engine(m, &o);
    if (e == NULL) {
        code = CLI_FAILED;
        goto done;
    }
    for (int i = 0; i < count; i++) {
        if (!classify_one(e, c, paths[i], pixels)) {
            code = CLI_FAILED;
            continue;
        }
        if (count > 1)
            (void)printf("%s%s:\n", separator, paths[i]);
        print_best(m, engine_batch_logits(e, 0), best, shown);
        separator = "\n";
    }
done:
    free(best);
    free(pixels);
    engine_close(e);
    return code;
}

int cli_classify(int argc, char **argv)
{
    uint64_t top_k = 5;
    const struct cli_option options[] = {
        {"top-k", CLI_UNSIGNED, &top_k, 1, CLASSIFY_TOP_K_MAX, "how many labels to print (5)"},
        {0},
    };
    int count;
    int code = cli_parse(options, argc, argv, 2, argc, &count);
    if (code != CLI_OK || count < 0)
        return code;
    struct model *m = cli_load_model(argv[1], &(enum model_task){TASK_IMAGE_CLASSIFICATION});
    if (m == NULL)
        return CLI_FAILED;
    code = classify(m, argv + 2, count - 1, top_k);
    model_free(m);
    return code;
}
