/* block.h - one block of a model, x += mixer(norm1(x)); x += fc2(act(fc1(norm2(x)))), without the mixing itself: the
 * norms, projections and the MLP that all mixers and both passes (encoder.c, decoder.c) share.
 * Engine threads: the functions marked "team" are called by all threads of a team with the same arguments, hold
 * orphaned work-sharing loops and end in a barrier. */
#ifndef ENGINE_PASS_BLOCK_H
#define ENGINE_PASS_BLOCK_H

#include "engine/core/thread_pinning.h"
#include "engine/core/workspace.h"
#include "engine/kernels/gemm.h"
#include "engine/kernels/kernels.h"
#include "weights/model.h"

struct mixer; /* mixer.h */

/* Widths of activation rows, padded to LANES. A row of qkv is [q: dim | k: keys | v: dim], each padded, without v where
 * the value is the query. */
struct dims {
    uint32_t dim; /* as in the model; the others are padded */
    uint32_t channels, keys, hidden;
    size_t qkv;
};

/* What a pass of any kind needs. */
struct activations {
    float *x;   /* [rows, channels] the residual stream */
    float *h;   /* [rows, channels] normed rows; then the mixer's output */
    float *qkv; /* [rows, qkv] */
    float *mlp; /* [rows, hidden] */
    float *own; /* [threads, GEMM_ROWS_MAX, channels] normed rows that each thread keeps for itself */
};

/* The norms' weights, padded. */
struct packed_norm {
    float *weight, *bias;
};

struct block {
    struct packed_norm norm1, norm2;
    struct gemm qkv, out, fc1, fc2; /* out.n is 0 for a mixer without that projection */
    void *mixing;                   /* the mixer's own: block_bytes of it (mixer.h) */
};

/* What stays the same through a pass. */
struct engine_core {
    const struct kernels *kernels;
    const struct mixer *mixer;
    const struct model_config *config;
    struct dims dims;
    struct gemm_context gemm;
    uint32_t threads;
    struct thread_pinning *pinning;
    struct block *blocks; /* [depth] */
    struct packed_norm norm;
    struct gemm head;
    void *mixing;      /* [depth] of the mixer's block_bytes */
    bool head_keys;    /* KEYS_PER_HEAD */
    uint32_t *head_of; /* [channels] -> index of its key: with KEYS_PER_HEAD its head, 0 in the padding; else itself */
};

void dims_init(struct dims *d, const struct model_config *c);

/* Note the memory of a norm or a block; then fill it. */
void packed_norm_plan(struct packed_norm *p, struct workspace *w, uint32_t padded);
void packed_norm_pack(struct packed_norm *p, const struct norm *n, uint32_t dim);
/* Read a matrix into the columns of *g from `column` on; nothing where it has no outputs. Errors: those of linear_rows,
 * and ERR_NOMEM. */
enum status linear_pack(struct gemm *g, uint32_t column, const struct linear *l, struct error *err);
/* Copy n rows of d->dim numbers to rows of d->channels. */
void rows_pack(float *to, const float *from, size_t n, const struct dims *d);
void block_plan(struct block *b, struct workspace *w, const struct dims *d, enum precision precision,
                const struct block_weights *bw);
enum status block_pack(struct block *b, const struct dims *d, const struct block_weights *bw, struct error *err);
void activations_plan(struct activations *a, struct workspace *w, const struct dims *d, uint64_t rows,
                      uint32_t threads);

/* The rows from `row` on. */
static inline struct activations activations_from(const struct activations *a, const struct dims *d, size_t row)
{
    struct activations from = *a;
    from.x += row * d->channels;
    from.h += row * d->channels;
    from.qkv += row * d->qkv;
    from.mlp += row * d->hidden;
    return from;
}

/* Rows per task where there are enough for each thread to take some through all of a block's products, without a
 * barrier in between and from its own cache; 0: all threads share each product, by columns. */
size_t block_rows_of_task(const struct engine_core *e, size_t rows);
/* Team. a->qkv = W_qkv norm1(x) + b for `rows` rows. */
void block_before(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows);
/* Team. a->h holds the mixed rows: x += W_out h + b, or x += h without that projection; then the MLP. */
void block_after(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows);
/* Both by the calling thread alone, for any number of rows. The same bits. */
void block_before_alone(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows,
                        struct fetch *fetch);
void block_after_alone(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows,
                       struct fetch *fetch);
/* Team. norm(x[from[r]]) for r < rows, from NULL meaning r itself: [rows, channels] for the caller's next product, in
 * h or, for a few rows, in each thread's own copy: a barrier costs more than norming them twice. */
const float *block_normed(const struct engine_core *e, const struct packed_norm *n, const struct activations *a,
                          const uint32_t *from, size_t rows);
/* Team. y[r] = norm(x[from[r]]) for r < rows. y, x: [.., channels]. */
void block_norm(const struct engine_core *e, const struct packed_norm *n, float *y, const float *x,
                const uint32_t *from, size_t rows);

#endif
