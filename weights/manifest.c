/* manifest.c - the tables, and the one function that walks them; a mixer's facts (mixers.h) say which rows it has. Any
 * thread; no state. Invariant of a finished manifest: every tensor of the set is bound to exactly one field. */
#include "weights/manifest.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- the tables ------------------------------------------------------------------------------------------------- */

static const char *const extent_names[] = {
#define X(name, text, value) text,
    EXTENTS(X)
#undef X
};

static uint64_t extent_value(const struct model_config *c, enum extent e)
{
    switch (e) {
#define X(name, text, value) \
    case EXTENT_##name:      \
        return value;
        EXTENTS(X)
#undef X
    }
    return 0;
}

enum row_kind {
    ROW_TENSOR, /* one tensor */
    ROW_LINEAR, /* NAME.weight and, optionally, NAME.bias of the first side: a struct linear */
    ROW_NORM    /* NAME.weight and NAME.bias: a struct norm */
};
enum row_struct { IN_MODEL, IN_BLOCK, IN_FOLD }; /* struct model, block_weights, fold_source */
enum row_presence { REQUIRED, OPTIONAL };

/* What decides whether a config has such a tensor; one that the file has nevertheless is left over. */
enum row_condition {
    ALWAYS,
    CLASS_TOKEN = 1 << 0,
    KEYS_OF_HEADS = 1 << 1,
    KEYS_OF_CHANNELS = 1 << 2,
    OWN_VALUE = 1 << 3,
    PROJECTION = 1 << 4,
    KERNEL = 1 << 5,
    PICTURES = 1 << 6,
    SEQUENCES = 1 << 7,
    BIASES_OF_PAIRS = 1 << 8,
    POOLED_BY_ATTENTION = 1 << 9
};

static unsigned conditions_of(const struct model_config *c)
{
    const struct mixer_facts *m = mixer_facts(c->mixer.type);
    return (c->pooling == POOLING_CLASS_TOKEN ? CLASS_TOKEN : 0u) |
           (c->pooling == POOLING_ATTENTION ? POOLED_BY_ATTENTION : 0u) |
           (m->keys == KEYS_PER_HEAD ? KEYS_OF_HEADS : KEYS_OF_CHANNELS) |
           (c->mixer.share_value_query ? 0u : OWN_VALUE) | (m->bare ? 0u : PROJECTION) |
           (m->biases == BIASES_PER_OFFSET ? KERNEL : 0u) | (m->biases == BIASES_PER_PAIR ? BIASES_OF_PAIRS : 0u) |
           (c->input == INPUT_IMAGE ? PICTURES : SEQUENCES);
}

#define SHAPE_MAX 4
_Static_assert(SHAPE_MAX <= TENSOR_RANK_MAX && MIXER_TENSOR_RANK_MAX <= SHAPE_MAX,
               "tensors have the rank that rows ask for");

struct row {
    const char *name;
    enum row_kind kind;
    enum row_struct in;
    enum row_presence presence;
    uint32_t rank;
    size_t offset;
    unsigned when; /* of enum row_condition, all of them */
    enum extent shape[SHAPE_MAX];
};

#define AT(where, how, type, field) .in = (where), .presence = (how), .offset = offsetof(type, field)
#define MODEL(field) AT(IN_MODEL, REQUIRED, struct model, field)
#define MODEL_OPTIONAL(field) AT(IN_MODEL, OPTIONAL, struct model, field)
#define BLOCK(field) AT(IN_BLOCK, REQUIRED, struct block_weights, field)
#define FOLD(field) AT(IN_FOLD, REQUIRED, struct fold_source, field)
#define FOLD_OPTIONAL(field) AT(IN_FOLD, OPTIONAL, struct fold_source, field)
#define SHAPE1(a) .rank = 1, .shape = {EXTENT_##a}
#define SHAPE2(a, b) .rank = 2, .shape = {EXTENT_##a, EXTENT_##b}
#define SHAPE3(a, b, c) .rank = 3, .shape = {EXTENT_##a, EXTENT_##b, EXTENT_##c}
#define SHAPE4(a, b, c, d) .rank = 4, .shape = {EXTENT_##a, EXTENT_##b, EXTENT_##c, EXTENT_##d}

