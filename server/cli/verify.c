/* verify.c - aft verify MODEL...: run every input of a model's cases.safetensors (input.K, logits.K for K = 0, 1, ...)
 * in one of the engine's precisions and compare. A sequence model runs both ways, all bytes at once and one by one.
 * Single threaded. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"

/* The largest error that passes. The golden models of tests/data and those that ship come, on each instruction set of
 * x86-64, to at most 3e-6 in f32. In bf16 half of them come to 0.004 and the worst to 0.038, in int8 to 0.015 and 0.09,
 * by AVX2 with its 7 bits 0.13: rounding an activation moves all logits a little, and the keys of the worst are so
 * large that their exponentials multiply it. */
static const double tolerances[ENGINE_PRECISION_COUNT] = {
    [ENGINE_F32] = 1e-4, [ENGINE_BF16] = 5e-2, [ENGINE_INT8] = 1.8e-1};

enum { PARTS = 100 }; /* of a model, in the progress */

/* One model's run. */
struct verification {
    struct model *model;
    struct engine *engine;
    struct safetensors *cases;
    size_t inputs;
    enum engine_precision precision;
    double error; /* the largest max|got - want| / max(1, max|want|) so far; NaN once one was not finite */
    float *got, *want;
    struct cli_progress *progress;
    size_t before;    /* of its parts */
    uint8_t *shifted; /* [MODEL_CONTEXT_MAX + 1] an input after a start embedding */
};

static const struct tensor *find_case(const struct safetensors *cases, const char *kind, size_t k)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%zu", kind, k);
    return safetensors_find(cases, name);
}

/* Note the error of got against want, [n] each. */
static void compare(struct verification *v, size_t n)
{
    double difference = 0.0, size = 1.0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)v->got[i] - (double)v->want[i]);
        if (!(d <= difference)) /* NaN sticks */
            difference = isnan(difference) ? difference : d;
        size = fmax(size, fabs((double)v->want[i]));
    }
    const double error = difference / size;
    if (!(error <= v->error))
        v->error = isnan(v->error) ? v->error : error;
}

static enum status check_picture(const struct model *m, const struct tensor *in, struct error *err)
{
    const struct model_config *c = &m->config;
    if (in->dtype != DTYPE_U8 || in->rank != 3 || in->shape[2] != 3)
        return error_set(err, ERR_FORMAT, "%s: expected U8 [height, width, 3]", in->name);
    if (in->elements == 0 || in->elements > VERIFY_PIXELS_MAX)
        return error_set(err, ERR_FORMAT, "%s has %" PRIu64 " values, expected 1 to %u", in->name, in->elements,
                         VERIFY_PIXELS_MAX);
    if (in->shape[0] % c->patch[0] != 0 || in->shape[1] % c->patch[1] != 0)
        return error_set(err, ERR_FORMAT, "%s: %" PRIu64 " x %" PRIu64 " is not a multiple of the %u x %u patch",
                         in->name, in->shape[0], in->shape[1], c->patch[0], c->patch[1]);
    const uint64_t tokens = in->shape[0] / c->patch[0] * (in->shape[1] / c->patch[1]);
    if (tokens > MODEL_TOKENS_MAX)
        return error_set(err, ERR_FORMAT, "%s has %" PRIu64 " patches, expected at most %u", in->name, tokens,
                         MODEL_TOKENS_MAX);
    const uint64_t trained = (uint64_t)(c->size[0] / c->patch[0]) * (c->size[1] / c->patch[1]);
    if (model_config_fixed_size(c, m->pos_embed != NULL) && tokens != trained)
        return error_set(err, ERR_FORMAT, "%s has %" PRIu64 " patches, expected %" PRIu64 ": its positions are learnt",
                         in->name, tokens, trained);
    return OK;
}

static enum status check_bytes(const struct model *m, const struct tensor *in, struct error *err)
{
    const bool limited = !model_config_causal(&m->config) || model_config_limited(&m->config, m->pos_embed != NULL);
    const uint32_t most = limited ? model_text_max(m) : MODEL_CONTEXT_MAX;
    if (in->dtype != DTYPE_U8 || in->rank != 1 || in->elements == 0 || in->elements > most)
        return error_set(err, ERR_FORMAT, "%s: expected U8 [1 to %u]", in->name, most);
    return OK;
}

