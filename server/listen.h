/* listen.h - a listening TCP socket from an address and a port, with messages that say what is wrong. Main thread. */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct sockaddr;

/* Listen on a numeric IPv4 or IPv6 address; port 0: the kernel chooses. Its connections get a send buffer of
 * HTTP_SEND_BYTES_MAX, so that a client that does not read is noticed. *ret (non-blocking, close-on-exec) and *bound,
 * the port in use, are set only on OK. Errors: ERR_CONFIG (not an address), ERR_IO (in use, not allowed, ...). */
enum status listen_open(int *ret, uint16_t *bound, const char *address, uint16_t port, struct error *err);

/* A client's address as text, without the port; "unknown" for NULL. Any thread. */
void listen_describe(const struct sockaddr *address, char *out, size_t size);

#endif
