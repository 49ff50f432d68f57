/* store_redis_link.c - see store_redis_link.h. */
#include "server/session/store_redis_link.h"

#include <assert.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/core/clock.h"

enum { CHUNK_BYTES = 16384, ARGS_MAX = 5 + 4 * STORE_RENEWED_AT_A_TIME + 16 };

/* ---- time and errors --------------------------------------------------------------------------------------------- */

/* For poll: milliseconds, rounded up; 0: it is over. */
static int ms_until(uint64_t deadline_ns)
{
    const uint64_t now_ns = clock_now_ns();
    if (now_ns >= deadline_ns)
        return 0;
    const uint64_t ms = (deadline_ns - now_ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/* What the system lacks, for now, is not the server's fault. */
static enum status fail(struct error *err, const char *what, int error)
{
    if (error == ENOMEM || error == ENOBUFS || error == EMFILE || error == ENFILE)
        return error_set(err, ERR_NOMEM, "finds no memory or descriptor here: %s", strerror(error));
    return error_set(err, ERR_IO, "%s: %s", what, strerror(error));
}

static enum status await(int fd, short events, uint64_t deadline_ns, struct error *err)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        const int ms = ms_until(deadline_ns);
        if (ms == 0)
            return error_set(err, ERR_TIMEOUT, "does not answer in time");
        const int n = poll(&p, 1, ms);
        if (n > 0)
            return OK;
        if (n < 0 && errno != EINTR)
            return fail(err, "cannot be waited for", errno);
    }
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static void find_unix(struct redis_places *ret, const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    assert(strlen(path) < sizeof name.sun_path);
    memcpy(name.sun_path, path, strlen(path));
    *ret = (struct redis_places){.count = 1, .sizes = {sizeof name}};
    memcpy(&ret->at[0], &name, sizeof name);
}

enum status redis_places_find(struct redis_places *ret, const struct redis_address *a, struct error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *info = NULL;
    if (a->service[0] == '\0') {
        find_unix(ret, a->host);
        return OK;
    }
    const int code = getaddrinfo(a->host, a->service, &hints, &info);
    if (code == EAI_MEMORY || (code == EAI_SYSTEM && errno == ENOMEM))
        return error_set(err, ERR_NOMEM, "finds no memory here to look up its name");
    if (code != 0)
        return error_set(err, ERR_IO, "is not found by its name: %s",
                         code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    ret->count = 0;
    for (const struct addrinfo *i = info; i != NULL && ret->count < STORE_PLACES_MAX; i = i->ai_next) {
        if (i->ai_addrlen > sizeof ret->at[0])
            continue;
        memset(&ret->at[ret->count], 0, sizeof ret->at[0]);
        memcpy(&ret->at[ret->count], i->ai_addr, i->ai_addrlen);
        ret->sizes[ret->count++] = i->ai_addrlen;
    }
    freeaddrinfo(info);
    return ret->count > 0 ? OK : error_set(err, ERR_IO, "is not found by its name: it has no address");
}

static enum status connect_to(struct redis_link *l, const struct sockaddr_storage *at, socklen_t size,
                              uint64_t deadline_ns, struct error *err)
{
    const int one = 1;
    int error = 0;
    socklen_t error_size = sizeof error;
    l->fd = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return fail(err, "cannot be connected to", errno);
    if (at->ss_family != AF_UNIX) { /* neither is needed for it to work */
        (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        (void)setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    }
    if (connect(l->fd, (const struct sockaddr *)(const void *)at, size) != 0) {
        if (errno != EINPROGRESS)
            return fail(err, "cannot be connected to", errno);
        const enum status st = await(l->fd, POLLOUT, deadline_ns, err);
        if (st != OK)
            return st;
        if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0 || error != 0)
            return fail(err, "cannot be connected to", error != 0 ? error : errno);
    }
    return OK;
}

/* One command of the handshake, to which the answer is "OK". */
static enum status greet(struct redis_link *l, const char *const args[], size_t count, uint64_t deadline_ns,
                         struct error *err)
{
    struct redis_reply reply = {.whole = NULL};
    size_t sizes[3];
    assert(count <= sizeof sizes / sizeof sizes[0]);
    for (size_t i = 0; i < count; i++)
        sizes[i] = strlen(args[i]);
    enum status st = redis_link_ask(l, args, sizes, count, STORE_REPLY_BYTES_MAX, deadline_ns, &reply, err);
    if (st != OK)
        return st;
    if (redis_reply_is_away(&reply))
        st = error_set(err, ERR_UNAVAILABLE, "says: %.200s", reply.text);
    else if (reply.type == REDIS_FAILURE)
        st = error_set(err, ERR_CONFIG, "refuses %s: %.200s",
                       strcmp(args[0], "AUTH") == 0 ? "the user or the password" : "the database", reply.text);
    else if (reply.type != REDIS_TEXT || reply.size != 2 || memcmp(reply.text, "OK", 2) != 0)
        st = error_set(err, ERR_FORMAT, "does not answer %s with OK, as a Redis server would", args[0]);
    redis_reply_clear(&reply);
    return st;
}

enum status redis_link_open(struct redis_link *ret, const struct redis_places *places, const struct redis_address *a,
                            const struct redis_password *password, uint64_t deadline_ns, struct error *err)
{
    struct redis_link l = {.fd = -1};
    enum status st = ERR_IO;
    for (size_t i = 0; i < places->count && (st == ERR_IO || st == ERR_TIMEOUT); i++) {
        /* so that one that does not answer leaves time for the next */
        const uint64_t now_ns = clock_now_ns(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        redis_link_close(&l);
        st = connect_to(&l, &places->at[i], places->sizes[i], now_ns + left_ns / (places->count - i), err);
    }
    if (st == OK && password->password[0] != '\0') {
        const char *const args[] = {"AUTH", password->user, password->password}, *const old[] = {"AUTH", args[2]};
        st = args[1][0] != '\0' ? greet(&l, args, 3, deadline_ns, err) : greet(&l, old, 2, deadline_ns, err);
    }
    if (st == OK && strcmp(a->database, "0") != 0)
        st = greet(&l, (const char *const[]){"SELECT", a->database}, 2, deadline_ns, err);
    if (st == OK)
        *ret = l;
    else
        redis_link_close(&l);
    return st;
}

void redis_link_close(struct redis_link *l)
{
    if (l->fd >= 0)
        (void)close(l->fd);
    l->fd = -1;
}

bool redis_link_is_stale(const struct redis_link *l)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

/* ---- a command and its reply ------------------------------------------------------------------------------------- */

void redis_reply_clear(struct redis_reply *r)
{
    if (r->whole != NULL)
        freeReplyObject(r->whole);
    *r = (struct redis_reply){.whole = NULL};
}

bool redis_reply_is_away(const struct redis_reply *r)
{
    static const char *const words[] = {"LOADING ", "READONLY ",   "MASTERDOWN ",  "MISCONF ",
                                        "BUSY ",    "NOREPLICAS ", "CLUSTERDOWN ", "ERR max number of clients"};
    for (size_t i = 0; r->type == REDIS_FAILURE && i < sizeof words / sizeof words[0]; i++)
        if (strncmp(r->text, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static enum status send_all(struct redis_link *l, const char *bytes, size_t size, uint64_t deadline_ns,
                            struct error *err)
{
    while (size > 0) {
        const ssize_t n = send(l->fd, bytes, size, MSG_NOSIGNAL);
        if (n >= 0) {
            bytes += n;
            size -= (size_t)n;
        } else if (errno == EAGAIN) {
            const enum status st = await(l->fd, POLLOUT, deadline_ns, err);
            if (st != OK)
                return st;
        } else if (errno != EINTR) {
            return fail(err, "has closed the connection", errno);
        }
    }
    return OK;
}

static enum status send_command(struct redis_link *l, const char *const args[], const size_t sizes[], size_t count,
                                uint64_t deadline_ns, struct error *err)
{
    char *command = NULL;
    const char *unqualified[ARGS_MAX]; /* hiredis's const stands elsewhere */
    assert(count <= ARGS_MAX);
    memcpy(unqualified, args, count * sizeof args[0]);
    const long long size = redisFormatCommandArgv(&command, (int)count, unqualified, sizes);
    if (size < 0)
        return error_set(err, ERR_NOMEM, "finds no memory here for a command");
    const enum status st = send_all(l, command, (size_t)size, deadline_ns, err);
    redisFreeCommand(command);
    return st;
}

/* Only replies of one part are asked for: with others a server could have much more memory taken than it sends. */
static bool begins_reply(char c)
{
    return c == '$' || c == '+' || c == '-' || c == ':';
}

/* Read on until *whole is a reply. */
static enum status read_whole(const struct redis_link *l, redisReader *reader, void **whole, size_t bytes_max,
                              uint64_t deadline_ns, struct error *err)
{
    char chunk[CHUNK_BYTES];
    for (size_t got = 0; *whole == NULL;) {
        const enum status st = await(l->fd, POLLIN, deadline_ns, err);
        if (st != OK)
            return st;
        const ssize_t n = recv(l->fd, chunk, sizeof chunk, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return fail(err, "has closed the connection", errno);
        if (n == 0)
            return error_set(err, ERR_IO, "has closed the connection");
        if (got == 0 && !begins_reply(chunk[0]))
            return error_set(err, ERR_FORMAT, "does not answer as a Redis server would");
        got += (size_t)n;
        if (got > bytes_max + CHUNK_BYTES)
            return error_set(err, ERR_FORMAT, "answers with more than the %zu bytes that are expected at most",
                             bytes_max);
        if (redisReaderFeed(reader, chunk, (size_t)n) != REDIS_OK || redisReaderGetReply(reader, whole) != REDIS_OK)
            return reader->err == REDIS_ERR_OOM ? error_set(err, ERR_NOMEM, "finds no memory here for an answer")
                                                : error_set(err, ERR_FORMAT,
                                                            "does not answer as a Redis server would: "
                                                            "%s",
                                                            reader->errstr);
    }
    if (reader->pos != reader->len)
        return error_set(err, ERR_FORMAT, "answers with more than was asked for");
    return OK;
}

static struct redis_reply reply_of(void *whole)
{
    const redisReply *r = whole;
    const bool has_text =
        r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS || r->type == REDIS_REPLY_ERROR;
    return (struct redis_reply){.type = !has_text                      ? REDIS_OTHER
                                        : r->type == REDIS_REPLY_ERROR ? REDIS_FAILURE
                                                                       : REDIS_TEXT,
                                .text = has_text ? r->str : NULL,
                                .size = has_text ? r->len : 0,
                                .whole = whole};
}

enum status redis_link_ask(struct redis_link *l, const char *const args[], const size_t sizes[], size_t count,
                           size_t bytes_max, uint64_t deadline_ns, struct redis_reply *ret, struct error *err)
{
    void *whole = NULL;
    /* Each reply has its own, which leaves no large buffer with the connection. */
    redisReader *reader = redisReaderCreate();
    if (reader == NULL)
        return error_set(err, ERR_NOMEM, "finds no memory here for an answer");
    enum status st = send_command(l, args, sizes, count, deadline_ns, err);
    if (st == OK)
        st = read_whole(l, reader, &whole, bytes_max, deadline_ns, err);
    redisReaderFree(reader);
    assert(st != OK || whole != NULL);
    if (st == OK)
        *ret = reply_of(whole);
    else if (whole != NULL)
        freeReplyObject(whole);
    return st;
}
