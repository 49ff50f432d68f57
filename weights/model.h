/* model.h - a model directory as checked float32 tensors, bound to the fields that the engine reads.
 * The maths that depends on weights alone is folded here: the re-parameterised convolution kernel (DAFT eq. 8) and
 * the factorised position biases (AFT eq. 7), of which causal AFT-local keeps the band. Immutable once loaded. */
#ifndef WEIGHTS_MODEL_H
#define WEIGHTS_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "weights/model_config.h"
#include "weights/safetensors.h"

/* y = x W^T + b: weight [out, in] row-major, bias [out] or NULL. */
struct linear {
    const float *weight, *bias;
    uint32_t out, in;
};

struct norm {
    const float *weight, *bias; /* [dim] each */
};

struct block_weights {
    struct norm norm1, norm2;
    struct linear q, k, v, out; /* k.out is h for aft-conv; out.out is 0 for a mixer without that projection */
    struct linear fc1, fc2;
    /* fastformer: [h, d / h] each; else NULL. v.out is 0 where the value is the query. */
    const float *query_score, *key_score;
    /* aft-conv: w [heads, kh, kw] after re-parameterisation; else NULL. */
    const float *conv;
    /* aft-local, causal: w [T, span], span = min(window, T): band[t][lag] = w(t, t - lag), 0 where lag > t; else
     * NULL. */
    const float *band;
    uint32_t span;
    /* aft-full and aft-local, not causal: w [T, T]; beyond the window 0 or, without `global`, minus infinity; else
     * NULL. */
    const float *pos;
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
    struct block_weights *blocks;  /* [depth] */
    struct norm norm;
    struct linear head; /* out = classes or 256 */
    struct tensor_info *tensors;
    size_t tensor_count;
    uint64_t parameters; /* elements of all tensors in the file */
    uint64_t file_bytes; /* of model.safetensors */
    float *arena;        /* owns every float above */
    uint64_t arena_bytes;
};

/* Can the `n` bytes at `name` name a model, in paths, JSON and lists alike? `dir` is the folder that has that name, for
 * the message. Errors: ERR_FORMAT. */
enum status model_check_name(const char *name, size_t n, const char *dir, struct error *err);
/* Load DIR/config.json and DIR/model.safetensors. *ret is set only on OK; free with model_free.
 * Errors: ERR_IO, ERR_NOMEM, ERR_FORMAT naming the file, the key or the tensor and what was expected.
 * `warn` (may be NULL) is told of unknown keys. */
enum status model_load(struct model **ret, const char *dir, model_warning *warn, void *arg, struct error *err);
/* Give the tensors' memory back, once an engine has packed them: config, name and the list of tensors stay. */
void model_drop_weights(struct model *m);
void model_free(struct model *m); /* NULL is a no-op */

#endif
