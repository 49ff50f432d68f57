/* stream_offset.h - how far a client is in the text of a stream, as the id that its events tell and that a client whose
 * connection broke sends back. The bytes of a text depend on the model's files, what they are computed with, the
 * request and the seed alone; so any daemon that has these in common computes the same text again, and sends what is
 * missing. An id is made of [0-9a-fnz.]; of digests it has the first bytes, in hexadecimal digits:
 *
 *     1.SEED.MODEL.ARITHMETIC.REQUEST.BEGINNING.BYTES        after BYTES bytes, an echoed prompt included
 *     1.SEED.MODEL.ARITHMETIC.REQUEST.BEGINNING.BYTES.z      after the last event: there is nothing more
 *     1.SEED.MODEL.ARITHMETIC.REQUEST.BEGINNING.n[.z]        of several texts, which cannot go on
 *
 * BEGINNING is that of the state or the session that the text goes on from, 0 without one. HTTP threads; a plain
 * value. */
#ifndef SERVER_API_STREAM_OFFSET_H
#define SERVER_API_STREAM_OFFSET_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/api/generate_request.h"
#include "server/request/request.h"

struct hosted_model;

/* What names a place. */
#define STREAM_OFFSET_HEADER "Last-Event-ID"

struct stream_offset {
    uint64_t seed, model, request;
    uint32_t arithmetic, beginning;
    uint32_t bytes; /* that the client has */
    bool is_given;  /* else all is 0: there is none */
    bool is_several, is_end;
    const char *param; /* the header or field that said it; constant */
};

/* What the request asks to go on after: what the header Last-Event-ID says (NULL: there is none), which an EventSource
 * keeps up to date, or else the field "from". Its seed becomes the request's. If the text is known to have no more,
 * nothing else was looked at. r->in.stream is known. Errors: ERR_ARGUMENT: it is no such id, or the request is not for
 * one stream of one text; ERR_CONFLICT: it names another seed. */
enum status stream_offset_take(struct stream_offset *ret, const char *header, struct generate_request *r,
                               struct error *err);

/* The place before the first byte of the text of `r`, whose state or session is open. */
struct stream_offset stream_offset_begin(const struct generate_request *r, const struct hosted_model *e);
/* Is `asked`, if it is given, a place in the text that begins at `begin`? Errors: ERR_CONFLICT, ERR_ARGUMENT, with what
 * differs and the header or field. */
enum status stream_offset_check(const struct stream_offset *asked, const struct stream_offset *begin,
                                const struct generate_request *r, const struct hosted_model *e, struct error *err);

/* False: `id` is none, and *ret is unchanged. */
bool stream_offset_read(struct stream_offset *ret, const char *id);
void stream_offset_print(const struct stream_offset *p, char out[STREAM_OFFSET_MAX + 1]);

#endif
