/* events.h - server-sent events, the pieces of a streamed answer (http.h). HTTP threads; no state. */
#ifndef SERVER_API_EVENTS_H
#define SERVER_API_EVENTS_H

#include <jansson.h>

#include "server/http/http.h"
#include "server/request/fields.h"

#define EVENT_STREAM "text/event-stream"

/* "data: JSON\n\n", after "id: ID\n" unless `id` is NULL, which has no line end; takes `event`, which may be NULL for
 * want of memory: HTTP_BROKEN. */
enum http_piece event_say(const char *id, json_t *event, char **piece, size_t *bytes);
/* The error that the exchange's job ended with, for one of these. */
json_t *event_describe_error(struct exchange *x);
/* A comment, so that nobody takes the silence for the end. */
enum http_piece event_say_ping(char **piece, size_t *bytes);

/* Does the client ask for events: by a field, or else by its Accept header? */
bool events_wanted(const struct exchange *x, enum field_switch said);
/* Answer with the events of `reader`, or with the error of a job that ended before its first. */
void events_reply(struct exchange *x, http_reader *reader);

#endif
