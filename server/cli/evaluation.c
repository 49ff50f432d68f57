/* evaluation.c - see evaluation.h. */
#include "server/cli/evaluation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/json_memory.h"
#include "engine/logits.h"
#include "server/cli/cli.h"
#include "server/cli/pictures.h"
#include "server/media/picture_fit.h"

enum { BATCH = 32 }; /* pictures; texts come one by one */

struct engine_options evaluation_engine_options(const struct model *m)
{
    return (struct engine_options){
        .pictures_max = m->config.input == INPUT_IMAGE ? BATCH : 1, .streams_max = 1, .rows_max = CLI_SCORE_ROWS};
}

struct run {
    struct evaluation *results;
    struct engine *const *engines;
    size_t count;
    const struct model *model;
    struct picture_fit fit; /* classifiers of pictures: how these are seen */
    size_t batch;           /* likewise: how many at a time */
    uint32_t past;          /* generators of text */
    struct cli_progress progress;
};

void evaluation_clear(struct evaluation *r)
{
    free(r->confusion);
    *r = (struct evaluation){.samples = 0};
}

double evaluation_calibration(const struct evaluation *r)
{
    double error = 0.0;
    for (size_t i = 0; i < EVALUATION_BINS; i++)
        error += fabs(r->bins[i].probability - (double)r->bins[i].right) / (double)r->samples;
    return error;
}

/* ---- what each input is ----------------------------------------------------------------------------------------- */

/* The folder below `data` that a path lies in: its first byte and size. */
static const char *folder_of(const char *path, const char *data, size_t *size)
{
    const char *folder = path + strlen(data);
    folder += strspn(folder, "/");
    *size = strcspn(folder, "/");
    return folder[*size] == '/' ? folder : NULL; /* a file in `data` itself */
}

/* The class of that name; classes: there is none. */
static uint32_t class_named(const struct model_config *c, const char *name, size_t size)
{
    uint32_t i = 0;
    while (i < c->classes && !(strlen(c->labels[i]) == size && strncmp(c->labels[i], name, size) == 0))
        i++;
    return i;
}

/* Classes of all paths, which are in the order of their folders' names: by names of folders, or by their order where
 * none is a label's and there are as many. */
static int find_classes(uint32_t *classes, struct cli_pictures *p, const char *data, const struct model_config *c)
{
    const char *last = NULL;
    size_t last_size = 0, kept = 0;
    uint32_t folders = 0;
    bool named = false;
    for (size_t i = 0; i < p->count; i++) {
        size_t size = 0;
        const char *folder = folder_of(p->paths[i], data, &size);
        if (folder != NULL && (last == NULL || size != last_size || strncmp(folder, last, size) != 0))
            folders++;
        last = folder != NULL ? folder : last;
        last_size = folder != NULL ? size : last_size;
        named |= folder != NULL && class_named(c, folder, size) < c->classes;
        classes[i] = folder != NULL ? folders - 1 : c->classes;
    }
    if (!named && folders != c->classes)
        return cli_fail("%s: no folder is named after a label of the model, such as %s", data, c->labels[0]);
    if (!named)
        cli_warn("no folder has a label's name: they are taken in the order of the labels");
    for (size_t i = 0; i < p->count; i++) {
        size_t size = 0;
        const char *folder = folder_of(p->paths[i], data, &size);
        const uint32_t class = named && folder != NULL ? class_named(c, folder, size) : classes[i];
        if (class == c->classes) {
            free(p->paths[i]);
            continue;
        }
        classes[kept] = class;
        p->paths[kept++] = p->paths[i];
    }
    if (kept < p->count)
        cli_warn("%zu files lie in no folder of a label's name and are left out", p->count - kept);
    p->count = kept;
    return CLI_OK;
}

/* ---- classifiers ------------------------------------------------------------------------------------------------ */

static int note_class(struct evaluation *r, const float *logits, uint32_t class)
{
    struct prediction best[EVALUATION_TOP];
    const size_t shown = r->classes < EVALUATION_TOP ? r->classes : EVALUATION_TOP;
    if (cli_check_logits(logits, r->classes) != CLI_OK)
        return CLI_FAILED;
    logits_top(best, shown, logits, r->classes);
    const bool right = best[0].index == class;
    const size_t last = EVALUATION_BINS - 1, at = (size_t)((double)best[0].probability * EVALUATION_BINS);
    struct evaluation_bin *bin = &r->bins[at < last ? at : last];
    bin->count++;
    bin->right += right ? 1 : 0;
    bin->probability += (double)best[0].probability;
    r->samples++;
    r->right += right ? 1 : 0;
    for (size_t i = 0; i < shown; i++)
        r->right_of_top += best[i].index == class ? 1 : 0;
    r->loss -= logits_log2(logits, r->classes, class) * log(2.0);
    if (r->confusion != NULL)
        r->confusion[(size_t) class * r->classes + best[0].index]++;
    return CLI_OK;
}

