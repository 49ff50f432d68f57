/* openapi.h - the description of the HTTP interface for machines, OpenAPI 3.1. HTTP threads. */
#ifndef SERVER_API_OPENAPI_H
#define SERVER_API_OPENAPI_H

#include <jansson.h>
#include <stdbool.h>

struct settings;

/* The whole document, new: what the admin listener serves, or what the others do. Lacks what there was no memory for:
 * json_print then gives NULL. */
json_t *openapi_describe(const struct settings *s, bool admin);

/* The same as a text, malloc'd; NULL for want of memory. */
char *openapi_print(const struct settings *s, bool admin);

#endif
