/* check_precision.c - aft check-precision MODEL DATA: how good the model is in each precision on data that it was not
 * trained on, recorded beside it for `precision` auto if --write says so. Single threaded.
 *
 * DATA is a file for a model of texts (bits per byte, as aft score), a folder with one folder of pictures for each
 * label for a classifier of pictures (top-1), and a folder of pictures, at any depth, for a model that draws them (bits
 * per dim). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json_memory.h"
#include "engine/logits.h"
#include "server/cli/cli.h"
#include "server/cli/pictures.h"
#include "server/models/precision.h"

enum { BATCH = 8 };

/* The pictures that count. */
struct files {
    struct cli_pictures found;
    uint32_t *labels; /* of classifiers */
};

struct check {
    const struct model *model;
    struct engine *engines[ENGINE_PRECISION_COUNT];
    struct precision_record record;
    struct cli_progress progress;
    bool json, write, force; /* as options say */
};

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* The class whose folder, the first below `data`, a path lies in; classes: none. */
static uint32_t label_of(const char *path, const char *data, const struct model_config *c)
{
    const char *folder = path + strlen(data);
    folder += strspn(folder, "/");
    const size_t size = strcspn(folder, "/");
    uint32_t i = 0;
    while (i < c->classes &&
           !(folder[size] == '/' && strlen(c->labels[i]) == size && strncmp(c->labels[i], folder, size) == 0))
        i++;
    return i;
}

static int find_files(struct files *f, const struct model_config *c, const char *data)
{
    struct cli_pictures *p = &f->found;
    size_t kept = 0;
    if (!cli_is_folder(data))
        return cli_fail("%s: no such folder", data);
    const int code = cli_pictures_add(p, data, true);
    if (code != CLI_OK || c->task != TASK_IMAGE_CLASSIFICATION)
        return code;
    f->labels = malloc(p->count * sizeof *f->labels);
    if (f->labels == NULL)
        return cli_fail("out of memory");
    for (size_t i = 0; i < p->count; i++) {
        f->labels[kept] = label_of(p->paths[i], data, c);
        if (f->labels[kept] == c->classes)
            free(p->paths[i]);
        else
            p->paths[kept++] = p->paths[i];
    }
    p->count = kept;
    return kept > 0
               ? CLI_OK
               : cli_fail("%s: no pictures in folders named after the model's labels, such as %s", data, c->labels[0]);
}

/* ---- what is measured ------------------------------------------------------------------------------------------- */

/* Add to each precision's value how many of n pictures it classifies correctly. */
static bool classify(struct check *k, uint8_t *const pixels[], const uint32_t labels[], size_t n)
{
    const struct model_config *c = &k->model->config;
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
        struct engine *e = k->engines[p];
        engine_pictures_begin(e, (const uint8_t *const *)pixels, n, c->size[0], c->size[1]);
        while (!engine_batch_step(e))
            ;
        for (size_t i = 0; i < n; i++) {
            struct prediction best;
            if (cli_check_logits(engine_batch_logits(e, i), c->classes) != CLI_OK)
                return false;
            logits_top(&best, 1, engine_batch_logits(e, i), c->classes);
            k->record.value[p] += best.index == labels[i] ? 1.0 : 0.0;
        }
    }
    return true;
}

static int check_classifier(struct check *k, const struct files *f)
{
    const struct model_config *c = &k->model->config;
    k->progress = cli_progress_begin(f->found.count);
    for (size_t i = 0; i < f->found.count; i += BATCH) {
        uint8_t *pixels[BATCH] = {NULL};
        const size_t n = f->found.count - i < BATCH ? f->found.count - i : BATCH;
        size_t read = 0;
        while (read < n && cli_read_pixels(&pixels[read], f->found.paths[i + read], c) == CLI_OK)
            read++;
        const bool fine = read == n && classify(k, pixels, f->labels + i, n);
        for (size_t j = 0; j < read; j++)
            free(pixels[j]);
        if (!fine)
            return CLI_FAILED;
        cli_progress_show(&k->progress, i + n, "pictures");
    }
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
        k->record.value[p] *= 100.0 / (double)f->found.count;
    k->record.samples = f->found.count;
    return CLI_OK;
}

/* Add the bits of elements [size] to each precision's value; `done` of the progress's came before them. */
static int add_bits(struct check *k, const uint8_t *elements, size_t size, size_t done)
{
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
        double bits;
        const int code = cli_score_bits(&bits, k->engines[p], elements, size, &k->progress, done + (size_t)p * size);
        if (code != CLI_OK)
            return code;
        k->record.value[p] += bits;
    }
    return CLI_OK;
}

static int check_pictures(struct check *k, const struct files *f)
{
    const struct model_config *c = &k->model->config;
    const size_t size = (size_t)3 * c->size[0] * c->size[1];
    int code = CLI_OK;
    k->progress = cli_progress_begin(ENGINE_PRECISION_COUNT * size * f->found.count);
    for (size_t i = 0; i < f->found.count && code == CLI_OK; i++) {
        uint8_t *pixels = NULL;
        code = cli_read_pixels(&pixels, f->found.paths[i], c);
        if (code == CLI_OK)
            code = add_bits(k, pixels, size, ENGINE_PRECISION_COUNT * size * i);
        free(pixels);
    }
    k->record.samples = f->found.count * (size - (k->model->start_embed != NULL ? 0 : 1));
    return code;
}

