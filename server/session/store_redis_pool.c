/* store_redis_pool.c - see store_redis_pool.h.
 *
 * Each time that the server answers again a new era begins. Connections of an earlier one are closed when they come
 * back, and what they fail with does not make the server away once more. */
#include "server/session/store_redis_pool.h"

#include <assert.h>
#include <errno.h>
#include <nettle/base16.h>
#include <nettle/sha1.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"

enum { CAUSE_MAX = 256 };

/* A connection that is in use. */
struct lent {
    struct redis_link link;
    uint64_t era;
    bool is_reused;
};

struct redis_pool {
    struct redis_address address;
    struct redis_password password;
    struct redis_script probe;
    char probe_key[STORE_PREFIX_MAX + 16];
    char url[SETTING_TEXT_MAX + 1];
    struct redis_ticks ticks;
    uint64_t timeout_ns;
    size_t most; /* connections besides the keeper's */
    pthread_t keeper;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a connection is free, or the server away */
    pthread_cond_t work;    /* for the keeper: there is work, the server is away, or the end */
    /* under the lock */
    bool is_up, is_ended, has_work;
    uint64_t era, away_ns;
    char cause[CAUSE_MAX]; /* of being away */
    struct redis_places places;
    size_t open, idle;         /* connections, and those of them that wait */
    struct redis_link links[]; /* [most + 1], of which the first `idle` wait */
};

/* ---- scripts ----------------------------------------------------------------------------------------------------- */

void redis_script_init(struct redis_script *s, const char *text)
{
    struct sha1_ctx sha;
    uint8_t digest[SHA1_DIGEST_SIZE];
    sha1_init(&sha);
    sha1_update(&sha, strlen(text), (const uint8_t *)text);
    sha1_digest(&sha, sizeof digest, digest);
    s->text = text;
    base16_encode_update(s->sha1, sizeof digest, digest);
    s->sha1[sizeof s->sha1 - 1] = '\0';
}

void redis_call_init(struct redis_call *c, const struct redis_script *s)
{
    c->script = s;
    c->keys = c->count = 0;
    c->reply_max = STORE_REPLY_BYTES_MAX;
    c->is_keepers = false;
}

void redis_call_add(struct redis_call *c, const void *bytes, size_t size)
{
    assert(c->count < REDIS_CALL_ARGS_MAX);
    c->args[c->count] = bytes;
    c->sizes[c->count++] = size;
}

void redis_call_add_text(struct redis_call *c, const char *text)
{
    redis_call_add(c, text, strlen(text));
}

static bool begins_with(const struct redis_reply *r, const char *word)
{
    return r->type == REDIS_FAILURE && strncmp(r->text, word, strlen(word)) == 0;
}

static bool is_locked_out(const struct redis_reply *r)
{
    return begins_with(r, "NOAUTH ") || begins_with(r, "NOPERM ") || begins_with(r, "DENIED ");
}

/* EVALSHA, or EVAL, on one connection. */
static enum status ask(struct redis_link *l, const struct redis_call *c, bool whole, uint64_t deadline_ns,
                       struct redis_reply *ret, struct error *err)
{
    const char *args[3 + REDIS_CALL_ARGS_MAX];
    size_t sizes[3 + REDIS_CALL_ARGS_MAX];
    char keys[24];
    (void)snprintf(keys, sizeof keys, "%zu", c->keys);
    args[0] = whole ? "EVAL" : "EVALSHA";
    args[1] = whole ? c->script->text : c->script->sha1;
    args[2] = keys;
    for (size_t i = 0; i < 3; i++)
        sizes[i] = strlen(args[i]);
    memcpy((void *)(args + 3), (const void *)c->args, c->count * sizeof args[0]);
    memcpy(sizes + 3, c->sizes, c->count * sizeof sizes[0]);
    const enum status st = redis_link_ask(l, args, sizes, 3 + c->count, c->reply_max, deadline_ns, ret, err);
    if (st != OK || whole || !begins_with(ret, "NOSCRIPT "))
        return st;
    redis_reply_clear(ret);
    return ask(l, c, true, deadline_ns, ret, err);
}

