/* sessions_table.c - the table of sessions, and the list of those that are idle. All but sessions_enter and what is
 * told without it is under the lock. */
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/session/sessions_inner.h"

enum { SWEPT_AT_ONCE = 64 };   /* as that takes time if they are stored */
enum { TOLD_AGAIN_PART = 16 }; /* of the time until leases are renewed: when a store is tried again that was not told */

/* ---- the table -------------------------------------------------------------------------------------------------- */

static struct session **chain_of(struct sessions *s, const char *id)
{
    uint32_t hash = 0;
    for (const char *c = id; *c != '\0'; c++)
        hash = hash * 31 + (unsigned char)*c;
    return &s->table[hash % BUCKETS];
}

static void sessions_table_show(const struct sessions *s)
{
    metrics_gauge_set(METRIC_SESSIONS, 0, s->quota.used.count);
    metrics_gauge_set(METRIC_SESSIONS_BYTES, 0, s->quota.used.bytes);
}

void sessions_put_locked(struct sessions *s, struct session *one, struct session_holder *holder, bool is_held)
{
    struct session **chain = chain_of(s, one->head.id);
    one->holder = holder; /* which has taken the room */
    one->next = *chain;
    *chain = one;
    one->serial = ++s->serial;
    LIST_INSERT_HEAD(&holder->sessions, one, of_client);
    one->is_held = is_held;
    if (!is_held)
        sessions_idle_locked(s, one);
    sessions_table_show(s);
}

void sessions_take_locked(struct sessions *s, struct session *one)
{
    struct session **at = chain_of(s, one->head.id);
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    one->next = NULL;
    LIST_REMOVE(one, of_client);
    session_quota_give(&s->quota, one->holder, one->head.memory_bytes);
    one->holder = NULL;
    sessions_unload_locked(s, one);
    sessions_table_show(s);
}

struct session *sessions_look_up_locked(struct sessions *s, const struct session_key *key, const char *id)
{
    struct session *one = *chain_of(s, id);
    while (one != NULL && memcmp(one->key.bytes, key->bytes, sizeof key->bytes) != 0)
        one = one->next;
    return one;
}

/* ---- the list --------------------------------------------------------------------------------------------------- */

void sessions_idle_locked(struct sessions *s, struct session *one)
{
    one->used_ns = clock_now_ns();
    TAILQ_INSERT_TAIL(&s->idle, one, idle);
    sessions_warm_locked(s, one);
}

void sessions_unidle_locked(struct sessions *s, struct session *one)
{
    sessions_unwarm_locked(s, one);
    TAILQ_REMOVE(&s->idle, one, idle);
}

uint64_t sessions_end_of(const struct sessions *s, const struct session *one)
{
    return one->used_ns + s->settings->session_ttl_s * CLOCK_NS_PER_S;
}

/* ---- the end of one --------------------------------------------------------------------------------------------- */

struct session *sessions_take_out_locked(struct sessions *s, struct session *one, struct session *gone)
{
    sessions_take_locked(s, one);
    one->is_removed = true;
    if (s->store != NULL) {
        one->next_leaving = s->leaving;
        s->leaving = one;
    }
    if (one->is_held)
        return gone;
    sessions_unidle_locked(s, one);
    one->next = gone;
    return one;
}

struct session *sessions_let_go_locked(struct sessions *s, struct session *one, struct session *gone)
{
    if (!one->is_removed)
        sessions_take_locked(s, one);
    one->is_stored = false; /* the store keeps it */
    one->next = gone;
    return one;
}

enum status sessions_check_leaving_locked(const struct sessions *s, const struct session_key *key, const char *id,
                                          struct error *err)
{
    for (const struct session *one = s->leaving; one != NULL; one = one->next_leaving)
        if (memcmp(one->key.bytes, key->bytes, sizeof key->bytes) == 0)
            return error_set_param(err, ERR_CONFLICT, "session",
                                   "the session \"%s\" was removed, and a request that uses it is not yet over", id);
    return OK;
}

/* Its key is free from now on. */
static void leave(struct sessions *s, const struct session *one)
{
    struct session **at = &s->leaving;
    (void)pthread_mutex_lock(&s->lock);
    while (*at != NULL && *at != one)
        at = &(*at)->next_leaving;
    if (*at != NULL)
        *at = one->next_leaving;
    (void)pthread_mutex_unlock(&s->lock);
}

/* What the store has of one, and its key. */
static void end_stored(struct sessions *s, const struct session *one)
{
    if (one->claim.token[0] != '\0')
        s->store->kind->let_go(s->store, &one->key, &one->claim);
    if (one->is_stored)
        sessions_take_back(s, &one->key);
    leave(s, one);
}

void sessions_drop(struct sessions *s, struct session *list)
{
    while (list != NULL) {
        struct session *next = list->next;
        if (s != NULL && s->store != NULL)
            end_stored(s, list);
        session_state_release(list->state);
        free(list);
        list = next;
    }
}

/* Those that have expired are not found any more. */
static struct session *sweep(struct sessions *s, uint64_t now_ns)
{
    struct session *gone = NULL, *oldest;
    for (int i = 0;
         i < SWEPT_AT_ONCE && (oldest = TAILQ_FIRST(&s->idle)) != NULL && now_ns >= sessions_end_of(s, oldest); i++) {
        gone = sessions_take_out_locked(s, oldest, gone);
        metrics_counter_add(METRIC_SESSIONS_EXPIRED, 0, 1);
    }
    return gone;
}

struct session *sessions_enter(struct sessions *s)
{
    (void)pthread_mutex_lock(&s->lock);
    return sweep(s, clock_now_ns());
}

/* How long the timer may sleep while none is idle: leases are to last, and what becomes idle to end in time. */
static uint64_t period_ns(const struct sessions *s)
{
    return sessions_are_shared(s) ? s->settings->sessions_lease_ms * CLOCK_NS_PER_MS / 3
                                  : s->settings->session_ttl_s * CLOCK_NS_PER_S;
}

void sessions_leave(struct sessions *s, struct session *gone)
{
    const bool starts = s->quota.used.count > 0 && !s->is_timed;
    s->is_timed |= starts;
    (void)pthread_mutex_unlock(&s->lock);
    sessions_drop(s, gone);
    if (starts)
        watcher_set_time(s->watcher, &s->timer, clock_now_ns() + period_ns(s));
}

/* Of a shared store: what is in the table is in use, and leased. False: the store cannot be told of all at once, or not
 * now. */
static bool hold_on(struct sessions *s)
{
    for (; s->renewed < BUCKETS && sessions_are_shared(s); s->renewed++)
        for (const struct session *one = s->table[s->renewed]; one != NULL; one = one->next)
            if (one->claim.token[0] != '\0' && !s->store->kind->touch(s->store, &one->key, &one->claim))
                return false;
    s->renewed = 0;
    return true;
}

uint64_t sessions_on_time(void *arg, enum watch_event event, uint64_t now_ns)
{
    struct sessions *s = arg;
    (void)event;
    (void)pthread_mutex_lock(&s->lock);
    struct session *gone = sweep(s, now_ns);
    const uint64_t wait_ns = period_ns(s) / (hold_on(s) ? 1 : TOLD_AGAIN_PART);
    s->is_timed = s->quota.used.count > 0;
    const struct session *oldest = TAILQ_FIRST(&s->idle);
    const uint64_t due_ns = oldest != NULL ? sessions_end_of(s, oldest) : now_ns + wait_ns;
    const uint64_t again_ns = s->is_timed ? due_ns : 0;
    (void)pthread_mutex_unlock(&s->lock);
    sessions_drop(s, gone);
    return again_ns;
}
