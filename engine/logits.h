/* logits.h - what the server does with the engine's logits: check them, and turn them into probabilities.
 * Any thread; no state, no allocation. */
#ifndef ENGINE_LOGITS_H
#define ENGINE_LOGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Weights that pass every check can still overflow on some input; a client gets an error then, not nonsense. */
bool logits_are_finite(const float *logits, size_t n);

/* log2 of the probability that softmax(logits) gives to `index`. logits [n], finite. In double. */
double logits_log2(const float *logits, size_t n, uint32_t index);

/* The natural logarithm of the probabilities that softmax(logits) gives to `byte`, and then to the `likeliest_count`
 * most probable bytes, best first, ties to the lower one. logits [256], finite; logprobs [1 + likeliest_count],
 * likeliest [likeliest_count], not above GENERATE_LIKELIEST_MAX. In double, from which a float32 is made. */
void logits_logprobs(float *logprobs, uint8_t *likeliest, uint32_t likeliest_count, const float *logits, uint8_t byte);

/* softmax(logits). probabilities, logits [n], finite, n >= 1. In double. */
void logits_probabilities(float *probabilities, const float *logits, size_t n);

struct prediction {
    uint32_t index;
    double probability;
};

/* The k most probable of softmax(logits), best first, ties to the lower index. logits [n], finite, n >= 1; out [k],
 * k <= n. In double, so that the probabilities of 1,000 classes add up to 1. */
void logits_top(struct prediction *out, size_t k, const float *logits, size_t n);

#endif
