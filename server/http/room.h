/* room.h - something of which there is only so much and which clients share: connections, memory for bodies, memory for
 * answers. While there is room everybody gets it. When there is none, whoever asks gets it from those who hold more:
 * first what lies idle, then what is at work for a client that would still hold more than the one who asks. So nobody
 * who holds most of it can keep others out, and no client ends another's work that holds as little as itself.
 *
 * Any thread. The lock is a leaf; under it `look` and `end` are called. Asking while there is room costs some ten
 * nanoseconds; otherwise at most ROOM_LOOKS_MAX holders and places are looked at, each time others. */
#ifndef SERVER_HTTP_ROOM_H
#define SERVER_HTTP_ROOM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/core/client_id.h"

enum { ROOM_CHAINS = 1024, ROOM_LOOKS_MAX = 1024 };

struct room_holder;

/* What one owner holds; embedded in it and zeroed before its first use. It belongs to the room. */
struct room_place {
    struct room_holder *holder; /* NULL: it holds nothing */
    TAILQ_ENTRY(room_place) of_holder;
    uint64_t units;
    bool is_ending; /* its end was asked for: it no longer counts as used */
};

/* May it be ended so that somebody else has room? */
enum room_ease {
    ROOM_STAYS, /* no */
    ROOM_BUSY,  /* yes, but something would be lost */
    ROOM_IDLE   /* yes */
};
struct room_look {
    enum room_ease ease;
    uint64_t order; /* among those of one ease and client the largest goes first */
};

struct room_rules {
    uint64_t most;           /* units in all */
    uint64_t most_of_client; /* units of one client, but for those behind Unix sockets, who are many; 0: all */
    uint64_t ending_most;    /* units beyond `most` of what was told to end and has not yet */
    struct room_look (*look)(const struct room_place *p, uint64_t now_ns);
    void (*end)(struct room_place *p); /* it is to leave soon, on its own thread */
};

struct room {
    struct room_rules rules;
    pthread_mutex_t lock;
    uint64_t used, ending; /* units: in use, and beside those, told to end */
    TAILQ_HEAD(, room_holder) holders;
    LIST_HEAD(room_chain, room_holder) chains[ROOM_CHAINS]; /* by client */
};

enum room_answer {
    ROOM_FITS,
    ROOM_NEVER,     /* the place would hold more than one client may, or than there is */
    ROOM_OF_CLIENT, /* the client has reached most_of_client */
    ROOM_FULL,      /* and nobody holds more than the client would */
    ROOM_NO_MEMORY
};

void room_init(struct room *r, const struct room_rules *rules);
void room_clear(struct room *r); /* all places have left */

/* Give the place that many more units, which count as the client's; a place has the same client until it leaves. Other
 * places may be told to end for it. Unless the answer is ROOM_FITS nothing was given, and *place holds what it held. */
enum room_answer room_take(struct room *r, struct room_place *place, const struct client_id *client, uint64_t units);
/* Give back all that the place holds. Once this returns, it will not be looked at or ended. */
void room_leave(struct room *r, struct room_place *place);
/* The other place, zeroed, holds from now on what this one held, which is as if it had left. */
void room_move(struct room *r, struct room_place *from, struct room_place *to);

#endif
