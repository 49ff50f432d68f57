/* sessions.h - texts that the daemon keeps for its clients between requests: for each, the stream's state where the
 * last answer ended, its model and its client.
 *
 * Each session is bounded in time (session_ttl_s since its last use), all together in number and memory (sessions_max,
 * sessions_memory_max_mb), and those of one client as session_room.h says: what does not fit is refused, and no kept
 * session is dropped for it. Each counts as the most memory that its state can take, so a session that was admitted can
 * always go on.
 * A state is constant and reference-counted: forks share it until they go on, and every holder may read it for as long
 * as it likes, whatever becomes of the session.
 *
 * Any thread. One lock, under which nothing long is done and no engine is called. Lock order: watcher -> sessions;
 * so nobody may call this module while holding a lock, and it calls the watcher only without its own. */
#ifndef SERVER_SESSION_SESSIONS_H
#define SERVER_SESSION_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/settings.h"
#include "config/status.h"
#include "server/core/client_id.h"
#include "server/core/watcher.h"
#include "server/models/model_identity.h"
#include "server/stream/stream_snapshot.h"

enum { SESSION_ID_BYTES = 2 * SESSION_ID_RANDOM_BYTES + 1 }; /* as text, with its NUL */

struct hosted_model;
struct session;
struct session_state;
struct sessions;

/* What a session was at some moment. */
struct session_info {
    struct session_state *state;     /* a reference */
    struct session *held;            /* of sessions_begin; else NULL */
    struct stream_snapshot snapshot; /* where the last answer ended; its memory is `state`'s */
    int64_t created_s;               /* Unix time */
    uint32_t expires_in_s;           /* unless it is used */
    bool is_busy;
    char id[SESSION_ID_BYTES];
    char model[MODEL_NAME_MAX + 1];
    struct model_identity identity; /* of that model */
};
/* Zeroed is fine; zeroes it. Not for one that is held. */
void session_info_clear(struct session_info *i);

/* Can the session go on with this model, which has its model's name? Errors: ERR_CONFLICT (param "session"): another
 * model has replaced the session's. */
enum status session_info_check_model(const struct session_info *i, const struct hosted_model *e, struct error *err);

/* *ret is set only on OK; free with sessions_free, when nobody asks any more. Settings and watcher are borrowed.
 * Errors: ERR_NOMEM. */
enum status sessions_create(struct sessions **ret, const struct settings *s, struct watcher *w);
void sessions_free(struct sessions *s); /* NULL is a no-op */

/* The most memory that a session with such a model takes, in bytes. */
size_t sessions_bytes_of(const struct hosted_model *e);

/* `who` asks. A session that a key made exists for that key alone, which is its hash and not its name; those of clients
 * without keys, for all of these. Whoever makes or forks a session has it, as far as they are counted. Every call is a
 * use of the session, after which it has session_ttl_s again. What is returned is set only on OK; end with
 * session_info_clear. */

/* May `who` have `count` more with that model? Errors: ERR_SESSIONS: there is no room, or none for a client that has so
 * many; ERR_RATE: they have sessions_per_key_max. *wait_s, set with these alone, is when they could, if until then no
 * session is used, made or ended: seconds, from 1 to session_ttl_s. */
enum status sessions_check(struct sessions *s, const struct client_id *who, const struct hosted_model *e, size_t count,
                           unsigned *wait_s, struct error *err);
/* Add a new session at `snapshot`, whose memory it takes. Errors: as above, ERR_NOMEM. */
enum status sessions_add(struct sessions *s, const struct client_id *who, const struct hosted_model *e,
                         const struct stream_snapshot *snapshot, struct session_info *ret, unsigned *wait_s,
                         struct error *err);
/* Errors of the rest: ERR_NOT_FOUND (param "session"). */
enum status sessions_find(struct sessions *s, const struct client_id *who, const char *id, struct session_info *ret,
                          struct error *err);
/* Those of `who`, the newest first: at most `most` of the ones that are older than `before` (0: of all), which is the
 * *next of the page before. Returns how many there are in ret, of which each is for session_info_clear; *next is 0
 * after the last page, *total how many `who` has. This is no use of any of them. */
size_t sessions_list(struct sessions *s, const struct client_id *who, uint64_t before, size_t most,
                     struct session_info ret[], uint64_t *next, uint64_t *total);
/* Add `count` new sessions at the place where this one is; ret [count]. Their sample numbers differ from its own and
 * from those of its other forks, the first being 1 if its own is 0: so their texts differ although their seed is the
 * same. All or none.
 * Errors: as sessions_add. */
enum status sessions_fork(struct sessions *s, const struct client_id *who, const char *id, size_t count,
                          struct session_info ret[], unsigned *wait_s, struct error *err);
/* Remove it: nobody finds it any more. If it is held, the holder can still finish. */
enum status sessions_remove(struct sessions *s, const struct client_id *who, const char *id, struct error *err);
/* Remove in the same way all sessions of the clients that stays() says not to stay, which is called under the lock. */
void sessions_keep(struct sessions *s, bool (*stays)(void *arg, const struct client_id *client), void *arg);

/* Hold it exclusively until sessions_end; it does not expire meanwhile. Errors: ERR_CONFLICT: somebody else has it. */
enum status sessions_begin(struct sessions *s, const struct client_id *who, const char *id, struct session_info *ret,
                           struct error *err);
/* Clears what sessions_begin returned. `snapshot` is where the session is now, and its memory is taken; NULL: where it
 * was. False if out of memory: it is where it was. */
bool sessions_end(struct sessions *s, struct session_info *held, const struct stream_snapshot *snapshot);

#endif
