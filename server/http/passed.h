/* passed.h - sockets that the service manager has opened and passed: what they are is asked of the kernel.
 * Main thread. */
#ifndef SERVER_HTTP_PASSED_H
#define SERVER_HTTP_PASSED_H

#include <stdbool.h>

#include "config/limits.h"
#include "config/status.h"

struct passed {
    bool is_local;                        /* a Unix socket */
    char address[PASSED_ADDRESS_MAX + 1]; /* 127.0.0.1:8080, [::]:8080; of a Unix socket its path, or @ and a name */
};

/* Find out what socket `fd` is, and make it ready to be accepted from. `name` is what it was passed as.
 * Errors: ERR_CONFIG: it is not a TCP or Unix stream socket that listens; the message says what it is. */
enum status passed_examine(struct passed *ret, int fd, const char *name, struct error *err);

#endif
