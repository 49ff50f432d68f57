/* service_manager.h - what a service manager such as systemd and the daemon tell each other: short texts that go to the
 * socket that NOTIFY_SOCKET names (sd_notify(3)), and listening sockets that the daemon is started with
 * (sd_listen_fds(3)). Started without any of that, the daemon says nothing and is passed nothing.
 *
 * By hand instead of with libsystemd: these are two small, stable protocols, which their authors document to be
 * implemented by hand; the library would bring decompressors and more of its own into a process that strangers talk to.
 *
 * A process has one manager, as it has one log. service_manager_take is for the main thread, before there are others;
 * all else is for any thread. */
#ifndef SERVER_CORE_SERVICE_MANAGER_H
#define SERVER_CORE_SERVICE_MANAGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

/* What was passed: close-on-exec now, and not looked at any further. */
struct service_sockets {
    struct {
        int fd;
        char name[SERVICE_SOCKET_NAME_MAX + 1]; /* FileDescriptorName=, or the unit's name; "unknown" for none */
    } all[LISTENERS_MAX];
    size_t count;
};

/* Read the environment, and remove from it what is for this process alone. *ret is set only on OK.
 * Errors: ERR_CONFIG (LISTEN_FDS or LISTEN_FDNAMES are not what they should be). */
enum status service_manager_take(struct service_sockets *ret, struct error *err);

/* Is there one that listens? */
bool service_manager_listens(void);
/* Within what time service_manager_alive must be called, again and again; 0: never. */
uint64_t service_manager_watchdog_ns(void);

/* The daemon serves, for the first time or again after service_manager_reloading. */
void service_manager_ready(void);
void service_manager_reloading(void);
/* It ends, which may take that long. */
void service_manager_stopping(uint64_t within_ms);
/* Starting goes on, and the next word of that may take so long: what is being done, for people. */
void service_manager_starting(uint64_t within_ms, const char *what);
void service_manager_alive(void);
/* One line for people. */
void service_manager_status(const char *line);

#endif
