/* engine.h - the only public boundary of the engine: open a model, run batches of pictures and streams, close.
 *
 * One thread owns an engine and calls everything here except what reads constants (engine_info, engine_batch_max,
 * engine_heads, engine_biases_*, engine_stream_saved_bytes, engine_stream_check), which any thread may; it alone enters
 * OpenMP. Another thread may have opened the engine, and may close it once its owner has stopped using it: both run on
 * the caller alone. All memory is taken by engine_open: afterwards nothing here allocates or fails for want of memory.
 *
 * Results do not depend on what else runs: for one instruction set, the bits of a stream's or a picture's
 * logits and hidden states are the same whatever else is in the pass, in whichever parts its bytes are fed, with any
 * thread count and whatever compiled the engine. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/core/types.h"
#include "weights/model.h"

struct engine;

const char *engine_precision_word(enum engine_precision precision);
/* Is it faster than the precisions before it on an instruction set (as in engine_options), and not only smaller? */
bool engine_precision_pays(enum engine_precision precision, const char *isa);

struct engine_options {
    const char *isa;  /* kernels to use: "baseline", "avx2", .. (kernels_select); NULL: the best that runs here */
    uint32_t threads; /* 1.. ENGINE_THREADS_MAX; 0: processors_count() */
    /* With as many threads as processors, pin each to one of its own, the owner too, even after its calls: such an
     * engine is to be opened by another thread, which outlives it (thread_pinning.h). */
    bool keeps_places;
    enum engine_precision precision;
    uint32_t pictures_max; /* classifiers: pictures or texts of one batch, 1.. ENGINE_PICTURES_MAX */
    uint32_t tokens_max;   /* picture classifiers: patches of the largest; no less than those of the trained size */
    uint32_t streams_max;  /* generators: stream slots, 1.. ENGINE_STATES_MAX */
    uint32_t rows_max;     /* generators: bytes of one pass over all streams, >= 1; .. ENGINE_ROWS_MAX */
};

struct engine_info {
    uint32_t threads;
    const char *isa;       /* "avx512bf16": the kernels chosen */
    const char *blas;      /* openblas_get_config() */
    const char *precision; /* "f32", "bf16", "int8": of the blocks' products */
    uint64_t weight_bytes; /* packed weights, resident */
    uint64_t workspace_bytes;
    uint64_t stream_bytes; /* state of one stream; 0 for classifiers */
    uint32_t dim;          /* of a hidden state */
    uint32_t elements_max; /* classifiers: patches of one picture, bytes of one text */
    bool fixed_size;       /* pictures must have the trained size: their positions are learnt */
    uint32_t context;      /* generators: elements that a stream takes; ENGINE_CONTEXT_UNLIMITED: any number */
    bool starts;           /* generators: a start embedding takes the place of the first element fed */
    /* Multiply-adds of the linear layers, and those of mixing: for one byte or sub-pixel of a stream, the last one of
     * the context, or for a whole picture or text of the trained size. */
    uint64_t macs, mixer_macs;
};

/* Read and pack the weights, which were not dropped, and size the workspace. `m` is borrowed only during the call,
 * except for its config, which must outlive the engine. *ret is set only on OK; free with engine_close.
 * Errors: ERR_NOMEM, ERR_ARGUMENT (isa); ERR_IO where a file cannot be read or was written to since model_load;
 * ERR_FORMAT naming a matrix that holds no finite numbers; ERR_UNAVAILABLE after file_stop_reading. */
enum status engine_open(struct engine **ret, const struct model *m, const struct engine_options *o, struct error *err);
void engine_close(struct engine *e); /* NULL is a no-op */
const struct engine_info *engine_info(const struct engine *e);

/* What engines run on here, whatever the model: threads, isa and blas of an engine_info for these options; the rest is
 * zero. Errors: ERR_ARGUMENT (isa). */
enum status engine_describe(struct engine_info *ret, const struct engine_options *o, struct error *err);

/* Lines for --version: the instruction set that is chosen here unless a setting says otherwise, those that this build
 * has kernels for, and the libraries that compute. */
void engine_print_versions(FILE *to);

/* ---- classifiers: a batch goes block by block, or in smaller parts, so that others can have their turn ------ */

/* How many pictures of `elements` patches, or texts of `elements` bytes, 1..elements_max, one batch takes: pictures_max
 * of the trained size, at least one of any other. Constant, for any thread. */
