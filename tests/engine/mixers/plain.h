/* plain.h - what each mixer computes, in the order of its paper's formula and in double precision: the plain twins that
 * the engine's mixers and their inner loops are compared with. Functions of numbers alone, for one sequence; y [tokens,
 * dim] is what the mixer leaves before the projection. */
#ifndef TESTS_ENGINE_MIXERS_PLAIN_H
#define TESTS_ENGINE_MIXERS_PLAIN_H

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "weights/mixers.h"

/* Rows of q [tokens, dim], k [tokens, dim, or a key for each head], v [tokens, dim], from one to the next `stride`. */
struct plain_input {
    const float *q, *k, *v;
    size_t stride, tokens, dim;
};

static inline double plain_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* sum_s softmax_s(z[s]) v[s], n terms; minus infinity: a term that is not there. */
static inline double plain_mean(const double *z, const float *v, size_t stride, size_t n)
{
    double top = -INFINITY, num = 0.0, den = 0.0;
    for (size_t s = 0; s < n; s++)
        top = fmax(top, z[s]);
    for (size_t s = 0; s < n; s++) {
        num += exp(z[s] - top) * (double)v[s * stride];
        den += exp(z[s] - top);
    }
    return num / den;
}

/* AFT (Zhai et al. 2021, eq. 2; with heads eq. 6), channel c of position t:
 *     y_tc = sigmoid(q_tc) sum_s exp(k_sh + w_hts) v_sc / sum_s exp(k_sh + w_hts)
 * w [heads, tokens, tokens], minus infinity where t does not see s; the keys are the heads', or, `per_channel`,
 * the channels'. */
static inline void plain_aft(double *y, const struct plain_input *in, const double *w, size_t heads, bool per_channel,
                             bool gate)
{
    const size_t n = in->tokens, d = in->dim;
    double *z = malloc(n * sizeof *z);
    for (size_t t = 0; t < n; t++)
        for (size_t c = 0; c < d; c++) {
            const size_t head = c / (d / heads);
            for (size_t s = 0; s < n; s++)
                z[s] = (double)in->k[s * in->stride + (per_channel ? c : head)] + w[(head * n + t) * n + s];
            y[t * d + c] = plain_mean(z, in->v + c, in->stride, n);
            if (gate)
                y[t * d + c] *= plain_sigmoid((double)in->q[t * in->stride + c]);
        }
    free(z);
}

