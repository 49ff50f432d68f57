/* store_redis_leases.c - see store_redis_leases.h. One that ends leaves its place to the last of the list. Who looks
 * through the list backwards thus meets each that stays, whatever ends meanwhile. */
#include "server/session/store_redis_leases.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_AT_FIRST = 16 };

void redis_leases_init(struct redis_leases *l)
{
    *l = (struct redis_leases){.taken.count = 0};
    (void)pthread_mutex_init(&l->lock, NULL);
}

void redis_leases_clear(struct redis_leases *l)
{
    (void)pthread_mutex_destroy(&l->lock);
    free(l->taken.all);
    free(l->left.all);
}

static struct redis_lease *find_locked(struct redis_leases *l, const struct session_key *key)
{
    for (size_t i = 0; i < l->taken.count; i++)
        if (memcmp(l->taken.all[i].key.bytes, key->bytes, sizeof key->bytes) == 0)
            return &l->taken.all[i];
    return NULL;
}

static struct redis_lease *make_locked(struct redis_lease_list *l)
{
    if (l->count == l->room) {
        const size_t room = l->room > 0 ? 2 * l->room : ROOM_AT_FIRST;
        struct redis_lease *all = realloc(l->all, room * sizeof all[0]);
        if (all == NULL)
            return NULL;
        l->all = all;
        l->room = room;
    }
    return &l->all[l->count++];
}

bool redis_leases_ask(struct redis_leases *l, const struct session_key *key, const char token[REDIS_TOKEN_TEXT + 1])
{
    (void)pthread_mutex_lock(&l->lock);
    struct redis_lease *one = find_locked(l, key);
    if (one == NULL)
        one = make_locked(&l->taken);
    if (one != NULL) {
        *one = (struct redis_lease){.key = *key, .state = REDIS_LEASE_ASKED};
        memcpy(one->token, token, sizeof one->token);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return one != NULL;
}

void redis_leases_hold(struct redis_leases *l, const struct session_key *key, const char *w)
{
    (void)pthread_mutex_lock(&l->lock);
    struct redis_lease *one = find_locked(l, key);
    if (one != NULL) {
        one->state = REDIS_LEASE_HELD;
        memcpy(one->w, w, REDIS_TOKEN_TEXT);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

bool redis_leases_end(struct redis_leases *l, const struct session_key *key, struct redis_lease *ret)
{
    (void)pthread_mutex_lock(&l->lock);
    struct redis_lease *one = find_locked(l, key);
    if (one != NULL && ret != NULL)
        *ret = *one;
    if (one != NULL)
        *one = l->taken.all[--l->taken.count];
    (void)pthread_mutex_unlock(&l->lock);
    return one != NULL;
}

bool redis_leases_leave(struct redis_leases *l, const struct session_key *key)
{
    (void)pthread_mutex_lock(&l->lock);
    struct redis_lease *one = find_locked(l, key);
    struct redis_lease *left = one != NULL && one->state == REDIS_LEASE_HELD ? make_locked(&l->left) : NULL;
    if (left != NULL)
        *left = *one;
    if (one != NULL)
        *one = l->taken.all[--l->taken.count];
    (void)pthread_mutex_unlock(&l->lock);
    return left != NULL;
}

bool redis_leases_next_left(struct redis_leases *l, struct redis_lease *ret)
{
    (void)pthread_mutex_lock(&l->lock);
    const bool is_there = l->left.count > 0;
    if (is_there)
        *ret = l->left.all[--l->left.count];
    (void)pthread_mutex_unlock(&l->lock);
    return is_there;
}

size_t redis_leases_copy(struct redis_leases *l, size_t *before, struct redis_lease out[], size_t most)
{
    size_t copied = 0;
    (void)pthread_mutex_lock(&l->lock);
    size_t i = *before < l->taken.count ? *before : l->taken.count;
    for (; i > 0 && copied < most; i--)
        if (l->taken.all[i - 1].state == REDIS_LEASE_HELD)
            out[copied++] = l->taken.all[i - 1];
    (void)pthread_mutex_unlock(&l->lock);
    *before = i;
    return copied;
}

bool redis_leases_lose(struct redis_leases *l, const struct redis_lease *one)
{
    bool was_held = false;
    (void)pthread_mutex_lock(&l->lock);
    struct redis_lease *now = find_locked(l, &one->key);
    if (now != NULL && now->state == REDIS_LEASE_HELD && memcmp(now->token, one->token, sizeof now->token) == 0) {
        now->state = REDIS_LEASE_LOST;
        was_held = true;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return was_held;
}
