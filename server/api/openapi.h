/* openapi.h - the description of the HTTP interface for machines, OpenAPI 3.1. HTTP threads; no state. */
#ifndef SERVER_API_OPENAPI_H
#define SERVER_API_OPENAPI_H

#include <jansson.h>
#include <stdbool.h>

struct settings;

/* A new copy of the whole document: what the admin listener serves, or what the others do; NULL for want of memory. */
json_t *openapi_describe(const struct settings *s, bool admin);

#endif
