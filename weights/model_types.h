/* model_types.h - a model as checked tensors, in the fields that the engine reads: what manifest.h binds, fold.h
 * computes and model.h loads. Matrices, which are nearly all of it, stay in their files until the engine packs them row
 * by row (linear_rows); all else is float32 in memory. */
#ifndef WEIGHTS_MODEL_TYPES_H
#define WEIGHTS_MODEL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "weights/model_config.h"
#include "weights/safetensors.h"

struct tensor_set;

/* y = x W^T + b: weight [out, in] row-major, bias [out] or NULL. */
struct linear {
    struct tensor weight;
    const float *bias;
    uint32_t out, in;
};

struct norm {
    const float *weight, *bias; /* [dim] each */
};

struct block_weights {
    struct norm norm1, norm2;
    /* k.out is model_config_keys; v.out is 0 where the value is the query, out.out is 0 without that projection. */
    struct linear q, k, v, out;
    struct linear fc1, fc2;
    /* The mixer's own tensors, in the order of its row in mixers.h; else NULL. */
    const float *own[MIXER_TENSORS_MAX];
    /* The position biases w as folded (fold.h), NULL where there are none.
     * aft-conv: [heads, kh, kw] after re-parameterisation.
     * aft-full and aft-local, causal: [T, model_config_span]: [t][lag] is w(t, t - lag), 0 where lag > t. Not causal:
     * [T, T]; beyond the window 0 or, without `global`, minus infinity. */
    const float *biases;
};

/* What `aft inspect` lists: one row per tensor of the file. */
struct tensor_info {
    char name[TENSOR_NAME_MAX];
    enum dtype dtype;
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX];
    uint64_t bytes;
};

struct model {
    struct model_config config;
    char name[MODEL_NAME_MAX + 1]; /* the folder's last component */
    struct linear patch_embed;     /* images: weight [d, 3 * ph * pw] in (channel, y, x) order */
    const float *tok_embed;        /* bytes: [256, d] */
    const float *cls_token;        /* [d] or NULL; comes first */
    const float *start_embed;      /* [d] or NULL: comes first, so that row t predicts element t, not t + 1 */
    const float *pos_embed;        /* [T, d] or NULL */
    const float *pool_score;       /* [d] or NULL: what tokens are weighed by, for the head */
    struct block_weights *blocks;  /* [depth] */
    struct norm norm;
    struct linear head; /* out = classes or 256 */
    struct tensor_info *tensors;
    size_t tensor_count;
    uint64_t parameters;    /* elements of all tensors in the file */
    uint64_t file_bytes;    /* of model.safetensors */
    struct tensor_set *set; /* owns every linear's weight; NULL of what was never in files */
    float *arena;           /* owns every float above, and synthetic weights */
    uint64_t arena_bytes;
};

#endif
