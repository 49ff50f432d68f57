/* test_mixers.c - every mixer, over whole sequences and over streams in pieces, in every instruction set that this
 * machine runs, against its plain twin (plain.h): rows of q, k and v in, rows of h out, without a model around it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/lanes.h"
#include "engine/pass/mixer.h"
#include "tests/engine/kernels/tables.h"
#include "tests/engine/mixers/plain.h"
#include "tests/support/random.h"

enum { TOKENS_MAX = 48, DIM_MAX = 36, BIAS_FLOATS = 36 * TOKENS_MAX * TOKENS_MAX };

/* A grid of 1 is a text. `context`: T, 0: all that there is. `window`: of sima its norm. */
static const struct {
    const char *name;
    enum mixer_type type;
    bool causal;
    uint32_t height, width, dim, heads, context, window, kernel[2];
    bool no_gate, no_global, shares_value; /* no_gate: of simple-attention, no scale */
    float key_size, bias_size;
} cases[] = {
    {"aft-full", MIXER_AFT_FULL, false, 1, 21, 20, 0, 21, 0, {1, 1}, false, false, false, 2.0f, 1.0f},
    {"aft-full, large biases", MIXER_AFT_FULL, false, 1, 21, 36, 0, 21, 0, {1, 1}, true, false, false, 2.0f, 60.0f},
    {"aft-local", MIXER_AFT_LOCAL, false, 1, 33, 20, 0, 33, 4, {1, 1}, false, false, false, 2.0f, 1.0f},
    {"aft-local, window alone", MIXER_AFT_LOCAL, false, 1, 33, 20, 0, 33, 4, {1, 1}, false, true, false, 2.0f, 1.0f},
    {"aft-simple", MIXER_AFT_SIMPLE, false, 1, 17, 20, 0, 17, 0, {1, 1}, false, false, false, 2.0f, 0.0f},
    {"aft-conv, picture", MIXER_AFT_CONV, false, 5, 7, 36, 4, 35, 0, {3, 5}, false, false, false, 2.0f, 1.0f},
    {"aft-conv, picture, exactly", MIXER_AFT_CONV, false, 5, 7, 36, 4, 35, 0, {4, 3}, true, false, false, 2.0f, 60.0f},
    {"aft-conv, picture, window alone",
     MIXER_AFT_CONV,
     false,
     6,
     6,
     32,
     32,
     36,
     0,
     {3, 3},
     false,
     true,
     false,
     2.0f,
     1.0f},
    {"attention", MIXER_ATTENTION, false, 1, 30, 36, 4, 30, 0, {1, 1}, false, false, false, 2.0f, 0.0f},
    {"sima", MIXER_SIMA, false, 1, 30, 36, 4, 30, 0, {1, 1}, false, false, false, 2.0f, 0.0f},
    {"sima by l2", MIXER_SIMA, false, 1, 30, 36, 4, 30, NORM_L2, {1, 1}, false, false, false, 2.0f, 0.0f},
    {"sima by none", MIXER_SIMA, false, 1, 30, 36, 4, 30, NORM_NONE, {1, 1}, false, false, false, 2.0f, 0.0f},
    {"simple, unscaled", MIXER_SIMPLE_ATTENTION, false, 1, 30, 36, 4, 30, 0, {1, 1}, true, false, false, 2.0f, 0.0f},
    {"sima, wide heads", MIXER_SIMA, false, 1, 9, 36, 2, 9, 0, {1, 1}, false, false, false, 2.0f, 0.0f},
    {"simple-attention", MIXER_SIMPLE_ATTENTION, false, 1, 30, 36, 4, 30, 0, {1, 1}, false, false, false, 2.0f, 0.0f},
    {"fastformer", MIXER_FASTFORMER, false, 1, 30, 36, 4, 30, 0, {1, 1}, false, false, false, 2.0f, 1.0f},
    {"fastformer, the query's value",
     MIXER_FASTFORMER,
     false,
     1,
     30,
     36,
     4,
     30,
     0,
     {1, 1},
     false,
     false,
     true,
     2.0f,
     1.0f},
    {"aft-full, stream", MIXER_AFT_FULL, true, 1, 40, 20, 0, 40, 0, {1, 1}, false, false, false, 2.0f, 1.0f},
    {"aft-local, stream", MIXER_AFT_LOCAL, true, 1, 48, 36, 0, 48, 5, {1, 1}, false, false, false, 30.0f, 1.0f},
    {"aft-local, stream, window alone",
     MIXER_AFT_LOCAL,
     true,
     1,
     48,
     20,
     0,
     48,
     5,
     {1, 1},
     false,
     true,
     false,
     2.0f,
     60.0f},
    {"aft-simple, stream", MIXER_AFT_SIMPLE, true, 1, 48, 20, 0, 16, 0, {1, 1}, true, false, false, 30.0f, 0.0f},
    {"aft-conv, stream", MIXER_AFT_CONV, true, 1, 48, 36, 4, 16, 0, {1, 7}, false, false, false, 2.0f, 1.0f},
    {"attention, stream", MIXER_ATTENTION, true, 1, 40, 36, 4, 40, 0, {1, 1}, false, false, false, 2.0f, 0.0f},
};

