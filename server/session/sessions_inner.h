/* sessions_inner.h - what the files of sessions.h share among themselves. */
#ifndef SERVER_SESSION_SESSIONS_INNER_H
#define SERVER_SESSION_SESSIONS_INNER_H

#include <pthread.h>

#include "config/limits.h"
#include "server/session/session_room.h"
#include "server/session/session_state.h"
#include "server/session/sessions.h"

enum { BUCKETS = 4096 }; /* chains of the table: on average of at most 16 sessions, by default of one */

struct session {
    char id[SESSION_ID_BYTES];
    struct session_holder *holder; /* whose it is, while it is in the table */
    char model[MODEL_NAME_MAX + 1];
    struct model_identity identity;
    size_t bytes; /* that it counts as */
    uint32_t sample;
    struct session_state *state;
    int64_t created_s;
    uint64_t used_ns;
    bool is_held, is_removed;
    struct session *next;          /* of its chain, while it is in the table; later of a list to be freed */
    struct session *older, *newer; /* of the list, while it is idle */
    uint64_t serial;               /* later ones have a higher one */
    /* Of its client's, by their age, while it is in the table. */
    struct session *made_before, *made_after;
};

struct sessions {
    const struct settings *settings;
    struct watcher *watcher;
    struct watch timer;
    pthread_mutex_t lock;
    /* under the lock */
    struct session *table[BUCKETS];
    struct session *oldest, *newest; /* idle ones, by their last use */
    struct session_room room;        /* of those in the table */
    uint64_t serial;                 /* of the latest */
    bool is_timed;                   /* the timer will come */
};

/* Take the lock; returns what has expired meanwhile. */
struct session *sessions_enter(struct sessions *s);
/* Release the lock, free what sessions_enter returned, and set the timer if there is something to wait for. */
void sessions_leave(struct sessions *s, struct session *gone);
/* What it is now. Under the lock. */
struct session_info sessions_info_locked(const struct sessions *s, const struct session *one);

#endif