static const struct row picture_classifier_rows[] = {
    {"patch_embed", ROW_LINEAR, MODEL(patch_embed), SHAPE4(DIM, COLOURS, PATCH_H, PATCH_W)},
    {"cls_token", ROW_TENSOR, MODEL(cls_token), SHAPE1(DIM), .when = CLASS_TOKEN},
    {"pos_embed", ROW_TENSOR, MODEL_OPTIONAL(pos_embed), SHAPE2(TOKENS, DIM)},
    {"norm", ROW_NORM, MODEL(norm), SHAPE1(DIM)},
    {"pool_score", ROW_TENSOR, MODEL(pool_score), SHAPE1(DIM), .when = POOLED_BY_ATTENTION},
    {"head", ROW_LINEAR, MODEL(head), SHAPE2(CLASSES, DIM)},
};

/* Generators of bytes, or of the sub-pixels of a picture. */
static const struct row generator_rows[] = {
    {"tok_embed", ROW_TENSOR, MODEL(tok_embed), SHAPE2(BYTES, DIM)},
    {"start_embed", ROW_TENSOR, MODEL_OPTIONAL(start_embed), SHAPE1(DIM)},
    {"pos_embed", ROW_TENSOR, MODEL_OPTIONAL(pos_embed), SHAPE2(TOKENS, DIM)},
    {"norm", ROW_NORM, MODEL(norm), SHAPE1(DIM)},
    {"head", ROW_LINEAR, MODEL(head), SHAPE2(BYTES, DIM)},
};

static const struct row text_classifier_rows[] = {
    {"tok_embed", ROW_TENSOR, MODEL(tok_embed), SHAPE2(BYTES, DIM)},
    {"cls_token", ROW_TENSOR, MODEL_OPTIONAL(cls_token), SHAPE1(DIM), .when = CLASS_TOKEN},
    {"pos_embed", ROW_TENSOR, MODEL_OPTIONAL(pos_embed), SHAPE2(TOKENS, DIM)},
    {"norm", ROW_NORM, MODEL(norm), SHAPE1(DIM)},
    {"pool_score", ROW_TENSOR, MODEL(pool_score), SHAPE1(DIM), .when = POOLED_BY_ATTENTION},
    {"head", ROW_LINEAR, MODEL(head), SHAPE2(CLASSES, DIM)},
};

/* What every block has besides its mixer. */
static const struct row block_rows[] = {
    {"norm1", ROW_NORM, BLOCK(norm1), SHAPE1(DIM)},
    {"norm2", ROW_NORM, BLOCK(norm2), SHAPE1(DIM)},
    {"mlp.fc1", ROW_LINEAR, BLOCK(fc1), SHAPE2(HIDDEN, DIM)},
    {"mlp.fc2", ROW_LINEAR, BLOCK(fc2), SHAPE2(DIM, HIDDEN)},
};