/* One block's mixer with its constants and the rows of a pass. */
struct scene {
    struct model_config config;
    struct engine_core core;
    struct block block;
    struct block_weights weights;
    struct activations a;
    struct mixer_scratch scratch;
    struct workspace workspace;
    float biases[BIAS_FLOATS], scores[2][DIM_MAX];
    float *state;
};

static void configure(struct model_config *c, size_t at)
{
    *c = (struct model_config){
        .task = cases[at].causal ? TASK_TEXT_GENERATION : TASK_TEXT_CLASSIFICATION,
        .input = INPUT_BYTES,
        .dim = cases[at].dim,
        .depth = 1,
        .hidden = 2 * cases[at].dim,
        .context = cases[at].context,
        .mixer =
            {
                .type = cases[at].type,
                .window = cases[at].window,
                .heads = cases[at].heads,
                .kernel = {cases[at].kernel[0], cases[at].kernel[1]},
                .query_gate = !cases[at].no_gate,
                .global = !cases[at].no_global,
                .share_value_query = cases[at].shares_value,
                .scale = !cases[at].no_gate,
                .norm = cases[at].type == MIXER_SIMA ? (enum mixer_norm)cases[at].window : NORM_L1,
            },
    };
}

/* As fold.h leaves them: of pairs, 0 or minus infinity beyond the window; by lag; or a head's taps. */
static size_t fill_biases(struct scene *s, size_t at, struct random *rng)
{
    const struct model_config *c = &s->config;
    const size_t span = model_config_span(c), taps = (size_t)c->mixer.kernel[0] * c->mixer.kernel[1];
    const size_t across = cases[at].causal ? span : c->context;
    const size_t n = c->mixer.type == MIXER_AFT_CONV ? taps * c->mixer.heads : c->context * across;
    for (size_t i = 0; i < n; i++) {
        const size_t row = i / across, column = i % across, apart = row > column ? row - column : column - row;
        const bool is_beyond = c->mixer.type == MIXER_AFT_LOCAL && !cases[at].causal && apart >= span;
        s->biases[i] = !is_beyond ? random_float(rng, cases[at].bias_size) : c->mixer.global ? 0.0f : -INFINITY;
    }
    return n;
}

