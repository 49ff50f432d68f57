/* fold.c - see fold.h. Any thread; no state. Everything is added up in double and rounded to float32 once. */
#include "weights/fold.h"

#include <assert.h>
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

static enum status refuse_alone(const struct fold_source *s, const char *given, const char *missing, struct error *err)
{
    const struct tensor_name name = name_of(s, missing);

    return error_set_param(err, ERR_FORMAT, name.text, "%s is missing, expected together with %s", name.text,
                           name_of(s, given).text);
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

    if (s->conv_gain != NULL && s->conv_bias == NULL)
        return refuse_alone(s, "conv.gain", "conv.bias", err);
    if (s->conv_bias != NULL && s->conv_gain == NULL)
        return refuse_alone(s, "conv.bias", "conv.gain", err);
    for (uint32_t h = 0; h < c->mixer.heads; h++) {
        const float *r = s->conv_weight + (size_t)h * taps;
        struct line line = {.mean = 0.0, .scale = 1.0, .shift = 0.0};
        if (s->conv_gain != NULL) {
            const enum status st = head_line(&line, r, taps, h, s, err);
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
    return OK;
}

/* ---- aft-full, aft-local ---------------------------------------------------------------------------------------- */

static double bias_at(const struct fold_source *s, uint32_t context, uint32_t t, uint32_t other)
{
    const uint32_t n = s->factors;
    double sum = 0.0;

    if (s->pos_bias != NULL)
        return s->pos_bias[(size_t)t * context + other];
    for (uint32_t i = 0; i < n; i++)
        sum += (double)s->pos_u[(size_t)t * n + i] * s->pos_v[(size_t)other * n + i];
    return sum;
}

static enum status check_bias(const struct fold_source *s, uint32_t context, uint32_t t, uint32_t other,
                              struct error *err)
{
    const double w = bias_at(s, context, t, other);

    if (bias_is_ordinary(w))
        return OK;
    const struct tensor_name name = name_of(s, s->pos_bias != NULL ? "pos_bias" : "pos_u");
    return error_set_param(err, ERR_FORMAT, name.text, "%s%s: the position bias at [%u, %u] is %g, expected %g..%g",
                           name.text, s->pos_bias != NULL ? "" : " times pos_v", t, other, w, -POSITION_BIAS_MAX,
                           POSITION_BIAS_MAX);
}

static double row_norm(const float *row, uint32_t n)
{
    double squares = 0.0;

    for (uint32_t i = 0; i < n; i++)
        squares += (double)row[i] * row[i];
    return sqrt(squares);
}

/* All of [T, T] for the factorised form. |u_t . v_t'| <= |u_t| |v_t'| proves most of it without the T * T * d'
 * multiplications; the margin is far above the rounding of the sums. */
static enum status check_factors(const struct fold_source *s, uint32_t context, struct error *err)
{
    const double proven = POSITION_BIAS_MAX * (1.0 - 1e-9);
    double longest = 0.0;
    double *lengths = malloc(context * sizeof *lengths); /* |v_t'| */

    if (lengths == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for %u numbers", context);
    for (uint32_t t = 0; t < context; t++) {
        lengths[t] = row_norm(s->pos_v + (size_t)t * s->factors, s->factors);
        longest = fmax(longest, lengths[t]);
    }
    enum status st = OK;
    for (uint32_t t = 0; t < context && st == OK; t++) {
        const double length = row_norm(s->pos_u + (size_t)t * s->factors, s->factors);
        if (length * longest <= proven)
            continue;
        for (uint32_t other = 0; other < context && st == OK; other++) {
            if (length * lengths[other] > proven)
                st = check_bias(s, context, t, other, err);
        }
    }
    free(lengths);
    return st;
}

static enum status check_matrix(const struct fold_source *s, uint32_t context, struct error *err)
{
    for (uint32_t t = 0; t < context; t++) {
        for (uint32_t other = 0; other < context; other++) {
            const enum status st = check_bias(s, context, t, other, err);
            if (st != OK)
                return st;
        }
    }
    return OK;
}

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
    if (factorised && s->pos_u == NULL)
        return refuse_alone(s, "pos_v", "pos_u", err);
    if (factorised && s->pos_v == NULL)
        return refuse_alone(s, "pos_u", "pos_v", err);
    return OK;
}

static enum status check_biases(const struct fold_source *s, uint32_t tokens, struct error *err)
{
    const enum status st = check_form(s, err);
    if (st != OK)
        return st;
    return s->pos_bias != NULL ? check_matrix(s, tokens, err) : check_factors(s, tokens, err);
}

static void fold_band(float *band, uint32_t span, const struct fold_source *s, uint32_t context)
{
    for (uint32_t t = 0; t < context; t++) {
        for (uint32_t lag = 0; lag < span; lag++)
            band[(size_t)t * span + lag] = lag > t ? 0.0f : (float)bias_at(s, context, t, t - lag);
    }
}

static void fold_matrix(float *pos, uint32_t span, const struct fold_source *s, uint32_t tokens, bool global)
{
    const float beyond = global ? 0.0f : -INFINITY;
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t other = 0; other < tokens; other++) {
            const uint32_t distance = t > other ? t - other : other - t;
            pos[(size_t)t * tokens + other] = distance < span ? (float)bias_at(s, tokens, t, other) : beyond;
        }
    }
}

static enum status fold_pairs(struct block_weights *b, float *out, const struct fold_source *s,
                              const struct model_config *c, struct error *err)
{
    const uint32_t tokens = model_config_tokens(c), span = model_config_span(c);
    const enum status st = check_biases(s, tokens, err);

    if (st != OK)
        return st;
    if (model_config_causal(c)) {
        fold_band(out, span, s, tokens);
        b->span = span;
        b->band = out;
    } else {
        fold_matrix(out, span, s, tokens, c->mixer.global);
        b->pos = out;
    }
    return OK;
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
    enum status st = OK;

    switch (mixer_facts(c->mixer.type)->biases) {
    case BIASES_PER_OFFSET:
        st = fold_conv(out, s, c, err);
        if (st == OK)
            b->conv = out;
        break;
    case BIASES_PER_PAIR:
        st = fold_pairs(b, out, s, c, err);
        break;
    case BIASES_NONE:
        break;
    }
    return st;
}
