/* session_store.h - what keeps sessions beyond the daemon's memory: one of the places of store_*.h, behind one table of
 * functions. A store keeps records, whose bytes are session_record.h's business, under keys; each with the session's
 * turn, which rises by one whenever its text goes on, so that two records of a session are told apart without reading
 * them.
 *
 * A store that several daemons share hands out leases: between take and give, no other daemon can take the session. One
 * that a single daemon has to itself needs none, since that holds what a request is using (sessions.h).
 *
 * Every function may block, for a disk or a network, but no longer than the store's own time limit, and may be called
 * by several threads at once, for one key only by one at a time. What is returned is set only on OK. */
#ifndef SERVER_SESSION_SESSION_STORE_H
#define SERVER_SESSION_SESSION_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

enum { SESSION_KEY_BYTES = 16, SESSION_KEY_TEXT = 2 * SESSION_KEY_BYTES + 1 };

/* A session's name in a store: from a digest of whose it is and its id, so that each owner has ids of its own, and any
 * id becomes a file's name. */
struct session_key {
    uint8_t bytes[SESSION_KEY_BYTES];
};
/* In hexadecimal. */
void session_key_print(const struct session_key *key, char out[SESSION_KEY_TEXT]);

/* A record; `bytes` is malloc'd. */
struct session_bytes {
    uint8_t *bytes; /* [size]; NULL: none */
    size_t size;
};

struct session_store;

/* Errors of all: ERR_STORE: the store cannot be reached, is full, or answers what nobody expects; ERR_NOMEM. */
struct session_store_kind {
    bool is_shared; /* other daemons may have put a session there, or moved one on */
    /* Keep a new one; where leases are handed out, without one. Errors: ERR_CONFLICT: there is one of that key. */
    enum status (*add)(struct session_store *s, const struct session_key *key, uint64_t turn,
                       const struct session_bytes *record, struct error *err);
    /* Take it for a request that will move it on. ret->bytes is NULL if the store's is of that turn (0: none is known
     * here). Errors: ERR_NOT_FOUND; ERR_CONFLICT: another daemon has it. */
    enum status (*take)(struct session_store *s, const struct session_key *key, uint64_t turn,
                        struct session_bytes *ret, struct error *err);
    /* Put it back, as the record of a later turn, or with NULL unchanged. Errors: ERR_CONFLICT: the lease was lost, or
     * the session was removed meanwhile; nothing is changed. */
    enum status (*give)(struct session_store *s, const struct session_key *key, uint64_t turn,
                        const struct session_bytes *record, struct error *err);
    /* As give with NULL, but soon, and without waiting for the store: what a thread does that must not block. */
    void (*let_go)(struct session_store *s, const struct session_key *key);
    /* As take, without taking it: also what another daemon has, as it was before. Errors: ERR_NOT_FOUND. */
    enum status (*look)(struct session_store *s, const struct session_key *key, uint64_t turn,
                        struct session_bytes *ret, struct error *err);
    /* It need not be there, and others may have it. */
    enum status (*remove)(struct session_store *s, const struct session_key *key, struct error *err);
    /* Its record is of no use: it is no longer found, but kept for whoever wants to see why, within bounds. */
    void (*set_aside)(struct session_store *s, const struct session_key *key);
    /* Let it be kept until then, if the store drops what has not been used: seconds from now. Errors of no importance
     * are not told. */
    void (*touch)(struct session_store *s, const struct session_key *key, uint32_t ttl_s);
    void (*free)(struct session_store *s);
};

/* Begins the struct of each. */
struct session_store {
    const struct session_store_kind *kind;
};

#endif