/* One case: is it well-formed, and how large must the engine be for it? *logits is how many it has. */
static enum status check_case(const struct verification *v, size_t k, struct engine_options *o, uint64_t *logits,
                              struct error *err)
{
    const struct model_config *c = &v->model->config;
    const bool pictures = c->input == INPUT_IMAGE, generates = model_config_causal(c);
    const struct tensor *in = find_case(v->cases, "input", k), *out = find_case(v->cases, "logits", k);
    if (in == NULL || out == NULL)
        return error_set(err, ERR_FORMAT, "cases.safetensors has no %s.%zu", in == NULL ? "input" : "logits", k);
    const enum status st = pictures ? check_picture(v->model, in, err) : check_bytes(v->model, in, err);
    if (st != OK)
        return st;
    *logits = generates ? in->elements * BYTE_VALUES : c->classes;
    if (out->elements != *logits)
        return error_set(err, ERR_FORMAT, "%s has %" PRIu64 " elements, expected %" PRIu64, out->name, out->elements,
                         *logits);
    const uint64_t tokens = pictures ? in->elements / 3 / c->patch[0] / c->patch[1] : in->elements;
    const uint64_t rows = in->elements < ENGINE_ROWS_MAX ? in->elements : ENGINE_ROWS_MAX;
    if (tokens > o->tokens_max)
        o->tokens_max = (uint32_t)tokens;
    if (generates && rows > o->rows_max)
        o->rows_max = (uint32_t)rows;
    return OK;
}

/* Check all inputs and their logits before the engine is sized for the largest. */
static enum status check_cases(struct verification *v, struct engine_options *o, struct error *err)
{
    uint64_t logits_max = 1;
    size_t named = 0;
    for (size_t i = 0; i < safetensors_count(v->cases); i++) {
        const char *name = safetensors_at(v->cases, i)->name;
        named += strncmp(name, "input.", 6) == 0 || strncmp(name, "logits.", 7) == 0 ? 1 : 0;
    }
    /* Every tensor must be checked: one after a gap would pass unnoticed. */
    v->inputs = named > 0 ? (named + 1) / 2 : 1;
    for (size_t k = 0; k < v->inputs; k++) {
        uint64_t logits = 0;
        const enum status st = check_case(v, k, o, &logits, err);
        if (st != OK)
            return st;
        logits_max = logits > logits_max ? logits : logits_max;
    }
    v->shifted = calloc((size_t)MODEL_CONTEXT_MAX + 1, 1);
    v->got = malloc((size_t)logits_max * sizeof *v->got);
    v->want = malloc((size_t)logits_max * sizeof *v->want);
    if (v->got == NULL || v->want == NULL || v->shifted == NULL)
        return error_set(err, ERR_NOMEM, "cannot allocate %" PRIu64 " logits", logits_max);
    return OK;
}

static void run_classifier(struct verification *v, const struct tensor *in)
{
    const uint8_t *batch[1] = {in->data};
    if (v->model->config.input == INPUT_IMAGE)
        engine_pictures_begin(v->engine, batch, 1, (uint32_t)in->shape[0], (uint32_t)in->shape[1]);
    else
        engine_texts_begin(v->engine, batch, 1, (uint32_t)in->elements);
    while (!engine_batch_step(v->engine))
        ;
    memcpy(v->got, engine_batch_logits(v->engine, 0), v->model->config.classes * sizeof *v->got);
    compare(v, v->model->config.classes);
}

/* Feed all bytes in parts of `most`. If a start embedding comes before them, the last one is not fed. */
static void run_bytes(struct verification *v, const struct tensor *in, uint32_t most)
{
    const uint8_t *bytes = in->data;
    if (v->model->start_embed != NULL) {
        memcpy(v->shifted + 1, in->data, (size_t)in->elements - 1);
        bytes = v->shifted;
    }
    engine_stream_reset(v->engine, 0);
    for (uint64_t at = 0; at < in->elements; at += most) {
        const uint64_t left = in->elements - at;
        const struct engine_part part = {
            .count = (uint32_t)(left < most ? left : most),
            .bytes = bytes + at,
            .every = true,
            .logits = v->got + at * BYTE_VALUES,
        };
        engine_feed(v->engine, &part, 1);
    }
    compare(v, (size_t)in->elements * BYTE_VALUES);
}

