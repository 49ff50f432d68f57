/* openapi.h - the description of the HTTP interface for machines, OpenAPI 3.1. HTTP threads. */
#ifndef SERVER_API_OPENAPI_H
#define SERVER_API_OPENAPI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"

struct settings;

/* The whole document, new: what the admin listener serves, or what the others do. Lacks what there was no memory for:
 * json_print then gives NULL. */
json_t *openapi_describe(const struct settings *s, bool admin);

/* The same as texts, constant. */
struct openapi_text;
/* *ret is set only on OK. Errors: ERR_NOMEM. */
enum status openapi_text_create(struct openapi_text **ret, const struct settings *s, struct error *err);
void openapi_text_free(struct openapi_text *t); /* NULL is a no-op */
/* What the admin listener serves, or what the others do; borrowed. */
const char *openapi_text_of(const struct openapi_text *t, bool admin);

#endif
