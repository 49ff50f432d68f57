/* store_redis_scripts.h - what the server executes, in Lua: each script changes all that it changes at once. A script
 * that is executed twice, or after its caller has given up, does no harm (store_redis.h).
 *
 * A token, 48 hexadecimal digits: 32 of the daemon's, drawn when it opens the store, and 16 of a number that rises.
 * That of a lease is the first part of its value, the daemon's name the rest; that of a record, w, is of the add or the
 * take that led to it. Whoever has taken a session may put it back while w is what it was then, and nobody else has the
 * lease. Each returns a text, whose first character says what it is:
 *
 *     K  done               S  it is of that turn; followed by w          N  there is none
 *     X  there is one       R  its record; followed by w and that         C  another has it; followed by its name
 *     L  another has or had it meanwhile     B  its record is larger than any that is written here */
#ifndef SERVER_SESSION_STORE_REDIS_SCRIPTS_H
#define SERVER_SESSION_STORE_REDIS_SCRIPTS_H

#include "server/session/store_redis_pool.h"

enum { REDIS_DAEMON_TEXT = 32, REDIS_TOKEN_TEXT = 48 };

/* KEYS are the record's and the lease's, unless it says otherwise. */
enum redis_script_name {
    REDIS_ADD,    /* token, turn, ttl_ms, record: K, X */
    REDIS_TAKE,   /* token, turn, ttl_ms, lease_ms, name, most bytes: S, R, N, C, B */
    REDIS_GIVE,   /* token, w, ttl_ms, and if there is a new one: turn, record: K, N, L */
    REDIS_LOOK,   /* turn, most bytes: S, R, N, B */
    REDIS_REMOVE, /* daemon: K */
    REDIS_ASIDE,  /* KEYS: and that of the count. Daemon, HEX, prefix of the places, how many, ttl_ms: K */
    REDIS_TOUCH,  /* ttl_ms: K */
    REDIS_RENEW,  /* KEYS: of many. ttl_ms, lease_ms, name, and of each: token, w: K, N or L for each */
    REDIS_PROBE,  /* KEYS: one of its own: K */
    REDIS_SCRIPTS
};
extern const char *const redis_script_texts[REDIS_SCRIPTS];

#endif
