/* state_seal.h - the checksum that the state of a stream ends with, of one that was changed. */
#ifndef TESTS_SUPPORT_STATE_SEAL_H
#define TESTS_SUPPORT_STATE_SEAL_H

#include <nettle/sha2.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "server/session/state_blob.h"

/* As the version that is written has it. */
static inline void state_seal(uint8_t *blob, size_t size)
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(blob, size - sizeof sum));
    memcpy(blob + size - sizeof sum, &sum, sizeof sum);
}

/* As versions 2 and 3 have it. */
static inline void state_seal_old(uint8_t *blob, size_t size)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, size - SHA256_DIGEST_SIZE, blob);
    sha256_digest(&sha, SHA256_DIGEST_SIZE, blob + size - SHA256_DIGEST_SIZE);
}

#endif
