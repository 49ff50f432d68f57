/* raw_socket.h - a client that can do what no HTTP library would: send any bytes at any pace, and leave in any way.
 * Addresses are 127.0.0.1. One thread. A failing step ends the test, but sending to a peer that has left is fine. */
#ifndef TESTS_SUPPORT_RAW_SOCKET_H
#define TESTS_SUPPORT_RAW_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a wait for bytes ended. */
enum raw_end {
    RAW_CLOSED, /* end of file */
    RAW_RESET,  /* by the peer, too */
    RAW_LIMIT,  /* the time is over, or the buffer full */
    RAW_FOUND   /* what was waited for has arrived */
};

struct raw_input {
    char bytes[65536]; /* NUL-terminated */
    size_t size;
    enum raw_end end;
};

/* Non-blocking; the test fails if it is refused. */
int raw_connect(uint16_t port);
/* The same with a small receive buffer. */
int raw_connect_small(uint16_t port);
int raw_connect_small_as(uint16_t port, unsigned host);
/* From the loopback address 127.0.0.`host`: to the daemon another client. */
int raw_connect_as(uint16_t port, unsigned host);
/* Can one connect at all? */
bool raw_is_refused(uint16_t port);
void raw_close(int fd);
void raw_reset(int fd);      /* close with a reset */
void raw_half_close(int fd); /* nothing more will be sent; the socket stays */

/* All of it; false if the peer has left, or takes nothing for limit_ms. */
bool raw_send(int fd, const void *bytes, size_t size, long limit_ms);
bool raw_send_text(int fd, const char *text);

/* Receive until the end of the connection, until the input contains `until` (NULL: nothing), or for limit_ms. Returns
 * why it stopped; *in starts empty. */
enum raw_end raw_receive(int fd, struct raw_input *in, const char *until, long limit_ms);

/* Send `size` bytes, receive until the end and close. */
enum raw_end raw_exchange(uint16_t port, const void *bytes, size_t size, struct raw_input *in, long limit_ms);

/* Send a request, given up to its last header, on a connection of its own; the answer's status, 0 if there is none. */
long raw_ask(uint16_t port, const char *beginning, struct raw_input *in);

/* How many answers an input holds: lines that begin with "HTTP/1." */
size_t raw_count_answers(const struct raw_input *in);
/* The status of the first answer; 0 if there is none. */
long raw_status(const struct raw_input *in);

/* A POST of a JSON body as text, which the caller frees; `more` are header lines, each with CR LF. */
char *raw_post(const char *path, const char *json, const char *more);

#endif