static int check_text(struct check *k, const char *path)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    int code = cli_read(&bytes, &size, path, SCORE_FILE_MAX);
    if (code != CLI_OK)
        return code;
    if (size < 2)
        code = cli_fail("%s has %zu bytes, expected at least 2", path, size);
    k->progress = cli_progress_begin(ENGINE_PRECISION_COUNT * size);
    if (code == CLI_OK)
        code = add_bits(k, bytes, size, 0);
    k->record.samples = size - (k->model->start_embed != NULL ? 0 : 1);
    free(bytes);
    return code;
}

static int measure(struct check *k, const char *data)
{
    const struct model_config *c = &k->model->config;
    struct files files = {0};
    int code;
    if (c->task == TASK_TEXT_GENERATION)
        code = check_text(k, data);
    else {
        code = find_files(&files, c, data);
        if (code == CLI_OK)
            code = c->task == TASK_IMAGE_GENERATION ? check_pictures(k, &files) : check_classifier(k, &files);
        cli_pictures_clear(&files.found);
        free(files.labels);
    }
    k->record.bits = c->task != TASK_IMAGE_CLASSIFICATION;
    for (int p = 0; p < ENGINE_PRECISION_COUNT && k->record.bits; p++)
        k->record.value[p] /= (double)k->record.samples;
    return code;
}

/* ---- the verb --------------------------------------------------------------------------------------------------- */

static int report_json(const struct check *k)
{
    const struct precision_record *r = &k->record;
    json_t *precisions = json_object();
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
        json_put(
            precisions, engine_precision_word((enum engine_precision)p),
            json_pack("{s:f, s:b}", "value", r->value[p], "good", (int)precision_is_good(r, (enum engine_precision)p)));
    return cli_print_json(json_pack("{s:s, s:s, s:I, s:o, s:b}", "model", k->model->name, "measure",
                                    r->bits ? "bits" : "top1_percent", "samples", (json_int_t)r->samples, "precisions",
                                    precisions, "written", (int)k->write));
}

static int report(const struct check *k)
{
    const struct precision_record *r = &k->record;
    if (k->json)
        return report_json(k);
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
        (void)printf(r->bits ? "%-5s  %8.4f bits  %s\n" : "%-5s  %7.2f %%  %s\n",
                     engine_precision_word((enum engine_precision)p), r->value[p],
                     p == ENGINE_F32                                  ? "the reference"
                     : r->samples < PRECISION_SAMPLES_MIN             ? "too few samples to tell"
                     : precision_is_good(r, (enum engine_precision)p) ? "good enough for auto"
                                                                      : "loses too much for auto");
    (void)printf("of %zu %s\n", r->samples, r->bits ? "bytes or sub-pixels" : "pictures");
    if (!k->write)
        (void)printf("not recorded; --write records it in %s/precision.json\n", cli_model_dir());
    return CLI_OK;
}

static enum status record(struct check *k, struct error *err)
{
    const char *dir = cli_model_dir();
    enum status st = precision_digest(k->record.digest, dir, err);
    if (st == OK && !k->force)
        st = precision_record_check(&k->record, dir, err);
    return st == OK ? precision_record_write(&k->record, dir, err) : st;
}

static int check_precision_run(struct check *k, const char *data, struct cli_engine *with)
{
    struct engine_options o = {.pictures_max = BATCH, .streams_max = 1, .rows_max = CLI_SCORE_ROWS};
    struct error err;
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
        with->precision = engine_precision_word((enum engine_precision)p);
        k->engines[p] = cli_open_engine(k->model, with, &o);
        if (k->engines[p] == NULL)
            return CLI_FAILED;
    }
    const int code = measure(k, data);
    cli_progress_end(&k->progress);
    if (code != CLI_OK)
        return code;
    return k->write && record(k, &err) != OK ? cli_fail_error(&err) : report(k);
}

int cli_check_precision(int argc, char **argv)
{
    struct check k = {0};
    struct cli_engine with = {.threads = 0};
    const struct cli_option options[] = {{"write", CLI_FLAG, &k.write, 0, 0, NULL, NULL,
                                          "record it in the model's precision.json, unless that is of more samples"},
                                         {"force", CLI_FLAG, &k.force, 0, 0, NULL, NULL, "record it in any case"},
                                         CLI_THREADS_OPTION(&with.threads) CLI_JSON_OPTION(&k.json){0}};
    int count;
    int code = cli_parse(options, argc, argv, 2, 2, &count);
    if (code != CLI_OK || count < 0)
        return code;
    k.write |= k.force;
    struct model *m = cli_load_model(argv[1], NULL);
    if (m == NULL)
        return CLI_FAILED;
    k.model = m;
    code = m->config.task == TASK_TEXT_CLASSIFICATION
               ? cli_fail("%s classifies texts, for which there is no check; set its precision by name", m->name)
               : check_precision_run(&k, argv[2], &with);
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
        engine_close(k.engines[p]);
    model_free(m);
    return code;
}
