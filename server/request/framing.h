/* framing.h - checks that it is beyond doubt where a request's headers and body end. What a proxy and this server could
 * read differently (request smuggling: two lengths, a length and an encoding, odd characters in a name, a NUL, a bare
 * line feed) is refused, because the HTTP library lets it pass. What it lets pass within a chunked body (bare line
 * feeds, extensions with a CR or LF in them) is not seen here: no request is read behind such a body, its connection is
 * closed after the answer. Any thread; no state. */
#ifndef SERVER_REQUEST_FRAMING_H
#define SERVER_REQUEST_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

struct framing {
    /* the result, once framing_end has returned OK */
    bool has_length, is_chunked;
    uint64_t length; /* of Content-Length */
    /* internal */
    unsigned hosts;
    bool is_1_1;        /* HTTP/1.1, not 1.0 */
    const char *fault;  /* NULL: none yet */
    uintptr_t previous; /* where the previous piece ended in the library's buffer */
    uintptr_t end;      /* of the header */
    size_t header_bytes;
};

/* The request line: method, request target and version; header_bytes: request line and headers, line ends included; 0:
 * the library looks at what lies between them itself. */
void framing_begin(struct framing *f, const char *method, const char *target, size_t target_bytes, const char *version,
                   size_t header_bytes);
/* Each header, in the order of the request; sizes in bytes, without a NUL. */
void framing_header(struct framing *f, const char *name, size_t name_bytes, const char *value, size_t value_bytes);
/* After the last header. Errors: ERR_ARGUMENT, saying what is wrong. */
enum status framing_end(struct framing *f, struct error *err);

/* The request's id: the client's `given` (may be NULL) if it is 1 to REQUEST_ID_MAX of [A-Za-z0-9._-], else a fresh
 * random one. */
void framing_choose_id(char out[REQUEST_ID_MAX + 1], const char *given);

#endif
