/* events.h - server-sent events, the pieces of a streamed answer (http.h). HTTP threads; no state. */
#ifndef SERVER_REQUEST_EVENTS_H
#define SERVER_REQUEST_EVENTS_H

#include <jansson.h>

#include "server/fields/fields.h"
#include "server/request/request.h"

#define EVENT_STREAM "text/event-stream"

/* "data: JSON\n\n", after "id: ID\n" unless `id` is NULL, which has no line end; takes `event`, which may be NULL for
 * want of memory: REQUEST_BROKEN. */
enum request_piece event_say(const char *id, json_t *event, char **piece, size_t *bytes);
/* The error that the request's job ended with, for one of these. */
json_t *event_describe_error(struct request *x);
/* A comment, so that nobody takes the silence for the end. */
enum request_piece event_say_ping(char **piece, size_t *bytes);

/* Does the client ask for events: by a field, or else by its Accept header? */
bool events_wanted(const struct request *x, enum field_switch said);
/* A step that answers with the events of x->reader. Errors: of a job that ended before its first. */
request_step events_answer;

#endif
