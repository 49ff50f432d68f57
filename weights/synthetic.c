/* synthetic.c - see synthetic.h. A model is laid out twice by the same code: first to count its floats, then to place
 * and fill them, so that both agree. Layers are initialised as before training: a layer's outputs are about as large as
 * its inputs, and what joins the residual is small, so that activations stay about 1 however many blocks there are and
 * keys lie within a few units of 0. No state. */
#include "weights/synthetic.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64u
#define BIAS_SPREAD 1.0f /* of position biases: trained ones lie around 0 with about this much */
#define VECTOR_SPREAD 0.1f

#define TEXT .task = TASK_TEXT_GENERATION, .input = INPUT_BYTES
#define PICTURES .task = TASK_IMAGE_CLASSIFICATION, .input = INPUT_IMAGE

/* Every model: its name, and what is particular to its configuration. */
#define SHAPES(X)                                                                                             \
    X("aft-conv-small-224", PICTURES, .dim = 384, .depth = 12, .size = {224, 224}, .patch = {16, 16},         \
      .resize_to = 224, .classes = 1000, .mixer = {.type = MIXER_AFT_CONV, .heads = 384, .kernel = {11, 11}}) \
    X("aft-local-24x256", TEXT, .dim = 256, .depth = 24, .context = 1024,                                     \
      .mixer = {.type = MIXER_AFT_LOCAL, .window = 32})                                                       \
    X("aft-local-12x512", TEXT, .dim = 512, .depth = 12, .context = 1024,                                     \
      .mixer = {.type = MIXER_AFT_LOCAL, .window = 32})

static const struct {
    const char *name;
    struct model_config config;
} shapes[] = {
#define X(id, ...) {.name = (id), .config = {__VA_ARGS__}},
    SHAPES(X)
#undef X
};
#define SHAPE_COUNT (sizeof shapes / sizeof shapes[0])

/* ---- laying out ------------------------------------------------------------------------------------------------- */

struct layout {
    float *arena; /* NULL: count only */
    uint64_t used, parameters;
    uint32_t state;
};

/* A linear congruential generator's upper bits: -1..1. */
static float next(struct layout *l)
{
    l->state = l->state * 1664525u + 1013904223u;
    return (float)((int32_t)l->state >> 8) * 0x1p-23f;
}

/* Numbers from middle - spread to middle + spread. */
static float *place(struct layout *l, uint64_t count, float middle, float spread)
{
    float *at = l->arena == NULL ? NULL : l->arena + l->used;
    for (uint64_t i = 0; at != NULL && i < count; i++)
        at[i] = middle + spread * next(l);
    l->used += (count + ALIGNMENT / sizeof(float) - 1) / (ALIGNMENT / sizeof(float)) * (ALIGNMENT / sizeof(float));
    l->parameters += count;
    return at;
}

/* gain: how large outputs are relative to inputs. Uniform numbers up to x have a variance of x * x / 3. */
static struct linear place_linear(struct layout *l, uint32_t out, uint32_t in, float gain)
{
    const uint64_t count = (uint64_t)out * in;
    const float *weight = place(l, count, 0.0f, gain * sqrtf(3.0f / (float)in));
    return (struct linear){
        .weight = {.dtype = DTYPE_F32,
                   .rank = 2,
                   .shape = {out, in},
                   .elements = count,
                   .bytes = count * sizeof *weight,
                   .data = (const uint8_t *)weight},
        .bias = place(l, out, 0.0f, VECTOR_SPREAD),
        .out = out,
        .in = in,
    };
}

static struct norm place_norm(struct layout *l, uint32_t dim)
{
    struct norm n;
    n.weight = place(l, dim, 1.0f, VECTOR_SPREAD);
    n.bias = place(l, dim, 0.0f, VECTOR_SPREAD);
    return n;
}

/* For generators, which are causal. */
static void place_band(struct layout *l, struct block_weights *b, const struct model_config *c)
{
    const uint32_t span = model_config_span(c);
    float *band = place(l, (uint64_t)c->context * span, 0.0f, BIAS_SPREAD);
    for (uint32_t t = 0; band != NULL && t + 1 < span; t++) /* no positions before the first */
        memset(band + (size_t)t * span + t + 1, 0, (span - t - 1) * sizeof *band);
    b->biases = band;
}