static const struct row mixer_rows[] = {
    {"mixer.q", ROW_LINEAR, BLOCK(q), SHAPE2(DIM, DIM)},
    {"mixer.k", ROW_LINEAR, BLOCK(k), SHAPE2(DIM, DIM), .when = KEYS_OF_CHANNELS},
    {"mixer.k", ROW_LINEAR, BLOCK(k), SHAPE2(HEADS, DIM), .when = KEYS_OF_HEADS},
    {"mixer.v", ROW_LINEAR, BLOCK(v), SHAPE2(DIM, DIM), .when = OWN_VALUE},
    {"mixer.out", ROW_LINEAR, BLOCK(out), SHAPE2(DIM, DIM), .when = PROJECTION},
    {"mixer.conv.weight", ROW_TENSOR, FOLD(conv_weight), SHAPE3(HEADS, KERNEL_H, KERNEL_W), .when = KERNEL | PICTURES},
    {"mixer.conv.weight", ROW_TENSOR, FOLD(conv_weight), SHAPE2(HEADS, KERNEL_W), .when = KERNEL | SEQUENCES},
    {"mixer.conv.gain", ROW_TENSOR, FOLD_OPTIONAL(conv_gain), SHAPE1(HEADS), .when = KERNEL},
    {"mixer.conv.bias", ROW_TENSOR, FOLD_OPTIONAL(conv_bias), SHAPE1(HEADS), .when = KERNEL},
    {"mixer.pos_u", ROW_TENSOR, FOLD_OPTIONAL(pos_u), SHAPE2(TOKENS, FACTORS), .when = BIASES_OF_PAIRS},
    {"mixer.pos_v", ROW_TENSOR, FOLD_OPTIONAL(pos_v), SHAPE2(TOKENS, FACTORS), .when = BIASES_OF_PAIRS},
    {"mixer.pos_bias", ROW_TENSOR, FOLD_OPTIONAL(pos_bias), SHAPE2(TOKENS, TOKENS), .when = BIASES_OF_PAIRS},
};

struct table {
    const struct row *rows;
    size_t count;
};
#define TABLE(array)           \
    {                          \
        (array), LENGTH(array) \
    }

static const struct table task_tables[] = {
    [TASK_IMAGE_CLASSIFICATION] = TABLE(picture_classifier_rows),
    [TASK_TEXT_GENERATION] = TABLE(generator_rows),
    [TASK_TEXT_CLASSIFICATION] = TABLE(text_classifier_rows),
    [TASK_IMAGE_GENERATION] = TABLE(generator_rows),
};

/* ---- one tensor ------------------------------------------------------------------------------------------------- */

/* The walk through the tables. */
struct walk {
    const struct model_config *config;
    const struct tensor_set *set;
    struct manifest manifest;
    bool *taken;      /* [tensor_set_count] */
    void *bases[3];   /* the structs behind enum row_struct */
    char prefix[32];  /* "blocks.3." or "" */
    uint64_t factors; /* d' of this block; 0 until a tensor has set it */
    unsigned conditions;
};

struct shape_text {
    char text[192];
};

/* "[32, 128]"; an expected side of 0 may be anything and is shown by its name. */
static struct shape_text format_shape(const uint64_t *sides, uint32_t rank)
{
    struct shape_text s = {"["};
    size_t at = 1;

    for (uint32_t i = 0; i < rank && at < sizeof s.text; i++)
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%" PRIu64, i == 0 ? "" : ", ", sides[i]);
    if (at < sizeof s.text)
        (void)snprintf(s.text + at, sizeof s.text - at, "]");
    return s;
}

/* "[32, 128] (heads, dim)" */
static struct shape_text format_expected(const struct walk *w, const enum extent *shape, uint32_t rank)
{
    struct shape_text s = {"["};
    size_t at = 1;

    for (uint32_t i = 0; i < rank && at < sizeof s.text; i++) {
        const uint64_t side = shape[i] == EXTENT_FACTORS ? w->factors : extent_value(w->config, shape[i]);
        const char *comma = i == 0 ? "" : ", ";
        at += (size_t)(side == 0 ? snprintf(s.text + at, sizeof s.text - at, "%s%s", comma, extent_names[shape[i]])
                                 : snprintf(s.text + at, sizeof s.text - at, "%s%" PRIu64, comma, side));
    }
    for (uint32_t i = 0; i < rank && at < sizeof s.text; i++)
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%s", i == 0 ? "] (" : ", ", extent_names[shape[i]]);
    if (at < sizeof s.text)
        (void)snprintf(s.text + at, sizeof s.text - at, ")");
    return s;
}

