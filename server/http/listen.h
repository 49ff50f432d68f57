/* listen.h - a listening socket from an address and a port or from a path, with messages that say what is wrong.
 * Main thread. */
#ifndef SERVER_HTTP_LISTEN_H
#define SERVER_HTTP_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "config/status.h"

/* Take a numeric IPv4 or IPv6 address; port 0: the kernel chooses. Connections are refused until listen_begin.
 * `only_v6`: an IPv6 address does not accept IPv4 as well. Its connections get a send buffer of HTTP_SEND_BYTES_MAX, so
 * that a client that does not read is noticed. `setting` is what an error names. *ret (non-blocking, close-on-exec) and
 * *bound, the port in use, are set only on OK.
 * Errors: ERR_CONFIG (not an address), ERR_IO (in use, not allowed, ...). */
enum status listen_open(int *ret, uint16_t *bound, const char *address, uint16_t port, bool only_v6,
                        const char *setting, struct error *err);

/* Take a Unix socket that is made at `path` with the permissions `mode`; it never has wider ones. A file that is there
 * is replaced if it is a socket on which nobody listens any more. *id tells the file from one that replaces it later.
 * Errors: ERR_CONFIG (too long), ERR_IO (something else is there, somebody listens, not allowed, ...). */
enum status listen_open_unix(int *ret, struct stat *id, const char *path, mode_t mode, const char *setting,
                             struct error *err);
/* Connections come in from now on. `name` is what an error says. Errors: ERR_IO (somebody has begun before). */
enum status listen_begin(int fd, const char *name, struct error *err);

/* What can be wrong with an address or a path whatever else runs; nothing is opened. Errors: as of the above. */
enum status listen_check(const char *address, const char *setting, struct error *err);
enum status listen_check_unix(const char *path, const char *setting, struct error *err);

/* Remove the file, if it is still the one that was created. */
void listen_remove_unix(const char *path, const struct stat *id);

/* Set on an accepted connection of a Unix socket what TCP connections inherit from the listening socket. */
void listen_bound_sending(int fd);

#endif
