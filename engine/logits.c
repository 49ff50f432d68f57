/* logits.c - see logits.h. */
#include "engine/logits.h"

#include <assert.h>
#include <math.h>

#include "config/limits.h"

bool logits_are_finite(const float *logits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(logits[i]))
            return false;
    return true;
}

/* log(sum of exp(logits)): by how much a logit exceeds its log-probability. */
static double log_sum(const float *logits, size_t n)
{
    double top = (double)logits[0], sum = 0.0;
    for (size_t i = 1; i < n; i++)
        top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum);
}

void logits_probabilities(float *probabilities, const float *logits, size_t n)
{
    const double whole = log_sum(logits, n);
    for (size_t i = 0; i < n; i++)
        probabilities[i] = (float)exp((double)logits[i] - whole);
}

double logits_log2(const float *logits, size_t n, uint32_t index)
{
    return ((double)logits[index] - log_sum(logits, n)) / log(2.0);
}

void logits_logprobs(float *logprobs, uint8_t *likeliest, uint32_t likeliest_count, const float *logits, uint8_t byte)
{
    assert(likeliest_count <= GENERATE_LIKELIEST_MAX);
    const double whole = log_sum(logits, BYTE_VALUES);
    struct prediction top[GENERATE_LIKELIEST_MAX];
    logprobs[0] = (float)((double)logits[byte] - whole);
    if (likeliest_count > 0)
        logits_top(top, likeliest_count, logits, BYTE_VALUES);
    for (uint32_t i = 0; i < likeliest_count; i++) {
        likeliest[i] = (uint8_t)top[i].index;
        logprobs[1 + i] = (float)((double)logits[likeliest[i]] - whole);
    }
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
