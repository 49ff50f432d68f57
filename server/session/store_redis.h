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
 *     HEX          a hash: r the record, w what wrote it, which no two writings have in common. Expires ttl_s after the
 *                  last call for it
 *     HEX:lease    who has taken it: a token of this taking and the daemon's name. Expires after lease_ms
 *     probe        written to see whether the server takes anything
 *
 * What keeps two daemons from moving a session on from the same place is that put replaces no record but the one that
 * was taken. The lease is there so that this is told before the work is done and not after. touch renews it, and
 * takes it again if it has expired meanwhile, but nobody looks whether that arrived: a daemon that cannot reach the
 * server for longer than lease_ms may find at its end that another was faster.
 *
 * Time. Every step of a call ends within timeout_ms, but for looking the server's name up. After a call that the server
 * did not answer, or not as it should, it is away: for STORE_AWAY_MS all calls are ERR_STORE at once, then the next one
 * tries it again, and all others are still refused until that has ended. That it goes and comes back is logged once
 * each. A call is not tried twice: if its connection breaks, or its time is over, it may have been executed or not. */
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
    uint32_t lease_ms;   /* more than 0 */
    uint32_t timeout_ms; /* more than 0. A record of STATE_BYTES_MAX must get through in it */
    uint32_t ttl_s;      /* of a record; more than 0 */
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
