/* block.c - see block.h. */
#include "engine/pass/block.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/team.h"

void dims_init(struct dims *d, const struct model_config *c)
{
    d->dim = c->dim;
    d->channels = (uint32_t)lanes_padded(c->dim);
    d->keys = (uint32_t)lanes_padded(model_config_keys(c));
    d->hidden = (uint32_t)lanes_padded(c->hidden);
    d->qkv = (c->mixer.share_value_query ? 1 : 2) * (size_t)d->channels + d->keys;
}

void packed_norm_plan(struct packed_norm *p, struct workspace *w, uint32_t padded)
{
    workspace_note(w, &p->weight, padded, sizeof *p->weight);
    workspace_note(w, &p->bias, padded, sizeof *p->bias);
}

void packed_norm_pack(struct packed_norm *p, const struct norm *n, uint32_t dim)
{
    memcpy(p->weight, n->weight, dim * sizeof *p->weight);
    memcpy(p->bias, n->bias, dim * sizeof *p->bias);
}

void rows_pack(float *to, const float *from, size_t n, const struct dims *d)
{
    for (size_t r = 0; r < n; r++)
        memcpy(to + r * d->channels, from + r * d->dim, d->dim * sizeof *to);
}

void block_plan(struct block *b, struct workspace *w, const struct dims *d, enum precision precision,
                const struct block_weights *bw)
{
    packed_norm_plan(&b->norm1, w, d->channels);
    packed_norm_plan(&b->norm2, w, d->channels);
    gemm_plan(&b->qkv, w, precision, (uint32_t)d->qkv, d->dim);
    if (bw->out.out != 0)
        gemm_plan(&b->out, w, precision, d->dim, d->dim);
    gemm_plan(&b->fc1, w, precision, bw->fc1.out, d->dim);
    gemm_plan(&b->fc2, w, precision, d->dim, bw->fc2.in);
}

