/* lanes.h - one register of float32 lanes and the vector maths on it, in plain C with GCC's vector extension. WIDTH is
 * what the instruction set holds in a register and divides LANES: wider vectors than that would be compiled lane by
 * lane in places. For what is compiled once for each instruction set. */
#ifndef ENGINE_KERNELS_LANES_H
#define ENGINE_KERNELS_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/kernels/kernels.h"

#if defined __AVX2__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

#if defined __AVX512F__
#define WIDTH 16
#elif defined __AVX2__
#define WIDTH 8
#else
#define WIDTH 4
#endif
/* How many such registers there are. */
#if defined __AVX512F__ || defined __aarch64__
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
_Static_assert(LANES % WIDTH == 0, "a padded row must be whole registers");

typedef float lanes __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ilanes __attribute__((vector_size(4 * WIDTH)));

#define LANES_INLINE static inline __attribute__((always_inline))

/* memcpy: no alignment is required of callers, and the compiler makes one move of it. */
LANES_INLINE lanes lanes_load(const float *p)
{
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

LANES_INLINE void lanes_store(float *p, lanes v)
{
    memcpy(p, &v, sizeof v);
}

/* The first n floats of a register, n <= WIDTH; the others are 0. */
LANES_INLINE lanes lanes_load_some(const float *p, size_t n)
{
    lanes v = {0};
    memcpy(&v, p, n < WIDTH ? n * sizeof *p : sizeof v);
    return v;
}

LANES_INLINE void lanes_store_some(float *p, lanes v, size_t n)
{
    memcpy(p, &v, n < WIDTH ? n * sizeof *p : sizeof v);
}

LANES_INLINE lanes lanes_set(float x)
{
    return x - (lanes){0};
}

/* a * b + c. The compiler contracts nothing by itself (-ffp-contract=off), or copies of a function could differ in
 * their last bits: what is fused is what calls this. Rounded once where the instruction set has an instruction for it;
 * on the x86-64 baseline, which has none, after the product as well. */
LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
#if WIDTH == 16
    return _mm512_fmadd_ps(a, b, c);
#elif WIDTH == 8
    return _mm256_fmadd_ps(a, b, c);
#elif defined __aarch64__
    return (lanes)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* The same of single numbers. */
LANES_INLINE float lane_fma(float a, float b, float c)
{
#if WIDTH > 4 || defined __aarch64__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

LANES_INLINE lanes lanes_pick(ilanes mask, lanes yes, lanes no)
{
    return (lanes)((mask & (ilanes)yes) | (~mask & (ilanes)no));
}

/* ---- long sums -------------------------------------------------------------------------------------------------- */

/* A sum in float32 that runs on loses what falls below its last bit at each step. Here are two numbers for it, the
 * second one what the first has lost: sum + rest, where sum is what that rounds to. Where all roundings go one way,
 * with 2^32 equal terms, it is off by 9e-7 of itself; with 2^24 by nothing. Without -ffast-math no compiler takes it
 * apart; infinities end as NaN. */
struct long_sum {
    lanes sum, rest;
};

/* What of a + b is not in their rounded sum s, exactly, whichever is the larger (Knuth 1969, TwoSum). */
LANES_INLINE lanes lanes_lost(lanes a, lanes b, lanes s)
{
    const lanes of_b = s - a, of_a = s - of_b;
    return (a - of_a) + (b - of_b);
}

LANES_INLINE void long_sum_add(struct long_sum *l, lanes x)
{
    const lanes sum = l->sum + x, rest = l->rest + lanes_lost(l->sum, x, sum);
    l->sum = sum + rest;
    l->rest = rest - (l->sum - sum); /* rest is the smaller one: what is lost is exact */
}

/* The same numbers, with all that fits in the first one. A second time changes nothing. */
LANES_INLINE void long_sum_settle(struct long_sum *l)
{
    const lanes sum = l->sum + l->rest;
    l->rest = lanes_lost(l->sum, l->rest, sum);
    l->sum = sum;
}

/* To add takes ten times as long as an addition. So many terms are added up plainly by this many first: such a sum is
 * off by some 1e-7 of itself, by 5e-7 where all roundings go one way, and no more is a long one of them. */
#define SUM_BLOCK ((size_t)32)

/* A plain sum with a long one of its parts before it. */
struct running_sum {
    struct long_sum before;
    lanes part;
    uint32_t terms; /* of the part */
};

LANES_INLINE void running_sum_add(struct running_sum *r, lanes x)
{
    r->part += x;
    if (++r->terms < SUM_BLOCK)
        return;
    long_sum_add(&r->before, r->part);
    r->part = (lanes){0};
    r->terms = 0;
}

LANES_INLINE lanes running_sum_of(const struct running_sum *r)
{
    return r->before.sum + r->part;
}

/* b > a ? b : a, so that a NaN in `a` stays: clamping must not turn an overflow upstream into an ordinary number. One
 * instruction on x86, which the compiler does not find in vector C. */
LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
#if WIDTH == 16
    return _mm512_max_ps(b, a);
#elif WIDTH == 8
    return _mm256_max_ps(b, a);
#else
    return lanes_pick(a < b, b, a);
#endif
}

/* b < a ? b : a */
LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
#if WIDTH == 16
    return _mm512_min_ps(b, a);
#elif WIDTH == 8
    return _mm256_min_ps(b, a);
#else
    return lanes_pick(a > b, b, a);
#endif
}

