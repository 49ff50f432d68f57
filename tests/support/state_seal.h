/* state_seal.h - the checksum that the state of a stream ends with, of one that was changed. */
#ifndef TESTS_SUPPORT_STATE_SEAL_H
#define TESTS_SUPPORT_STATE_SEAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "server/session/state_blob.h"

static inline void state_seal(uint8_t *blob, size_t size)
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(blob, size - sizeof sum));
    memcpy(blob + size - sizeof sum, &sum, sizeof sum);
}

#endif
