/* fold.c - see fold.h. Any thread; no state. Everything is added up in double and rounded to float32 once. */
#include "weights/fold.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/limits.h"

/* "blocks.3.mixer.conv.gain" */
struct tensor_name {
    char text[TENSOR_NAME_MAX];
};

static struct tensor_name name_of(const struct fold_source *s, const char *name)
{
    struct tensor_name n;

    (void)snprintf(n.text, sizeof n.text, "blocks.%u.mixer.%s", s->block, name);
    return n;
}

/* Two tensors that are there together or not at all. */
static enum status check_both(const struct fold_source *s, const char *name, const float *tensor,
                              const char *other_name, const float *other, struct error *err)
{
    if ((tensor == NULL) == (other == NULL))
        return OK;
    const struct tensor_name missing = name_of(s, tensor == NULL ? name : other_name);
    return error_set_param(err, ERR_FORMAT, missing.text, "%s is missing, expected together with %s", missing.text,
                           name_of(s, tensor == NULL ? other_name : name).text);
}

static bool bias_is_ordinary(double w)
{
    return fabs(w) <= POSITION_BIAS_MAX; /* false for NaN */
}

/* ---- aft-conv --------------------------------------------------------------------------------------------------- */

/* One head's kernel r [taps] -> w = scale * (r - mean) + shift. */
struct line {
    double mean, scale, shift;
};

static enum status head_line(struct line *ret, const float *r, uint32_t taps, uint32_t head,
                             const struct fold_source *s, struct error *err)
{
    double mean = 0.0, squares = 0.0;
    float low = r[0], high = r[0];

    for (uint32_t i = 0; i < taps; i++) {
        low = fminf(low, r[i]);
        high = fmaxf(high, r[i]);
        mean += r[i];
    }
    if (taps < 2 || low == high) { /* `squares` may come out a little above 0 for equal taps */
        const struct tensor_name gain = name_of(s, "conv.gain");
        return error_set_param(err, ERR_FORMAT, gain.text,
                               "%s scales a kernel by its spread, and head %u of %s has none: %s, expected at least 2 "
                               "different taps",
                               gain.text, head, name_of(s, "conv.weight").text,
                               taps < 2 ? "it is a single tap" : "all its taps are equal");
    }
    mean /= taps;
    for (uint32_t i = 0; i < taps; i++)
        squares += (r[i] - mean) * (r[i] - mean);
    ret->mean = mean;
    ret->scale = s->conv_gain[head] / sqrt(squares / (taps - 1));
    ret->shift = s->conv_bias[head];
    return OK;
}

static enum status fold_conv(float *w, const struct fold_source *s, const struct model_config *c, struct error *err)
{
    const uint32_t kw = c->mixer.kernel[1], taps = c->mixer.kernel[0] * kw;

    enum status st = check_both(s, "conv.gain", s->conv_gain, "conv.bias", s->conv_bias, err);
    for (uint32_t h = 0; st == OK && h < c->mixer.heads; h++) {
        const float *r = s->conv_weight + (size_t)h * taps;
        struct line line = {.mean = 0.0, .scale = 1.0, .shift = 0.0};
        if (s->conv_gain != NULL) {
            st = head_line(&line, r, taps, h, s, err);
            if (st != OK)
                return st;
        }
        for (uint32_t i = 0; i < taps; i++) {
            const double x = line.scale * (r[i] - line.mean) + line.shift;
            if (!bias_is_ordinary(x)) {
                const struct tensor_name name = name_of(s, "conv.weight");
                return error_set_param(err, ERR_FORMAT, name.text,
                                       "%s: the position bias of head %u at tap [%u, %u] is %g%s, expected %g..%g",
                                       name.text, h, i / kw, i % kw, x,
                                       s->conv_gain == NULL ? "" : " after conv.gain and conv.bias", -POSITION_BIAS_MAX,
                                       POSITION_BIAS_MAX);
            }
            w[(size_t)h * taps + i] = (float)x;
        }
    }
    return st;
}

/* ---- aft-full, aft-local ---------------------------------------------------------------------------------------- */

static enum status check_form(const struct fold_source *s, struct error *err)
{
    const bool factorised = s->pos_u != NULL || s->pos_v != NULL;

    if (s->pos_bias != NULL && factorised) {
        const struct tensor_name name = name_of(s, "pos_bias");
        return error_set_param(err, ERR_FORMAT, name.text,
                               "%s is given together with %s, expected only one form of the biases", name.text,
                               name_of(s, s->pos_u != NULL ? "pos_u" : "pos_v").text);
    }
    if (s->pos_bias == NULL && !factorised) {
        const struct tensor_name name = name_of(s, "pos_u");
        return error_set_param(err, ERR_FORMAT, name.text, "%s is missing, expected pos_u and pos_v or pos_bias",
                               name.text);
    }
    return check_both(s, "pos_u", s->pos_u, "pos_v", s->pos_v, err);
}

/* Biases of rows times columns of positions: a tile of the second factors stays in a processor's first cache while it
 * meets TILE_ROWS of the first. */
enum { TILE_ROWS = 64, TILE_COLUMNS = 16 };

struct tile_row {
    double numbers[TILE_COLUMNS];
};

struct pairs {
    const struct fold_source *s;
    float *out; /* [tokens, width]: causal, a row has the bias of each lag; else that of each other position */
    struct tile_row *tile; /* [factors], of pos_v; NULL: pos_bias has them all */
    uint32_t tokens, span, width;
    bool causal;
};

