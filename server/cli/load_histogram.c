/* load_histogram.c - see load_histogram.h. */
#include "server/cli/load_histogram.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#define PIECES (UINT64_C(1) << LOAD_HISTOGRAM_BITS) /* buckets of one doubling */

/* How often times of the bucket's row were halved to fit below 2 * PIECES. */
static unsigned shift_of(uint64_t ns)
{
    return ns < 2 * PIECES ? 0 : (unsigned)(63 - LOAD_HISTOGRAM_BITS - __builtin_clzll(ns));
}

/* Row s > 0 holds PIECES buckets for ns >> s in PIECES .. 2 * PIECES - 1; row 0 holds 2 * PIECES, one for each ns. */
static size_t bucket_of(uint64_t ns)
{
    const unsigned shift = shift_of(ns);
    return (size_t)(shift * PIECES + (ns >> shift));
}

static double middle_of(size_t bucket)
{
    if (bucket < 2 * PIECES)
        return (double)bucket;
    const unsigned shift = (unsigned)(bucket / PIECES - 1);
    const double piece = (double)(bucket % PIECES + PIECES);
    return ldexp(piece + 0.5, (int)shift);
}

void load_histogram_add(struct load_histogram *h, uint64_t ns, uint64_t count)
{
    const size_t bucket = bucket_of(ns);
    assert(bucket < LOAD_HISTOGRAM_BUCKETS);
    if (count == 0)
        return;
    h->counts[bucket] += count;
    h->count += count;
    h->sum += (double)ns * (double)count;
    h->max_ns = ns > h->max_ns ? ns : h->max_ns;
}

void load_histogram_add_s(struct load_histogram *h, double seconds, uint64_t count)
{
    const double ns = seconds > 0.0 ? 1e9 * seconds : 0.0;
    load_histogram_add(h, ns < 1e19 ? (uint64_t)(ns + 0.5) : UINT64_MAX, count); /* 2^64 is about 1.8e19 */
}

double load_histogram_mean_ns(const struct load_histogram *h)
{
    return h->count > 0 ? h->sum / (double)h->count : 0.0;
}

double load_histogram_quantile_ns(const struct load_histogram *h, double q)
{
    assert(q > 0.0 && q <= 1.0);
    /* 0.9 * 10 is a little more than 9 in binary, and would skip a rank */
    const double rank = ceil(q * (double)h->count * (1.0 - 1e-12));
    uint64_t below = 0;
    for (size_t b = 0; b < LOAD_HISTOGRAM_BUCKETS; b++) {
        below += h->counts[b];
        if (below > 0 && (double)below >= rank)
            return fmin(middle_of(b), (double)h->max_ns);
    }
    return 0.0;
}
