/* evaluate.c - aft evaluate MODEL DATA: how good the model is on data that it was not trained on (evaluation.h has what
 * data), in one precision: top-1 and top-5, each label, what is taken for what, and whether its probabilities mean what
 * they say; or bits per byte or sub-pixel. Single threaded. */
#include <stdio.h>
#include <string.h>

#include "config/json_memory.h"
#include "server/cli/cli.h"
#include "server/cli/evaluation.h"
#include "server/media/drawing.h"

enum { CONFUSION_SIDE = 640 }; /* pixels, of which each label has one at least */

struct evaluate {
    const struct model *model;
    const char *precision;
    struct evaluation result;
    struct cli_output table; /* a picture of the confusion */
    uint64_t past;
    bool json;
};

static double percent(double part, double of)
{
    return of > 0.0 ? 100.0 * part / of : 0.0;
}

/* ---- one label -------------------------------------------------------------------------------------------------- */

struct label {
    size_t samples, told, right; /* of this label, told to be it, both */
    uint32_t taken_for;          /* the other label that it was most often told to be */
    size_t taken;                /* how often */
};

static struct label label_of(const struct evaluation *r, uint32_t class)
{
    struct label l = {.right = r->confusion[(size_t) class * r->classes + class]};
    for (uint32_t other = 0; other < r->classes; other++) {
        const size_t count = r->confusion[(size_t) class * r->classes + other];
        l.samples += count;
        l.told += r->confusion[(size_t)other * r->classes + class];
        if (other != class && count > l.taken) {
            l.taken_for = other;
            l.taken = count;
        }
    }
    return l;
}

/* ---- what is printed -------------------------------------------------------------------------------------------- */

/* The next of the bins by what came before that has elements, from *i on: its first and last number of them (0: there
 * is none), and *i becomes the one behind it. */
static bool next_past(const struct cli_bits *b, size_t *i, size_t *first, size_t *last)
{
    enum { PASTS = sizeof b->by_past / sizeof b->by_past[0] };
    while (*i < PASTS && b->by_past[*i].count == 0)
        (*i)++;
    if (*i == PASTS)
        return false;
    *first = *i == 0 ? 0 : (size_t)64 << 3 * (*i - 1);
    *last = *i + 1 == PASTS ? 0 : ((size_t)64 << 3 * *i) - 1;
    (*i)++;
    return true;
}

static json_t *pasts_json(const struct cli_bits *b)
{
    json_t *pasts = json_array();
    for (size_t i = 0, first, last; next_past(b, &i, &first, &last);)
        json_append(pasts, json_pack("{s:I, s:I, s:f}", "bytes_before", (json_int_t)first, "bytes",
                                     (json_int_t)b->by_past[i - 1].count, "bits_per_byte",
                                     b->by_past[i - 1].sum / (double)b->by_past[i - 1].count));
    return pasts;
}

static json_t *labels_json(const struct evaluate *v)
{
    const struct evaluation *r = &v->result;
    json_t *labels = json_array();
    for (uint32_t i = 0; i < r->classes; i++) {
        const struct label l = label_of(r, i);
        json_t *row = json_array();
        for (uint32_t other = 0; other < r->classes; other++)
            json_append(row, json_integer((json_int_t)r->confusion[(size_t)i * r->classes + other]));
        json_append(labels,
                    json_pack("{s:s, s:I, s:f, s:f, s:o}", "label", v->model->config.labels[i], "samples",
                              (json_int_t)l.samples, "recall_percent", percent((double)l.right, (double)l.samples),
                              "precision_percent", percent((double)l.right, (double)l.told), "told", row));
    }
    return labels;
}

static int print_json(const struct evaluate *v)
{
    const struct evaluation *r = &v->result;
    const double n = (double)r->samples;
    json_t *object = json_pack("{s:s, s:s, s:I}", "model", v->model->name, "precision", v->precision, "samples",
                               (json_int_t)r->samples);
    if (r->classes == 0) {
        json_put(object, v->model->config.task == TASK_IMAGE_GENERATION ? "bits_per_dim" : "bits_per_byte",
                 json_real(r->bits.sum / n));
        if (v->model->config.task == TASK_TEXT_GENERATION)
            json_put(object, "by_past", pasts_json(&r->bits));
    } else {
        json_put(object, "top1_percent", json_real(percent((double)r->right, n)));
        json_put(object, "top5_percent", json_real(percent((double)r->right_of_top, n)));
        json_put(object, "loss", json_real(r->loss / n));
        json_put(object, "calibration_error_percent", json_real(100.0 * evaluation_calibration(r)));
        if (r->confusion != NULL)
            json_put(object, "labels", labels_json(v));
    }
    return cli_print_json(object);
}