static uint32_t distance(uint32_t t, uint32_t other)
{
    return t > other ? t - other : other - t;
}

static bool has_bias(const struct pairs *p, uint32_t t, uint32_t other)
{
    return distance(t, other) < p->span && !(p->causal && other > t);
}

static void load_tile(const struct pairs *p, uint32_t first, uint32_t columns)
{
    const uint32_t n = p->s->factors;

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < TILE_COLUMNS; j++)
            p->tile[i].numbers[j] = j < columns ? p->s->pos_v[(size_t)(first + j) * n + i] : 0.0;
}

/* w(t, first + j), each added up in the order of the factors. Products of two float32 are exact in double. */
static struct tile_row multiply_tile(const struct pairs *p, uint32_t t)
{
    const uint32_t n = p->s->factors;
    struct tile_row sums = {{0.0}};

    for (uint32_t i = 0; i < n; i++) {
        const double u = p->s->pos_u[(size_t)t * n + i];
        const struct tile_row *v = &p->tile[i];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < TILE_COLUMNS; j++)
            sums.numbers[j] += u * v->numbers[j];
    }
    return sums;
}

static enum status refuse_pair(const struct fold_source *s, uint32_t t, uint32_t other, double w, struct error *err)
{
    const struct tensor_name name = name_of(s, s->pos_bias != NULL ? "pos_bias" : "pos_u");

    return error_set_param(err, ERR_FORMAT, name.text, "%s%s: the position bias at [%u, %u] is %g, expected %g..%g",
                           name.text, s->pos_bias != NULL ? "" : " times pos_v", t, other, w, -POSITION_BIAS_MAX,
                           POSITION_BIAS_MAX);
}

/* The biases of position t with those from `first` on that have some. */
static enum status fold_row(const struct pairs *p, uint32_t t, uint32_t first, uint32_t columns, struct error *err)
{
    const struct tile_row products = p->tile != NULL ? multiply_tile(p, t) : (struct tile_row){{0.0}};

    for (uint32_t j = 0; j < columns; j++) {
        const uint32_t other = first + j;
        if (!has_bias(p, t, other))
            continue;
        const double w = p->tile != NULL ? products.numbers[j] : p->s->pos_bias[(size_t)t * p->tokens + other];
        if (!bias_is_ordinary(w))
            return refuse_pair(p->s, t, other, w, err);
        p->out[(size_t)t * p->width + (p->causal ? t - other : other)] = (float)w;
    }
    return OK;
}

/* All those of the positions from `row` on, TILE_ROWS of them or what is left. */
static enum status fold_rows(const struct pairs *p, uint32_t row, float none, struct error *err)
{
    const uint32_t end = p->tokens - row < TILE_ROWS ? p->tokens : row + TILE_ROWS, before = p->span - 1;
    const uint32_t stop = p->causal ? end : p->tokens - end < before ? p->tokens : end + before;
    enum status st = OK;

    for (size_t i = (size_t)row * p->width; i < (size_t)end * p->width; i++)
        p->out[i] = none;
    for (uint32_t first = row < before ? 0 : row - before; first < stop; first += TILE_COLUMNS) {
        const uint32_t columns = stop - first < TILE_COLUMNS ? stop - first : TILE_COLUMNS;
        if (p->tile != NULL)
            load_tile(p, first, columns);
        for (uint32_t t = row; t < end && st == OK; t++)
            st = fold_row(p, t, first, columns, err);
        if (st != OK)
            return st;
    }
    return OK;
}

static enum status fold_pairs(float *out, const struct fold_source *s, const struct model_config *c, struct error *err)
{
    struct pairs p = {.s = s,
                      .out = out,
                      .tokens = model_config_tokens(c),
                      .span = model_config_span(c),
                      .causal = model_config_causal(c)};
    const float none = p.causal || c->mixer.global ? 0.0f : -INFINITY;

    p.width = p.causal ? p.span : p.tokens;
    enum status st = check_form(s, err);
    if (st == OK && s->pos_bias == NULL) {
        p.tile = malloc(sizeof *p.tile * s->factors);
        if (p.tile == NULL)
            st = error_set(err, ERR_NOMEM, "not enough memory to multiply the factors of position biases");
    }
    for (uint32_t row = 0; row < p.tokens && st == OK; row += TILE_ROWS)
        st = fold_rows(&p, row, none, err);
    free(p.tile);
    return st;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

uint64_t fold_floats(const struct model_config *c)
{
    const struct mixer_config *m = &c->mixer;
    const uint64_t tokens = model_config_tokens(c);

    switch (mixer_facts(m->type)->biases) {
    case BIASES_PER_OFFSET:
        return (uint64_t)m->heads * m->kernel[0] * m->kernel[1];
    case BIASES_PER_PAIR:
        return tokens * (model_config_causal(c) ? model_config_span(c) : tokens);
    case BIASES_NONE:
        break;
    }
    return 0;
}

enum status fold_block(struct block_weights *b, float *out, const struct fold_source *s, const struct model_config *c,
                       struct error *err)
{
    const enum mixer_biases biases = mixer_facts(c->mixer.type)->biases;

    if (biases == BIASES_NONE)
        return OK;
    b->biases = out;
    return biases == BIASES_PER_OFFSET ? fold_conv(out, s, c, err) : fold_pairs(out, s, c, err);
}
