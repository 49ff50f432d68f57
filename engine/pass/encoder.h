/* encoder.h - the parallel pass over a batch of pictures or texts: patches or bytes -> embedding -> blocks, one at a
 * time, for all or for some of the batch -> norm, pooling, head. Owned by the engine; its thread alone calls it. */
#ifndef ENGINE_PASS_ENCODER_H
#define ENGINE_PASS_ENCODER_H

#include <stdbool.h>

#include "engine/pass/block.h"
#include "engine/pass/mixer.h"

struct encoder {
    struct gemm patch_embed;
    float *tok_embed;  /* texts: [256, channels] */
    float *cls_token;  /* [channels] or NULL: comes first */
    float *pos_embed;  /* [tokens of the trained size, channels] or NULL */
    float *pool_score; /* [channels], divided by sqrt(dim), or NULL */
    float *levels;     /* [3, 256]: a channel's 8-bit value as the model wants it, (v / 255 - mean) / std */
    struct activations a;
    struct mixer_scratch scratch;
    float *patches;                      /* [rows, 3 * ph * pw] in (channel, y, x) order */
    float *pooled;                       /* [pictures, channels] */
    float *weights;                      /* with pool_score: [pictures, padded tokens] */
    float *logits;                       /* [pictures, padded classes] */
    uint8_t *bytes;                      /* texts: [rows] */
    struct engine_map *maps;             /* pictures: [pictures_max] */
    uint32_t pictures_max, elements_max; /* patches of one picture, bytes of one text */
    uint64_t rows_max;                   /* rows of a whole batch, class tokens included */
    /* the batch */
    size_t elements_each;
    bool any_map;
    struct sequence_pass pass;
    uint32_t next_block;  /* depth: done */
    size_t next_sequence; /* the first that has yet to pass it */
};

/* Note the memory, for pictures_max inputs of trained_elements each or one of elements_max, whichever is more; then
 * fill in what comes from the weights. */
void encoder_plan(struct encoder *n, struct workspace *w, const struct engine_core *e, const struct model *m,
                  uint32_t pictures_max, uint32_t trained_elements, uint32_t elements_max);
enum status encoder_pack(struct encoder *n, const struct engine_core *e, const struct model *m, struct error *err);

/* Rows of a picture before its first patch. */
static inline size_t encoder_rows_before(const struct encoder *n)
{
    return n->cls_token != NULL ? 1 : 0;
}

/* As engine_pictures_begin, engine_texts_begin and engine_batch_step_part (engine.h). */
void encoder_begin(struct encoder *n, const struct engine_core *e, const uint8_t *const pixels[], size_t pictures,
                   uint32_t height, uint32_t width);
void encoder_begin_texts(struct encoder *n, const struct engine_core *e, const uint8_t *const texts[], size_t count,
                         uint32_t length);
bool encoder_step(struct encoder *n, const struct engine_core *e, size_t inputs_max);

#endif
