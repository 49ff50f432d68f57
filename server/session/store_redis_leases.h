/* store_redis_leases.h - which sessions this daemon has taken from the store, and by which tokens. They are as many as
 * requests with sessions run, so that a list will do. Any thread; one lock, a leaf. */
#ifndef SERVER_SESSION_STORE_REDIS_LEASES_H
#define SERVER_SESSION_STORE_REDIS_LEASES_H

#include <pthread.h>
#include <stdbool.h>

#include "server/session/session_store.h"
#include "server/session/store_redis_scripts.h"

enum redis_lease_state {
    REDIS_LEASE_ASKED, /* the server has not answered yet */
    REDIS_LEASE_HELD,
    REDIS_LEASE_LOST /* as a renewal has found */
};
struct redis_lease {
    struct session_key key;
    enum redis_lease_state state;
    char token[REDIS_TOKEN_TEXT + 1]; /* of the lease */
    char w[REDIS_TOKEN_TEXT + 1];     /* the record's when it was taken */
};

struct redis_lease_list {
    struct redis_lease *all; /* [room], of which `count` are there */
    size_t count, room;
};
struct redis_leases {
    pthread_mutex_t lock;
    struct redis_lease_list taken; /* one of a key at most */
    struct redis_lease_list left;  /* that nobody here has any more, and of which the server is still to hear */
};
void redis_leases_init(struct redis_leases *l);
void redis_leases_clear(struct redis_leases *l);

/* One of that key is asked for, in the place of any other. False if out of memory. */
bool redis_leases_ask(struct redis_leases *l, const struct session_key *key, const char token[REDIS_TOKEN_TEXT + 1]);
/* The server has handed it out. w [REDIS_TOKEN_TEXT]. */
void redis_leases_hold(struct redis_leases *l, const struct session_key *key, const char *w);
/* It is over: *ret is what it was (NULL: of no interest). False: there is none of that key. */
bool redis_leases_end(struct redis_leases *l, const struct session_key *key, struct redis_lease *ret);
/* It is over, and the server is to hear of it: redis_leases_next_left. False: there is none, or no memory. */
bool redis_leases_leave(struct redis_leases *l, const struct session_key *key);
/* One of those, which is then no longer among them. False: there is none. */
bool redis_leases_next_left(struct redis_leases *l, struct redis_lease *ret);

/* Copies of held ones into out [most]; returns how many. *before, SIZE_MAX at first, goes on to the next call, and is 0
 * when all that are held all the while have been returned. */
size_t redis_leases_copy(struct redis_leases *l, size_t *before, struct redis_lease out[], size_t most);
/* A renewal has found that the server does not know it any more. False: it was not held any more either. */
bool redis_leases_lose(struct redis_leases *l, const struct redis_lease *one);

#endif