/* As redis_link_ask; and ERR_STORE: the server has answered that it cannot do that, and the connection is fine. */
static enum status run(struct redis_link *l, const struct redis_call *c, uint64_t deadline_ns, struct redis_reply *ret,
                       struct error *err)
{
    struct redis_reply reply = {.whole = NULL};
    enum status st = ask(l, c, false, deadline_ns, &reply, err);
    if (st != OK)
        return st;
    if (reply.type == REDIS_TEXT) {
        *ret = reply;
        return OK;
    }
    if (reply.type == REDIS_OTHER)
        st = error_set(err, ERR_FORMAT, "does not answer as a Redis server would");
    else if (redis_reply_is_away(&reply))
        st = error_set(err, ERR_UNAVAILABLE, "says: %.200s", reply.text);
    else if (begins_with(&reply, "OOM "))
        st = error_set(err, ERR_STORE, "is full: %.200s", reply.text);
    else
        st = error_set(err, is_locked_out(&reply) ? ERR_CONFIG : ERR_STORE, "says: %.200s", reply.text);
    redis_reply_clear(&reply);
    return st;
}

/* ---- away and back ----------------------------------------------------------------------------------------------- */

static void close_idle_locked(struct redis_pool *p)
{
    for (; p->idle > 0; p->idle--, p->open--)
        redis_link_close(&p->links[p->idle - 1]);
}

