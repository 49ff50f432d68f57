/* store_dir.h - sessions kept in a folder, which one daemon has to itself: a file for each, replaced as a whole, so
 * that a daemon that is killed at any moment leaves what was there before or what is there now. Only the daemon's
 * user may read it. */
#ifndef SERVER_SESSION_STORE_DIR_H
#define SERVER_SESSION_STORE_DIR_H

#include "server/session/session_record.h"
#include "server/session/session_store.h"

struct store_dir_options {
    const char *path; /* made if it is not there, but for the folder that it lies in */
    bool syncs;       /* the disk has a record before `add` and `put` return, so that it outlasts a power cut */
};

/* *ret is set only on OK. Errors: ERR_CONFIG (param "sessions_dir"): it cannot be used, or another daemon has it;
 * ERR_NOMEM. */
enum status store_dir_open(struct session_store **ret, const struct store_dir_options *o, struct error *err);

/* Could it be opened, as far as can be told without changing anything, or asking whether another daemon has it? Errors:
 * ERR_CONFIG (param "sessions_dir"). */
enum status store_dir_check(const char *path, struct error *err);

/* What there is when the daemon begins; head.turn is 0 of what cannot be read, as a line in the log says. */
struct store_dir_found {
    struct session_key key;
    struct session_head head;
    int64_t used_s; /* Unix time of its last use */
};
/* In no order; free *ret. Before other threads use the store. Errors: ERR_STORE, ERR_NOMEM. */
enum status store_dir_list(struct session_store *s, struct store_dir_found **ret, size_t *count, struct error *err);

#endif
