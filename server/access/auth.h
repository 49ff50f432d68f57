/* auth.h - the keys in force: which key a text is, and how much each may still use.
 *
 * The keys are an immutable, reference-counted table, which a reload swaps for another: a request keeps the table that
 * it was admitted by, so it runs to its end whatever happens to its key. What a key has used is counted in a meter,
 * which a key of the same name in the next table takes over.
 * Any thread. Locks: the table's pointer and each meter have one; the first is a leaf, taken under that of the
 * sessions as well (auth_has), under the second a job's may be taken (so_far). */
#ifndef SERVER_ACCESS_AUTH_H
#define SERVER_ACCESS_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "config/status.h"
#include "server/access/keys_file.h"
#include "server/core/client_id.h"

struct auth;
struct auth_meter;
struct auth_table;

/* What a request takes from its key's rate of bytes. The fields belong to the meter, except the first three, which are
 * constant while it runs. */
struct auth_use {
    /* Bytes generated; *ended: these are all. Called under the meter's lock, by any thread. */
    uint64_t (*so_far)(void *arg, bool *ended);
    void *arg;
    uint64_t most;  /* that may be generated at most */
    uint64_t taken; /* from the meter, received bytes included */
    uint64_t seen;  /* what so_far said last */
    bool runs;
    LIST_ENTRY(auth_use) link; /* among those that run */
};

/* Says that a request was admitted by a key. Zeroed: by none, where no keys are required. It must stay where it is
 * while its use runs. */
struct auth_grant {
    struct auth_table *table; /* a reference */
    const struct key *key;    /* in it */
    struct auth_meter *meter; /* the table's */
    struct auth_use use;
};

/* Read the keys. *ret is set only on OK; `path` is borrowed until auth_free. Errors: those of keys_file_read. */
enum status auth_create(struct auth **ret, const char *path, struct error *err);
void auth_free(struct auth *a); /* NULL is a no-op. Grants may outlive it. */
/* Read the file again: it has *count keys. One thread at a time. *ret, set only on OK, goes to auth_put, which puts it
 * in force for all requests from now on, or to auth_table_free. Errors as above. */
enum status auth_read(struct auth *a, struct auth_table **ret, size_t *count, struct error *err);
void auth_put(struct auth *a, struct auth_table *t); /* takes it */
void auth_table_free(struct auth_table *t);          /* give up a reference; NULL is a no-op */
/* Have changed(arg) called after each auth_put, on its thread and without a lock: keys may have gone. */
void auth_on_change(struct auth *a, void (*changed)(void *arg), void *arg);

/* Is `text` a key? Then *ret is a grant; end with auth_release. Its hash is looked up, and the time that this takes may
 * tell how far that hash agrees with a key's: nobody can choose a text by its hash, and a hash, even all of it, says
 * nothing of the key. */
bool auth_find(struct auth *a, const char *text, size_t size, struct auth_grant *ret);
void auth_release(struct auth_grant *g); /* zeroed is fine; zeroes it */

/* A zeroed grant may do everything. */
bool auth_may_call(const struct auth_grant *g, enum api_kind api);
bool auth_may_use(const struct auth_grant *g, const char *model);

/* Take one request from the rates of the key. ERR_RATE: the key has reached a rate limit; retry after *wait_s seconds.
 * A key can save up one second of its rates, and at least one request. Bytes count once they are received or generated,
 * also those of running requests: a request is admitted as long as no bytes are owed, and keeps running if its key
 * comes to owe some; the debt is paid off at the rate. */
enum status auth_take_request(const struct auth_grant *g, uint64_t now_ns, double *wait_s);
/* Take the bytes that a request has received, and from now on those that it generates; the first three fields of g->use
 * must be set. ERR_RATE, and nothing is taken: all running requests of the key and this one together may generate more
 * than KEY_AHEAD_S of its rate, and this is not the only one; *wait_s is an estimate. So a key never owes more than
 * that, or than one request can take. */
enum status auth_use_begin(struct auth_grant *g, uint64_t now_ns, uint64_t received, double *wait_s);
/* End the use, for which `bytes` are taken in all. Must be called whether or not the use has begun; afterwards `arg` is
 * no longer used. */
void auth_use_end(struct auth_grant *g, uint64_t now_ns, uint64_t bytes);

/* The key's name and its label in the metrics; NULL and 0 for a zeroed grant. */
static inline const char *auth_name(const struct auth_grant *g)
{
    return g->key != NULL ? g->key->name : NULL;
}
unsigned auth_metrics_label(const struct auth_grant *g);
/* The key as a client; a zeroed grant's is unknown. A key that is replaced under the same name is another client. */
struct client_id auth_client_id(const struct auth_grant *g);
/* Is that client a key in force? */
bool auth_has(struct auth *a, const struct client_id *client);

#endif
