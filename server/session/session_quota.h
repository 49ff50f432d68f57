/* session_quota.h - how much room there is for sessions, who has how much of it, and who gets more.
 *
 * All sessions together are bounded in number and memory. Nobody's is dropped for another's, so one client could take
 * all and keep it. Where no number per client is set, the last quarter of the room is therefore for those that have
 * little: a client that would then have more than a 64th of the room gets nothing of it. One client alone, which may be
 * all that come through a proxy whose word is not taken, thus has three quarters; and eight that take what they can
 * leave, of room for 256, 36, where nine more find 4 each. Both parts are in whole sessions of the size asked for:
 * where there is room for three or fewer, nothing is kept back, and a first session is always little.
 * Under the lock of the sessions; no lock of its own. */
#ifndef SERVER_SESSION_SESSION_QUOTA_H
#define SERVER_SESSION_SESSION_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "config/status.h"
#include "server/core/client_id.h"

/* So many sessions, and the most bytes that they can take. */
struct session_use {
    uint64_t count, bytes;
};

struct session;

/* What one client has; it is there while that is not nothing. */
struct session_holder {
    struct client_id client;
    LIST_HEAD(, session) sessions; /* the newest first: sessions.c's */
    struct session_use has;
    bool is_marked;              /* by session_quota_mark */
    struct session_holder *next; /* of its chain */
};

enum { SESSION_QUOTA_CHAINS = 1024 };

/* Zeroed and with its first two fields set, it is empty; and has nothing to be freed once nobody has anything. */
struct session_quota {
    struct session_use most;
    uint64_t most_of_client; /* sessions; 0: as above */
    struct session_use used; /* by all */
    struct session_holder *chains[SESSION_QUOTA_CHAINS];
};

enum session_answer {
    SESSION_QUOTA_FITS,
    SESSION_QUOTA_TOO_MANY,  /* beyond most.count */
    SESSION_QUOTA_TOO_LARGE, /* beyond most.bytes */
    SESSION_QUOTA_OF_CLIENT, /* beyond most_of_client */
    SESSION_QUOTA_KEPT_BACK, /* for clients that have less */
};

/* May a client that has `has` get `count` more, each of `bytes`, when all together have `used`? */
enum session_answer session_quota_ask(const struct session_quota *r, const struct session_use *used,
                                      const struct session_use *has, uint64_t count, uint64_t bytes);

/* The same of the client as it is. Errors: ERR_RATE (OF_CLIENT), ERR_SESSIONS. */
enum status session_quota_check(const struct session_quota *r, const struct client_id *client, uint64_t count,
                                uint64_t bytes, struct error *err);
/* NULL: the client has nothing. */
struct session_holder *session_quota_find(const struct session_quota *r, const struct client_id *client);
struct session_use session_quota_use(const struct session_quota *r, const struct client_id *client);

/* Count `count` more, each of `bytes`, as the client's, or one less. take returns NULL if out of memory; give may free
 * the holder. */
struct session_holder *session_quota_take(struct session_quota *r, const struct client_id *client, uint64_t count,
                                          uint64_t bytes);
void session_quota_give(struct session_quota *r, struct session_holder *holder, uint64_t bytes);
/* Mark the holders that do not stay; each is asked for once. */
void session_quota_mark(struct session_quota *r, bool (*stays)(void *arg, const struct client_id *client), void *arg);

#endif
