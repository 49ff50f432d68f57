/* sessions_open.c - sessions.h when the daemon begins: which store there is, and what it has. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/session/sessions_inner.h"
#include "server/session/store_dir.h"
#include "server/session/store_redis.h"

/* The latest used last. */
static int by_use(const void *a, const void *b)
{
    const struct store_dir_found *x = a, *y = b;
    return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

/* One that the store has becomes one that is idle. */
static enum status put_found(struct sessions *s, const struct store_dir_found *f, uint64_t age_ns)
{
    const uint64_t now_ns = clock_now_ns();
    struct session *one = calloc(1, sizeof *one);
    struct session_holder *holder =
        one != NULL ? session_quota_take(&s->quota, &f->head.owner, 1, f->head.memory_bytes) : NULL;
    if (holder == NULL) {
        free(one);
        return ERR_NOMEM;
    }
    one->head = f->head;
    one->key = f->key;
    one->is_stored = true;
    sessions_put_locked(s, one, holder, false);
    one->used_ns = one->touched_ns = now_ns > age_ns ? now_ns - age_ns : 0;
    return OK;
}

/* Those whose time is over go, and so do the ones used first if there are more than there may be. What cannot be read
 * stays so long too, for whoever wants to see why. */
static enum status put_all(struct sessions *s, struct store_dir_found *found, size_t count, struct error *err)
{
    const int64_t now_s = (int64_t)time(NULL), ttl_s = s->settings->session_ttl_s;
    size_t first = count, kept = 0, renames = 0;
    uint64_t bytes = 0;
    if (count > 0)
        qsort(found, count, sizeof *found, by_use);
    while (first > 0 && now_s - found[first - 1].used_s < ttl_s) {
        const struct session_head *head = &found[first - 1].head;
        const bool is_read = head->turn != 0; /* what is not takes no session's place */
        if (is_read && (renames == s->quota.most.count || bytes + head->memory_bytes > s->quota.most.bytes))
            break;
        renames += is_read;
        bytes += head->memory_bytes;
        first--;
    }
    for (size_t i = 0; i < first; i++)
        sessions_take_back(s, &found[i].key);
    for (size_t i = first; i < count; i++) {
        if (found[i].head.turn == 0)
            continue;
        kept++;
        const int64_t age_s = now_s - found[i].used_s;
        if (put_found(s, &found[i], age_s > 0 ? (uint64_t)age_s * CLOCK_NS_PER_S : 0) != OK)
            return error_set(err, ERR_NOMEM, "out of memory for the sessions that are kept");
    }
    log_info("sessions: %zu are kept in %s, %zu have ended", kept, s->settings->sessions_dir, first);
    return OK;
}

/* `machine`: room for its name. */
static struct store_redis_options redis_options(const struct settings *s, char machine[HOST_NAME_MAX + 1])
{
    machine[HOST_NAME_MAX] = '\0';
    if (gethostname(machine, HOST_NAME_MAX) != 0)
        (void)snprintf(machine, HOST_NAME_MAX, "aftd");
    return (struct store_redis_options){
        .url = s->sessions_redis,
        .password_file = config_is_on(s->sessions_redis_password_file) ? s->sessions_redis_password_file : NULL,
        .prefix = s->sessions_redis_prefix,
        .name = strcmp(s->replica, "auto") == 0 ? machine : s->replica,
        .lease_ms = s->sessions_lease_ms,
        .timeout_ms = s->sessions_redis_timeout_ms,
        .ttl_s = s->session_ttl_s,
    };
}

enum status sessions_check_settings(const struct settings *s, struct error *err)
{
    char machine[HOST_NAME_MAX + 1];
    const struct store_redis_options o = redis_options(s, machine);
    if (config_is_on(s->sessions_dir) && config_is_on(s->sessions_redis))
        return error_set_param(err, ERR_CONFIG, "sessions_redis",
                               "sessions_dir is \"%s\" and sessions_redis \"%s\"; expected one of them to be off",
                               s->sessions_dir, s->sessions_redis);
    if (config_is_on(s->sessions_redis))
        return store_redis_check(&o, err);
    return config_is_on(s->sessions_dir) ? store_dir_check(s->sessions_dir, err) : OK;
}

bool sessions_want_store(const struct settings *s)
{
    return (config_is_on(s->sessions_dir) || config_is_on(s->sessions_redis)) && s->sessions_max > 0;
}

static enum status open_shared(struct sessions *s, struct error *err)
{
    char machine[HOST_NAME_MAX + 1];
    const struct store_redis_options o = redis_options(s->settings, machine);
    enum status st = sessions_check_settings(s->settings, err);
    if (st == OK)
        st = store_redis_open(&s->store, &o, err);
    if (st == OK) /* only what requests have is in memory */
        s->quota.most = s->loaded_max;
    return st;
}

enum status sessions_restore(struct sessions *s, struct error *err)
{
    if (config_is_on(s->settings->sessions_redis))
        return open_shared(s, err);
    const struct store_dir_options o = {.path = s->settings->sessions_dir, .syncs = s->settings->sessions_sync};
    struct store_dir_found *found = NULL;
    size_t count = 0;
    enum status st = store_dir_open(&s->store, &o, err);
    if (st == OK)
        st = store_dir_list(s->store, &found, &count, err);
    struct session *gone = sessions_enter(s);
    if (st == OK)
        st = put_all(s, found, count, err);
    sessions_leave(s, gone);
    free(found);
    return st;
}
