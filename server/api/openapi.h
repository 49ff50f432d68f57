/* openapi.h - the description of the HTTP interface for machines, OpenAPI 3.1. HTTP threads. */
#ifndef SERVER_API_OPENAPI_H
#define SERVER_API_OPENAPI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"

struct settings;

/* A new copy of the whole document: what the admin listener serves, or what the others do; NULL for want of memory. */
json_t *openapi_describe(const struct settings *s, bool admin);

/* The same as text, made once: it takes milliseconds, and is the same for as long as the daemon runs. Its lock is
 * a leaf. */
struct openapi_text;
/* `s` is borrowed. *ret is set only on OK. Errors: ERR_NOMEM. */
enum status openapi_text_create(struct openapi_text **ret, const struct settings *s, struct error *err);
void openapi_text_free(struct openapi_text *t); /* NULL is a no-op */
/* A malloc'd copy of what the admin listener serves, or of what the others do; NULL for want of memory. */
char *openapi_text_copy(struct openapi_text *t, bool admin, size_t *bytes);

#endif