/* A side of d' is free for the first tensor of a block that has one, and fixed from then on. */
static bool shape_fits(struct walk *w, const struct tensor *t, const enum extent *shape, uint32_t rank)
{
    if (t->rank != rank)
        return false;
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] == EXTENT_FACTORS && w->factors == 0 && t->shape[i] >= 1 && t->shape[i] <= MODEL_DIM_MAX)
            w->factors = t->shape[i];
        const uint64_t want = shape[i] == EXTENT_FACTORS ? w->factors : extent_value(w->config, shape[i]);
        if (t->shape[i] != want)
            return false;
    }
    return true;
}

/* *ret: the tensor, which is taken then, or NULL where there is none and needs to be none. */
static enum status take_tensor(const struct tensor **ret, struct walk *w, const struct row *row, const char *suffix,
                               enum row_presence presence, uint32_t rank, struct error *err)
{
    char name[TENSOR_NAME_MAX];

    *ret = NULL;
    (void)snprintf(name, sizeof name, "%s%s%s", w->prefix, row->name, suffix);
    const size_t number = tensor_set_find(w->set, name);
    if (number == tensor_set_count(w->set)) {
        if (presence == OPTIONAL)
            return OK;
        return error_set_param(err, ERR_FORMAT, name, "%s is missing, expected shape %s", name,
                               format_expected(w, row->shape, rank).text);
    }
    const struct tensor *t = tensor_set_at(w->set, number);
    if (!shape_fits(w, t, row->shape, rank))
        return error_set_param(err, ERR_FORMAT, name, "%s has shape %s, expected %s", name,
                               format_shape(t->shape, t->rank).text, format_expected(w, row->shape, rank).text);
    assert(!w->taken[number]);
    w->taken[number] = true;
    *ret = t;
    return OK;
}

static enum status bind_tensor(struct walk *w, const struct row *row, const char *suffix, enum row_presence presence,
                               uint32_t rank, const float **field, struct error *err)
{
    const struct tensor *t;
    const enum status st = take_tensor(&t, w, row, suffix, presence, rank, err);
    if (t != NULL)
        w->manifest.bindings[w->manifest.count++] =
            (struct binding){.tensor = t, .field = field, .folded = row->in == IN_FOLD};
    return st;
}

/* ---- rows and tables -------------------------------------------------------------------------------------------- */

static enum status bind_linear(struct walk *w, const struct row *row, struct linear *l, struct error *err)
{
    uint64_t in = 1;

    for (uint32_t i = 1; i < row->rank; i++)
        in *= extent_value(w->config, row->shape[i]);
    l->out = (uint32_t)extent_value(w->config, row->shape[0]);
    l->in = (uint32_t)in;
    const struct tensor *weight;
    const enum status st = take_tensor(&weight, w, row, ".weight", row->presence, row->rank, err);
    if (st != OK)
        return st;
    l->weight = *weight; /* all of them are required */
    return bind_tensor(w, row, ".bias", OPTIONAL, 1, &l->bias, err);
}

static enum status bind_norm(struct walk *w, const struct row *row, struct norm *n, struct error *err)
{
    enum status st = bind_tensor(w, row, ".weight", row->presence, row->rank, &n->weight, err);
    if (st == OK)
        st = bind_tensor(w, row, ".bias", row->presence, row->rank, &n->bias, err);
    return st;
}

static enum status bind_rows(struct walk *w, const struct row *rows, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        enum status st = OK;
        void *field = (char *)w->bases[rows[i].in] + rows[i].offset;
        if ((rows[i].when & ~w->conditions) != 0)
            continue;
        switch (rows[i].kind) {
        case ROW_TENSOR:
            st = bind_tensor(w, &rows[i], "", rows[i].presence, rows[i].rank, field, err);
            break;
        case ROW_LINEAR:
            st = bind_linear(w, &rows[i], field, err);
            break;
        case ROW_NORM:
            st = bind_norm(w, &rows[i], field, err);
            break;
        }
        if (st != OK)
            return st;
    }
    return OK;
}

