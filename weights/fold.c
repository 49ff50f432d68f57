/* fold.c - see fold.h. Any thread; no state. Everything is added up in double and rounded to float32 once. */
#include "weights/fold.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

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

static enum status fold_pair(float *out, const struct fold_source *s, uint32_t tokens, uint32_t t, uint32_t other,
                             struct error *err)
{
    const double w = bias_at(s, tokens, t, other);

    if (!bias_is_ordinary(w)) {
        const struct tensor_name name = name_of(s, s->pos_bias != NULL ? "pos_bias" : "pos_u");
        return error_set_param(err, ERR_FORMAT, name.text, "%s%s: the position bias at [%u, %u] is %g, expected %g..%g",
                               name.text, s->pos_bias != NULL ? "" : " times pos_v", t, other, w, -POSITION_BIAS_MAX,
                               POSITION_BIAS_MAX);
    }
    *out = (float)w;
    return OK;
}

/* Causal, a row has the bias of each lag; else that of each other position. */
static enum status fold_pairs(float *out, const struct fold_source *s, const struct model_config *c, struct error *err)
{
    const uint32_t tokens = model_config_tokens(c), span = model_config_span(c);
    const bool causal = model_config_causal(c);
    const uint32_t width = causal ? span : tokens;
    const float none = causal || c->mixer.global ? 0.0f : -INFINITY;

    enum status st = check_form(s, err);
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t i = 0; i < width && st == OK; i++) {
            const bool has_bias = causal ? i <= t : (t > i ? t - i : i - t) < span;
            float *w = out + (size_t)t * width + i;
            *w = none;
            if (has_bias)
                st = fold_pair(w, s, tokens, t, causal ? t - i : i, err);
        }
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
