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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "config/json.h"
#include "server/core/clock.h"
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
    if (model_identity_check(&e->identity, &i->identity, "the session", "session", &why) == OK)
        return OK;
    return error_set_param(err, ERR_CONFLICT, "session", "%s; it cannot continue, begin a new session", why.message);
}

static void sessions_drop(struct session *list)
{
    while (list != NULL) {
        struct session *next = list->next;
        session_state_release(list->state);
        free(list);
        list = next;
    }
}

/* ---- the table and the list: under the lock --------------------------------------------------------------------- */

static struct session **chain_of(struct sessions *s, const char *id)
{
    uint32_t hash = 0;
    for (const char *c = id; *c != '\0'; c++)
        hash = hash * 31 + (unsigned char)*c;
    return &s->table[hash % BUCKETS];
}

static void list_append(struct sessions *s, struct session *one)
{
    one->used_ns = clock_now_ns();
    one->newer = NULL;
    one->older = s->newest;
    *(s->newest != NULL ? &s->newest->newer : &s->oldest) = one;
    s->newest = one;
}

static void list_remove(struct sessions *s, const struct session *one)
{
    *(one->older != NULL ? &one->older->newer : &s->oldest) = one->newer;
    *(one->newer != NULL ? &one->newer->older : &s->newest) = one->older;
}

static void show(const struct sessions *s)
{
    metrics_gauge_set(METRIC_SESSIONS, 0, s->room.used.count);
    metrics_gauge_set(METRIC_SESSIONS_BYTES, 0, s->room.used.bytes);
}

static void table_put(struct sessions *s, struct session *one, struct session_holder *holder)
{
    struct session **chain = chain_of(s, one->id);
    one->holder = holder; /* which has taken the room */
    one->next = *chain;
    *chain = one;
    one->serial = ++s->serial;
    one->made_before = holder->newest;
    if (holder->newest != NULL)
        holder->newest->made_after = one;
    holder->newest = one;
    show(s);
}

static void table_take(struct sessions *s, struct session *one)
{
    struct session **at = chain_of(s, one->id);
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    one->next = NULL;
    *(one->made_after != NULL ? &one->made_after->made_before : &one->holder->newest) = one->made_before;
    if (one->made_before != NULL)
        one->made_before->made_after = one->made_after;
    session_room_give(&s->room, one->holder, one->bytes);
    one->holder = NULL;
    show(s);
}

static uint64_t end_of(const struct sessions *s, const struct session *one)
{
    return one->used_ns + s->settings->session_ttl_s * CLOCK_NS_PER_S;
}

/* Take those that have expired out of the table and the list; the caller drops them without the lock. */
static struct session *sweep(struct sessions *s, uint64_t now_ns)
{
    struct session *gone = NULL;
    while (s->oldest != NULL && now_ns >= end_of(s, s->oldest)) {
        struct session *one = s->oldest;
        list_remove(s, one);
        table_take(s, one);
        one->next = gone;
        gone = one;
        metrics_counter_add(METRIC_SESSIONS_EXPIRED, 0, 1);
    }
    return gone;
}

struct session *sessions_enter(struct sessions *s)
{
    (void)pthread_mutex_lock(&s->lock);
    return sweep(s, clock_now_ns());
}

void sessions_leave(struct sessions *s, struct session *gone)
{
    const bool starts = s->room.used.count > 0 && !s->is_timed;
    s->is_timed |= starts;
    (void)pthread_mutex_unlock(&s->lock);
    sessions_drop(gone);
    if (starts)
        watcher_set_time(s->watcher, &s->timer, clock_now_ns() + s->settings->session_ttl_s * CLOCK_NS_PER_S);
}

