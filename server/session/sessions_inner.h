/* sessions_inner.h - what the files of sessions.h share among themselves. */
#ifndef SERVER_SESSION_SESSIONS_INNER_H
#define SERVER_SESSION_SESSIONS_INNER_H

#include <pthread.h>
#include <sys/queue.h>

#include "config/limits.h"
#include "server/session/session_quota.h"
#include "server/session/session_state.h"
#include "server/session/session_store.h"
#include "server/session/sessions.h"

enum { BUCKETS = 4096 }; /* chains of the table: on average of at most 16 sessions, by default of one */

struct session {
    struct session_head head;      /* changed by who holds it, under the lock */
    struct session_holder *holder; /* that of its owner, while it is in the table */
    struct session_state *state;   /* NULL: only the store has it */
    uint64_t used_ns, touched_ns;  /* its last use, and the last of which the store knows */
    struct session_key key;        /* of the store */
    struct session_claim claim;    /* of a shared one that was fetched; changed by who holds it, under the lock */
    bool is_held, is_removed;
    bool is_stored;               /* the store has it, where it is now */
    bool is_counted;              /* among those in memory, `loaded` */
    bool is_warm;                 /* in the list of those whose state can be dropped from memory */
    struct session *next;         /* of its chain, while it is in the table; later of a list to be freed */
    struct session *next_leaving; /* removed, and with a store */
    TAILQ_ENTRY(session) idle;    /* of that list, while it is */
    TAILQ_ENTRY(session) warm;
    LIST_ENTRY(session) of_client; /* of its client's, while it is in the table */
    uint64_t serial;               /* later ones have a higher one */
};
TAILQ_HEAD(session_list, session);

struct sessions {
    const struct settings *settings;
    struct watcher *watcher;
    struct session_store *store;   /* NULL: none; owned */
    struct session_use loaded_max; /* with a store: most in memory */
    struct watch timer;
    pthread_mutex_t lock;
    /* under the lock */
    struct session *table[BUCKETS];
    struct session_list idle;   /* by their last use, the earliest first */
    struct session_quota quota; /* of those in the table */
    struct session_use loaded;  /* with a store: those whose states are in memory, or about to be ... */
    struct session_list warm;   /* ... and the idle ones among them, by their last use */
    struct session *leaving;    /* removed while a request has them: their keys are not free yet */
    uint64_t serial;            /* of the latest */
    bool is_timed;              /* the timer will come */
    size_t renewed;             /* chains of which the timer has renewed the leases, of all */
};

/* ---- sessions_table.c; what is named _locked is under the lock -------------------------------------------------- */

/* Take the lock; returns what has expired meanwhile. */
struct session *sessions_enter(struct sessions *s);
/* Release the lock, end what sessions_enter returned and sessions_take_out_locked has added (sessions_drop), and set
 * the timer if there is something to wait for. */
void sessions_leave(struct sessions *s, struct session *gone);
/* Without the lock: free a list, and remove what the store has of them. */
void sessions_drop(struct sessions *s, struct session *list);
/* The timer's. It comes when the oldest would expire if it were not used again, or leases are to be held on to; not
 * once none is left. */
uint64_t sessions_on_time(void *arg, enum watch_event event, uint64_t now_ns);

/* One that has all but its place in the table gets that, idle or held. The holder has taken its room. */
void sessions_put_locked(struct sessions *s, struct session *one, struct session_holder *holder, bool is_held);
void sessions_take_locked(struct sessions *s, struct session *one);
/* Nobody finds it any more: out of the table, and among `gone` unless a request has it. Returns the list. */
struct session *sessions_take_out_locked(struct sessions *s, struct session *one, struct session *gone);
/* Of a shared store: a request no longer has it, and the table neither; the store may have it as before. */
struct session *sessions_let_go_locked(struct sessions *s, struct session *one, struct session *gone);
/* It becomes the latest used of the idle ones; or it is none of these. */
void sessions_idle_locked(struct sessions *s, struct session *one);
void sessions_unidle_locked(struct sessions *s, struct session *one);
/* When an idle one expires. */
uint64_t sessions_end_of(const struct sessions *s, const struct session *one);

/* Was one of that key removed that a request still has? Errors: ERR_CONFLICT. */
enum status sessions_check_leaving_locked(const struct sessions *s, const struct session_key *key, const char *id,
                                          struct error *err);
/* NULL: there is none. */
struct session *sessions_look_up_locked(struct sessions *s, const struct session_key *key, const char *id);

/* ---- sessions.c ------------------------------------------------------------------------------------------------- */

/* Returns ERR_NOT_FOUND: there is none of that id. */
enum status sessions_none(const struct sessions *s, const char *id, struct error *err);
/* Put a list of `count` that have ids, all of one size, as those of `who`. With a store they are held, and in memory.
 * Under the lock. Errors: ERR_NOMEM, ERR_SESSIONS: the list is still the caller's. */
enum status sessions_put_list_locked(struct sessions *s, const struct client_id *who, struct session *list,
                                     size_t count, struct session_info ret[], struct error *err);

/* ---- sessions_stored.c, with a store ---------------------------------------------------------------------------- */

/* Its state is about to be in memory: make room for it there, by dropping those that were not used for longest. Under
 * the lock. Errors: ERR_SESSIONS: all others are in use. */
enum status sessions_load_locked(struct sessions *s, struct session *one, struct error *err);
/* Its state is not, or no longer. */
void sessions_unload_locked(struct sessions *s, struct session *one);
/* Of a shared store: one of which only the id is known becomes held; or a look at one that is not here. */
enum status sessions_begin_shared_locked(struct sessions *s, const struct client_id *who, const char *id,
                                         struct session_info *ret, struct error *err);
struct session_info sessions_unknown(const struct sessions *s, const struct client_id *who, const char *id);
/* It is idle: its state can be dropped; or no longer. No-ops without a store. Under the lock. */
void sessions_warm_locked(struct sessions *s, struct session *one);
void sessions_unwarm_locked(struct sessions *s, struct session *one);
/* It was used: let the store know, unless it was told of late. Under the lock; brief. */
void sessions_touch_locked(struct sessions *s, struct session *one);
/* Nothing of it may be left in the store. It may block. */
void sessions_take_back(const struct sessions *s, const struct session_key *key);

/* ---- sessions_open.c -------------------------------------------------------------------------------------------- */

bool sessions_want_store(const struct settings *s);
/* Open the store that the settings name, and put what it has into the table. Errors: ERR_CONFIG, ERR_NOMEM,
 * ERR_STORE. */
enum status sessions_restore(struct sessions *s, struct error *err);

#endif
