/* token_sums.h - sums over the tokens of a sequence, by column: in double, so that what comes late is not lost in what
 * came before, however many there are. Any thread; no state. */
#ifndef ENGINE_PASS_TOKEN_SUMS_H
#define ENGINE_PASS_TOKEN_SUMS_H

#include <stddef.h>

/* out[c] = sum of x[t][c] for n columns of x [tokens] at `stride` floats from one token to the next. */
void token_sums(float *out, const float *x, size_t tokens, size_t stride, size_t n);
/* sums[c] += x[t][c], token by token: the same bits in however many calls. */
void token_sums_add(double *sums, const float *x, size_t tokens, size_t stride, size_t n);
/* The same of sizes, |x[t][c]|. */
void token_size_sums(float *out, const float *x, size_t tokens, size_t stride, size_t n);
/* And of squares. */
void token_square_sums(float *out, const float *x, size_t tokens, size_t stride, size_t n);
/* The same of weights[t] x[t][c]. */
void token_weighted_sums(float *out, const float *weights, const float *x, size_t tokens, size_t stride, size_t n);

#endif