static void open_scene(struct scene *s, const struct kernels *kn, size_t at, struct random *rng)
{
    struct engine_core *e = &s->core;
    const size_t tokens = (size_t)cases[at].height * cases[at].width;
    struct error err;
    memset(s, 0, sizeof *s);
    configure(&s->config, at);
    const struct mixer_facts *facts = mixer_facts(cases[at].type);
    *e = (struct engine_core){.kernels = kn,
                              .mixer = kn->mixers[cases[at].type],
                              .config = &s->config,
                              .threads = 1,
                              .blocks = &s->block,
                              .head_keys = facts->keys == KEYS_PER_HEAD};
    dims_init(&e->dims, &s->config);
    if (facts->biases != BIASES_NONE && fill_biases(s, at, rng) > 0)
        s->weights.biases = s->biases;
    for (size_t i = 0; i < 2; i++) {
        for (size_t c = 0; c < cases[at].dim; c++)
            s->scores[i][c] = random_float(rng, 1.0f);
        s->weights.own[i] = s->scores[i];
    }
    workspace_init(&s->workspace);
    workspace_note(&s->workspace, &e->head_of, e->dims.channels, sizeof *e->head_of);
    workspace_note(&s->workspace, &s->a.x, tokens * e->dims.channels, sizeof(float));
    workspace_note(&s->workspace, &s->a.h, tokens * e->dims.channels, sizeof(float));
    workspace_note(&s->workspace, &s->a.qkv, tokens * e->dims.qkv, sizeof(float));
    workspace_note(&s->workspace, &s->a.mlp, tokens * e->dims.hidden, sizeof(float));
    s->block.mixing = calloc(1, e->mixer->block_bytes + 1);
    assert_non_null(s->block.mixing);
    if (e->mixer->plan != NULL)
        e->mixer->plan(&s->block, &s->workspace, e, &s->weights);
    if (cases[at].causal)
        workspace_note(&s->workspace, &s->state, e->mixer->layer_floats(e), sizeof *s->state);
    else
        e->mixer->plan_scratch(&s->scratch, &s->workspace, e, tokens, (uint32_t)tokens);
    assert_int_equal(workspace_take(&s->workspace, &err), OK);
    for (uint32_t c = 0; c < e->dims.channels; c++)
        e->head_of[c] = !e->head_keys ? c : c < cases[at].dim ? c / (cases[at].dim / cases[at].heads) : 0;
    if (e->mixer->pack != NULL)
        e->mixer->pack(&s->block, e, &s->weights);
}

static void close_scene(struct scene *s)
{
    workspace_clear(&s->workspace);
    free(s->block.mixing);
}

static void fill_rows(struct scene *s, size_t at, struct random *rng)
{
    const struct dims *d = &s->core.dims;
    const size_t keys = model_config_keys(&s->config);
    for (size_t t = 0; t < (size_t)cases[at].height * cases[at].width; t++) {
        float *row = s->a.qkv + t * d->qkv;
        for (size_t c = 0; c < cases[at].dim; c++) {
            row[c] = random_float(rng, 2.0f);
            if (!cases[at].shares_value)
                row[d->channels + d->keys + c] = random_float(rng, 1.0f);
        }
        for (size_t k = 0; k < keys; k++)
            row[d->channels + k] = random_float(rng, cases[at].key_size);
    }
}

/* ---- what is expected ------------------------------------------------------------------------------------------- */

/* What head h adds to the key of s at position t. */
static double bias_of(const struct scene *s, size_t at, size_t h, size_t t, size_t other)
{
    const struct mixer_config *m = &s->config.mixer;
    const double beyond = m->global ? 0.0 : -INFINITY;
    const size_t lag = t - other, span = model_config_span(&s->config);
    if (cases[at].causal && other > t)
        return -INFINITY;
    if (m->type == MIXER_AFT_SIMPLE)
        return 0.0;
    if (m->type != MIXER_AFT_CONV && cases[at].causal)
        return lag < span ? (double)s->biases[t * span + lag] : beyond;
    if (m->type != MIXER_AFT_CONV)
        return (double)s->biases[t * s->config.context + other];
    const int kh = (int)m->kernel[0], kw = (int)m->kernel[1], width = (int)cases[at].width;
    const int down = (int)other / width - (int)t / width + (cases[at].causal ? 0 : kh / 2),
              across = (int)other % width - (int)t % width + (cases[at].causal ? kw - 1 : kw / 2);
    return down >= 0 && down < kh && across >= 0 && across < kw
               ? (double)s->biases[h * (size_t)(kh * kw) + (size_t)(down * kw + across)]
               : beyond;
}

