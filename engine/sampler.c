/* sampler.c - see sampler.h. Works on 256 candidates, so sorting them is cheaper than being clever. */
#include "engine/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One round of Philox 4x32: the multipliers and key increments are those of the paper's table. */
void sampler_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

void sampler_options_default(struct sampler_options *o)
{
    *o = (struct sampler_options){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

void sampler_init(struct sampler *s, const struct sampler_options *o)
{
    *s = (struct sampler){.options = *o};
}

void sampler_accept(struct sampler *s, uint8_t byte)
{
    s->history[s->seen++ % SAMPLER_HISTORY] = byte;
}

/* Uniform in [0, 1) with 53 bits, a function of the seed, the sample and the draw's number. */
static double uniform(const struct sampler *s)
{
    const uint32_t counter[4] = {(uint32_t)s->draws, (uint32_t)(s->draws >> 32), s->options.sample, 0};
    const uint32_t key[2] = {(uint32_t)s->options.seed, (uint32_t)(s->options.seed >> 32)};
    uint32_t bits[4];
    sampler_philox(bits, counter, key);
    return (double)((((uint64_t)bits[0] << 32) | bits[1]) >> 11) * 0x1p-53;
}

/* CTRL's penalty (Keskar et al. 2019), applied once to every byte in the history. */
static void penalise(double *z, const struct sampler *s)
{
    const double penalty = (double)s->options.repetition_penalty;
    const uint64_t n = s->seen < SAMPLER_HISTORY ? s->seen : SAMPLER_HISTORY;
    bool punished[BYTE_VALUES] = {false};
    for (uint64_t i = 0; i < n; i++)
        punished[s->history[i]] = true;
    for (size_t b = 0; b < BYTE_VALUES; b++)
        if (punished[b])
            z[b] = z[b] > 0.0 ? z[b] / penalty : z[b] * penalty;
}

static uint8_t largest(const double *z)
{
    size_t best = 0;
    for (size_t b = 1; b < BYTE_VALUES; b++)
        if (z[b] > z[best])
            best = b;
    return (uint8_t)best;
}

struct candidate {
    double weight; /* exp(logit - largest logit): not normalised */
    size_t byte;
};

static int by_weight(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->byte < y->byte ? -1 : 1;
}

static double sum(const struct candidate *c, size_t n)
{
    double total = 0.0;
    for (size_t i = 0; i < n; i++)
        total += c[i].weight;
    return total;
}

/* How many of the sorted candidates top_k, top_p and min_p leave, in that order; at least one. */
static size_t kept(const struct candidate *c, const struct sampler_options *o)
{
    size_t n = o->top_k > 0 && o->top_k < BYTE_VALUES ? o->top_k : BYTE_VALUES;
    if (o->top_p < 1.0f) {
        const double reach = (double)o->top_p * sum(c, n);
        double total = 0.0;
        size_t i = 0;
        while (i < n && total < reach)
            total += c[i++].weight;
        n = i > 0 ? i : 1;
    }
    if (o->min_p > 0.0f)
        while (n > 1 && c[n - 1].weight < (double)o->min_p * c[0].weight)
            n--;
    return n;
}

uint8_t sampler_draw(struct sampler *s, const float *logits)
{
    const struct sampler_options *o = &s->options;
    assert(o->temperature >= 0.0f && o->top_p > 0.0f && o->repetition_penalty > 0.0f);
    double z[BYTE_VALUES];
    for (size_t b = 0; b < BYTE_VALUES; b++)
        z[b] = (double)logits[b];
    if (o->repetition_penalty != 1.0f)
        penalise(z, s);
    const double u = uniform(s);
    s->draws++;
    const uint8_t best = largest(z);
    if (o->temperature == 0.0f)
        return best;

    struct candidate c[BYTE_VALUES];
    for (size_t b = 0; b < BYTE_VALUES; b++)
        c[b] = (struct candidate){exp((z[b] - z[best]) / (double)o->temperature), b};
    size_t n = BYTE_VALUES;
    if (o->top_k > 0 || o->top_p < 1.0f || o->min_p > 0.0f) {
        qsort(c, BYTE_VALUES, sizeof c[0], by_weight);
        n = kept(c, o);
    }
    double left = u * sum(c, n);
    for (size_t i = 0; i + 1 < n; i++) {
        left -= c[i].weight;
        if (left < 0.0)
            return (uint8_t)c[i].byte;
    }
    return (uint8_t)c[n - 1].byte;
}
