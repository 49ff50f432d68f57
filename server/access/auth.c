/* auth.c - see auth.h. */
#include "server/access/auth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/clock.h"
#include "server/core/metrics.h"

/* A token bucket: its level, and when it had that level. Negative: owed. */
struct bucket {
    double level;
    uint64_t at_ns; /* 0: never used, it is full */
};

struct auth_meter {
    atomic_uint references; /* by tables */
    unsigned metrics_label;
    pthread_mutex_t lock; /* what follows */
    struct bucket requests, bytes;
    LIST_HEAD(, auth_use) running; /* of all requests that were admitted by the key */
};

struct entry {
    const struct key *key;    /* in the file */
    struct auth_meter *meter; /* a reference */
};

struct auth_table {
    atomic_uint references;
    struct keys_file file;
    struct entry *entries; /* [file.count], by the keys' hashes */
};

struct auth {
    const char *path;
    pthread_mutex_t lock;     /* what follows, and taking a reference to what `table` points to */
    struct auth_table *table; /* a reference */
    void (*changed)(void *arg);
    void *changed_arg;
};

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static void meter_release(struct auth_meter *m)
{
    if (m == NULL || atomic_fetch_sub(&m->references, 1) != 1)
        return;
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}

void auth_table_free(struct auth_table *t)
{
    if (t == NULL || atomic_fetch_sub(&t->references, 1) != 1)
        return;
    for (size_t i = 0; t->entries != NULL && i < t->file.count; i++)
        meter_release(t->entries[i].meter);
    free(t->entries);
    keys_file_clear(&t->file);
    free(t);
}

/* The meter of the key of that name among `old` (NULL: there is none), or a new one. NULL if out of memory. */
static struct auth_meter *meter_for(const char *name, const struct auth_table *old)
{
    for (size_t i = 0; old != NULL && i < old->file.count; i++) {
        if (strcmp(old->entries[i].key->name, name) == 0) {
            (void)atomic_fetch_add(&old->entries[i].meter->references, 1);
            return old->entries[i].meter;
        }
    }
    struct auth_meter *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    atomic_store(&m->references, 1);
    m->metrics_label = metrics_key_add(name);
    (void)pthread_mutex_init(&m->lock, NULL);
    LIST_INIT(&m->running);
    return m;
}

static int compare_hashes(const void *a, const void *b)
{
    const struct entry *one = a, *other = b;
    return memcmp(one->key->hash, other->key->hash, KEY_HASH_BYTES);
}

