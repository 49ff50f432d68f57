/* decoder.h - the causal pass: parts of streams, each of one byte (a recurrent step) or more (prefill), in one batch of
 * rows. Both are the same arithmetic in the same order. Owned by the engine; the engine thread alone calls it. */
#ifndef ENGINE_PASS_DECODER_H
#define ENGINE_PASS_DECODER_H

#include "engine/core/pass_choice.h"
#include "engine/core/row_stealing.h"
#include "engine/core/types.h"
#include "engine/pass/block.h"
#include "engine/pass/mixer.h"
#include "engine/pass/stream_state.h"

/* Of one part: `count` of the summed rows, from the first-th on. */
struct part_sums {
    double *sums;
    size_t first, count;
};

struct decoder {
    float *tok_embed;   /* [256, channels] */
    float *start_embed; /* [channels] or NULL: what stands at position 0 */
    float *pos_embed;   /* [T, channels] or NULL */
    struct activations a;
    struct stream_states states;
    struct stream_part *parts; /* [streams] of the pass */
    const uint8_t **bytes;     /* [rows] */
    uint32_t *positions;       /* [rows] */
    uint32_t *wanted;          /* [rows] rows whose logits go out */
    float **outputs;           /* [rows] where they go: [256] each */
    float *logits;             /* [rows, 256] */
    uint32_t *summed;          /* [rows] rows whose hidden states are added up */
    struct part_sums *sums;    /* [streams] what they are added to */
    size_t summed_count, sums_count;
    struct pass_choice team[GEMM_ROWS_MAX]; /* of passes of 1, 2, ... rows, the last one of more: all threads, or one */
    struct pass_choice fetching; /* of those whose rows are streams and many: with their states fetched, or without */
    struct row_stealing share;   /* of the same */
    uint32_t rows_max;
    uint32_t context; /* elements that a stream takes; ENGINE_CONTEXT_UNLIMITED: any number */
};

void decoder_plan(struct decoder *n, struct workspace *w, const struct engine_core *e, const struct model *m,
                  uint32_t streams_max, uint32_t rows_max);
void decoder_pack(struct decoder *n, const struct engine_core *e, const struct model *m);

/* As engine_feed (engine.h). */
void decoder_feed(struct decoder *n, const struct engine_core *e, const struct engine_part *parts, size_t count);

#endif
