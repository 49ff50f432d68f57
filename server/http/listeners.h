/* listeners.h - all sockets that the daemon listens on: TCP addresses and a Unix socket for everybody, those of the
 * admin interface and those for monitors, which are listeners of their own. Each of the three kinds is what the
 * settings ask for, or what the service manager has passed: if it has passed any of a kind, they take the place of the
 * settings.
 * Main thread; afterwards constant, but for listeners_close. */
#ifndef SERVER_HTTP_LISTENERS_H
#define SERVER_HTTP_LISTENERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "config/limits.h"
#include "config/status.h"

struct service_sockets;
struct settings;

#define LISTENERS_OFF "off" /* the value of a setting that names none */

/* Whom a listener is for:  constant  what the log says  name of passed sockets */
#define LISTENER_KINDS(X)                        \
    X(LISTENER_ADMIN, "administration", "admin") \
    X(LISTENER_METRICS, "metrics", "metrics")    \
    X(LISTENER_PUBLIC, "listening", "any other name")
/* In turn: requests may administrate, and nothing else; read /metrics, /healthz and /readyz, and nothing else; do
 * everything but administrate. */
#define X(constant, word, passed_as) constant,
enum listener_kind { LISTENER_KINDS(X) LISTENER_KIND_COUNT };
#undef X

struct listener {
    int fd; /* non-blocking */
    enum listener_kind kind;
    bool is_tls;                      /* its connections are encrypted: public TCP */
    bool is_local;                    /* a Unix socket: its clients have no address */
    char name[LISTENER_NAME_MAX + 1]; /* for the log: http://127.0.0.1:8080, unix:/run/aftd.sock */
    bool is_passed;                   /* by the service manager: it listens already */
    const char *path;                 /* of a Unix socket that was made here; borrowed from the settings. NULL: none */
    struct stat id;                   /* of that file */
};

struct listeners {
    struct listener all[LISTENERS_MAX];
    size_t count;
};

/* What can be wrong with the settings whatever else runs here; nothing is opened. Errors: as of listeners_open. */
enum status listeners_check(const struct settings *s, struct error *err);
/* Take all the addresses, but for those in `passed`, which are taken over, even on failure; NULL: there are none.
 * Connections are refused until listeners_begin: so an address that somebody else has is told before anything that
 * takes long. *ret is set only on OK; end with listeners_close. `s` is borrowed until then.
 * Errors: ERR_CONFIG (not an address, none at all, not a socket that listens, ...), ERR_IO (in use, ...), naming the
 * setting or the socket. */
enum status listeners_open(struct listeners *ret, const struct settings *s, const struct service_sockets *passed,
                           struct error *err);
/* Connections come in from now on. Errors: ERR_IO. */
enum status listeners_begin(const struct listeners *l, struct error *err);
/* Log a line for each. */
void listeners_log(const struct listeners *l);
/* Connections are refused from now on, and the Unix sockets' files are removed. What was passed is only let go of: the
 * service manager has it open too, so that connections wait in it for the next process, and its file stays.
 * Any thread, once. */
void listeners_close(struct listeners *l);

#endif