/* The mixer's own tensors, besides those that mixers may share. */
static enum status bind_own_tensors(struct walk *w, struct error *err)
{
    const struct mixer_tensor *tensors = mixer_facts(w->config->mixer.type)->tensors;
    enum status st = OK;

    for (size_t i = 0; st == OK && i < MIXER_TENSORS_MAX && tensors[i].name != NULL; i++) {
        char name[TENSOR_NAME_MAX];
        struct row row = {name, ROW_TENSOR, BLOCK(own), .rank = tensors[i].rank};
        row.offset += i * sizeof(const float *);
        (void)snprintf(name, sizeof name, "mixer.%s", tensors[i].name);
        memcpy(row.shape, tensors[i].shape, sizeof tensors[i].shape);
        st = bind_rows(w, &row, 1, err);
    }
    return st;
}

static enum status check_left_over(const struct walk *w, struct error *err)
{
    const size_t count = tensor_set_count(w->set);
    size_t extra = 0;

    for (size_t i = 0; i < count; i++)
        extra += !w->taken[i];
    for (size_t i = 0; i < count; i++) {
        if (w->taken[i])
            continue;
        const char *name = tensor_set_at(w->set, i)->name;
        char more[48] = "";
        if (extra > 1)
            (void)snprintf(more, sizeof more, " (and %zu more)", extra - 1);
        return error_set_param(err, ERR_FORMAT, name,
                               "%s is left over%s: no such tensor is expected for %s with %s, %u blocks%s", name, more,
                               model_task_name(w->config->task), mixer_type_name(w->config->mixer.type),
                               w->config->depth, w->config->share_layers ? " that share those of blocks.0" : "");
    }
    return OK;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

uint32_t manifest_blocks(const struct model_config *c)
{
    return c->share_layers ? 1 : c->depth;
}

enum status manifest_bind(struct manifest *ret, struct model *m, struct fold_source *folds,
                          const struct tensor_set *set, struct error *err)
{
    const struct table *task = &task_tables[m->config.task];
    const size_t room = tensor_set_count(set) + 1; /* calloc(0) may be NULL */
    struct walk w = {
        .config = &m->config, .set = set, .bases = {[IN_MODEL] = m}, .conditions = conditions_of(&m->config)};
    enum status st;

    w.taken = calloc(room, sizeof *w.taken);
    w.manifest.bindings = calloc(room, sizeof *w.manifest.bindings);
    if (w.taken == NULL || w.manifest.bindings == NULL) {
        st = error_set(err, ERR_NOMEM, "not enough memory for %zu tensors", room);
        goto done;
    }
    st = bind_rows(&w, task->rows, task->count, err);
    for (uint32_t i = 0; st == OK && i < manifest_blocks(&m->config); i++) {
        (void)snprintf(w.prefix, sizeof w.prefix, "blocks.%u.", i);
        w.bases[IN_BLOCK] = &m->blocks[i];
        w.bases[IN_FOLD] = &folds[i];
        w.factors = 0;
        st = bind_rows(&w, block_rows, LENGTH(block_rows), err);
        if (st == OK)
            st = bind_rows(&w, mixer_rows, LENGTH(mixer_rows), err);
        if (st == OK)
            st = bind_own_tensors(&w, err);
        folds[i].factors = (uint32_t)w.factors;
        folds[i].block = i;
    }
    if (st == OK)
        st = check_left_over(&w, err);
    if (st != OK)
        goto done;
    *ret = w.manifest;
    w.manifest.bindings = NULL; /* the caller's now */
done:
    free(w.taken);
    free(w.manifest.bindings);
    return st;
}

void manifest_clear(struct manifest *b)
{
    if (b == NULL)
        return;
    free(b->bindings);
    *b = (struct manifest){.bindings = NULL};
}