/* a . b of `width` numbers. */
static inline double plain_dot(const float *a, const float *b, size_t width)
{
    double sum = 0.0;
    for (size_t c = 0; c < width; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* Softmax attention (Vaswani et al. 2017): y_t = sum_s softmax_s(q_t . k_s / sqrt(d / h)) v_s, by head. */
static inline void plain_attention(double *y, const struct plain_input *in, size_t heads, bool causal)
{
    const size_t n = in->tokens, d = in->dim, width = d / heads;
    assert(n > 0 && d > 0);
    double *z = malloc(n * sizeof *z);
    for (size_t t = 0; t < n; t++)
        for (size_t head = 0; head < heads; head++) {
            const size_t seen = causal ? t + 1 : n;
            const float *q = in->q + t * in->stride + head * width, *k = in->k + head * width;
            for (size_t s = 0; s < seen; s++)
                z[s] = plain_dot(q, k + s * in->stride, width) / sqrt((double)width);
            for (size_t c = head * width; c < (head + 1) * width; c++)
                y[t * d + c] = plain_mean(z, in->v + c, in->stride, seen);
        }
    free(z);
}

/* y_t = sum_s (a_t . b_s) v_s, by head: attention without softmax. a, b [tokens, dim]. */
static inline void plain_linear(double *y, const double *a, const double *b, const struct plain_input *in, size_t heads)
{
    const size_t n = in->tokens, d = in->dim, width = d / heads;
    for (size_t i = 0; i < n * d; i++)
        y[i] = 0.0;
    for (size_t t = 0; t < n; t++)
        for (size_t s = 0; s < n; s++)
            for (size_t head = 0; head < heads; head++) {
                double score = 0.0;
                for (size_t c = head * width; c < (head + 1) * width; c++)
                    score += a[t * d + c] * b[s * d + c];
                for (size_t c = head * width; c < (head + 1) * width; c++)
                    y[t * d + c] += score * (double)in->v[s * in->stride + c];
            }
}

/* x [tokens, dim] of `from`, each channel divided by its l1 or l2 norm over the tokens, or by `by` if that is not 0. */
static inline double *plain_scaled(const float *from, const struct plain_input *in, double by, enum mixer_norm order)
{
    const size_t n = in->tokens, d = in->dim;
    assert(n > 0 && d > 0);
    double *x = calloc(n * d, sizeof *x);
    for (size_t c = 0; c < d; c++) {
        double norm = by;
        for (size_t t = 0; t < n && by == 0.0; t++) {
            const double size = fabs((double)from[t * in->stride + c]);
            norm = order == NORM_L1 ? norm + size : hypot(norm, size);
        }
        for (size_t t = 0; t < n; t++)
            x[t * d + c] = (double)from[t * in->stride + c] / norm;
    }
    return x;
}

/* SimA (Koohpayegani and Pirsiavash 2022): y = (q / |q|) (k / |k|)^T v, the norms l1, by channel over the tokens; in
 * ablations l2, or none. */
static inline void plain_sima(double *y, const struct plain_input *in, size_t heads, enum mixer_norm order)
{
    const double by = order == NORM_NONE ? 1.0 : 0.0;
    double *q = plain_scaled(in->q, in, by, order), *k = plain_scaled(in->k, in, by, order);
    plain_linear(y, q, k, in, heads);
    free(q);
    free(k);
}

/* Simpletron (Yorsh et al. 2021): y = q k^T v / sqrt(T), T the tokens; or without that factor. */
static inline void plain_simple_attention(double *y, const struct plain_input *in, size_t heads, bool scale)
{
    double *q = plain_scaled(in->q, in, scale ? sqrt((double)in->tokens) : 1.0, NORM_NONE);
    double *k = plain_scaled(in->k, in, 1.0, NORM_NONE);
    plain_linear(y, q, k, in, heads);
    free(q);
    free(k);
}

/* Fastformer (Wu et al. 2021, eq. 2 to 6), by head: alpha = softmax_t(w_q . q_t / sqrt(d / h)), query = sum alpha q;
 * p_t = query * k_t; beta = softmax_t(w_k . p_t / sqrt(d / h)), key = sum beta p; y_t = key * v_t.
 * w_q, w_k [dim]: the heads', one after the other. */
static inline void plain_fastformer(double *y, const struct plain_input *in, size_t heads, const float *w_q,
                                    const float *w_k)
{
    const size_t n = in->tokens, d = in->dim, width = d / heads;
    assert(n > 0 && d > 0);
    double *z = malloc(n * sizeof *z);
    float *p = malloc(n * d * sizeof *p); /* as the mixer rounds them */
    for (size_t head = 0; head < heads; head++) {
        const size_t first = head * width;
        for (size_t t = 0; t < n; t++)
            z[t] = plain_dot(w_q + first, in->q + t * in->stride + first, width) / sqrt((double)width);
        for (size_t c = first; c < first + width; c++) {
            const double query = plain_mean(z, in->q + c, in->stride, n);
            for (size_t t = 0; t < n; t++)
                p[t * d + c] = (float)(query * (double)in->k[t * in->stride + c]);
        }
        for (size_t t = 0; t < n; t++)
            z[t] = plain_dot(w_k + first, p + t * d + first, width) / sqrt((double)width);
        for (size_t c = first; c < first + width; c++) {
            const double key = plain_mean(z, p + c, d, n);
            for (size_t t = 0; t < n; t++)
                y[t * d + c] = key * (double)in->v[t * in->stride + c];
        }
    }
    free(z);
    free(p);
}

#endif
