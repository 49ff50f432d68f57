/* logits.c - see logits.h. */
#include "server/logits.h"

#include <assert.h>
#include <math.h>

bool logits_are_finite(const float *logits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(logits[i]))
            return false;
    return true;
}

double logits_log2(const float *logits, size_t n, uint32_t index)
{
    double top = (double)logits[0], sum = 0.0;
    for (size_t i = 1; i < n; i++)
        top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return ((double)logits[index] - top - log(sum)) / log(2.0);
}

void logits_top(struct prediction *out, size_t k, const float *logits, size_t n)
{
    assert(n > 0 && k <= n);
    size_t kept = 0;
    double sum = 0.0;
    float largest = logits[0];
    for (size_t i = 1; i < n; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    for (size_t i = 0; i < n; i++) {
        const double weight = exp((double)logits[i] - (double)largest);
        sum += weight;
        if (kept == k && (k == 0 || logits[i] <= logits[out[k - 1].index]))
            continue;
        size_t at = kept < k ? kept++ : k - 1; /* sorted insertion: k is small and most classes stop at its end */
        for (; at > 0 && logits[i] > logits[out[at - 1].index]; at--)
            out[at] = out[at - 1];
        out[at] = (struct prediction){.index = (uint32_t)i, .probability = weight};
    }
    for (size_t i = 0; i < kept; i++)
        out[i].probability /= sum;
}
