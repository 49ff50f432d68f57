/* arithmetic_coder.h - bytes to bits by a model's probabilities and back: arithmetic coding (Witten, Neal and Cleary,
 * "Arithmetic coding for data compression", CACM 1987) with whole-number frequencies that are made of logits.
 * Both directions compute alike: from the same logits, bit for bit, come the same frequencies, so that what was encoded
 * is decoded. One thread per struct; no allocation, no failure. */
#ifndef SERVER_CODING_ARITHMETIC_CODER_H
#define SERVER_CODING_ARITHMETIC_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"

/* Frequencies add up to at most 2^24, so that the rarest byte takes 24 bits and 256 of those, which each byte has for
 * being possible at all, cost the others nothing to speak of. */
#define FREQUENCY_TOTAL_MAX (1u << 24)

/* Byte b has the frequencies before[b] .. before[b + 1]; before[0] is 0, and none is empty. */
struct byte_frequencies {
    uint32_t before[BYTE_VALUES + 1];
};

/* Of softmax(logits), finite [256]. By additions and products in double alone, in one order: exp() of the C library is
 * chosen by the processor, and its last bits with it. */
void byte_frequencies_of(struct byte_frequencies *f, const float *logits);
/* Every byte alike. */
void byte_frequencies_even(struct byte_frequencies *f);

struct arithmetic_encoder {
    uint8_t *out; /* [size_max], borrowed */
    size_t size, size_max;
    bool is_full; /* it did not fit: what is there is useless */
    uint32_t low, high;
    uint64_t opposite; /* bits that follow the next one and are its opposite */
    unsigned partial, partial_bits;
};

void arithmetic_encoder_init(struct arithmetic_encoder *e, uint8_t *out, size_t size_max);
void arithmetic_encode(struct arithmetic_encoder *e, const struct byte_frequencies *f, uint8_t byte);
/* The last bits: e->size bytes are there then. Once. */
void arithmetic_encoder_end(struct arithmetic_encoder *e);

struct arithmetic_decoder {
    const uint8_t *in; /* [size], borrowed; behind it come zeros */
    size_t size, at;
    uint32_t low, high, code;
    unsigned left; /* bits of in[at - 1] not yet used */
};

void arithmetic_decoder_init(struct arithmetic_decoder *d, const uint8_t *in, size_t size);
/* The next byte: any, where the input is not what an encoder made of these frequencies. */
uint8_t arithmetic_decode(struct arithmetic_decoder *d, const struct byte_frequencies *f);

#endif
