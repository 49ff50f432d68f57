/* sampler.c - see sampler.h. Works on 256 candidates, so sorting them is cheaper than being clever. */
#include "engine/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/utf8.h"

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

/* ---- which bytes may be drawn ----------------------------------------------------------------------------------- */

/* The byte that came `back` bytes before the next one, 1 for the latest. */
static uint8_t before(const struct sampler *s, uint64_t back)
{
    return s->history[(s->seen - back) % SAMPLER_HISTORY];
}

/* Does the history end within a character? *low .. *high: what goes on with it. */
static bool is_within(const struct sampler *s, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    for (uint64_t back = 1; back <= 3 && back <= s->seen; back++) {
        const uint8_t byte = before(s, back);
        if (byte >= 0x80 && byte < 0xc0)
            continue;
        const struct utf8_lead lead = utf8_lead(byte);
        if (lead.length <= back)
            return false;
        if (back == 1) {
            *low = lead.low;
            *high = lead.high;
        }
        return back == 1 || (before(s, back - 1) >= lead.low && before(s, back - 1) <= lead.high);
    }
    return false;
}

static bool any_allowed(const struct sampler_options *o, size_t low, size_t high)
{
    for (size_t b = low; b <= high; b++)
        if (sampler_allows(o, b))
            return true;
    return false;
}

/* Whatever follows is 80..BF, of which what may be second is a part: one that is allowed there is so later. */
static bool begins_a_character(const struct sampler_options *o, size_t byte)
{
    const struct utf8_lead lead = utf8_lead((uint8_t)byte);
    return sampler_allows(o, byte) && lead.length > 0 && (lead.length == 1 || any_allowed(o, lead.low, lead.high));
}

bool sampler_can_draw(const struct sampler_options *o)
{
    for (size_t b = 0; b < BYTE_VALUES; b++)
        if (o->utf8 ? begins_a_character(o, b) : sampler_allows(o, b))
            return true;
    return false;
}

static bool allows_all(const struct sampler_options *o)
{
    for (size_t i = 0; i < sizeof o->allowed; i++)
        if (o->allowed[i] != 0xff)
            return false;
    return true;
}

/* What must not be drawn becomes -infinity. */
static void leave_out(double *z, const struct sampler *s)
{
    const struct sampler_options *o = &s->options;
    uint8_t low, high;
    if (!o->utf8 && allows_all(o))
        return;
    const bool within = o->utf8 && is_within(s, &low, &high) && any_allowed(o, low, high);
    for (size_t b = 0; b < BYTE_VALUES; b++) {
        const bool fits = !o->utf8 ? sampler_allows(o, b)
                          : within ? b >= low && b <= high && sampler_allows(o, b)
                                   : begins_a_character(o, b);
        if (!fits)
            z[b] = -INFINITY;
    }
}

/* ---- what their logits become ----------------------------------------------------------------------------------- */

/* CTRL's penalty (Keskar et al. 2019), once for every byte in the history, then OpenAI's two. */
static void penalise(double *z, const struct sampler *s)
{
    const struct sampler_options *o = &s->options;
    const double penalty = (double)o->repetition_penalty;
    const uint64_t n = s->seen < SAMPLER_HISTORY ? s->seen : SAMPLER_HISTORY;
    unsigned counts[BYTE_VALUES] = {0};
    for (uint64_t i = 0; i < n; i++)
        counts[s->history[i]]++;
    for (size_t b = 0; b < BYTE_VALUES; b++)
        if (counts[b] > 0) {
            z[b] = z[b] > 0.0 ? z[b] / penalty : z[b] * penalty;
            z[b] -= (double)o->presence_penalty + (double)o->frequency_penalty * counts[b];
        }
}

static void adjust(double *z, const struct sampler *s)
{
    const struct sampler_options *o = &s->options;
    if (o->is_biased)
        for (size_t b = 0; b < BYTE_VALUES; b++)
            z[b] += (double)o->bias[b];
    if (o->repetition_penalty != 1.0f || o->presence_penalty != 0.0f || o->frequency_penalty != 0.0f)
        penalise(z, s);
    leave_out(z, s);
}

/* ---- the draw --------------------------------------------------------------------------------------------------- */

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

static uint8_t choose(const struct sampler *s, const float *logits)
{
    const struct sampler_options *o = &s->options;
    assert(o->temperature >= 0.0f && o->top_p > 0.0f && o->repetition_penalty > 0.0f);
    double z[BYTE_VALUES];
    for (size_t b = 0; b < BYTE_VALUES; b++)
        z[b] = (double)logits[b];
    adjust(z, s);
    const double u = uniform(s);
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
    while (n > 1 && c[n - 1].weight == 0.0) /* so that what must not be drawn is not taken for want of others */
        n--;
    double left = u * sum(c, n);
    for (size_t i = 0; i + 1 < n; i++) {
        left -= c[i].weight;
        if (left < 0.0)
            return (uint8_t)c[i].byte;
    }
    return (uint8_t)c[n - 1].byte;
}

uint8_t sampler_draw(struct sampler *s, const float *logits)
{
    const uint8_t byte = choose(s, logits);
    s->draws++;
    sampler_accept(s, byte);
    return byte;
}
