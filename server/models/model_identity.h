/* model_identity.h - what two daemons must have in common for one to continue, bit for bit, where the other stopped:
 * the model's files, and what its numbers are computed with. Any thread; a plain value. */
#ifndef SERVER_MODELS_MODEL_IDENTITY_H
#define SERVER_MODELS_MODEL_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/engine.h"
#include "server/models/precision.h"

enum { MODEL_DIGEST_BYTES = PRECISION_DIGEST_BYTES };

struct model_identity {
    uint8_t digest[MODEL_DIGEST_BYTES]; /* of config.json and the weights (precision_digest) */
    /* "aftd 0.2.0, avx512bf16, f32"; padded with zeros, at least one. */
    char arithmetic[MODEL_ARITHMETIC_BYTES];
};

/* For a model with that digest (precision_digest), computed as `info` says. */
void model_identity_init(struct model_identity *ret, const uint8_t digest[MODEL_DIGEST_BYTES],
                         const struct engine_info *info);

/* Are both the same? `what` begins the message, such as "the state". Errors: ERR_ARGUMENT with `param`, saying which
 * part differs. */
enum status model_identity_check(const struct model_identity *ours, const struct model_identity *theirs,
                                 const char *what, const char *param, struct error *err);

#endif