/* The lanes from the nth on, then those before it. */
#if WIDTH == 16
#define LANES_FROM(v, n)                                                                                              \
    __builtin_shufflevector(v, v, n, (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6, (n) + 7, (n) + 8, (n) + 9, \
                            (n) + 10, (n) + 11, (n) + 12, (n) + 13, (n) + 14, (n) + 15)
#elif WIDTH == 8
#define LANES_FROM(v, n) __builtin_shufflevector(v, v, n, (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6, (n) + 7)
#else
#define LANES_FROM(v, n) __builtin_shufflevector(v, v, n, (n) + 1, (n) + 2, (n) + 3)
#endif

/* Half by half, in registers: through memory each half would wait for what the last one stored. */
LANES_INLINE float lanes_sum(lanes v)
{
#if WIDTH == 16
    v += LANES_FROM(v, 8);
#endif
#if WIDTH >= 8
    v += LANES_FROM(v, 4);
#endif
    v += LANES_FROM(v, 2);
    v += LANES_FROM(v, 1);
    return v[0];
}

LANES_INLINE ilanes ilanes_max(ilanes a, ilanes b)
{
#if WIDTH == 16
    return (ilanes)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif WIDTH == 8
    return (ilanes)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    const ilanes above = a > b;
    return (a & above) | (b & ~above);
#endif
}

/* The largest of all lanes. */
LANES_INLINE int32_t ilanes_top(ilanes v)
{
#if WIDTH == 16
    v = ilanes_max(v, LANES_FROM(v, 8));
#endif
#if WIDTH >= 8
    v = ilanes_max(v, LANES_FROM(v, 4));
#endif
    v = ilanes_max(v, LANES_FROM(v, 2));
    return ilanes_max(v, LANES_FROM(v, 1))[0];
}

/* bf16 is the upper half of float32. Pairs of them, each widened: */
LANES_INLINE lanes lower_bf16(ilanes pair)
{
    return (lanes)(pair << 16);
}

LANES_INLINE lanes upper_bf16(ilanes pair)
{
    return (lanes)(pair & (int32_t)0xffff0000);
}

/* Into the lower halves, rounded to nearest, ties to even, the upper ones 0; a NaN stays one. */
LANES_INLINE ilanes lanes_to_bf16(lanes x)
{
    const ilanes bits = (ilanes)x, none = (bits & 0x7fffffff) > 0x7f800000;
    const ilanes rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16 & 0xffff;
    return (~none & rounded) | (none & 0x7fc0);
}

/* Nearest whole number for any finite x. Where no instruction does it, adding 1.5 * 2^23 drops the fraction; from 2^22
 * on x is taken as it is, being whole to within a quarter. */
LANES_INLINE lanes lanes_round(lanes x)
{
#if WIDTH == 16
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif WIDTH == 8
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const lanes magic = lanes_set(12582912.0f);
    const lanes size = (lanes)((ilanes)x & 0x7fffffff);
    const lanes near = (x + magic) - magic;
    return lanes_pick(size < 4194304.0f, near, x);
#endif
}

/* The same as a whole number, for |x| below 2^31. */
LANES_INLINE ilanes lanes_to_whole(lanes x)
{
#if WIDTH == 16
    return (ilanes)_mm512_cvtps_epi32(x);
#elif WIDTH == 8
    return (ilanes)_mm256_cvtps_epi32(x);
#else
    return __builtin_convertvector(lanes_round(x), ilanes);
#endif
}

/* 2^n for whole n; 0 below -126 (no subnormals), n > 127 must not occur. */
LANES_INLINE lanes lanes_power_of_2(lanes n)
{
    /* A NaN becomes -127 here: it must not reach the conversion, and comes back with the factor that it is multiplied
     * by. */
    const lanes clamped = lanes_max(lanes_set(-127.0f), n);
    return (lanes)((__builtin_convertvector(clamped, ilanes) + 127) << 23);
}

/* exp(x) = 2^n * p with whole *n and the returned p in [2^-1/2, 2^1/2], finite for every finite x: as in Cephes'
 * expf (Moshier), a polynomial of degree 7 in x - n ln 2, relative error below 1e-7. */
LANES_INLINE lanes lanes_exp_parts(lanes x, lanes *n)
{
    const lanes most = lanes_set(2.3e38f); /* x log2(e) stays finite */
    x = lanes_min(lanes_max(x, -most), most);
    const lanes whole = lanes_round(x * 1.44269504088896341f);
    /* ln 2 in two parts: the first has 9 bits, so the product is exact */
    lanes f = lanes_fma(whole, lanes_set(-0.693359375f), x);
    f = lanes_fma(whole, lanes_set(2.12194440e-4f), f);
    /* A huge x leaves rounding noise here instead of a fraction. */
    f = lanes_min(lanes_max(f, lanes_set(-0.35f)), lanes_set(0.35f));
    lanes p = lanes_set(1.9875691500e-4f);
    p = lanes_fma(p, f, lanes_set(1.3981999507e-3f));
    p = lanes_fma(p, f, lanes_set(8.3334519073e-3f));
    p = lanes_fma(p, f, lanes_set(4.1665795894e-2f));
    p = lanes_fma(p, f, lanes_set(1.6666665459e-1f));
    p = lanes_fma(p, f, lanes_set(5.0000001201e-1f));
    *n = whole;
    return lanes_fma(p, f * f, f) + 1.0f;
}

/* exp(x) for x <= 88; 0 where the result would be subnormal. */
LANES_INLINE lanes lanes_exp(lanes x)
{
    lanes n;
    const lanes p = lanes_exp_parts(x, &n);
    return p * lanes_power_of_2(n);
}

/* 1 / (1 + exp(-x)), from exp(-|x|) so that nothing overflows. */
LANES_INLINE lanes lanes_sigmoid(lanes x)
{
    const ilanes negative = x < 0.0f;
    const lanes e = lanes_exp(lanes_pick(negative, x, -x));
    const lanes scale = 1.0f / (1.0f + e);
    return lanes_pick(negative, e * scale, scale);
}

/* x Phi(x) = x / 2 + x^2 R(x^2), R(x^2) = (Phi(x) - 1/2) / x as a fraction of polynomials of degree 5: our own fit,
 * least squares reweighted towards the least largest error (Lawson 1961) of x^2 R up to x = 5.3, 1.3e-8 before
 * rounding. Beyond that Phi is 0 or 1 to 6e-8. Error in all: at most 2e-7 |x|. */
LANES_INLINE lanes lanes_gelu(lanes x)
{
    const lanes u = x * x;
    lanes p = lanes_set(2.33864839e-8f), q = lanes_set(1.22460358e-6f);
    p = lanes_fma(p, u, lanes_set(6.4679416e-6f));
    q = lanes_fma(q, u, lanes_set(7.46964652e-5f));
    p = lanes_fma(p, u, lanes_set(1.70361294e-4f));
    q = lanes_fma(q, u, lanes_set(1.89245795e-3f));
    p = lanes_fma(p, u, lanes_set(4.68769204e-3f));
    q = lanes_fma(q, u, lanes_set(2.86913402e-2f));
    p = lanes_fma(p, u, lanes_set(3.38963866e-2f));
    q = lanes_fma(q, u, lanes_set(2.51630485e-1f));
    p = lanes_fma(p, u, lanes_set(3.98942113e-1f));
    q = lanes_fma(q, u, lanes_set(1.0f));
    const lanes within = lanes_fma(x, lanes_set(0.5f), u * (p / q));
    return lanes_pick(u > 5.3f * 5.3f, lanes_max(x, lanes_set(0.0f)), within);
}

/* GELU's tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh u) = x sigmoid(2u). */
LANES_INLINE lanes lanes_gelu_tanh(lanes x)
{
    const lanes u = 0.79788456080286536f * lanes_fma(0.044715f * x * x, x, x);
    return x * lanes_sigmoid(2.0f * u);
}

LANES_INLINE lanes lanes_relu(lanes x)
{
    return lanes_max(x, lanes_set(0.0f));
}

#endif
