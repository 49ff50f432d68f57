/* quota.h - something of which there is only so much and which clients share: connections, memory for bodies, memory
 * for answers. While there is room everybody gets it. When there is none, whoever asks gets it from those who hold
 * more: first what lies idle, then what is at work for a client that would still hold more than the one who asks. So
 * nobody who holds most of it can keep others out, and no client ends another's work that holds as little as itself.
 *
 * Any thread. The lock is a leaf; under it `view` and `end` are called. Asking while there is room costs some ten
 * nanoseconds; otherwise at most QUOTA_LOOKS_MAX owners and shares are looked at, each time others. */
#ifndef SERVER_HTTP_QUOTA_H
#define SERVER_HTTP_QUOTA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/core/client_id.h"

enum { QUOTA_CHAINS = 1024, QUOTA_LOOKS_MAX = 1024 };

struct quota_owner;

/* What one owner holds; embedded in it and zeroed before its first use. It belongs to the quota. */
struct quota_share {
    struct quota_owner *owner; /* NULL: it holds nothing */
    TAILQ_ENTRY(quota_share) of_owner;
    uint64_t units;
    bool is_ending; /* its end was asked for: it no longer counts as used */
};

/* May it be ended so that somebody else has room? */
enum quota_ease {
    QUOTA_STAYS, /* no */
    QUOTA_BUSY,  /* yes, but something would be lost */
    QUOTA_IDLE   /* yes */
};
struct quota_view {
    enum quota_ease ease;
    uint64_t order; /* among those of one ease and client the largest goes first */
};

struct quota_rules {
    uint64_t most;           /* units in all */
    uint64_t most_of_client; /* units of one client, but for those behind Unix sockets, who are many; 0: all */
    uint64_t ending_most;    /* units beyond `most` of what was told to end and has not yet */
    struct quota_view (*view)(const struct quota_share *p, uint64_t now_ns);
    void (*end)(struct quota_share *p); /* it is to leave soon, on its own thread */
};

struct quota {
    struct quota_rules rules;
    pthread_mutex_t lock;
    uint64_t used, ending; /* units: in use, and beside those, told to end */
    TAILQ_HEAD(, quota_owner) owners;
    LIST_HEAD(quota_chain, quota_owner) chains[QUOTA_CHAINS]; /* by client */
};

enum quota_answer {
    QUOTA_FITS,
    QUOTA_NEVER,     /* the share would be more than one client may have, or than there is */
    QUOTA_OF_CLIENT, /* the client has reached most_of_client */
    QUOTA_FULL,      /* and nobody holds more than the client would */
    QUOTA_NO_MEMORY
};

void quota_init(struct quota *r, const struct quota_rules *rules);
void quota_clear(struct quota *r); /* all shares were released */

/* Give the share that many more units, which count as the client's; a share has the same client until it is released.
 * Others may be told to end for it. Unless the answer is QUOTA_FITS nothing was given, and *share holds what it
 * held. */
enum quota_answer quota_take(struct quota *r, struct quota_share *share, const struct client_id *client,
                             uint64_t units);
/* Give back all that the share holds. Once this returns, it will not be looked at or ended. */
void quota_release(struct quota *r, struct quota_share *share);

#endif
