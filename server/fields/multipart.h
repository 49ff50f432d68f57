/* multipart.h - the parts of a complete multipart/form-data body (RFC 7578, RFC 2046), one after the other. The
 * library's own parser is for bodies that arrive piece by piece, and has had faults; this one sees the whole body
 * and copies only names. Any thread; no state beyond struct multipart. */
#ifndef SERVER_FIELDS_MULTIPART_H
#define SERVER_FIELDS_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

enum { MULTIPART_DELIMITER_MAX = 4 + MULTIPART_BOUNDARY_MAX }; /* CR LF - - boundary */

struct multipart {
    const uint8_t *at; /* in the body: what comes next */
    size_t left;
    char delimiter[MULTIPART_DELIMITER_MAX];
    size_t delimiter_bytes;
    bool begun, ended; /* the first delimiter was read; the last one was */
};

struct multipart_part {
    char name[MULTIPART_NAME_MAX];
    char type[MULTIPART_NAME_MAX]; /* the media type without parameters; "" where none is declared */
    const uint8_t *bytes;          /* borrowed from the body */
    size_t size;
};

/* content_type: the request's header, which gives the boundary. The body is borrowed. Errors: ERR_ARGUMENT. */
enum status multipart_begin(struct multipart *m, const char *content_type, const uint8_t *body, size_t size,
                            struct error *err);
/* The next part; after the last one *end is set and *ret left unchanged. Errors: ERR_ARGUMENT: what follows is not a
 * part, or not a whole one. */
enum status multipart_next(struct multipart *m, struct multipart_part *ret, bool *end, struct error *err);

#endif
