/* store_redis.h - sessions in a Redis or Valkey server, which several daemons share: a session can go on in any of
 * them, and in one at a time.
 *
 * The link is plain, without TLS: for a private network or a Unix socket. The server is one, of Redis's version 5 or
 * later: what a cluster redirects is an error. It should keep its data (appendonly yes) and drop none of it for want of
 * memory (maxmemory-policy noeviction). Where a replica takes its place, what was written last may be missing, as after
 * a crash; a session is then where it was before, or gone.
 *
 * Keys, under the prefix, HEX being session_key_print's:
 *
 *     HEX          a hash: r the record, t its turn, w what wrote it, which no two writings have in common. Expires
 *                  ttl_s after the last add, take, give or touch
 *     HEX:lease    who has taken it: a token of this taking and the daemon's name. Expires after lease_ms
 *     aside:N      what set_aside was called for: the latest 16, each for a day at most; k is its HEX
 *     aside:count  how many there have been
 *     probe        written to see whether the server takes anything
 *
 * Leases. A thread of the store renews those that are held every third of lease_ms, so that a request may take longer;
 * a daemon that dies loses them after lease_ms. A renewal that finds a lease expired, as after the server was away,
 * takes it again if nothing has been written since; so does give. If another daemon has it or has written, the lease is
 * lost: the renewal says so in the log and changes nothing, the request goes on, and its give is ERR_CONFLICT. After
 * give, whatever it returned, nothing is held any more: where that is unknown to the server, the lease expires.
 *
 * Time. Every call ends within timeout_ms, connecting and trying again included; only store_redis_open, and
 * store_redis's free, may wait for a name to be looked up as well. After a call that the server did not answer, or not
 * as it should, it is away: all calls are ERR_STORE at once, until the thread, which tries every second and looks up
 * the name anew, has written something. That it goes and comes back is logged once each.
 *
 * A connection that was idle may have been closed meanwhile; then the call is tried once more, on a new one. That is
 * safe although the first may have been executed: look, remove and touch come to the same, and add, take and give carry
 * tokens by which the server knows what it has done already. Nor does a call do harm that the server executes after its
 * time is over: later tokens of a daemon are larger, and an earlier take does not replace a later one. */
#ifndef SERVER_SESSION_STORE_REDIS_H
#define SERVER_SESSION_STORE_REDIS_H

#include <stdint.h>

#include "config/status.h"
#include "server/session/session_store.h"

/* Texts are copied. */
struct store_redis_options {
    /* redis://HOST:PORT/DB or unix:/PATH?db=DB; without them PORT is 6379, DB 0. HOST may be [IPv6]. */
    const char *url;
    /* A file of one line, PASSWORD or USER:PASSWORD; a password that has a colon needs its user, who may be "default".
     * NULL or "": none is sent. */
    const char *password_file;
    const char *prefix;  /* of all keys: "aftd:" */
    const char *name;    /* of this daemon, for others that find a session taken */
    uint32_t lease_ms;   /* STORE_LEASE_MIN_MS or more; several timeouts, so that one that is slow costs no lease */
    uint32_t timeout_ms; /* of a call; more than 0. A record of STATE_BYTES_MAX must get through in it */
    uint32_t ttl_s;      /* of a record; more than 0 */
    uint32_t threads;    /* that call at a time, each of which gets a connection; others wait for one */
};

/* Can a store be opened so, as far as that can be seen without the server? Errors: ERR_CONFIG, naming what is wrong;
 * ERR_IO, ERR_FORMAT: the password's file; ERR_NOMEM. */
enum status store_redis_check(const struct store_redis_options *o, struct error *err);

/* *ret is set only on OK; end with its kind's free, when nobody calls any more: leases that are held then expire. A
 * server that cannot be reached, or does not take anything now, is away from the beginning, and logged as such.
 * Errors: as above; ERR_CONFIG: the server refuses the password, the database or what the user may do; ERR_STORE: what
 * answers is no such server; ERR_NOMEM. */
enum status store_redis_open(struct session_store **ret, const struct store_redis_options *o, struct error *err);

#endif