static enum status verify_run(struct verification *v, const char *name, const struct cli_engine *with,
                              struct error *err)
{
    struct engine_options o = {.pictures_max = 1, .tokens_max = 1, .streams_max = 1, .rows_max = 1};
    char path[4096];
    enum status st = cli_try_model(&v->model, name, err);
    if (st != OK)
        return st;
    if (snprintf(path, sizeof path, "%s/cases.safetensors", cli_model_dir()) >= (int)sizeof path)
        return error_set(err, ERR_ARGUMENT, "the path is too long");
    st = safetensors_open(&v->cases, path, err);
    if (st == OK)
        st = safetensors_read(v->cases, err);
    if (st == OK)
        st = check_cases(v, &o, err);
    if (st == OK)
        st = cli_try_engine(&v->engine, v->model, with, &o, err);
    v->precision = o.precision;
    for (size_t k = 0; st == OK && k < v->inputs; k++) {
        const struct tensor *in = find_case(v->cases, "input", k);
        const struct tensor *logits = find_case(v->cases, "logits", k);
        st = tensor_to_f32(logits, 0, logits->elements, v->want, err);
        if (st != OK)
            break;
        if (!model_config_causal(&v->model->config)) {
            run_classifier(v, in);
        } else {
            run_bytes(v, in, o.rows_max);
            run_bytes(v, in, 1);
        }
        cli_progress_show(v->progress, v->before + (k + 1) * PARTS / v->inputs, v->model->name);
    }
    return st;
}

static void verification_clear(struct verification *v)
{
    engine_close(v->engine);
    safetensors_close(v->cases);
    model_free(v->model);
    free(v->got);
    free(v->want);
    free(v->shifted);
}

/* What the command line says. */
struct options {
    struct cli_engine with;
    double tolerance; /* 0 or more; less: that of the precision */
    bool json;
};

static const char *say_passed(bool passed)
{
    if (!cli_has_colors(STDOUT_FILENO))
        return passed ? "ok    " : "FAILED";
    return passed ? CLI_GREEN "ok" CLI_PLAIN "    " : CLI_RED "FAILED" CLI_PLAIN;
}

static void verify_tell(const struct verification *v, const char *name, double tolerance, bool passed, bool as_json)
{
    if (as_json) {
        (void)cli_print_json(json_pack("{s:o, s:s, s:b, s:o, s:f, s:I}", "model", cli_json_text(name, strlen(name)),
                                       "precision", engine_precision_word(v->precision), "passed", (int)passed, "error",
                                       isfinite(v->error) ? json_real(v->error) : json_null(), "tolerance", tolerance,
                                       "inputs", (json_int_t)v->inputs));
        return;
    }
    (void)printf("%s  %-8.2g  %-4s  %s (%zu input%s%s)\n", say_passed(passed), v->error,
                 engine_precision_word(v->precision), name, v->inputs, v->inputs == 1 ? "" : "s",
                 model_config_causal(&v->model->config) ? ", at once and byte by byte" : "");
}

/* True if the model passed. */
static bool verify(const char *name, const struct options *w, struct cli_progress *progress, size_t before)
{
    struct verification v = {.progress = progress, .before = before * PARTS};
    struct error err;
    bool passed = false;
    const enum status st = verify_run(&v, name, &w->with, &err);
    cli_progress_wipe();
    if (st != OK) {
        if (w->json)
            (void)cli_print_json(json_pack("{s:o, s:b, s:s}", "model", cli_json_text(name, strlen(name)), "passed", 0,
                                           "message", err.message));
        else
            (void)printf("%s  %s: %s\n", say_passed(false), name, err.message);
    } else {
        const double tolerance = w->tolerance >= 0 ? w->tolerance : tolerances[v.precision];
        passed = v.error <= tolerance; /* false for NaN */
        verify_tell(&v, name, tolerance, passed, w->json);
    }
    (void)fflush(stdout); /* the next one takes a while */
    verification_clear(&v);
    return passed;
}

int cli_verify(int argc, char **argv)
{
    struct options w = {.tolerance = -1};
    const struct cli_option options[] = {
        CLI_THREADS_OPTION(&w.with.threads) CLI_PRECISION_OPTION(&w.with, "$AFTD_PRECISION, or f32"){
            "tolerance", CLI_NUMBER, &w.tolerance, 0, 1, "X", "f32 1e-4, bf16 0.05, int8 0.18",
            "largest relative error that passes"},
        CLI_JSON_OPTION(&w.json){0},
    };
    int count, passed = 0;
    const int code = cli_parse(options, argc, argv, 1, argc, &count);
    if (code != CLI_OK || count < 0)
        return code;
    /* Unless told otherwise, what shows the smallest mistake, not what is fastest. */
    if (w.with.precision == NULL && getenv("AFTD_PRECISION") == NULL)
        w.with.precision = engine_precision_word(ENGINE_F32);
    struct cli_progress progress = cli_progress_begin((size_t)count * PARTS);
    for (int i = 0; i < count; i++)
        passed += verify(argv[1 + i], &w, &progress, (size_t)i) ? 1 : 0;
    cli_progress_end(&progress);
    if (!w.json)
        (void)printf("%d passed, %d failed\n", passed, count - passed);
    return passed == count ? CLI_OK : CLI_FAILED;
}
