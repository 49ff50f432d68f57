/* sessions.h - texts that the daemon keeps for its clients between requests: for each, the stream's state where the
 * last answer ended, its model and its client.
 *
 * Without a store (sessions_dir) they end with the daemon. Each is bounded in time (session_ttl_s since its last use),
 * all together in number and memory (sessions_max, sessions_memory_max_mb), and those of one client as session_quota.h
 * says: what does not fit is refused, and no kept session is dropped for it. Each counts as the most memory that its
 * state can take, so a session that was admitted can always go on.
 *
 * With a store each is written before its request is answered, and read when it is next asked for. In memory are as
 * many as those bounds allow, the latest used; in the store as many as sessions_stored_max and sessions_dir_max_mb
 * allow, and for another one goes that was not used for longest, of a client that has no fewer than the one that asks:
 * so nobody can push out what others have by making many. What reads or writes it may block, and is for threads that
 * may wait (workers.h): sessions_fetch, sessions_write, sessions_write_new.
 *
 * A store may be shared with other daemons. Then only what requests have is in the table, and leased of the store; all
 * else is asked of it each time, since another may have moved it on, and neither listed nor counted here.
 *
 * A state is constant and reference-counted: forks share it until they go on, and every holder may read it for as long
 * as it likes, whatever becomes of the session.
 *
 * Any thread. One lock, under which nothing long is done and no engine or store is called, but to tell a store of a
 * use, and that leases shall last. Lock order: watcher -> sessions; so nobody may call this module while holding a
 * lock, and it calls the watcher only without its own. */
#ifndef SERVER_SESSION_SESSIONS_H
#define SERVER_SESSION_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/core/client_id.h"
#include "server/core/watcher.h"
#include "server/models/model_identity.h"
#include "server/operation/stream_snapshot.h"
#include "server/session/session_record.h"
#include "server/session/session_store.h"

struct settings;

enum { SESSION_ID_BYTES = SESSION_ID_MAX + 1 }; /* as text, with its NUL */

struct hosted_model;
struct session;
struct session_state;
struct sessions;

/* What a session was at some moment. */
struct session_info {
    struct session_state *state;     /* a reference; NULL: it is not in memory, sessions_fetch gets it */
    struct session *held;            /* of sessions_begin, or a new one that is to be written; else NULL */
    struct stream_snapshot snapshot; /* where the last answer ended; its memory is `state`'s */
    struct session_head head;
    struct session_key key; /* of the store */
    uint32_t expires_in_s;  /* unless it is used */
    bool is_busy;
};
/* Zeroed is fine; zeroes it. Not for one that is held. */
void session_info_clear(struct session_info *i);

/* Can the session go on with this model, which has its model's name? Errors: ERR_CONFLICT (param "session"): another
 * model has replaced the session's. */
enum status session_info_check_model(const struct session_info *i, const struct hosted_model *e, struct error *err);

/* What can be told of the settings without beginning. Errors: ERR_CONFIG. */
enum status sessions_check_settings(const struct settings *s, struct error *err);
/* With what the store has, if there is one. *ret is set only on OK; free with sessions_free, when nobody asks any more.
 * Settings and watcher are borrowed. Errors: ERR_NOMEM, ERR_CONFIG (the store cannot be used), ERR_STORE. */
enum status sessions_create(struct sessions **ret, const struct settings *s, struct watcher *w, struct error *err);
/* Are they written, and read, anywhere? And by others too? */
bool sessions_are_stored(const struct sessions *s);
bool sessions_are_shared(const struct sessions *s);
void sessions_free(struct sessions *s); /* NULL is a no-op */

/* The most memory that a session with such a model takes, in bytes. */
size_t sessions_bytes_of(const struct hosted_model *e);

/* `who` asks. A session that a key made exists for that key alone, which is its hash and not its name; those of clients
 * without keys, for all of these. Whoever makes or forks a session has it, as far as they are counted. Every call is a
 * use of the session, after which it has session_ttl_s again. What is returned is set only on OK; end with
 * session_info_clear. */

/* May `who` have `count` more with that model? Errors: ERR_SESSIONS: there is no room, or none for a client that has so
 * many; ERR_RATE: they have sessions_per_key_max. Both say when they could, if until then no session is used, made or
 * ended: error_retry_after, from 1 to session_ttl_s. */
enum status sessions_check(struct sessions *s, const struct client_id *who, const struct hosted_model *e, size_t count,
                           struct error *err);
/* Add a new session at `snapshot`, whose memory it takes, with that id (session_id_is_fine), or with one that nobody
 * can guess if it is NULL. With a store it is held: sessions_write_new, sessions_end. Errors: as above, ERR_NOMEM;
 * ERR_CONFLICT (param "session"): there is one of that id. */
enum status sessions_add(struct sessions *s, const struct client_id *who, const char *id, const struct hosted_model *e,
                         const struct stream_snapshot *snapshot, struct session_info *ret, struct error *err);
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
 * same. All or none. `of` is the session as sessions_find or sessions_fetch gave it, with its state in memory; numbers
 * of one that was read from a store, or that daemons share, are drawn. With a store they are held: sessions_write_new,
 * sessions_end. Errors: as sessions_add. */
enum status sessions_fork(struct sessions *s, const struct client_id *who, const struct session_info *of, size_t count,
                          struct session_info ret[], struct error *err);
/* Remove it: nobody finds it any more. If it is held, the holder can still finish. With a store it may block, and one
 * that is shared, whoever has it, is asked. Errors: also ERR_STORE. */
enum status sessions_remove(struct sessions *s, const struct client_id *who, const char *id, struct error *err);
/* Remove in the same way all sessions of the clients that stays() says not to stay, which is called under the lock. */
void sessions_keep(struct sessions *s, bool (*stays)(void *arg, const struct client_id *client), void *arg);

/* Hold it exclusively until sessions_end; it does not expire meanwhile. Errors: ERR_CONFLICT: somebody else has it;
 * ERR_SESSIONS: its state is not in memory, and all that are there are in use. */
enum status sessions_begin(struct sessions *s, const struct client_id *who, const char *id, struct session_info *ret,
                           struct error *err);
/* Move a session that is held on to `snapshot`, whose memory is taken on OK; once the store has it, if there is one:
 * then it may block. Errors: ERR_STORE, ERR_NOMEM: it is where it was or, if a shared store did not say what it has
 * done, maybe at `snapshot`; ERR_CONFLICT: it is where another daemon has moved it. */
enum status sessions_write(struct sessions *s, struct session_info *held, const struct stream_snapshot *snapshot,
                           struct error *err);
/* Others may have what is held, where it was or where sessions_write has put it; and clear what was told of it. One
 * that is not held is only cleared. */
void sessions_end(struct sessions *s, struct session_info *i);

/* ---- with a store: these may block ------------------------------------------------------------------------------ */

/* Read the state of a session, held or not, that is not in memory: i->state, i->snapshot; and of a shared one all else.
 * Errors: ERR_NOT_FOUND: it has ended meanwhile, or its record is of no use, and so it ends; ERR_CONFLICT: another
 * daemon has it, which it says with error_retry_after, or the record in a shared store is of no use here; ERR_SESSIONS:
 * there is no room in memory; ERR_STORE, ERR_NOMEM. */
enum status sessions_fetch(struct sessions *s, struct session_info *i, struct error *err);
/* Write new ones, which are held: all, or on an error none: then they end, and infos [count] are cleared. Errors: as
 * above. */
enum status sessions_write_new(struct sessions *s, struct session_info infos[], size_t count, struct error *err);

#endif