static void place_block(struct layout *l, struct block_weights *b, const struct model_config *c)
{
    const float residual = 1.0f / sqrtf(2.0f * (float)c->depth);
    b->norm1 = place_norm(l, c->dim);
    b->q = place_linear(l, c->dim, c->dim, 1.0f);
    b->k = place_linear(l, model_config_keys(c), c->dim, 1.0f);
    b->v = place_linear(l, c->dim, c->dim, 1.0f);
    b->out = place_linear(l, c->dim, c->dim, residual);
    b->norm2 = place_norm(l, c->dim);
    b->fc1 = place_linear(l, c->hidden, c->dim, 1.0f);
    b->fc2 = place_linear(l, c->dim, c->hidden, residual);
    switch (mixer_facts(c->mixer.type)->biases) {
    case BIASES_PER_OFFSET:
        b->biases = place(l, (uint64_t)c->mixer.heads * c->mixer.kernel[0] * c->mixer.kernel[1], 0.0f, BIAS_SPREAD);
        break;
    case BIASES_PER_PAIR:
        place_band(l, b, c);
        break;
    case BIASES_NONE:
        break;
    }
}

static void place_model(struct layout *l, struct model *m)
{
    const struct model_config *c = &m->config;
    if (c->input == INPUT_IMAGE) {
        m->patch_embed = place_linear(l, c->dim, 3 * c->patch[0] * c->patch[1], 1.0f);
    } else {
        m->tok_embed = place(l, (uint64_t)BYTE_VALUES * c->dim, 0.0f, 1.0f);
        m->pos_embed = place(l, (uint64_t)c->context * c->dim, 0.0f, VECTOR_SPREAD);
    }
    for (uint32_t i = 0; i < c->depth; i++)
        place_block(l, &m->blocks[i], c);
    m->norm = place_norm(l, c->dim);
    m->head = place_linear(l, c->input == INPUT_IMAGE ? c->classes : BYTE_VALUES, c->dim, 1.0f);
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

static size_t synthetic_find(const char *name)
{
    size_t i = 0;
    while (i < SHAPE_COUNT && strcmp(shapes[i].name, name) != 0)
        i++;
    return i;
}

bool synthetic_has(const char *name)
{
    return synthetic_find(name) < SHAPE_COUNT;
}

const char *synthetic_names(void)
{
#define X(id, ...) ", " id
    static const char names[] = SHAPES(X);
#undef X
    return names + 2;
}

/* What all of them share. */
static enum status make_config(struct model_config *c, const struct model_config *shape, struct error *err)
{
    *c = *shape;
    c->hidden = 4 * c->dim;
    c->activation = ACTIVATION_GELU;
    c->norm_eps = 1e-5f;
    c->mixer.query_gate = c->mixer.global = true;
    c->pooling = POOLING_MEAN;
    c->interpolation = INTERPOLATION_BICUBIC;
    for (int i = 0; i < 3; i++) {
        c->mean[i] = 0.5f;
        c->std[i] = 0.25f;
    }
    if (c->classes == 0)
        return OK;
    c->labels = calloc(c->classes, sizeof *c->labels);
    for (uint32_t i = 0; c->labels != NULL && i < c->classes; i++)
        if (asprintf(&c->labels[i], "class %u", i) < 0) {
            c->labels[i] = NULL;
            return error_set(err, ERR_NOMEM, "not enough memory for %u labels", c->classes);
        }
    return c->labels != NULL ? OK : error_set(err, ERR_NOMEM, "not enough memory for %u labels", c->classes);
}

static enum status synthetic_fill(struct model *m, struct error *err)
{
    struct layout l = {.arena = NULL};
    m->blocks = calloc(m->config.depth, sizeof *m->blocks);
    if (m->blocks == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for %u blocks", m->config.depth);
    place_model(&l, m);
    m->parameters = l.parameters;
    m->arena_bytes = l.used * sizeof *m->arena;
    m->arena = aligned_alloc(ALIGNMENT, (size_t)m->arena_bytes);
    if (m->arena == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for the model's %" PRIu64 " bytes", m->arena_bytes);
    l = (struct layout){.arena = m->arena, .state = 1};
    place_model(&l, m);
    return OK;
}

enum status synthetic_model(struct model **ret, const char *name, struct error *err)
{
    const size_t i = synthetic_find(name);
    if (i == SHAPE_COUNT)
        return error_set_param(err, ERR_ARGUMENT, "synthetic", "unknown synthetic model \"%.100s\"; expected one of %s",
                               name, synthetic_names());
    struct model *m = calloc(1, sizeof *m);
    if (m == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for a model");
    (void)snprintf(m->name, sizeof m->name, "%s", name);
    enum status st = make_config(&m->config, &shapes[i].config, err);
    if (st == OK)
        st = synthetic_fill(m, err);
    if (st == OK)
        *ret = m;
    else
        model_free(m);
    return st;
}
