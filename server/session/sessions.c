/* sessions.c - see sessions.h. A session is in a table by its id until it is removed or expires. It is idle, and then
 * in a list by its last use; or held, and then in no list:
 *
 *     sessions_add, sessions_fork         sessions_begin
 *     ---------------------------> IDLE ------------------> HELD ---> (freed by sessions_end, if it was removed)
 *                                   |  <------------------
 *                  sweep, removed   |      sessions_end
 *                                 (freed)
 *
 * Those that have expired are swept whenever the lock is taken, and when the watcher's timer says so, which is set as
 * long as there is a session. */
#include "server/session/sessions.h"

#include <assert.h>
#include <nettle/base16.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/session/sessions_inner.h"

/* ---- what one was, and what is to be freed ---------------------------------------------------------------------- */

void session_info_clear(struct session_info *i)
{
    assert(i->held == NULL);
    session_state_release(i->state);
    *i = (struct session_info){.state = NULL};
}

enum status session_info_check_model(const struct session_info *i, const struct hosted_model *e, struct error *err)
{
    struct error why;
    if (model_identity_check(&e->identity, &i->head.state.identity, "the session", "session", &why) == OK)
        return OK;
    return error_set_param(err, ERR_CONFLICT, "session", "%s; it cannot continue, begin a new session", why.message);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static struct session_use room_of(uint64_t count, uint64_t megabytes)
{
    return (struct session_use){count, megabytes << 20};
}

enum status sessions_create(struct sessions **ret, const struct settings *settings, struct watcher *w,
                            struct error *err)
{
    struct sessions *s = calloc(1, sizeof *s);
    if (s == NULL || pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return error_set(err, ERR_NOMEM, "out of memory for sessions");
    }
    TAILQ_INIT(&s->idle);
    TAILQ_INIT(&s->warm);
    s->settings = settings;
    s->watcher = w;
    s->quota.most = s->loaded_max = room_of(settings->sessions_max, settings->sessions_memory_max_mb);
    s->quota.most_of_client = settings->sessions_per_key_max;
    s->timer = (struct watch){.notify = sessions_on_time, .arg = s, .fd = -1};
    enum status st = watcher_add(w, &s->timer);
    if (st != OK)
        (void)error_set(err, st, "out of memory for sessions");
    else if (sessions_want_store(settings)) {
        s->quota.most = room_of(settings->sessions_stored_max, settings->sessions_dir_max_mb);
        st = sessions_restore(s, err);
    }
    if (st != OK) {
        sessions_free(s);
        return st;
    }
    *ret = s;
    return OK;
}

bool sessions_are_stored(const struct sessions *s)
{
    return s->store != NULL;
}

bool sessions_are_shared(const struct sessions *s)
{
    return s->store != NULL && s->store->kind->is_shared;
}

void sessions_free(struct sessions *s)
{
    if (s == NULL)
        return;
    watcher_remove(s->watcher, &s->timer);
    for (size_t i = 0; i < BUCKETS; i++)
        while (s->table[i] != NULL) {
            struct session *one = s->table[i];
            sessions_take_locked(s, one);
            one->is_stored = false; /* it stays there */
            sessions_drop(s, one);
        }
    if (s->store != NULL)
        s->store->kind->free(s->store);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- what clients ask ------------------------------------------------------------------------------------------- */

size_t sessions_bytes_of(const struct hosted_model *e)
{
    const struct engine_info *info = engine_info(e->engine);
    const size_t text = info->context == ENGINE_CONTEXT_UNLIMITED ? 1 : (size_t)info->context + 1;
    return sizeof(struct session) + sizeof(struct session_state) + text + info->stream_bytes;
}

/* NULL: there is no such session here, and *err is ERR_NOT_FOUND. Those of a shared store are all held. */
static struct session *find(struct sessions *s, const struct client_id *who, const char *id, struct error *err)
{
    const struct session_key key = session_key_of(who, id);
    struct session *one = sessions_look_up_locked(s, &key, id);
    if (one == NULL)
        (void)sessions_none(s, id, err);
    if (one != NULL && !one->is_held) {
        sessions_unidle_locked(s, one);
        sessions_idle_locked(s, one);
        sessions_touch_locked(s, one);
    }
    return one;
}

/* When there would be room if the idle ones expired one after the other. */
static unsigned wait_of(struct sessions *s, const struct client_id *who, size_t bytes, size_t count)
{
    const uint64_t now_ns = clock_now_ns();
    struct session_use used = s->quota.used, has = session_quota_use(&s->quota, who);
    const struct session *one;
    TAILQ_FOREACH(one, &s->idle, idle)
    {
        used = (struct session_use){used.count - 1, used.bytes - one->head.memory_bytes};
        if (client_id_is_same(&one->holder->client, who))
            has = (struct session_use){has.count - 1, has.bytes - one->head.memory_bytes};
        if (session_quota_ask(&s->quota, &used, &has, count, bytes) == SESSION_QUOTA_FITS)
            return sessions_end_of(s, one) > now_ns
                       ? (unsigned)((sessions_end_of(s, one) - now_ns - 1) / CLOCK_NS_PER_S + 1)
                       : 1;
    }
    return s->settings->session_ttl_s; /* those in use last at least so long */
}

/* With a store: the idle one that was not used for longest, of a client that has no fewer than `who`. NULL: none. */
static struct session *find_victim(const struct sessions *s, const struct client_id *who)
{
    const uint64_t has = session_quota_use(&s->quota, who).count;
    struct session *one;
    TAILQ_FOREACH(one, &s->idle, idle)
    if (one->holder->has.count >= has)
        break;
    return one;
}

/* With a store, whoever would have to be refused for want of room gets that of others. */
static struct session *make_room(struct sessions *s, const struct client_id *who, size_t bytes, size_t count,
                                 struct session *gone)
{
    struct session *victim;
    const struct session_quota *r = &s->quota;
    for (;;) {
        const struct session_use has = session_quota_use(r, who);
        const enum session_answer answer = session_quota_ask(r, &r->used, &has, count, bytes);
        if ((answer != SESSION_QUOTA_TOO_MANY && answer != SESSION_QUOTA_TOO_LARGE) || count > r->most.count ||
            bytes * count > r->most.bytes || (victim = find_victim(s, who)) == NULL)
            return gone;
        gone = sessions_take_out_locked(s, victim, gone);
        metrics_counter_add(METRIC_SESSIONS_EVICTED, 0, 1);
    }
}

/* *gone: what goes for it. */
static enum status check(struct sessions *s, const struct client_id *who, size_t bytes, size_t count,
                         struct session **gone, struct error *err)
{
    if (s->store != NULL)
        *gone = make_room(s, who, bytes, count, *gone);
    const struct session_use has = session_quota_use(&s->quota, who);
    if (s->store != NULL && session_quota_ask(&s->quota, &s->quota.used, &has, count, bytes) == SESSION_QUOTA_KEPT_BACK)
        return OK; /* whoever has less will get it */
    const enum status st = session_quota_check(&s->quota, who, count, bytes, err);
    if (st == OK)
        return OK;
    error_retry_after(err, wait_of(s, who, bytes, count));
    metrics_counter_add(METRIC_SESSIONS_REFUSED, 0, count);
    return st;
}

enum status sessions_check(struct sessions *s, const struct client_id *who, const struct hosted_model *e, size_t count,
                           struct error *err)
{
    struct session *gone = sessions_enter(s);
    const enum status st = check(s, who, sessions_bytes_of(e), count, &gone, err);
    sessions_leave(s, gone);
    return st;
}

/* What it is now. */
static struct session_info info_locked(const struct sessions *s, const struct session *one)
{
    const uint64_t now_ns = clock_now_ns(), end_ns = one->is_held ? now_ns + s->settings->session_ttl_s * CLOCK_NS_PER_S
                                                                  : sessions_end_of(s, one);
    struct session_info info = {
        .head = one->head,
        .key = one->key,
        .is_busy = one->is_held,
        .expires_in_s = end_ns > now_ns ? (uint32_t)((end_ns - now_ns - 1) / CLOCK_NS_PER_S + 1) : 0,
    };
    if (one->state != NULL) {
        info.state = session_state_reference(one->state);
        info.snapshot = one->state->snapshot;
        info.snapshot.sampler.options.sample = one->head.sample;
    }
    return info;
}

/* A list of `count` sessions that have ids and nothing else; NULL if memory or random numbers cannot be had. */
static struct session *create_list(size_t count)
{
    struct session *list = NULL;
    for (size_t i = 0; i < count; i++) {
        uint8_t chance[SESSION_ID_RANDOM_BYTES];
        struct session *one = calloc(1, sizeof *one);
        if (one == NULL || getrandom(chance, sizeof chance, 0) != (ssize_t)sizeof chance) {
            free(one);
            sessions_drop(NULL, list);
            return NULL;
        }
        base16_encode_update(one->head.id, sizeof chance, chance); /* which zeros follow */
        one->head.created_s = (int64_t)time(NULL);
        one->next = list;
        list = one;
    }
    return list;
}

enum status sessions_put_list_locked(struct sessions *s, const struct client_id *who, struct session *list,
                                     size_t count, struct session_info ret[], struct error *err)
{
    const bool is_held = s->store != NULL;
    enum status st = OK;
    for (struct session *one = list; one != NULL && st == OK; one = one->next)
        st = sessions_load_locked(s, one, err);
    struct session_holder *holder =
        st == OK ? session_quota_take(&s->quota, who, count, list->head.memory_bytes) : NULL;
    if (holder == NULL) {
        for (struct session *one = list; one != NULL; one = one->next)
            sessions_unload_locked(s, one);
        return st != OK ? st : error_set(err, ERR_NOMEM, "out of memory for a session; try again later");
    }
    for (size_t i = 0; list != NULL; i++) {
        struct session *one = list;
        list = one->next;
        one->head.owner = *who;
        one->key = session_key_of(who, one->head.id);
        sessions_put_locked(s, one, holder, is_held);
        ret[i] = info_locked(s, one);
        ret[i].held = is_held ? one : NULL;
    }
    return OK;
}

static enum status check_id(struct sessions *s, const struct client_id *who, const char *id, struct error *err)
{
    const struct session_key key = session_key_of(who, id);
    return sessions_look_up_locked(s, &key, id) == NULL
               ? sessions_check_leaving_locked(s, &key, id, err)
               : error_set_param(err, ERR_CONFLICT, "session", "there is a session \"%s\" already", id);
}

enum status sessions_add(struct sessions *s, const struct client_id *who, const char *id, const struct hosted_model *e,
                         const struct stream_snapshot *snapshot, struct session_info *ret, struct error *err)
{
    struct session *one = create_list(1);
    struct session_state *state = session_state_create(snapshot);
    if (one == NULL || state == NULL) {
        free(one);
        free(state); /* the memory of the snapshot still belongs to the caller */
        return error_set(err, ERR_NOMEM, "out of memory for a session; try again later");
    }
    if (id != NULL)
        (void)snprintf(one->head.id, sizeof one->head.id, "%s", id);
    (void)snprintf(one->head.model, sizeof one->head.model, "%s", e->model->name);
    one->head.state.identity = e->identity;
    one->head.memory_bytes = sessions_bytes_of(e);
    session_head_move(&one->head, snapshot);
    one->state = state;
    struct session *gone = sessions_enter(s);
    enum status st = id != NULL ? check_id(s, who, id, err) : OK;
    if (st == OK)
        st = check(s, who, one->head.memory_bytes, 1, &gone, err);
    if (st == OK)
        st = sessions_put_list_locked(s, who, one, 1, ret, err);
    sessions_leave(s, gone);
    metrics_counter_add(METRIC_SESSIONS_CREATED, 0, st == OK ? 1 : 0);
    if (st != OK) {
        free(one);
        free(state);
    }
    return st;
}

enum status sessions_find(struct sessions *s, const struct client_id *who, const char *id, struct session_info *ret,
                          struct error *err)
{
    if (sessions_are_shared(s)) {
        *ret = sessions_unknown(s, who, id);
        return OK;
    }
    struct session *gone = sessions_enter(s);
    const struct session *one = find(s, who, id, err);
    if (one != NULL)
        *ret = info_locked(s, one);
    sessions_leave(s, gone);
    return one != NULL ? OK : ERR_NOT_FOUND;
}

/* The sample of another fork from here. Others may have forked what was read from a store, so they draw lots. */
static uint32_t next_sample(const struct sessions *s, struct session_state *state)
{
    uint32_t drawn;
    if (!(state->is_read || sessions_are_shared(s)) || getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return state->next_sample++;
    return drawn;
}

enum status sessions_fork(struct sessions *s, const struct client_id *who, const struct session_info *of, size_t count,
                          struct session_info ret[], struct error *err)
{
    struct session *list = create_list(count);
    if (list == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for %zu sessions; try again later", count);
    struct session *gone = sessions_enter(s), *from = sessions_are_shared(s) ? NULL : find(s, who, of->head.id, err);
    const size_t bytes = of->head.memory_bytes;
    enum status st = from != NULL || sessions_are_shared(s) ? check(s, who, bytes, count, &gone, err) : ERR_NOT_FOUND;
    for (struct session *one = list; one != NULL && st == OK; one = one->next) {
        struct session_head head = of->head;
        memcpy(head.id, one->head.id, sizeof head.id);
        head.created_s = one->head.created_s;
        head.turn = 1;
        head.sample = next_sample(s, of->state);
        one->head = head;
        one->state = session_state_reference(of->state);
    }
    if (st == OK)
        st = sessions_put_list_locked(s, who, list, count, ret, err);
    sessions_leave(s, gone);
    metrics_counter_add(METRIC_SESSIONS_CREATED, 0, st == OK ? count : 0);
    if (st != OK)
        sessions_drop(s, list);
    return st;
}

enum status sessions_none(const struct sessions *s, const char *id, struct error *err)
{
    return error_set_param(err, ERR_NOT_FOUND, "session",
                           "there is no session \"%s\": a session belongs to its key alone, and expires %u s after its "
                           "last use",
                           json_quote(id).text, s->settings->session_ttl_s);
}

enum status sessions_remove(struct sessions *s, const struct client_id *who, const char *id, struct error *err)
{
    const bool is_shared = sessions_are_shared(s);
    const struct session_key key = session_key_of(who, id);
    if (is_shared && !session_id_is_fine(id))
        return sessions_none(s, id, err);
    struct session *gone = sessions_enter(s);
    struct session *one = find(s, who, id, err);
    const bool is_held = one != NULL && one->is_held; /* its request may go on to its end, but it must not be found */
    const bool is_left = is_shared || (is_held && one->is_stored);
    if (one == NULL && !is_shared) {
        sessions_leave(s, gone);
        return ERR_NOT_FOUND;
    }
    if (one != NULL)
        gone = sessions_take_out_locked(s, one, gone);
    sessions_leave(s, gone);
    struct error why;
    const enum status st = is_left ? s->store->kind->remove(s->store, &key, &why) : OK;
    if (st == ERR_NOT_FOUND && is_shared)
        return sessions_none(s, id, err);
    return st == OK || st == ERR_NOT_FOUND ? OK : error_set(err, st, "%s", why.message);
}

void sessions_keep(struct sessions *s, bool (*stays)(void *arg, const struct client_id *client), void *arg)
{
    struct session *gone = sessions_enter(s);
    session_quota_mark(&s->quota, stays, arg);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct session *one = s->table[i], *next; one != NULL; one = next) {
            next = one->next;
            if (one->holder->is_marked)
                gone = sessions_take_out_locked(s, one, gone);
        }
    sessions_leave(s, gone);
}

/* Under the lock it goes through that client's alone. */
size_t sessions_list(struct sessions *s, const struct client_id *who, uint64_t before, size_t most,
                     struct session_info ret[], uint64_t *next, uint64_t *total)
{
    struct session *gone = sessions_enter(s);
    const struct session_holder *holder = session_quota_find(&s->quota, who);
    const struct session *one = holder != NULL ? LIST_FIRST(&holder->sessions) : NULL;
    size_t count = 0;
    while (one != NULL && before != 0 && one->serial >= before)
        one = LIST_NEXT(one, of_client);
    for (; one != NULL && count < most; one = LIST_NEXT(one, of_client)) {
        ret[count++] = info_locked(s, one);
        *next = one->serial;
    }
    if (one == NULL)
        *next = 0;
    *total = session_quota_use(&s->quota, who).count;
    sessions_leave(s, gone);
    return count;
}

enum status sessions_begin(struct sessions *s, const struct client_id *who, const char *id, struct session_info *ret,
                           struct error *err)
{
    struct session *gone = sessions_enter(s), *one = find(s, who, id, err);
    enum status st = OK;
    if (one == NULL) {
        st = sessions_are_shared(s) ? sessions_begin_shared_locked(s, who, id, ret, err) : ERR_NOT_FOUND;
    } else if (one->is_held) {
        st = error_set_param(err, ERR_CONFLICT, "session",
                             "the session \"%s\" is in use by another request; try again when that has been "
                             "answered",
                             one->head.id);
    } else {
        sessions_unidle_locked(s, one);
        one->is_held = true;
        st = sessions_load_locked(s, one, err);
        if (st != OK) {
            one->is_held = false;
            sessions_idle_locked(s, one);
        } else {
            *ret = info_locked(s, one);
            ret->held = one;
        }
    }
    sessions_leave(s, gone);
    if (st == ERR_CONFLICT) /* with a request that ends, perhaps because its client has just left */
        error_retry_after(err, 1);
    return st;
}

void sessions_end(struct sessions *s, struct session_info *i)
{
    struct session *one = i->held;
    i->held = NULL;
    session_info_clear(i);
    if (one == NULL)
        return;
    assert(one->is_held);
    struct session *gone = sessions_enter(s);
    if (s->store != NULL && !sessions_are_shared(s) && !one->is_stored && !one->is_removed)
        gone = sessions_take_out_locked(s, one, gone); /* it was never written, and its client told of an error */
    one->is_held = false;
    if (sessions_are_shared(s)) {
        gone = sessions_let_go_locked(s, one, gone);
    } else if (!one->is_removed) {
        if (one->state == NULL)
            sessions_unload_locked(s, one);
        sessions_idle_locked(s, one);
        sessions_touch_locked(s, one);
    } else {
        one->next = gone;
        gone = one;
    }
    sessions_leave(s, gone);
}
