/* event_text.h - the text of a stream of /generate, put together from its events as a client does that goes on where
 * its connection broke: what comes after the last whole event is forgotten. One thread. A failing step ends the
 * test. */
#ifndef TESTS_SUPPORT_EVENT_TEXT_H
#define TESTS_SUPPORT_EVENT_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct event_text {
    char id[256]; /* of the last event; empty: there was none */
    char *text;   /* [text_bytes], NUL-terminated */
    size_t text_bytes;
    json_t *bytes;    /* a list of the bytes that bytes_base64 gave */
    json_t *logprobs; /* a list */
    json_int_t tokens;
    json_t *last; /* the event with finish_reason, or of an error; NULL: it has not come */
    unsigned events, pings;
    size_t received;   /* bytes of the latest answer, its head included */
    char answer[8192]; /* the body's beginning where the status is not 200 */
};

void event_text_init(struct event_text *t);
void event_text_clear(struct event_text *t);

/* The two halves of event_text_ask: send, and returns the connection; receive and close it. */
int event_text_send(const struct event_text *t, uint16_t port, const char *path, const char *body);
long event_text_receive(struct event_text *t, int fd, size_t most);
/* POST /generate with `body` and, if `t` has an id, Last-Event-ID; for a body of NULL GET `path` in the same way. The
 * connection is closed once `most` bytes of the answer have come (SIZE_MAX: at its end). The events are added to `t`.
 * Returns the status; 0: no status line had come. */
long event_text_ask(struct event_text *t, uint16_t port, const char *path, const char *body, size_t most);

/* The finish_reason; "" if none has come. */
const char *event_text_finish(const struct event_text *t);
/* Both are the same text, with the same end and usage. */
void event_text_assert_same(const char *what, const struct event_text *a, const struct event_text *b);

#endif
