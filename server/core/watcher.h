/* watcher.h - a thread that notices what the HTTP library does not: that a client has left while its connection is
 * suspended, and that a time has come (deadlines, pings, requests that arrive too slowly).
 * It sleeps until the next of these; an idle daemon uses no processor time.
 *
 * Callbacks run on the watcher's thread, under its lock. Lock order: watcher -> job -> MHD; so nobody may call this
 * module while holding a job's lock, nor from a callback. */
#ifndef SERVER_CORE_WATCHER_H
#define SERVER_CORE_WATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct watcher;

enum watch_event { WATCH_CLIENT_LEFT, WATCH_TIME };

/* Embedded in its owner; zeroed, then `notify`, `arg` and (optionally) a socket and a time are set before
 * watcher_add. Afterwards all of it belongs to the watcher. */
struct watch {
    /* Told what happened; returns the time of the next WATCH_TIME, 0 for none. */
    uint64_t (*notify)(void *arg, enum watch_event event, uint64_t now_ns);
    void *arg;
    int fd;             /* a socket whose peer may leave; -1: none. Several watches may have the same */
    uint64_t due_ns;    /* clock_now_ns() of WATCH_TIME; 0: none */
    size_t heap_index;  /* in the heap of times, from 1; 0: not there */
    bool is_added;      /* written by the owner's thread, in watcher_add and watcher_remove */
    bool is_notified;   /* notified that the client has left */
    struct watch *next; /* of the same socket */
};

/* *ret is set only on OK; end with watcher_free. Errors: ERR_NOMEM, ERR_IO. */
enum status watcher_start(struct watcher **ret, struct error *err);
/* Join the thread. No watch may be left. NULL is a no-op. */
void watcher_free(struct watcher *w);

/* Any thread. `watch` must stay where it is, and its socket open, until watcher_remove. WATCH_CLIENT_LEFT comes at most
 * once, also if the client left before the call. Errors: ERR_NOMEM: nothing is watched. */
enum status watcher_add(struct watcher *w, struct watch *watch);
/* Change the time of a watch that was added; 0: none. */
void watcher_set_time(struct watcher *w, struct watch *watch, uint64_t due_ns);
/* Once this returns, the callback is not running and will not run again. A watch that was not added is a no-op. */
void watcher_remove(struct watcher *w, struct watch *watch);

#endif
