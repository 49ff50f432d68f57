/* token_map.c - see token_map.h. Any thread; no state. */
#include "engine/pass/token_map.h"

#include <math.h>
#include <string.h>

#include "engine/pass/mixer.h"

/* out += exp(k - max k) for one column of keys [tokens] at `stride`. */
static void add_weights(float *out, const float *k, size_t tokens, size_t stride)
{
    float largest = k[0];
    for (size_t t = 1; t < tokens; t++)
        largest = fmaxf(largest, k[t * stride]);
    for (size_t t = 0; t < tokens; t++)
        out[t] += expf(k[t * stride] - largest);
}

/* The mean over keys [begin, end) of each one's weights. */
static void map_scalar_keys(float *out, const struct engine_core *e, const float *k, size_t patches, size_t begin,
                            size_t end)
{
    for (size_t c = begin; c < end; c++)
        add_weights(out, k + c, patches, e->dims.qkv);
    for (size_t t = 0; t < patches; t++)
        out[t] /= (float)(end - begin);
}

/* Scale to 0..1: subtract the smallest, then divide by the largest. If all are equal: all 1. */
static void stretch(float *out, size_t n)
{
    float least = out[0], most = out[0];
    for (size_t t = 1; t < n; t++) {
        least = fminf(least, out[t]);
        most = fmaxf(most, out[t]);
    }
    for (size_t t = 0; t < n; t++)
        out[t] = most > least ? (out[t] - least) / (most - least) : 1.0f;
}

/* SimA's visualisation takes the l2 norm of each token of q and of k, brought to 0..1: without a softmax nothing makes
 * up for a small key, whose token adds little to k^T v. It is that after the l1 normalisation, which is part of the
 * mixer: it makes the channels count alike. k: or the queries. */
static void map_vectors(float *out, const struct engine_core *e, const float *k, size_t tokens, size_t before,
                        size_t begin, size_t end)
{
    const size_t stride = e->dims.qkv;
    for (size_t c = begin; c < end; c++) {
        const float norm = e->mixer->key_norm != NULL ? e->mixer->key_norm(e, k + c, tokens, stride) : 1.0f;
        for (size_t t = before; t < tokens; t++) {
            const float x = k[t * stride + c] / norm;
            out[t - before] += x * x;
        }
    }
    for (size_t t = 0; t < tokens - before; t++)
        out[t] = sqrtf(out[t]);
    stretch(out, tokens - before);
}

void token_maps(const struct engine_map *m, const struct engine_core *e, uint32_t layer, const float *qkv,
                size_t tokens, size_t before)
{
    const size_t keys = model_config_keys(e->config), width = keys / model_config_heads(e->config);
    const size_t count = m->heads > 0 ? m->heads : 1, patches = tokens - before;
    const float *k = m->queries ? qkv : qkv + e->dims.channels;
    float *out = m->out + (layer - m->layer) * count * patches;
    memset(out, 0, count * patches * sizeof *out);
    for (size_t i = 0; i < count; i++, out += patches) {
        const size_t begin = m->heads > 0 ? (m->head + i) * width : 0, end = m->heads > 0 ? begin + width : keys;
        if (model_config_scalar_keys(e->config))
            map_scalar_keys(out, e, k + before * e->dims.qkv, patches, begin, end);
        else
            map_vectors(out, e, k, tokens, before, begin, end);
    }
}
