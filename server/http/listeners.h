/* listeners.h - all sockets that the settings ask for: TCP addresses and a Unix socket for everybody, and those of the
 * admin interface, which is a listener of its own. Main thread; afterwards constant, but for listeners_close. */
#ifndef SERVER_HTTP_LISTENERS_H
#define SERVER_HTTP_LISTENERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "config/limits.h"
#include "config/settings.h"
#include "config/status.h"

#define LISTENERS_OFF "off" /* the value of a setting that names none */

struct listener {
    int fd;           /* non-blocking */
    bool is_admin;    /* its requests may administrate, and nothing else */
    bool is_tls;      /* its connections are encrypted: TCP except administration */
    bool is_local;    /* a Unix socket: its clients have no address */
    char name[160];   /* for the log: http://127.0.0.1:8080, unix:/run/aftd.sock */
    const char *path; /* of a Unix socket; borrowed from the settings */
    struct stat id;   /* of that file */
};

struct listeners {
    struct listener all[LISTENERS_MAX];
    size_t count;
};

/* Open them all. *ret is set only on OK; end with listeners_close. `s` is borrowed until then.
 * Errors: ERR_CONFIG (not an address, none at all, ...), ERR_IO (in use, ...), both naming the setting. */
enum status listeners_open(struct listeners *ret, const struct settings *s, struct error *err);
/* Connections are refused from now on, and the Unix sockets' files are removed. Any thread, once. */
void listeners_close(struct listeners *l);
/* Log a line for each. */
void listeners_log(const struct listeners *l);

#endif
