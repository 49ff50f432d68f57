/* session_store.h - what keeps sessions beyond the daemon's memory: one of the places of store_*.h, behind one table of
 * functions. A store keeps records, whose bytes are session_record.h's business, under keys.
 *
 * A store that several daemons share says of a record that it takes which writing of it that was, and replaces no
 * other: whoever puts a session back after somebody else did changes nothing. So that this hardly happens, it leases
 * what is taken: for some time, which a claim that is held on to lengthens, no other daemon can take it. A store that a
 * single daemon has to itself needs neither, since that holds what a request is using (sessions.h).
 *
 * Every function but touch and let_go may block, for a disk or a network, and may be called by several threads at
 * once, for one key only by one at a time. What is returned is set only on OK. */
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

/* What was taken of a store that is shared: names of the taking, and of the writing that was found. Zeroed: nothing. */
enum { SESSION_TOKEN_TEXT = 48 };
struct session_claim {
    char token[SESSION_TOKEN_TEXT + 1];
    char found[SESSION_TOKEN_TEXT + 1];
};

struct session_store;

/* Errors of all: ERR_STORE: the store cannot be reached, is full, or answers what nobody expects; ERR_NOMEM. One
 * that is shared may have done all the same what it was asked. */
struct session_store_kind {
    bool is_shared; /* other daemons may have put a session there, or moved one on */
    /* Read it. With a claim for a request that will move it on, as *claim; without (NULL) also what another daemon has,
     * as it was before. That is a use. Errors: ERR_NOT_FOUND; ERR_CONFLICT, with a claim: another daemon has it. */
    enum status (*get)(struct session_store *s, const struct session_key *key, struct session_claim *claim,
                       struct session_bytes *ret, struct error *err);
    /* Put it back as what it is now, which ends the claim; without one (NULL) it is new. Errors, of a store that is
     * shared: ERR_CONFLICT: the session was moved on or removed meanwhile, or there is one of that key already; nothing
     * is changed. */
    enum status (*put)(struct session_store *s, const struct session_key *key, const struct session_claim *claim,
                       const struct session_bytes *record, struct error *err);
    /* Others may have it, who cannot put it back then. Errors: ERR_NOT_FOUND. */
    enum status (*remove)(struct session_store *s, const struct session_key *key, struct error *err);
    /* It stays as it is. Without waiting for the store: it was used, or a request still has it, by which its lease
     * lasts longer (false: the store cannot be told now); or the request has let it go, and others can take it soon
     * (NULL: nothing is leased). */
    bool (*touch)(struct session_store *s, const struct session_key *key, const struct session_claim *claim);
    void (*let_go)(struct session_store *s, const struct session_key *key, const struct session_claim *claim);
    void (*free)(struct session_store *s);
};

/* Begins the struct of each. */
struct session_store {
    const struct session_store_kind *kind;
};

#endif