uint32_t engine_batch_max(const struct engine *e, uint32_t elements);
/* Start a batch of n <= engine_batch_max pictures, all height x width, multiples of the patch with at most elements_max
 * patches (the trained size, where that is fixed): pixels[i] is [height, width, 3], 0..255, borrowed only during the
 * call. An unfinished batch is dropped. */
void engine_pictures_begin(struct engine *e, const uint8_t *const pixels[], size_t n, uint32_t height, uint32_t width);
/* The same with n texts of `length` bytes each, 1..elements_max, for a model that classifies text. */
void engine_texts_begin(struct engine *e, const uint8_t *const texts[], size_t n, uint32_t length);
/* Run one block, or what is left of it. True when the batch is done and the logits are ready. */
bool engine_batch_step(struct engine *e);
/* The same for at most `inputs_max` pictures or texts, which then wait in that block for the others. However a batch is
 * cut, the bits are the same. */
bool engine_batch_step_part(struct engine *e, size_t inputs_max);
/* How many have yet to pass the block that the batch is in. The batch is not done. */
size_t engine_batch_left(const struct engine *e);
/* [classes] of the batch's i-th picture or text, once it is done; valid until the next batch begins. */
const float *engine_batch_logits(const struct engine *e, size_t i);
/* [info.dim] likewise: what the head was given, the mean over the tokens of the last block's output after the final
 * norm, or the class token's. */
const float *engine_batch_pooled(const struct engine *e, size_t i);

/* Ask for maps of the batch's i-th picture: what its patches are to a block and to a head of it. Call it after the
 * batch has begun and before its first step; `out` is filled, row by row with 0..1, by the time it is done, unless
 * NULL is asked for meanwhile.
 * AFT (as in the figures of Zhai et al. 2021 and DAFT): the weight exp(k - max k) that every other token gives a
 * patch, the position bias aside; for all heads, their mean. Other mixers, whose keys are vectors: the l2 norm of a
 * patch's key or query, SimA's (Koohpayegani & Pirsiavash 2022) after its channels' l1 normalisation over the tokens,
 * minus the picture's smallest and then divided by the largest. The class token is included in SimA's sums but not in
 * the map. */
void engine_batch_want_map(struct engine *e, size_t i, const struct engine_map *wanted);

/* ---- what a model has learnt: constant, for any thread ---------------------------------------------------------- */

/* Heads, whose keys can be told apart: those of aft-conv and of mixers other than AFT; in AFT without heads every
 * channel is one. */
uint32_t engine_heads(const struct engine *e);

struct engine_biases engine_biases_shape(const struct engine *e);
/* One tile, [height, width]: exp(w) - 1, by how much a token counts more than without its bias. >= -1. The head, or,
 * where biases are by position, the patch that they are of. */
void engine_biases_read(const struct engine *e, uint32_t layer, uint32_t head, float *out);

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* Forget all that a slot has been fed; its position becomes 0. */
void engine_stream_reset(struct engine *e, uint32_t stream);
/* Bytes fed since the reset. position + count <= info.context must hold for every part. */
uint32_t engine_stream_position(const struct engine *e, uint32_t stream);
/* Copy the state of slot `from` to another slot, `to`: both go on with the same bits. */
void engine_stream_copy(struct engine *e, uint32_t from, uint32_t to);
/* Bytes of a state saved at that position; 0 at the start. Any thread. */
size_t engine_stream_saved_bytes(const struct engine *e, uint32_t position);
/* Save a slot's state to out [engine_stream_saved_bytes of its position]. What is saved has the layout of this machine
 * and of the engine's precision; it goes on with the same bits in an engine of the same model, instruction set and
 * precision, and means nothing in one of another precision. */
void engine_stream_save(struct engine *e, uint32_t stream, uint8_t *out);
/* Can `in` [size] be what was saved at `position`? Only its size and that its numbers are finite can be checked: a
 * made-up state can give its own stream any logits, but affects no other stream. Any thread. Errors: ERR_ARGUMENT
 * (param "state"), also for a position beyond the context or ENGINE_POSITION_MAX. */
enum status engine_stream_check(const struct engine *e, uint32_t position, const uint8_t *in, size_t size,
                                struct error *err);
/* Make a slot go on from what was saved at `position`; what comes from elsewhere must have been checked. */
void engine_stream_restore(struct engine *e, uint32_t stream, uint32_t position, const uint8_t *in);
/* Feed all parts in one pass; the sum of counts <= rows_max, n <= streams_max. A recurrent step is a pass of parts of
 * one byte, prefill one of longer parts: the same arithmetic, so both agree bit for bit. */
void engine_feed(struct engine *e, const struct engine_part *parts, size_t n);

#endif
