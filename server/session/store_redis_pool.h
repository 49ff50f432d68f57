/* store_redis_pool.h - a Redis server to be asked by several threads: connections that are kept, the time limit of a
 * call, and what happens when the server is away (store_redis.h says it).
 *
 * All that is asked is a script of the server's, so that a call changes all that it changes or nothing; it is called by
 * its SHA-1, and sent whole where the server does not know it yet. Each must come to the same if it is executed twice.
 *
 * Any thread. One lock, a leaf, which is never held while something is sent or waited for. */
#ifndef SERVER_SESSION_STORE_REDIS_POOL_H
#define SERVER_SESSION_STORE_REDIS_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/session/store_redis_link.h"

struct redis_script {
    const char *text; /* borrowed */
    char sha1[41];    /* in hexadecimal */
};
void redis_script_init(struct redis_script *s, const char *text);

enum { REDIS_CALL_ARGS_MAX = 4 * STORE_RENEWED_AT_A_TIME + 16 };

/* A script and what it is given, all borrowed. */
struct redis_call {
    const struct redis_script *script;
    size_t keys; /* the first so many of args are keys */
    size_t count;
    const char *args[REDIS_CALL_ARGS_MAX];
    size_t sizes[REDIS_CALL_ARGS_MAX];
    size_t reply_max; /* bytes */
    bool is_keepers;  /* of the thread that keeps the leases, for which a connection is set aside */
};
void redis_call_init(struct redis_call *c, const struct redis_script *s);
void redis_call_add(struct redis_call *c, const void *bytes, size_t size);
void redis_call_add_text(struct redis_call *c, const char *text);

struct redis_pool;

/* A thread calls tick(arg) every tick_ms while the server answers, and as soon as it does again; and work(arg) after
 * redis_pool_work, once the server answers. */
struct redis_ticks {
    void (*tick)(void *arg);
    void (*work)(void *arg);
    void *arg;
    uint64_t tick_ms;
};

struct redis_pool_options {
    const char *url, *password_file; /* copied, as probe_key */
    uint32_t timeout_ms;             /* of a call */
    uint32_t connections;
    const struct redis_script *probe; /* with one key; writes, which shows whether the server does; returns K */
    const char *probe_key;
    struct redis_ticks ticks;
};

/* Errors: those of store_redis_open. */
enum status redis_pool_open(struct redis_pool **ret, const struct redis_pool_options *o, struct error *err);
/* After it no more ticks, nor work; what is still to be done is, if the server answers. NULL is a no-op. */
void redis_pool_free(struct redis_pool *p);

/* There is work to do. Brief. */
void redis_pool_work(struct redis_pool *p);

/* What the script returned, which is a text, with a NUL behind it: redis_reply_clear. Errors: ERR_STORE, ERR_NOMEM. */
enum status redis_pool_call(struct redis_pool *p, const struct redis_call *c, struct redis_reply *ret,
                            struct error *err);

/* For a reply that is not what its script returns. */
enum status redis_pool_reply_is_wrong(struct error *err);

#endif