static enum status table_create(struct auth_table **ret, const char *path, const struct auth_table *old,
                                struct error *err)
{
    struct auth_table *t = calloc(1, sizeof *t);
    if (t == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the keys");
    atomic_store(&t->references, 1);
    enum status st = keys_file_read(&t->file, path, err);
    if (st != OK)
        goto done;
    t->entries = calloc(t->file.count + 1, sizeof *t->entries);
    st = t->entries != NULL ? OK : ERR_NOMEM;
    for (size_t i = 0; st == OK && i < t->file.count; i++) { /* in the file's order, which that of the metrics is */
        t->entries[i] = (struct entry){&t->file.keys[i], meter_for(t->file.keys[i].name, old)};
        st = t->entries[i].meter != NULL ? OK : ERR_NOMEM;
    }
    if (st != OK) {
        st = error_set(err, st, "out of memory for the keys");
        goto done;
    }
    qsort(t->entries, t->file.count, sizeof *t->entries, compare_hashes);
    *ret = t;
    t = NULL;
done:
    auth_table_free(t);
    return st;
}

enum status auth_create(struct auth **ret, const char *path, struct error *err)
{
    struct auth *a = calloc(1, sizeof *a);
    if (a == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the keys");
    a->path = path;
    (void)pthread_mutex_init(&a->lock, NULL);
    const enum status st = table_create(&a->table, path, NULL, err);
    if (st == OK)
        *ret = a;
    else
        auth_free(a);
    return st;
}

void auth_free(struct auth *a)
{
    if (a == NULL)
        return;
    auth_table_free(a->table);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}

static struct auth_table *table_take(struct auth *a)
{
    (void)pthread_mutex_lock(&a->lock);
    struct auth_table *t = a->table;
    (void)atomic_fetch_add(&t->references, 1);
    (void)pthread_mutex_unlock(&a->lock);
    return t;
}

enum status auth_read(struct auth *a, struct auth_table **ret, size_t *count, struct error *err)
{
    struct auth_table *old = table_take(a);
    const enum status st = table_create(ret, a->path, old, err);
    auth_table_free(old);
    if (st == OK)
        *count = (*ret)->file.count;
    return st;
}

void auth_put(struct auth *a, struct auth_table *t)
{
    (void)pthread_mutex_lock(&a->lock);
    struct auth_table *old = a->table;
    a->table = t;
    void (*const changed)(void *) = a->changed;
    void *arg = a->changed_arg;
    (void)pthread_mutex_unlock(&a->lock);
    auth_table_free(old);
    if (changed != NULL)
        changed(arg);
}

void auth_on_change(struct auth *a, void (*changed)(void *arg), void *arg)
{
    (void)pthread_mutex_lock(&a->lock);
    a->changed = changed;
    a->changed_arg = arg;
    (void)pthread_mutex_unlock(&a->lock);
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

bool auth_find(struct auth *a, const char *text, size_t size, struct auth_grant *ret)
{
    struct key asked = {.name = ""};
    key_hash(asked.hash, text, size);
    struct auth_table *t = table_take(a);
    const struct entry *found =
        bsearch(&(struct entry){&asked, NULL}, t->entries, t->file.count, sizeof *found, compare_hashes);
    if (found != NULL)
        *ret = (struct auth_grant){.table = t, .key = found->key, .meter = found->meter};
    else
        auth_table_free(t);
    return found != NULL;
}

void auth_release(struct auth_grant *g)
{
    auth_table_free(g->table);
    *g = (struct auth_grant){0};
}

bool auth_may_call(const struct auth_grant *g, enum api_kind api)
{
    return g->key == NULL || api == API_OPEN || (g->key->apis & API_BIT(api)) != 0;
}

bool auth_may_use(const struct auth_grant *g, const char *model)
{
    if (g->key == NULL || g->key->model_count == 0)
        return true;
    for (size_t i = 0; i < g->key->model_count; i++)
        if (strcmp(g->key->models[i], model) == 0)
            return true;
    return false;
}

unsigned auth_metrics_label(const struct auth_grant *g)
{
    return g->meter != NULL ? g->meter->metrics_label : 0;
}

static struct client_id client_of(const struct key *k)
{
    struct client_id id = {.kind = CLIENT_KEY};
    memcpy(id.bytes, k->hash, sizeof id.bytes);
    return id;
}

struct client_id auth_client_id(const struct auth_grant *g)
{
    return g->key != NULL ? client_of(g->key) : (struct client_id){.kind = CLIENT_UNKNOWN};
}

bool auth_has(struct auth *a, const struct client_id *client)
{
    struct auth_table *t = table_take(a);
    bool has = false;
    for (size_t i = 0; i < t->file.count && !has; i++) {
        const struct client_id id = client_of(&t->file.keys[i]);
        has = client_id_is_same(&id, client);
    }
    auth_table_free(t);
    return has;
}

/* ---- rates ------------------------------------------------------------------------------------------------------ */

/* Add the tokens of the time that has passed. */
static void refill_locked(struct bucket *b, double rate, double capacity, uint64_t now_ns)
{
    if (b->at_ns == 0)
        b->level = capacity;
    else if (now_ns > b->at_ns)
        b->level += rate * (double)(now_ns - b->at_ns) / (double)CLOCK_NS_PER_S;
    b->level = b->level < capacity ? b->level : capacity;
    b->at_ns = now_ns > b->at_ns ? now_ns : b->at_ns;
}

/* Seconds until the bucket holds `level`; 0: it does. */
static double wait_for_locked(const struct bucket *b, double rate, double level)
{
    return b->level >= level ? 0.0 : (level - b->level) / rate;
}

/* Take what the running requests have generated since the last call; *ahead is what they may still generate. */
static void settle_locked(struct auth_meter *m, const struct key *k, uint64_t now_ns, uint64_t *ahead)
{
    *ahead = 0;
    refill_locked(&m->bytes, k->bytes_per_s, k->bytes_per_s, now_ns);
    struct auth_use *u;
    LIST_FOREACH(u, &m->running, link)
    {
        bool ended;
        const uint64_t generated = u->so_far(u->arg, &ended);
        m->bytes.level -= (double)(generated - u->seen);
        u->taken += generated - u->seen;
        u->seen = generated;
        *ahead += !ended && u->most > generated ? u->most - generated : 0;
    }
}

enum status auth_take_request(const struct auth_grant *g, uint64_t now_ns, double *wait_s)
{
    if (g->key == NULL)
        return OK;
    const double requests = g->key->requests_per_s, bytes = g->key->bytes_per_s;
    double wait = 0.0;
    uint64_t ahead;
    (void)pthread_mutex_lock(&g->meter->lock);
    if (bytes > 0.0) {
        settle_locked(g->meter, g->key, now_ns, &ahead);
        wait = wait_for_locked(&g->meter->bytes, bytes, 0.0);
    }
    if (requests > 0.0) {
        refill_locked(&g->meter->requests, requests, requests > 1.0 ? requests : 1.0, now_ns);
        const double other = wait_for_locked(&g->meter->requests, requests, 1.0);
        wait = other > wait ? other : wait;
        if (wait <= 0.0)
            g->meter->requests.level -= 1.0;
    }
    (void)pthread_mutex_unlock(&g->meter->lock);
    *wait_s = wait;
    return wait > 0.0 ? ERR_RATE : OK;
}

enum status auth_use_begin(struct auth_grant *g, uint64_t now_ns, uint64_t received, double *wait_s)
{
    struct auth_use *u = &g->use;
    uint64_t ahead;
    if (g->key == NULL || g->key->bytes_per_s <= 0.0)
        return OK;
    (void)pthread_mutex_lock(&g->meter->lock);
    settle_locked(g->meter, g->key, now_ns, &ahead);
    const double excess = (double)(ahead + u->most) - KEY_AHEAD_S * g->key->bytes_per_s;
    const bool fits = u->most == 0 || ahead == 0 || excess <= 0.0;
    if (fits) {
        u->taken = received;
        g->meter->bytes.level -= (double)received;
        u->runs = true;
        LIST_INSERT_HEAD(&g->meter->running, u, link);
    }
    (void)pthread_mutex_unlock(&g->meter->lock);
    *wait_s = fits ? 0.0 : excess / g->key->bytes_per_s;
    return fits ? OK : ERR_RATE;
}

void auth_use_end(struct auth_grant *g, uint64_t now_ns, uint64_t bytes)
{
    struct auth_use *u = &g->use;
    uint64_t ahead;
    if (g->key == NULL || g->key->bytes_per_s <= 0.0)
        return;
    (void)pthread_mutex_lock(&g->meter->lock);
    settle_locked(g->meter, g->key, now_ns, &ahead);
    if (u->runs)
        LIST_REMOVE(u, link);
    u->runs = false;
    g->meter->bytes.level -= (double)bytes - (double)u->taken;
    u->taken = bytes;
    (void)pthread_mutex_unlock(&g->meter->lock);
}
