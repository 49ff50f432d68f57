/* arithmetic_coder.h - bytes to bits by a model's probabilities and back: arithmetic coding (Witten, Neal and Cleary,
 * "Arithmetic coding for data compression", CACM 1987) with whole-number frequencies that are computed from logits.
 * Both directions compute alike: the same logits, bit for bit, give the same frequencies, so that what was encoded can
 * be decoded. One thread per struct; no allocation, no failure. */
#ifndef SERVER_OPERATION_ARITHMETIC_CODER_H
#define SERVER_OPERATION_ARITHMETIC_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"

/* Frequencies add up to at most 2^24, so that the rarest byte takes 24 bits. Each byte has at least one, and these 256
 * cost the others next to nothing. */
#define FREQUENCY_TOTAL_MAX (1u << 24)

/* Byte b has the frequencies before[b] .. before[b + 1]; before[0] is 0, and none is empty. */
struct byte_frequencies {
    uint32_t before[BYTE_VALUES + 1];
};

/* The frequencies of softmax(logits), finite [256]. Computed by nothing but additions and products in double, in one
 * order: the C library chooses its exp() by the processor, and its last bits vary with it. */
void byte_frequencies_of(struct byte_frequencies *f, const float *logits);
/* The same frequency for every byte. */
void byte_frequencies_even(struct byte_frequencies *f);

struct arithmetic_encoder {
    uint8_t *out; /* [size_max], borrowed */
    size_t size, size_max;
    bool is_full; /* it did not fit: what was written is useless */
    uint32_t low, high;
    uint64_t opposite; /* bits that follow the next one and are its opposite */
    unsigned partial, partial_bits;
};

void arithmetic_encoder_init(struct arithmetic_encoder *e, uint8_t *out, size_t size_max);
void arithmetic_encode(struct arithmetic_encoder *e, const struct byte_frequencies *f, uint8_t byte);
/* Write the last bits: e->size is final then. Once. */
void arithmetic_encoder_end(struct arithmetic_encoder *e);

struct arithmetic_decoder {
    const uint8_t *in; /* [size], borrowed; zeros follow it */
    size_t size, at;
    uint32_t low, high, code;
    unsigned left; /* bits of in[at - 1] not yet used */
};

void arithmetic_decoder_init(struct arithmetic_decoder *d, const uint8_t *in, size_t size);
/* The next byte; any byte at all if the input is not what an encoder made with these frequencies. */
uint8_t arithmetic_decode(struct arithmetic_decoder *d, const struct byte_frequencies *f);

#endif
