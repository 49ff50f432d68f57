/* auth.h - the keys in force: which one a text is, and how much each may still ask for.
 *
 * The keys are an immutable, counted table, which a reload swaps for another: a request keeps the one that it was let
 * in by, so it goes on to its end whatever happens to its key. What a key has used is counted in a meter, which a key
 * of the same name in the next table takes over.
 * Any thread. Locks: the table's pointer and each meter have one; both are leaves. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/keys_file.h"

struct auth;
struct auth_meter;
struct auth_table;

/* That a request was let in by a key. Zeroed: by none, where no keys are asked for. */
struct auth_grant {
    struct auth_table *table; /* a reference */
    const struct key *key;    /* in it */
    struct auth_meter *meter; /* the table's */
};

/* Read the keys. *ret is set only on OK; `path` is borrowed until auth_free. Errors: those of keys_file_read. */
enum status auth_create(struct auth **ret, const char *path, struct error *err);
void auth_free(struct auth *a); /* NULL is a no-op. Grants may outlive it. */
/* Read the file anew: *count keys. One thread at a time. *ret, set only on OK, is for auth_put, which has it in force
 * for the requests from now on, or for auth_table_free. Errors as above. */
enum status auth_read(struct auth *a, struct auth_table **ret, size_t *count, struct error *err);
void auth_put(struct auth *a, struct auth_table *t); /* takes it */
void auth_table_free(struct auth_table *t);          /* NULL is a no-op */

/* Is `text` a key? Then *ret is a grant; end with auth_release. The time that this takes does not tell how much of a
 * key was right, nor which key it is: every key is hashed with its salt and compared in constant time, whatever
 * matched. */
bool auth_find(struct auth *a, const char *text, size_t size, struct auth_grant *ret);
void auth_release(struct auth_grant *g); /* zeroed is fine, and what it is afterwards */

/* A zeroed grant may do everything. */
bool auth_may_call(const struct auth_grant *g, enum api api);
bool auth_may_use(const struct auth_grant *g, const char *model);

/* Take one request from what the key may still ask for. ERR_RATE: it is too much now; *wait_s says until when.
 * A key may save up a second's worth of its rates, at least one request. Bytes are known only once they were received
 * or generated: a request is let in as long as none are owed, and may leave a debt, which is paid off at the rate. */
enum status auth_take_request(const struct auth_grant *g, uint64_t now_ns, double *wait_s);
void auth_take_bytes(const struct auth_grant *g, uint64_t now_ns, uint64_t bytes);

/* The key's name and its label in the metrics; NULL and 0 for a zeroed grant. */
const char *auth_name(const struct auth_grant *g);
unsigned auth_metrics_label(const struct auth_grant *g);

#endif
