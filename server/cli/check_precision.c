/* check_precision.c - aft check-precision MODEL DATA: how good the model is in each precision on data that it was not
 * trained on, recorded beside it for `precision` auto if --write says so. Single threaded.
 * DATA is as evaluation.h says. */
#include <stdio.h>

#include "config/json_memory.h"
#include "server/cli/cli.h"
#include "server/cli/evaluation.h"
#include "server/models/precision.h"

struct check {
    const struct model *model;
    struct engine *engines[ENGINE_PRECISION_COUNT];
    struct precision_record record;
    bool json, write, force; /* as options say */
};

static int measure(struct check *k, const char *data)
{
    struct evaluation of[ENGINE_PRECISION_COUNT] = {{.samples = 0}};
    struct precision_record *r = &k->record;
    const int code = evaluation_run(of, k->engines, ENGINE_PRECISION_COUNT, k->model, data, NULL, 0);
    r->bits = model_config_causal(&k->model->config);
    r->samples = of[0].samples;
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
        r->value[p] = (r->bits ? of[p].bits.sum : 100.0 * (double)of[p].right) / (double)r->samples;
        evaluation_clear(&of[p]);
    }
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
    (void)printf("of %zu %s\n", r->samples, r->bits ? "bytes or sub-pixels" : "pictures or texts");
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
    struct engine_options o = evaluation_engine_options(k->model);
    struct error err;
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
        with->precision = engine_precision_word((enum engine_precision)p);
        k->engines[p] = cli_open_engine(k->model, with, &o);
        if (k->engines[p] == NULL)
            return CLI_FAILED;
    }
    const int code = measure(k, data);
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
    code = check_precision_run(&k, argv[2], &with);
    for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
        engine_close(k.engines[p]);
    model_free(m);
    return code;
}