static int print_text(const struct evaluate *v)
{
    const struct model_config *c = &v->model->config;
    const struct evaluation *r = &v->result;
    const double n = (double)r->samples;
    double probability = 0.0;
    if (r->classes == 0) {
        const bool pixels = c->task == TASK_IMAGE_GENERATION;
        (void)printf("%.4f bits per %s  %zu %s, in %s\n", r->bits.sum / n, pixels ? "sub-pixel" : "byte", r->samples,
                     pixels ? "sub-pixels" : "bytes", v->precision);
        for (size_t i = 0, first, last; !pixels && next_past(&r->bits, &i, &first, &last);) {
            const double mean = r->bits.by_past[i - 1].sum / (double)r->bits.by_past[i - 1].count;
            if (last > 0)
                (void)printf("%.4f after %zu to %zu bytes\n", mean, first, last);
            else
                (void)printf("%.4f after %zu bytes or more\n", mean, first);
        }
        return CLI_OK;
    }
    for (size_t i = 0; i < EVALUATION_BINS; i++)
        probability += r->bins[i].probability;
    (void)printf("%.2f %% right  %zu %s, in %s\n", percent((double)r->right, n), r->samples,
                 c->task == TASK_IMAGE_CLASSIFICATION ? "pictures" : "texts", v->precision);
    if (r->classes > EVALUATION_TOP)
        (void)printf("%.2f %% among the %d likeliest\n", percent((double)r->right_of_top, n), EVALUATION_TOP);
    (void)printf("%.2f %% likely by its own account: off by %.2f points; loss %.4f\n\n", percent(probability, n),
                 100.0 * evaluation_calibration(r), r->loss / n);
    if (r->confusion == NULL)
        return CLI_OK;
    (void)printf("right %%  of those told  samples  label, most often taken for\n");
    for (uint32_t i = 0; i < r->classes; i++) {
        const struct label l = label_of(r, i);
        if (l.samples == 0 && l.told == 0)
            continue;
        (void)printf("%7.2f  %13.2f  %7zu  ", percent((double)l.right, (double)l.samples),
                     percent((double)l.right, (double)l.told), l.samples);
        cli_print_field(stdout, c->labels[i]);
        if (l.taken > 0) {
            (void)printf(", ");
            cli_print_field(stdout, c->labels[l.taken_for]);
            (void)printf(" (%zu)", l.taken);
        }
        (void)putchar('\n');
    }
    return CLI_OK;
}

static int draw_table(const struct evaluate *v)
{
    struct picture drawn = {.pixels = NULL};
    struct error err;
    if (v->result.confusion == NULL)
        return cli_fail("%s has %u labels, expected at most %d for a table of them", v->model->name, v->result.classes,
                        EVALUATION_TABLE_MAX);
    if (draw_table_of_counts(&drawn, v->result.confusion, v->result.classes, CONFUSION_SIDE, &err) != OK)
        return cli_fail_error(&err);
    const int code = cli_output_png(&v->table, &drawn, NULL);
    picture_clear(&drawn);
    return code;
}

/* ---- the verb --------------------------------------------------------------------------------------------------- */

static int evaluate_run(struct evaluate *v, const char *data, const struct cli_engine *with)
{
    struct engine_options o = evaluation_engine_options(v->model);
    struct engine *e = cli_open_engine(v->model, with, &o);
    if (e == NULL)
        return CLI_FAILED;
    v->precision = engine_info(e)->precision;
    const uint32_t context = engine_info(e)->context;
    int code = v->past > context ? cli_fail_usage("--past is %llu, more than the context of %s, %u",
                                                  (unsigned long long)v->past, v->model->name, context)
                                 : evaluation_run(&v->result, &e, 1, v->model, data, with->size, (uint32_t)v->past);
    if (code == CLI_OK)
        code = v->json ? print_json(v) : print_text(v);
    if (code == CLI_OK && v->table.path != NULL)
        code = draw_table(v);
    engine_close(e);
    return code;
}

int cli_evaluate(int argc, char **argv)
{
    struct evaluate v = {.json = false};
    struct cli_engine with = {.threads = 0};
    const struct cli_option options[] = {
        {"confusion", CLI_TEXT, (void *)&v.table.path, 0, 0, "PNG", NULL,
         "draw what is taken for what: a row for each label, a column for each answer"},
        {"past", CLI_UNSIGNED, &v.past, 2, UINT32_MAX, "N", "the context",
         "of text: at most N bytes come before each, N / 2 at least"},
        CLI_SIZE_OPTIONS(&with) CLI_ENGINE_OPTIONS(&with) CLI_JSON_OPTION(&v.json){0}};
    int count;
    int code = cli_parse(options, argc, argv, 2, 2, &count);
    if (code != CLI_OK || count < 0)
        return code;
    if (v.table.path != NULL && strcmp(v.table.path, "-") == 0)
        return cli_fail_usage("--confusion is -, expected a file: the figures go to standard output");
    struct model *m = cli_load_model(argv[1], NULL);
    if (m == NULL)
        return CLI_FAILED;
    v.model = m;
    if (v.past > 0 && m->config.task != TASK_TEXT_GENERATION)
        code = cli_fail_usage("--past is for generators of text, and %s is for %s", m->name,
                              model_task_name(m->config.task));
    else if (v.table.path != NULL && model_config_causal(&m->config))
        code = cli_fail_usage("--confusion is for classifiers, and %s is for %s", m->name,
                              model_task_name(m->config.task));
    else
        code = evaluate_run(&v, argv[2], &with);
    evaluation_clear(&v.result);
    model_free(m);
    return code;
}