/* As many rows at a time as a chunk has columns: no more of a matrix is ever held as float32 than that. */
enum status linear_pack(struct gemm *g, uint32_t column, const struct linear *l, struct error *err)
{
    enum status st = OK;
    float *rows = malloc(sizeof *rows * GEMM_CHUNK * l->in + 1);
    if (rows == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for %d rows of %u weights", GEMM_CHUNK, l->in);
    for (uint32_t done = 0; st == OK && done < l->out; done += GEMM_CHUNK) {
        const uint32_t n = l->out - done < GEMM_CHUNK ? l->out - done : GEMM_CHUNK;
        st = linear_rows(l, done, n, rows, err);
        if (st == OK)
            gemm_pack(g, column + done, rows, l->bias == NULL ? NULL : l->bias + done, n, l->in);
    }
    free(rows);
    return st;
}

enum status block_pack(struct block *b, const struct dims *d, const struct block_weights *bw, struct error *err)
{
    const struct {
        struct gemm *to;
        uint32_t column;
        const struct linear *from;
    } matrices[] = {
        {&b->qkv, 0, &bw->q},   {&b->qkv, d->channels, &bw->k}, {&b->qkv, d->channels + d->keys, &bw->v},
        {&b->out, 0, &bw->out}, {&b->fc1, 0, &bw->fc1},         {&b->fc2, 0, &bw->fc2},
    };
    enum status st = OK;
    packed_norm_pack(&b->norm1, &bw->norm1, d->dim);
    packed_norm_pack(&b->norm2, &bw->norm2, d->dim);
    for (size_t i = 0; st == OK && i < sizeof matrices / sizeof matrices[0]; i++)
        st = linear_pack(matrices[i].to, matrices[i].column, matrices[i].from, err);
    return st;
}

void activations_plan(struct activations *a, struct workspace *w, const struct dims *d, uint64_t rows, uint32_t threads)
{
    workspace_note(w, &a->x, rows * d->channels, sizeof *a->x);
    workspace_note(w, &a->h, rows * d->channels, sizeof *a->h);
    workspace_note(w, &a->qkv, rows * d->qkv, sizeof *a->qkv);
    workspace_note(w, &a->mlp, rows * d->hidden, sizeof *a->mlp);
    workspace_note(w, &a->own, (uint64_t)threads * GEMM_ROWS_MAX * d->channels, sizeof *a->own);
}

void block_norm(const struct engine_core *e, const struct packed_norm *n, float *y, const float *x,
                const uint32_t *from, size_t rows)
{
    const size_t stride = e->dims.channels;
#pragma omp for schedule(static)
    for (size_t r = 0; r < rows; r++)
        e->kernels->norm(y + r * stride, x + (from == NULL ? r : from[r]) * stride, n->weight, n->bias, e->dims.dim,
                         e->config->norm_eps);
}

/* The same by the calling thread alone. */
static void norm_rows(const struct engine_core *e, const struct packed_norm *n, float *y, const float *x,
                      const uint32_t *from, size_t rows)
{
    const size_t stride = e->dims.channels;
    for (size_t r = 0; r < rows; r++)
        e->kernels->norm(y + r * stride, x + (from == NULL ? r : from[r]) * stride, n->weight, n->bias, e->dims.dim,
                         e->config->norm_eps);
}

const float *block_normed(const struct engine_core *e, const struct packed_norm *n, const struct activations *a,
                          const uint32_t *from, size_t rows)
{
    if (rows > GEMM_ROWS_MAX) {
        block_norm(e, n, a->h, a->x, from, rows);
        return a->h;
    }
    float *own = a->own + team_thread() * GEMM_ROWS_MAX * e->dims.channels;
    norm_rows(e, n, own, a->x, from, rows);
    return own;
}

size_t block_rows_of_task(const struct engine_core *e, size_t rows)
{
    if (rows < (size_t)2 * GEMM_ROWS_MAX * e->threads)
        return 0;
    const size_t blocks = (rows + GEMM_BLOCK - 1) / GEMM_BLOCK;
    const size_t tasks = (blocks + e->threads - 1) / e->threads * e->threads;
    return (rows + tasks - 1) / tasks;
}

/* The rows [r, r + n) of block_before. */
static void before_rows(const struct engine_core *e, const struct block *b, const struct activations *a, size_t r,
                        size_t n, struct fetch *fetch)
{
    const size_t channels = e->dims.channels;
    norm_rows(e, &b->norm1, a->h + r * channels, a->x + r * channels, NULL, n);
    gemm_run_alone(&e->gemm, &b->qkv, a->qkv + r * e->dims.qkv, e->dims.qkv, a->h + r * channels, channels, n,
                   EPILOGUE_BIAS, fetch);
}

void block_before(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows)
{
    const size_t channels = e->dims.channels, each = block_rows_of_task(e, rows);
    if (each == 0) {
        const float *normed = block_normed(e, &b->norm1, a, NULL, rows);
        gemm_run(&e->gemm, &b->qkv, a->qkv, e->dims.qkv, normed, channels, rows, EPILOGUE_BIAS);
        return;
    }
#pragma omp for schedule(static)
    for (size_t r = 0; r < rows; r += each)
        before_rows(e, b, a, r, rows - r < each ? rows - r : each, NULL);
}

static const enum epilogue epilogues[] = {
    [ACTIVATION_GELU] = EPILOGUE_GELU,
    [ACTIVATION_GELU_TANH] = EPILOGUE_GELU_TANH,
    [ACTIVATION_RELU] = EPILOGUE_RELU,
};

/* Team. */
static void add_rows(float *x, const float *h, size_t n)
{
#pragma omp for schedule(static)
    for (size_t i = 0; i < n; i++)
        x[i] += h[i];
}

/* The rows [r, r + n) of block_after. */
static void after_rows(const struct engine_core *e, const struct block *b, const struct activations *a, size_t r,
                       size_t n, struct fetch *fetch)
{
    const size_t channels = e->dims.channels, hidden = e->dims.hidden;
    float *x = a->x + r * channels, *h = a->h + r * channels, *mlp = a->mlp + r * hidden;
    if (b->out.n != 0)
        gemm_run_alone(&e->gemm, &b->out, x, channels, h, channels, n, EPILOGUE_ADD, fetch);
    else
        for (size_t i = 0; i < n * channels; i++)
            x[i] += h[i];
    norm_rows(e, &b->norm2, h, x, NULL, n);
    gemm_run_alone(&e->gemm, &b->fc1, mlp, hidden, h, channels, n, epilogues[e->config->activation], fetch);
    gemm_run_alone(&e->gemm, &b->fc2, x, channels, mlp, hidden, n, EPILOGUE_ADD, fetch);
}

void block_after(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows)
{
    const size_t each = block_rows_of_task(e, rows);
    if (each != 0) {
#pragma omp for schedule(static)
        for (size_t r = 0; r < rows; r += each)
            after_rows(e, b, a, r, rows - r < each ? rows - r : each, NULL);
        return;
    }
    const size_t channels = e->dims.channels, hidden = e->dims.hidden;
    if (b->out.n != 0)
        gemm_run(&e->gemm, &b->out, a->x, channels, a->h, channels, rows, EPILOGUE_ADD);
    else
        add_rows(a->x, a->h, rows * channels);
    const float *normed = block_normed(e, &b->norm2, a, NULL, rows);
    gemm_run(&e->gemm, &b->fc1, a->mlp, hidden, normed, channels, rows, epilogues[e->config->activation]);
    gemm_run(&e->gemm, &b->fc2, a->x, channels, a->mlp, hidden, rows, EPILOGUE_ADD);
}

/* Parts of about the same size, and whole tiles except for the last one. */
static size_t rows_alone(size_t rows)
{
    const size_t parts = (rows + GEMM_BLOCK - 1) / GEMM_BLOCK, each = (rows + parts - 1) / parts;
    return (each + GEMM_ROWS_MAX - 1) / GEMM_ROWS_MAX * GEMM_ROWS_MAX;
}

void block_before_alone(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows,
                        struct fetch *fetch)
{
    const size_t each = rows_alone(rows);
    for (size_t r = 0; r < rows; r += each)
        before_rows(e, b, a, r, rows - r < each ? rows - r : each, fetch);
}

void block_after_alone(const struct engine_core *e, const struct block *b, const struct activations *a, size_t rows,
                       struct fetch *fetch)
{
    const size_t each = rows_alone(rows);
    for (size_t r = 0; r < rows; r += each)
        after_rows(e, b, a, r, rows - r < each ? rows - r : each, fetch);
}