/* The timer comes when the oldest would expire if it were not used again; once none is left, it no longer comes. */
static uint64_t on_time(void *arg, enum watch_event event, uint64_t now_ns)
{
    struct sessions *s = arg;
    (void)event;
    (void)pthread_mutex_lock(&s->lock);
    struct session *gone = sweep(s, now_ns);
    s->is_timed = s->room.used.count > 0;
    const uint64_t due_ns =
        s->oldest != NULL ? end_of(s, s->oldest) : now_ns + s->settings->session_ttl_s * CLOCK_NS_PER_S;
    const uint64_t again_ns = s->is_timed ? due_ns : 0;
    (void)pthread_mutex_unlock(&s->lock);
    sessions_drop(gone);
    return again_ns;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

enum status sessions_create(struct sessions **ret, const struct settings *settings, struct watcher *w)
{
    struct sessions *s = calloc(1, sizeof *s);
    if (s == NULL || pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return ERR_NOMEM;
    }
    s->settings = settings;
    s->watcher = w;
    s->room.most = (struct session_use){settings->sessions_max, settings->sessions_memory_max_mb * (UINT64_C(1) << 20)};
    s->room.most_of_client = settings->sessions_per_key_max;
    s->timer = (struct watch){.notify = on_time, .arg = s, .fd = -1};
    if (watcher_add(w, &s->timer) != OK) {
        (void)pthread_mutex_destroy(&s->lock);
        free(s);
        return ERR_NOMEM;
    }
    *ret = s;
    return OK;
}

void sessions_free(struct sessions *s)
{
    if (s == NULL)
        return;
    watcher_remove(s->watcher, &s->timer);
    for (size_t i = 0; i < BUCKETS; i++)
        while (s->table[i] != NULL) {
            struct session *one = s->table[i];
            table_take(s, one);
            sessions_drop(one);
        }
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

/* Is that one's session there for `who`? */
static bool is_for(const struct client_id *one, const struct client_id *who)
{
    return one->kind == CLIENT_KEY ? client_id_is_same(one, who) : who->kind != CLIENT_KEY;
}

/* NULL: there is no such session, and *err is ERR_NOT_FOUND. */
static struct session *find(struct sessions *s, const struct client_id *who, const char *id, struct error *err)
{
    struct session *one = *chain_of(s, id);
    while (one != NULL && strcmp(one->id, id) != 0)
        one = one->next;
    if (one == NULL || !is_for(&one->holder->client, who)) {
        (void)error_set_param(
            err, ERR_NOT_FOUND, "session",
            "there is no session \"%s\": a session belongs to its key alone, and expires %u s after its "
            "last use",
            json_quote(id).text, s->settings->session_ttl_s);
        return NULL;
    }
    if (!one->is_held) {
        list_remove(s, one);
        list_append(s, one);
    }
    return one;
}

/* When there would be room if the idle ones expired one after the other. */
static unsigned wait_of(struct sessions *s, const struct client_id *who, size_t bytes, size_t count)
{
    const uint64_t now_ns = clock_now_ns();
    struct session_use used = s->room.used, has = session_room_use(&s->room, who);
    for (const struct session *one = s->oldest; one != NULL; one = one->newer) {
        used = (struct session_use){used.count - 1, used.bytes - one->bytes};
        if (client_id_is_same(&one->holder->client, who))
            has = (struct session_use){has.count - 1, has.bytes - one->bytes};
        if (session_room_ask(&s->room, &used, &has, count, bytes) == SESSION_ROOM_FITS)
            return end_of(s, one) > now_ns ? (unsigned)((end_of(s, one) - now_ns - 1) / CLOCK_NS_PER_S + 1) : 1;
    }
    return s->settings->session_ttl_s; /* those in use last at least so long */
}

static enum status check(struct sessions *s, const struct client_id *who, size_t bytes, size_t count, unsigned *wait_s,
                         struct error *err)
{
    const enum status st = session_room_check(&s->room, who, count, bytes, err);
    if (st == OK)
        return OK;
    *wait_s = wait_of(s, who, bytes, count);
    metrics_counter_add(METRIC_SESSIONS_REFUSED, 0, count);
    return st;
}

enum status sessions_check(struct sessions *s, const struct client_id *who, const struct hosted_model *e, size_t count,
                           unsigned *wait_s, struct error *err)
{
    struct session *gone = sessions_enter(s);
    const enum status st = check(s, who, sessions_bytes_of(e), count, wait_s, err);
    sessions_leave(s, gone);
    return st;
}

struct session_info sessions_info_locked(const struct sessions *s, const struct session *one)
{
    const uint64_t now_ns = clock_now_ns(),
                   end_ns = one->is_held ? now_ns + s->settings->session_ttl_s * CLOCK_NS_PER_S : end_of(s, one);
    struct session_info info = {
        .identity = one->identity,
        .snapshot = one->state->snapshot,
        .created_s = one->created_s,
        .is_busy = one->is_held,
        .expires_in_s = end_ns > now_ns ? (uint32_t)((end_ns - now_ns - 1) / CLOCK_NS_PER_S + 1) : 0,
        .state = session_state_reference(one->state),
    };
    memcpy(info.id, one->id, sizeof info.id);
    memcpy(info.model, one->model, sizeof info.model);
    info.snapshot.sampler.options.sample = one->sample;
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
            sessions_drop(list);
            return NULL;
        }
        for (size_t b = 0; b < sizeof chance; b++)
            (void)snprintf(one->id + 2 * b, 3, "%02x", chance[b]);
        one->created_s = (int64_t)time(NULL);
        one->next = list;
        list = one;
    }
    return list;
}