/* What the batch that each engine has begun gives n inputs of these classes. */
static int finish_batch(const struct run *k, const uint32_t *classes, size_t n)
{
    int code = CLI_OK;
    for (size_t e = 0; e < k->count; e++) {
        while (!engine_batch_step(k->engines[e]))
            ;
        for (size_t i = 0; i < n && code == CLI_OK; i++)
            code = note_class(&k->results[e], engine_batch_logits(k->engines[e], i), classes[i]);
    }
    return code;
}

static int evaluate_batch(const struct run *k, char *const *paths, const uint32_t *classes, size_t n)
{
    const struct model_config *c = &k->model->config;
    uint8_t *pixels[BATCH] = {NULL};
    int code = CLI_OK;
#pragma omp parallel for schedule(dynamic) num_threads(engine_info(k->engines[0])->threads) reduction(| : code)
    for (size_t i = 0; i < n; i++)
        code |= cli_read_pixels(&pixels[i], paths[i], c, &k->fit);
    for (size_t e = 0; e < k->count && code == CLI_OK; e++)
        engine_pictures_begin(k->engines[e], (const uint8_t *const *)pixels, n, k->fit.height, k->fit.width);
    if (code == CLI_OK)
        code = finish_batch(k, classes, n);
    for (size_t i = 0; i < n; i++)
        free(pixels[i]);
    return code;
}

static int evaluate_text(const struct run *k, const uint8_t *text, size_t size, uint32_t class)
{
    const size_t most = engine_info(k->engines[0])->elements_max;
    for (size_t e = 0; e < k->count; e++)
        engine_texts_begin(k->engines[e], (const uint8_t *const[]){text}, 1, (uint32_t)(size < most ? size : most));
    return finish_batch(k, &class, 1);
}

static int evaluate_text_file(const struct run *k, const char *path, uint32_t class)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    int code = cli_read(&bytes, &size, path, SCORE_FILE_MAX);
    if (code == CLI_OK && size > 0) /* there is nothing to say of an empty one */
        code = evaluate_text(k, bytes, size, class);
    free(bytes);
    return code;
}

static int evaluate_folder(struct run *k, const char *data)
{
    const struct model_config *c = &k->model->config;
    const bool pictures = c->task == TASK_IMAGE_CLASSIFICATION;
    struct cli_pictures found = {.count = 0};
    uint32_t *classes = NULL;
    int code = pictures ? cli_pictures_add(&found, data, true) : cli_files_add(&found, data, true);
    if (code == CLI_OK) {
        classes = malloc(found.count * sizeof *classes);
        code = classes != NULL ? find_classes(classes, &found, data, c) : cli_fail("out of memory");
    }
    k->progress = cli_progress_begin(found.count);
    for (size_t i = 0, n; i < found.count && code == CLI_OK; i += n) {
        n = !pictures ? 1 : found.count - i < k->batch ? found.count - i : k->batch;
        code = pictures ? evaluate_batch(k, found.paths + i, classes + i, n)
                        : evaluate_text_file(k, found.paths[i], classes[i]);
        cli_progress_show(&k->progress, i + n, pictures ? "pictures" : "texts");
    }
    free(classes);
    cli_pictures_clear(&found);
    return code;
}

static int evaluate_line(const struct run *k, const char *line, size_t size, const char *data, size_t number)
{
    const struct model_config *c = &k->model->config;
    const char *text, *label;
    size_t text_size, label_size;
    bool lacked_memory = false;
    json_t *row = json_scan(line, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL, &lacked_memory);
    int code;
    if (lacked_memory)
        code = cli_fail("out of memory");
    else if (row == NULL ||
             json_unpack(row, "{s:s%, s:s%}", "text", &text, &text_size, "label", &label, &label_size) != 0)
        code = cli_fail("%s: line %zu is no JSON object with the strings \"text\" and \"label\"", data, number);
    else if (class_named(c, label, label_size) == c->classes)
        code = cli_fail("%s: line %zu has the label \"%s\", which the model has not", data, number, label);
    else
        code = text_size == 0 ? CLI_OK
                              : evaluate_text(k, (const uint8_t *)text, text_size, class_named(c, label, label_size));
    json_decref(row);
    return code;
}

