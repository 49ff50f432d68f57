/* position_biases.c - see position_biases.h. The weights themselves are gone by then: this reads what the mixers
 * packed, exp(w), or w where a block is exact, in their own layouts (block.h). */
#include "engine/pass/position_biases.h"

#include <assert.h>
#include <math.h>

/* Rows of w, by lag, that a causal aft-full or aft-local has: [T, span]. */
static uint32_t causal_span(const struct model_config *c)
{
    const uint32_t tokens = model_config_tokens(c);
    return c->mixer.type == MIXER_AFT_LOCAL && c->mixer.window < tokens ? c->mixer.window : tokens;
}

static bool has_class_token(const struct model_config *c)
{
    return c->input == INPUT_IMAGE && c->pooling == POOLING_CLASS_TOKEN;
}

struct engine_biases position_biases_shape(const struct engine_core *e)
{
    const struct model_config *c = e->config;
    struct engine_biases s = {.layers = c->depth, .heads = 1, .height = 1};
    switch (c->mixer.type) {
    case MIXER_AFT_CONV:
        s.heads = c->mixer.heads;
        s.height = c->mixer.kernel[0];
        s.width = c->mixer.kernel[1];
        return s;
    case MIXER_AFT_FULL:
    case MIXER_AFT_LOCAL:
        if (c->input == INPUT_IMAGE) {
            s.height = c->size[0] / c->patch[0];
            s.width = c->size[1] / c->patch[1];
        } else {
            s.width = model_config_causal(c) ? causal_span(c) : model_config_tokens(c);
        }
        return s;
    default:
        return (struct engine_biases){0};
    }
}

static float surplus(const struct block *b, float packed)
{
    return b->exact ? expm1f(packed) : packed - 1.0f;
}

/* aft-conv, whose heads share taps over [keys] or, causal, over channels and by lag. */
static void read_kernel(const struct engine_core *e, const struct block *b, uint32_t head, size_t taps, float *out)
{
    const struct model_config *c = e->config;
    const size_t channel = (size_t)head * (c->dim / c->mixer.heads);
    for (size_t j = 0; j < taps; j++)
        out[j] = surplus(b, model_config_causal(c) ? b->channel_taps[(taps - 1 - j) * e->dims.channels + channel]
                                                   : b->head_taps[j * e->dims.keys + head]);
}

void position_biases_read(const struct engine_core *e, uint32_t layer, uint32_t head, float *out)
{
    const struct engine_biases s = position_biases_shape(e);
    const struct model_config *c = e->config;
    const size_t n = (size_t)s.height * s.width, tokens = model_config_tokens(c);
    assert(layer < s.layers && head < s.heads);
    const struct block *b = &e->blocks[layer];
    if (c->mixer.type == MIXER_AFT_CONV) {
        read_kernel(e, b, head, n, out);
    } else if (model_config_causal(c)) {
        for (size_t lag = 0; lag < n; lag++)
            out[n - 1 - lag] = surplus(b, b->biases[(tokens - 1) * n + lag]);
    } else {
        const size_t before = has_class_token(c) ? 1 : 0;
        const size_t middle = before + (size_t)(s.height / 2) * s.width + s.width / 2;
        for (size_t t = 0; t < n; t++)
            out[t] = surplus(b, b->biases[middle * tokens + before + t]);
    }
}