/* No call waits for it from now on. */
static void go_away(struct redis_pool *p, uint64_t era, const char *cause)
{
    (void)pthread_mutex_lock(&p->lock);
    const bool goes = p->is_up && era == p->era;
    if (goes) {
        p->is_up = false;
        p->away_ns = clock_now_ns();
        (void)snprintf(p->cause, sizeof p->cause, "%s", cause);
        metrics_gauge_set(METRIC_STORE_UP, 0, 0);
        close_idle_locked(p);
        (void)pthread_cond_broadcast(&p->changed);
        (void)pthread_cond_signal(&p->work);
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (goes)
        log_warning("session store: %s is away: it %s", p->url, cause);
}

/* Through a new connection, which is kept if that goes well. Errors: as redis_link_ask. */
static enum status probe(struct redis_pool *p, struct error *err)
{
    const uint64_t deadline_ns = clock_now_ns() + p->timeout_ns;
    struct redis_places places;
    struct redis_link link = {.fd = -1};
    struct redis_call call;
    struct redis_reply reply = {.whole = NULL};
    enum status st = redis_places_find(&places, &p->address, err);
    if (st == OK)
        st = redis_link_open(&link, &places, &p->address, &p->password, deadline_ns, err);
    if (st != OK)
        return st;
    redis_call_init(&call, &p->probe);
    redis_call_add_text(&call, p->probe_key);
    call.keys = 1;
    st = run(&link, &call, deadline_ns, &reply, err);
    if (st == OK && (reply.size != 1 || reply.text[0] != 'K'))
        st = error_set(err, ERR_FORMAT, "does not answer as a Redis server would");
    if (st == ERR_STORE && strstr(err->message, "is full") != NULL)
        st = OK; /* it still gives and removes what it has */
    redis_reply_clear(&reply);
    if (st != OK) {
        redis_link_close(&link);
        return st;
    }
    (void)pthread_mutex_lock(&p->lock);
    p->places = places;
    p->is_up = true;
    p->era++;
    if (p->open < p->most) {
        p->open++;
        p->links[p->idle++] = link;
        link.fd = -1;
    }
    metrics_gauge_set(METRIC_STORE_UP, 0, 1);
    (void)pthread_mutex_unlock(&p->lock);
    redis_link_close(&link);
    return OK;
}

static void try_again(struct redis_pool *p, uint64_t away_ns)
{
    struct error why;
    if (probe(p, &why) == OK)
        log_info("session store: %s is back after %.1f s", p->url, clock_ms_between(away_ns, clock_now_ns()) / 1e3);
    else
        log_debug("session store: %s is still away: it %s", p->url, why.message);
}

static void wait_until_locked(struct redis_pool *p, uint64_t until_ns)
{
    const struct timespec t = {.tv_sec = (time_t)(until_ns / CLOCK_NS_PER_S),
                               .tv_nsec = (long)(until_ns % CLOCK_NS_PER_S)};
    (void)pthread_cond_timedwait(&p->work, &p->lock, &t);
}

static void work_locked(struct redis_pool *p)
{
    p->has_work = false;
    (void)pthread_mutex_unlock(&p->lock);
    p->ticks.work(p->ticks.arg);
    (void)pthread_mutex_lock(&p->lock);
}

static void *keeper_thread(void *arg)
{
    struct redis_pool *p = arg;
    uint64_t tick_ns = 0, try_ns = 0, away_ns = 0;
    (void)pthread_mutex_lock(&p->lock);
    while (!p->is_ended) {
        if (p->is_up && tick_ns == 0)
            tick_ns = clock_now_ns() + p->ticks.tick_ms * CLOCK_NS_PER_MS;
        if (!p->is_up && away_ns != p->away_ns) { /* since then */
            away_ns = p->away_ns;
            try_ns = away_ns + STORE_AWAY_MS * CLOCK_NS_PER_MS;
        }
        if (p->is_up && p->has_work) {
            work_locked(p);
            continue;
        }
        const uint64_t due_ns = p->is_up ? tick_ns : try_ns, now_ns = clock_now_ns();
        if (now_ns < due_ns) {
            wait_until_locked(p, due_ns);
            continue;
        }
        const bool was_up = p->is_up;
        (void)pthread_mutex_unlock(&p->lock);
        if (was_up) {
            p->ticks.tick(p->ticks.arg);
            tick_ns = now_ns + p->ticks.tick_ms * CLOCK_NS_PER_MS;
        } else {
            try_again(p, away_ns);
            tick_ns = 1; /* if it is back: at once */
            try_ns = clock_now_ns() + STORE_AWAY_MS * CLOCK_NS_PER_MS;
        }
        (void)pthread_mutex_lock(&p->lock);
    }
    if (p->is_up && p->has_work)
        work_locked(p);
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

void redis_pool_work(struct redis_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->has_work = true;
    (void)pthread_cond_signal(&p->work);
    (void)pthread_mutex_unlock(&p->lock);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static enum status say_away_locked(const struct redis_pool *p, struct error *err)
{
    return error_set(err, ERR_STORE, "is away, as it %s; try again later", p->cause);
}

/* One that waits, or room for a new one, which is what `anew` asks for: then ret->link.fd is -1, and *places where to
 * connect to. Errors: ERR_STORE. */
static enum status borrow(struct redis_pool *p, bool is_keepers, bool anew, uint64_t deadline_ns, struct lent *ret,
                          struct redis_places *places, struct error *err)
{
    const struct timespec t = {.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_S),
                               .tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_S)};
    const size_t most = p->most + (is_keepers ? 1 : 0);
    enum status st = OK;
    int waited = 0;
    (void)pthread_mutex_lock(&p->lock);
    while (p->is_up && p->idle == 0 && p->open >= most && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&p->changed, &p->lock, &t);
    if (anew)
        close_idle_locked(p); /* one was closed by the server: most likely all */
    if (!p->is_up) {
        st = say_away_locked(p, err);
    } else if (p->idle > 0) {
        *ret = (struct lent){.link = p->links[--p->idle], .era = p->era, .is_reused = true};
    } else if (p->open < most) {
        *ret = (struct lent){.link = {.fd = -1}, .era = p->era};
        *places = p->places;
        p->open++;
    } else {
        st = error_set(err, ERR_STORE, "is busy: all %zu connections are in use", p->most);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return st;
}

static void give_back(struct redis_pool *p, struct lent *l, bool keep)
{
    (void)pthread_mutex_lock(&p->lock);
    if (keep && p->is_up && l->era == p->era && l->link.fd >= 0) {
        p->links[p->idle++] = l->link;
        l->link.fd = -1;
    } else {
        p->open--;
    }
    (void)pthread_cond_signal(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
    redis_link_close(&l->link);
}

/* What a call has failed with on a connection. */
static void judge(struct redis_pool *p, const struct lent *l, enum status st, uint64_t had_ns, const char *cause)
{
    const bool is_the_servers = st == ERR_IO || st == ERR_UNAVAILABLE || st == ERR_FORMAT || st == ERR_CONFIG ||
                                (st == ERR_TIMEOUT && had_ns > p->timeout_ns / 2); /* else others took the time */
    if (is_the_servers)
        go_away(p, l->era, cause);
}

/* On a connection that may have been closed while it was idle, unless `anew`: then *again. Errors: as run. */
static enum status call_once(struct redis_pool *p, const struct redis_call *c, bool anew, uint64_t deadline_ns,
                             struct redis_reply *ret, bool *again, struct error *err)
{
    struct lent l = {.link = {.fd = -1}};
    struct redis_places places;
    enum status st = borrow(p, c->is_keepers, anew, deadline_ns, &l, &places, err);
    *again = false;
    if (st != OK)
        return st;
    const uint64_t begin_ns = clock_now_ns();
    if (l.is_reused && redis_link_is_stale(&l.link))
        st = error_set(err, ERR_IO, "has closed the connection");
    else if (!l.is_reused)
        st = redis_link_open(&l.link, &places, &p->address, &p->password, deadline_ns, err);
    if (st == OK)
        st = run(&l.link, c, deadline_ns, ret, err);
    *again = st == ERR_IO && l.is_reused;
    if (!*again)
        judge(p, &l, st, deadline_ns > begin_ns ? deadline_ns - begin_ns : 0, err->message);
    give_back(p, &l, st == OK || st == ERR_STORE);
    return st;
}

enum status redis_pool_call(struct redis_pool *p, const struct redis_call *c, struct redis_reply *ret,
                            struct error *err)
{
    const uint64_t deadline_ns = clock_now_ns() + p->timeout_ns;
    struct error why;
    bool again;
    enum status st = call_once(p, c, false, deadline_ns, ret, &again, &why);
    if (again)
        st = call_once(p, c, true, deadline_ns, ret, &again, &why);
    if (st == OK)
        return OK;
    if (st != ERR_NOMEM)
        metrics_counter_add(METRIC_STORE_ERRORS, 0, 1);
    return error_set(err, st == ERR_NOMEM ? ERR_NOMEM : ERR_STORE, "the session store %s", why.message);
}

enum status redis_pool_reply_is_wrong(struct error *err)
{
    metrics_counter_add(METRIC_STORE_ERRORS, 0, 1);
    return error_set(err, ERR_STORE,
                     "the session store answers what was not expected: something else writes keys with "
                     "the same prefix");
}

/* ---- start and end ----------------------------------------------------------------------------------------------- */

static void free_parts(struct redis_pool *p)
{
    close_idle_locked(p);
    assert(p->open == 0);
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_mutex_destroy(&p->lock);
    explicit_bzero(&p->password, sizeof p->password);
    free(p);
}

/* Away from the beginning is fine, if it is such a server. */
static enum status begin(struct redis_pool *p, struct error *err)
{
    struct error why;
    const enum status st = probe(p, &why);
    if (st == OK)
        return OK;
    if (st == ERR_NOMEM || st == ERR_CONFIG || st == ERR_FORMAT || st == ERR_STORE)
        return error_set(err, st == ERR_FORMAT ? ERR_STORE : st, "the session store at %s %s", p->url, why.message);
    p->is_up = true;
    go_away(p, p->era, why.message);
    return OK;
}

enum status redis_pool_open(struct redis_pool **ret, const struct redis_pool_options *o, struct error *err)
{
    struct redis_pool *p = calloc(1, sizeof *p + (o->connections + 1) * sizeof p->links[0]);
    if (p == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the connections to the session store");
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->changed, &monotonic);
    (void)pthread_cond_init(&p->work, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    p->timeout_ns = o->timeout_ms * CLOCK_NS_PER_MS;
    p->most = o->connections;
    p->ticks = o->ticks;
    p->probe = *o->probe;
    (void)snprintf(p->probe_key, sizeof p->probe_key, "%s", o->probe_key);
    (void)snprintf(p->url, sizeof p->url, "%s", o->url);
    enum status st = redis_address_read(&p->address, o->url, err);
    if (st == OK)
        st = redis_password_read(&p->password, o->password_file, err);
    if (st == OK)
        st = begin(p, err);
    if (st == OK && pthread_create(&p->keeper, NULL, keeper_thread, p) != 0)
        st = error_set(err, ERR_NOMEM, "out of memory for the thread of the session store");
    if (st != OK) {
        free_parts(p);
        return st;
    }
    (void)pthread_setname_np(p->keeper, "store");
    *ret = p;
    return OK;
}

void redis_pool_free(struct redis_pool *p)
{
    if (p == NULL)
        return;
    (void)pthread_mutex_lock(&p->lock);
    p->is_ended = true;
    (void)pthread_cond_signal(&p->work);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->keeper, NULL);
    free_parts(p);
}
