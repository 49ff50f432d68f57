/* prompts.h - the texts of a request as OpenAI's APIs take them: a string, a list of token ids, which are bytes, or a
 * list of either. HTTP threads; no state. */
#ifndef SERVER_API_PROMPTS_H
#define SERVER_API_PROMPTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/fields/fields.h"

struct prompts {
    uint8_t *bytes; /* [size] of all texts, one after another */
    size_t size;
    size_t ends[GENERATE_PROMPTS_MAX]; /* where each ends */
    uint32_t count;                    /* at least 1; a text may be empty */
};

/* As a field's `read` and `what` (fields.h): `to` is a const json_t *, borrowed from the JSON. */
bool prompts_read(const json_t *value, void *to);
#define PROMPTS_EXPECTED                                                        \
    "a string, a list of bytes (0 to 255), or a list of at most " FIELD_DIGITS( \
        GENERATE_PROMPTS_MAX) " of either, "                                    \
                              "with at most " FIELD_DIGITS(GENERATE_PROMPT_MAX) " bytes in all"
/* The texts of a value that prompts_read has accepted. ret->bytes is malloc'd. *ret is set only on OK. Errors:
 * ERR_NOMEM. */
enum status prompts_copy(struct prompts *ret, const json_t *value, struct error *err);

#endif
