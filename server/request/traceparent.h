/* traceparent.h - the header of W3C Trace Context, which says what trace a request belongs to:
 * 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, that is version, trace id, the caller's span, flags.
 * Any thread; no state. */
#ifndef SERVER_REQUEST_TRACEPARENT_H
#define SERVER_REQUEST_TRACEPARENT_H

#include <stdbool.h>

#define TRACE_ID_BYTES 33    /* 32 lower-case hexadecimal digits and a NUL */
#define TRACE_SPAN_BYTES 17  /* the same of 16 */
#define TRACEPARENT_BYTES 56 /* a whole value of version 00, with its NUL */

struct traceparent {
    char trace[TRACE_ID_BYTES];
    char span[TRACE_SPAN_BYTES];
    unsigned flags; /* TRACE_FLAGS of them */
};

/* "sampled" of Level 1 and "random trace id" of Level 2; the others are to be passed on as 0. */
enum { TRACE_FLAGS = 0x03 };

/* Section 3.2 of the specification, strictly: lower case only, no id of zeros alone, version 00 of exactly that length;
 * a later version (but ff) may have more behind another '-'. Spaces around the value are not part of it. False, and
 * *ret is unchanged, for anything else, which is to be ignored. */
bool traceparent_parse(struct traceparent *ret, const char *value);
/* Give it a new random span, ours. */
void traceparent_renew_span(struct traceparent *t);
/* As a header's value, of version 00. */
void traceparent_print(const struct traceparent *t, char out[TRACEPARENT_BYTES]);

#endif