static int evaluate_lines(struct run *k, const char *data)
{
    uint8_t *bytes = NULL;
    size_t size = 0, number = 0;
    int code = cli_read(&bytes, &size, data, SCORE_FILE_MAX);
    k->progress = cli_progress_begin(size);
    for (size_t at = 0, n; at < size && code == CLI_OK; at += n + 1) {
        const uint8_t *end = memchr(bytes + at, '\n', size - at);
        n = end != NULL ? (size_t)(end - bytes) - at : size - at;
        number++;
        if (n > 0)
            code = evaluate_line(k, (const char *)bytes + at, n, data, number);
        cli_progress_show(&k->progress, at + n, "bytes");
    }
    free(bytes);
    return code;
}

/* How pictures are seen. */
static int choose_size(struct run *k, const char *size)
{
    const struct model_config *c = &k->model->config;
    struct error err;
    if (size != NULL && (c->task != TASK_IMAGE_CLASSIFICATION || strcmp(size, "native") == 0))
        return cli_fail_usage("--size is %s, expected HxW in pixels, for a model that classifies pictures", size);
    if (c->task != TASK_IMAGE_CLASSIFICATION)
        return CLI_OK;
    if (picture_fit_choose(&k->fit, size, NULL, k->model, k->engines[0], &err) != OK)
        return cli_fail_error(&err);
    const size_t fits = engine_batch_max(k->engines[0], k->fit.height / c->patch[0] * (k->fit.width / c->patch[1]));
    k->batch = fits < BATCH ? fits : BATCH;
    return CLI_OK;
}

static int evaluate_classifier(struct run *k, const char *data)
{
    const uint32_t classes = k->model->config.classes;
    for (size_t e = 0; e < k->count; e++) {
        k->results[e].classes = classes;
        if (classes > EVALUATION_TABLE_MAX)
            continue;
        k->results[e].confusion = calloc((size_t)classes * classes, sizeof *k->results[e].confusion);
        if (k->results[e].confusion == NULL)
            return cli_fail("out of memory");
    }
    if (k->model->config.task == TASK_IMAGE_CLASSIFICATION && !cli_is_folder(data))
        return cli_fail("%s: no such folder", data);
    const int code = cli_is_folder(data) ? evaluate_folder(k, data) : evaluate_lines(k, data);
    return code == CLI_OK && k->results[0].samples == 0 ? cli_fail("%s: there is nothing to evaluate on", data) : code;
}

/* ---- generators ------------------------------------------------------------------------------------------------- */

/* Add the bits of elements [size]; `done` of the progress's came before them. */
static int add_bits(struct run *k, const uint8_t *elements, size_t size, size_t done)
{
    for (size_t e = 0; e < k->count; e++) {
        struct evaluation *r = &k->results[e];
        const int code =
            cli_score_bits(&r->bits, k->engines[e], elements, size, k->past, &k->progress, done + e * size);
        if (code != CLI_OK)
            return code;
        r->samples = r->bits.count;
    }
    return CLI_OK;
}

static int score_pictures(struct run *k, const char *data)
{
    const struct model_config *c = &k->model->config;
    const size_t size = (size_t)3 * c->size[0] * c->size[1];
    struct cli_pictures found = {.count = 0};
    int code = cli_is_folder(data) ? cli_pictures_add(&found, data, true) : cli_fail("%s: no such folder", data);
    k->progress = cli_progress_begin(k->count * size * found.count);
    for (size_t i = 0; i < found.count && code == CLI_OK; i++) {
        uint8_t *pixels = NULL;
        code = cli_read_pixels(&pixels, found.paths[i], c, NULL);
        if (code == CLI_OK)
            code = add_bits(k, pixels, size, k->count * size * i);
        free(pixels);
    }
    cli_pictures_clear(&found);
    return code;
}

static int score_file(struct run *k, const char *path)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    int code = cli_read(&bytes, &size, path, SCORE_FILE_MAX);
    if (code != CLI_OK)
        return code;
    k->progress = cli_progress_begin(k->count * size);
    const size_t least = k->model->start_embed != NULL ? 1 : 2;
    code = size < least ? cli_fail("%s has %zu bytes, expected at least %zu", path, size, least)
                        : add_bits(k, bytes, size, 0);
    free(bytes);
    return code;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

int evaluation_run(struct evaluation *results, struct engine *const *engines, size_t count, const struct model *m,
                   const char *data, const char *size, uint32_t past)
{
    struct run k = {.results = results, .engines = engines, .count = count, .model = m, .past = past};
    const int code = choose_size(&k, size) != CLI_OK           ? CLI_USAGE
                     : !model_config_causal(&m->config)        ? evaluate_classifier(&k, data)
                     : m->config.task == TASK_IMAGE_GENERATION ? score_pictures(&k, data)
                                                               : score_file(&k, data);
    cli_progress_end(&k.progress);
    return code;
}
