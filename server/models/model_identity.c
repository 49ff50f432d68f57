/* model_identity.c - see model_identity.h. */
#include "server/models/model_identity.h"

#include <nettle/base16.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"

void model_identity_init(struct model_identity *ret, const uint8_t digest[MODEL_DIGEST_BYTES],
                         const struct engine_info *info)
{
    *ret = (struct model_identity){.arithmetic = ""};
    memcpy(ret->digest, digest, sizeof ret->digest);
    (void)snprintf(ret->arithmetic, sizeof ret->arithmetic, "aftd " AFTD_VERSION ", %s, %s", info->isa,
                   info->precision);
}

enum status model_identity_check(const struct model_identity *ours, const struct model_identity *theirs,
                                 const char *what, const char *param, struct error *err)
{
    char our_digest[9] = "", their_digest[9] = "";
    if (memcmp(ours->digest, theirs->digest, sizeof ours->digest) != 0) {
        base16_encode_update(our_digest, 4, ours->digest);
        base16_encode_update(their_digest, 4, theirs->digest);
        return error_set_param(err, ERR_ARGUMENT, param,
                               "%s is of another model: its digest begins with %s, this model's with %s", what,
                               their_digest, our_digest);
    }
    if (memcmp(ours->arithmetic, theirs->arithmetic, sizeof ours->arithmetic) != 0)
        return error_set_param(
            err, ERR_ARGUMENT, param,
            "%s was made by \"%.*s\" and cannot be used by \"%s\": instruction set and precision must "
            "be the same",
            what, JSON_QUOTE_MAX, json_quote(theirs->arithmetic).text, ours->arithmetic);
    return OK;
}
