/* random.h - small seeded generator for tests: the same numbers on every machine. */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

/* splitmix64 (Steele et al. 2014). */
static inline uint64_t random_next(struct random *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [0, n), n > 0. */
static inline uint32_t random_below(struct random *r, uint32_t n)
{
    return (uint32_t)(((random_next(r) >> 32) * n) >> 32);
}

/* Uniform in [-size, size). */
static inline float random_float(struct random *r, float size)
{
    return (float)((double)(random_next(r) >> 11) * 0x1p-52 - 1.0) * size;
}

#endif
