/* types.h - values that the engine's boundary (engine.h) and its parts both use. */
#ifndef ENGINE_CORE_TYPES_H
#define ENGINE_CORE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* What the blocks' products are computed in: weights and the rows that meet them as fp32, bf16 or int8 (by output
 * channel and by row); sums are fp32, or whole numbers. */
#define ENGINE_PRECISIONS(X) \
    X(ENGINE_F32, "f32")     \
    X(ENGINE_BF16, "bf16")   \
    X(ENGINE_INT8, "int8")
#define X(constant, word) constant,
enum engine_precision { ENGINE_PRECISIONS(X) ENGINE_PRECISION_COUNT };
#undef X

/* The context of a model whose streams have no end. */
#define ENGINE_CONTEXT_UNLIMITED UINT32_MAX

/* Learnt position biases are tiles of [height, width], for each layer, one for each of `heads`; heads is 0 if there are
 * none. aft-conv: the kernel; 1 x K for texts. aft-full, aft-local: one for all channels, what a token gives each patch
 * (the class token left out), or what the middle one of a text gives each byte; causal, what the last token gives it
 * and those before, up to the window's end, in the order of positions. */
struct engine_biases {
    uint32_t layers, heads, height, width;
    bool by_position; /* of pairs of a picture's patches: there is a tile for each, row by row, in place of heads */
};

/* Maps of a picture, of what its patches are to some blocks: see engine_batch_want_map (engine.h). */
struct engine_map {
    uint32_t layer, layers; /* from `layer` on */
    uint32_t head, heads;   /* likewise; heads 0: of all of them together */
    bool queries;           /* of mixers whose keys are vectors: the queries' in place of the keys' */
    float *out;             /* [layers, heads or 1, patches]; NULL: no map is wanted */
};

/* One stream's consecutive bytes of a pass. */
struct engine_part {
    uint32_t stream;      /* a slot < streams_max; at most once in a pass */
    uint32_t count;       /* >= 1 */
    const uint8_t *bytes; /* [count]; a start embedding, if any, replaces the first one, whatever it is */
    bool every;           /* logits after each byte rather than after the last alone */
    float *logits;        /* [256], or [count, 256] with `every`; NULL: none are wanted */
    /* [info.dim], to which the hidden state of each byte is added in turn: the last block's output after the final
     * norm, what the head is given. A start embedding is no byte. NULL: not wanted. */
    double *sums;
};

#endif