static void expect(double *y, const struct scene *s, size_t at)
{
    const struct dims *d = &s->core.dims;
    const size_t tokens = (size_t)cases[at].height * cases[at].width, heads = cases[at].heads;
    const struct plain_input in = {.q = s->a.qkv,
                                   .k = s->a.qkv + d->channels,
                                   .v = cases[at].shares_value ? s->a.qkv : s->a.qkv + d->channels + d->keys,
                                   .stride = d->qkv,
                                   .tokens = tokens,
                                   .dim = cases[at].dim};
    switch (cases[at].type) {
    case MIXER_ATTENTION:
        plain_attention(y, &in, heads, cases[at].causal);
        return;
    case MIXER_SIMA:
        plain_sima(y, &in, heads, (enum mixer_norm)cases[at].window);
        return;
    case MIXER_SIMPLE_ATTENTION:
        plain_simple_attention(y, &in, heads, !cases[at].no_gate);
        return;
    case MIXER_FASTFORMER:
        plain_fastformer(y, &in, heads, s->scores[0], s->scores[1]);
        return;
    default: {
        const size_t of = heads > 0 ? heads : 1;
        double *w = malloc(of * tokens * tokens * sizeof *w);
        assert_non_null(w);
        for (size_t h = 0; h < of; h++)
            for (size_t t = 0; t < tokens; t++)
                for (size_t other = 0; other < tokens; other++)
                    w[(h * tokens + t) * tokens + other] = bias_of(s, at, h, t, other);
        plain_aft(y, &in, w, of, heads == 0, !cases[at].no_gate);
        free(w);
    }
    }
}

/* ---- what is computed ------------------------------------------------------------------------------------------- */

/* A prompt and bytes after it: pieces of any number of rows. */
static void mix_pieces(struct scene *s, size_t at, struct random *rng)
{
    const uint32_t tokens = cases[at].width;
    for (size_t t = 0, count; t < tokens; t += count) {
        count = random_below(rng, 2) == 0 ? 1 : 1 + random_below(rng, (uint32_t)(tokens - t));
        const struct stream_part part = {.state = s->state, .count = (uint32_t)count, .position = (uint32_t)t};
        const struct stream_pass pass = {.parts = &part, .part_count = 1};
        const struct activations a = {.x = s->a.x + t * s->core.dims.channels,
                                      .h = s->a.h + t * s->core.dims.channels,
                                      .qkv = s->a.qkv + t * s->core.dims.qkv,
                                      .mlp = s->a.mlp + t * s->core.dims.hidden};
        s->core.mixer->mix_streams(&s->core, 0, &a, &pass);
    }
}

static void run_case(const struct kernels *kn, size_t at, struct random *rng)
{
    static struct scene s;
    static double want[TOKENS_MAX * DIM_MAX];
    const size_t tokens = (size_t)cases[at].height * cases[at].width;
    open_scene(&s, kn, at, rng);
    fill_rows(&s, at, rng);
    expect(want, &s, at); /* first: fastformer overwrites the keys */
    double size = 1.0;
    for (size_t i = 0; i < tokens * cases[at].dim; i++)
        size = fmax(size, fabs(want[i]));
    if (cases[at].causal) {
        mix_pieces(&s, at, rng);
    } else {
        const struct sequence_pass pass = {
            .sequences = 1, .tokens = (uint32_t)tokens, .height = cases[at].height, .width = cases[at].width};
        s.core.mixer->mix_sequences(&s.core, 0, &s.a, &s.scratch, &pass);
    }
    for (size_t t = 0; t < tokens; t++)
        for (size_t c = 0; c < cases[at].dim; c++) {
            const double got = (double)s.a.h[t * s.core.dims.channels + c], is = want[t * cases[at].dim + c];
            if (!(fabs(got - is) <= 1e-5 * size))
                fail_msg("%s, %s: position %zu channel %zu is %g, expected %g", kn->isa, cases[at].name, t, c, got, is);
        }
    close_scene(&s);
}

static void every_mixer_agrees_with_its_formula(void **state)
{
    (void)state;
    struct random rng = {11};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            for (int repeat = 0; repeat < 3; repeat++)
                run_case(tables[a], i, &rng);
}

static void every_mixer_and_form_is_here(void **state)
{
    (void)state;
    bool parallel[MIXER_COUNT] = {false}, causal[MIXER_COUNT] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        (cases[i].causal ? causal : parallel)[cases[i].type] = true;
    for (enum mixer_type type = 0; type < MIXER_COUNT; type++) {
        assert_true(parallel[type]);
        assert_int_equal(causal[type], mixer_facts(type)->streams != STREAMS_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mixer_agrees_with_its_formula),
        cmocka_unit_test(every_mixer_and_form_is_here),
    };
    return cmocka_run_group_tests_name("mixers", tests, NULL, NULL);
}
