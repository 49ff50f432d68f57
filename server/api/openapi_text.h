/* openapi_text.h - the description of the HTTP interface as text, made once: it takes milliseconds, and the same for as
 * long as the daemon runs. HTTP threads; the lock is a leaf. */
#ifndef SERVER_API_OPENAPI_TEXT_H
#define SERVER_API_OPENAPI_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"

struct openapi_text;
struct settings;

/* `s` is borrowed. *ret is set only on OK. Errors: ERR_NOMEM. */
enum status openapi_text_create(struct openapi_text **ret, const struct settings *s, struct error *err);
void openapi_text_free(struct openapi_text *t); /* NULL is a no-op */
/* A malloc'd copy of what the admin listener serves, or of what the others do; NULL for want of memory. */
char *openapi_text_copy(struct openapi_text *t, bool admin, size_t *bytes);

#endif
