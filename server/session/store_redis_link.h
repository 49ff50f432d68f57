/* store_redis_link.h - one connection to a Redis server: a command goes out, its reply comes back. hiredis makes the
 * commands and reads the replies; what connects, sends and receives is our own, because hiredis's ends the process
 * where it has no memory. Each step (one address, one command and its reply) has the time limit for itself; looking a
 * name up may take as long as the resolver lets it.
 *
 * What failed, told apart for those who decide what to do next: ERR_UNAVAILABLE: there is no connection any more, it
 * took too long, or the server says that it can serve nobody now; ERR_FORMAT: what answers is no such server;
 * ERR_CONFIG: it does not let us in; ERR_STORE: it says that it cannot do that; ERR_NOMEM: there is no memory here, or
 * no descriptor. After all but ERR_STORE the connection is of no use any more. Messages go on after "the session
 * store": "does not answer in time".
 *
 * A connection is a socket, and belongs to one thread at a time; no other state. */
#ifndef SERVER_SESSION_STORE_REDIS_LINK_H
#define SERVER_SESSION_STORE_REDIS_LINK_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "config/status.h"
#include "server/session/store_redis_url.h"

/* One of those that a name stands for. */
struct redis_peer {
    struct sockaddr_storage name;
    socklen_t size; /* 0: none */
};

/* Connect to the first of the address's places that accepts, *place, say who we are and choose the database. close()
 * ends it. */
enum status redis_link_open(int *ret, struct redis_peer *peer, const struct redis_address *a,
                            const struct redis_password *password, uint32_t timeout_ms, struct error *err);
/* Begin to connect there without waiting, for redis_link_tell alone. -1: that fails. */
int redis_link_begin(const struct redis_peer *peer, uint32_t timeout_ms);
/* Has the server closed it, or sent what nobody asked for, while it was idle? */
bool redis_link_is_stale(int fd);

enum { REDIS_ARGS_MAX = 12 };
struct redis_command {
    int count;
    const char *args[REDIS_ARGS_MAX]; /* borrowed */
    size_t sizes[REDIS_ARGS_MAX];
};
void redis_command_add(struct redis_command *c, const void *bytes, size_t size);
void redis_command_add_text(struct redis_command *c, const char *text);

/* *ret is a text, with a NUL behind it: freeReplyObject. */
enum status redis_link_ask(int fd, const struct redis_command *c, uint32_t timeout_ms, redisReply **ret,
                           struct error *err);
/* The same without waiting, or knowing what comes of it, on a connection of redis_link_begin; and who we are, which has
 * to come first. False: it has no room for it yet, or is none any more, which redis_link_drain tells; or no memory. */
bool redis_link_tell(int fd, const struct redis_command *c);
bool redis_link_tell_greeting(int fd, const struct redis_address *a, const struct redis_password *password);
/* Drop what was answered to that. False: there is no connection any more. */
bool redis_link_drain(int fd);

#endif