/* Put a list of `count`, all of one size. Errors: ERR_NOMEM: the list is still the caller's. */
static enum status put_list(struct sessions *s, const struct client_id *who, struct session *list, size_t count,
                            struct session_info ret[], struct error *err)
{
    struct session_holder *holder = session_room_take(&s->room, who, count, list->bytes);
    if (holder == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for a session; try again later");
    for (size_t i = 0; list != NULL; i++) {
        struct session *one = list;
        list = one->next;
        table_put(s, one, holder);
        list_append(s, one);
        ret[i] = sessions_info_locked(s, one);
        metrics_counter_add(METRIC_SESSIONS_CREATED, 0, 1);
    }
    return OK;
}

enum status sessions_add(struct sessions *s, const struct client_id *who, const struct hosted_model *e,
                         const struct stream_snapshot *snapshot, struct session_info *ret, unsigned *wait_s,
                         struct error *err)
{
    struct session *one = create_list(1);
    struct session_state *state = session_state_create(snapshot);
    if (one == NULL || state == NULL) {
        free(one);
        free(state); /* the memory of the snapshot still belongs to the caller */
        return error_set(err, ERR_NOMEM, "out of memory for a session; try again later");
    }
    (void)snprintf(one->model, sizeof one->model, "%s", e->model->name);
    one->identity = e->identity;
    one->bytes = sessions_bytes_of(e);
    one->sample = snapshot->sampler.options.sample;
    one->state = state;
    struct session *gone = sessions_enter(s);
    enum status st = check(s, who, one->bytes, 1, wait_s, err);
    if (st == OK)
        st = put_list(s, who, one, 1, ret, err);
    sessions_leave(s, gone);
    if (st != OK) {
        free(one);
        free(state);
    }
    return st;
}

enum status sessions_find(struct sessions *s, const struct client_id *who, const char *id, struct session_info *ret,
                          struct error *err)
{
    struct session *gone = sessions_enter(s);
    const struct session *one = find(s, who, id, err);
    if (one != NULL)
        *ret = sessions_info_locked(s, one);
    sessions_leave(s, gone);
    return one != NULL ? OK : ERR_NOT_FOUND;
}

enum status sessions_fork(struct sessions *s, const struct client_id *who, const char *id, size_t count,
                          struct session_info ret[], unsigned *wait_s, struct error *err)
{
    struct session *list = create_list(count);
    if (list == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for %zu sessions; try again later", count);
    struct session *gone = sessions_enter(s);
    const struct session *of = find(s, who, id, err);
    enum status st = of != NULL ? check(s, who, of->bytes, count, wait_s, err) : ERR_NOT_FOUND;
    for (struct session *one = list; one != NULL && st == OK; one = one->next) {
        memcpy(one->model, of->model, sizeof one->model);
        one->identity = of->identity;
        one->bytes = of->bytes;
        one->sample = of->state->next_sample++;
        one->state = session_state_reference(of->state);
    }
    if (st == OK)
        st = put_list(s, who, list, count, ret, err);
    sessions_leave(s, gone);
    if (st != OK)
        sessions_drop(list);
    return st;
}

/* Take one out that is not to be found any more; returns the list of what is to be freed. */
static struct session *take_out(struct sessions *s, struct session *one, struct session *gone)
{
    table_take(s, one);
    one->is_removed = true;
    if (one->is_held)
        return gone;
    list_remove(s, one);
    one->next = gone;
    return one;
}

enum status sessions_remove(struct sessions *s, const struct client_id *who, const char *id, struct error *err)
{
    struct session *gone = sessions_enter(s), *one = find(s, who, id, err);
    if (one != NULL)
        gone = take_out(s, one, gone);
    sessions_leave(s, gone);
    return one != NULL ? OK : ERR_NOT_FOUND;
}

void sessions_keep(struct sessions *s, bool (*stays)(void *arg, const struct client_id *client), void *arg)
{
    struct session *gone = sessions_enter(s);
    session_room_mark(&s->room, stays, arg);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct session *one = s->table[i], *next; one != NULL; one = next) {
            next = one->next;
            if (one->holder->is_marked)
                gone = take_out(s, one, gone);
        }
    sessions_leave(s, gone);
}

enum status sessions_begin(struct sessions *s, const struct client_id *who, const char *id, struct session_info *ret,
                           struct error *err)
{
    struct session *gone = sessions_enter(s), *one = find(s, who, id, err);
    enum status st = one != NULL ? OK : ERR_NOT_FOUND;
    if (one != NULL && one->is_held) {
        st = error_set_param(err, ERR_CONFLICT, "session",
                             "the session \"%s\" is in use by another request; try again when that has been "
                             "answered",
                             one->id);
    } else if (one != NULL) {
        list_remove(s, one);
        one->is_held = true;
        *ret = sessions_info_locked(s, one);
        ret->held = one;
    }
    sessions_leave(s, gone);
    return st;
}

bool sessions_end(struct sessions *s, struct session_info *held, const struct stream_snapshot *snapshot)
{
    struct session *one = held->held;
    struct session_state *state = snapshot != NULL ? session_state_create(snapshot) : NULL, *old = NULL;
    const bool fine = snapshot == NULL || state != NULL;
    assert(one != NULL && one->is_held);
    struct session *gone = sessions_enter(s);
    if (state != NULL) {
        old = one->state;
        one->state = state;
        one->sample = snapshot->sampler.options.sample;
    }
    one->is_held = false;
    if (!one->is_removed) {
        list_append(s, one);
    } else {
        one->next = gone;
        gone = one;
    }
    sessions_leave(s, gone);
    session_state_release(old);
    held->held = NULL;
    session_info_clear(held);
    return fine;
}
