/* store_redis_link.c - see store_redis_link.h. */
#include "server/session/store_redis_link.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/limits.h"
#include "server/core/clock.h"

enum { CHUNK_BYTES = 16384, DRAINED_CHUNKS_MAX = 64 };

/* ---- connecting ------------------------------------------------------------------------------------------------- */

/* What the system lacks, for now, is not the server's fault. */
static enum status fail(struct error *err, const char *what, int error)
{
    if (error == ENOMEM || error == ENOBUFS || error == EMFILE || error == ENFILE)
        return error_set(err, ERR_NOMEM, "finds no memory or descriptor here: %s", strerror(error));
    if (error == EAGAIN || error == EINPROGRESS) /* as the time limit of connecting is told */
        return error_set(err, ERR_UNAVAILABLE, "does not answer in time");
    return error_set(err, ERR_UNAVAILABLE, "%s: %s", what, strerror(error));
}

static int make_socket(int family, int flags)
{
    const int one = 1, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd >= 0 && family != AF_UNIX) { /* neither is needed for it to work */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    }
    return fd;
}

static enum status connect_to(int *ret, struct redis_peer *peer, const struct sockaddr *name, socklen_t size,
                              uint32_t timeout_ms, struct error *err)
{
    const struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000L};
    const int fd = make_socket(name->sa_family, 0);
    if (fd < 0)
        return fail(err, "cannot be connected to", errno);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 || connect(fd, name, size) != 0) {
        const enum status st = fail(err, "cannot be connected to", errno);
        (void)close(fd);
        return st;
    }
    *ret = fd;
    assert(size <= sizeof peer->name);
    memcpy(&peer->name, name, size);
    peer->size = size;
    return OK;
}

int redis_link_begin(const struct redis_peer *peer, uint32_t timeout_ms)
{
    const int fd = make_socket(peer->name.ss_family, SOCK_NONBLOCK);
    if (fd < 0)
        return -1;
    if (peer->name.ss_family != AF_UNIX) /* or a link that is cut would be found out after minutes */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    if (connect(fd, (const struct sockaddr *)(const void *)&peer->name, peer->size) == 0 || errno == EINPROGRESS)
        return fd;
    (void)close(fd);
    return -1;
}

static enum status connect_unix(int *ret, struct redis_peer *peer, const char *path, uint32_t timeout_ms,
                                struct error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    assert(strlen(path) < sizeof name.sun_path);
    memcpy(name.sun_path, path, strlen(path));
    return connect_to(ret, peer, (const struct sockaddr *)(const void *)&name, sizeof name, timeout_ms, err);
}

static enum status connect_tcp(int *ret, struct redis_peer *peer, const struct redis_address *a, uint32_t timeout_ms,
                               struct error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *info = NULL;
    const int code = getaddrinfo(a->host, a->service, &hints, &info);
    if (code == EAI_MEMORY || (code == EAI_SYSTEM && errno == ENOMEM))
        return error_set(err, ERR_NOMEM, "finds no memory here to look up its name");
    if (code != 0)
        return error_set(err, ERR_UNAVAILABLE, "is not found by its name: %s",
                         code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    enum status st = ERR_UNAVAILABLE;
    for (const struct addrinfo *i = info; i != NULL && st == ERR_UNAVAILABLE; i = i->ai_next)
        st = connect_to(ret, peer, i->ai_addr, i->ai_addrlen, timeout_ms, err);
    freeaddrinfo(info);
    return st;
}

/* One command of the handshake, to which the answer is "OK". */
static enum status greet(int fd, const struct redis_command *c, uint32_t timeout_ms, struct error *err)
{
    redisReply *reply = NULL;
    struct error why;
    enum status st = redis_link_ask(fd, c, timeout_ms, &reply, &why);
    if (st == ERR_STORE)
        return error_set(err, ERR_CONFIG, "refuses %s, and %s",
                         strcmp(c->args[0], "AUTH") == 0 ? "the user or the password" : "the database", why.message);
    if (st != OK)
        return error_set(err, st, "%s", why.message);
    if (strcmp(reply->str, "OK") != 0)
        st = error_set(err, ERR_FORMAT, "does not answer %s with OK, as a Redis server would", c->args[0]);
    freeReplyObject(reply);
    return st;
}

/* What a connection begins with: so many commands. */
enum { GREETING = 2 };
static int make_greeting(struct redis_command out[GREETING], const struct redis_address *a,
                         const struct redis_password *p)
{
    int count = 0;
    if (p->password[0] != '\0') {
        struct redis_command *auth = &out[count++];
        auth->count = 0;
        redis_command_add_text(auth, "AUTH");
        if (p->user[0] != '\0')
            redis_command_add_text(auth, p->user);
        redis_command_add_text(auth, p->password);
    }
    if (strcmp(a->database, "0") != 0) {
        struct redis_command *select = &out[count++];
        select->count = 0;
        redis_command_add_text(select, "SELECT");
        redis_command_add_text(select, a->database);
    }
    return count;
}

enum status redis_link_open(int *ret, struct redis_peer *peer, const struct redis_address *a,
                            const struct redis_password *password, uint32_t timeout_ms, struct error *err)
{
    struct redis_command greeting[GREETING];
    const int count = make_greeting(greeting, a, password);
    int fd = -1;
    enum status st = a->service[0] == '\0' ? connect_unix(&fd, peer, a->host, timeout_ms, err)
                                           : connect_tcp(&fd, peer, a, timeout_ms, err);
    for (int i = 0; i < count && st == OK; i++)
        st = greet(fd, &greeting[i], timeout_ms, err);
    if (st == OK)
        *ret = fd;
    else if (fd >= 0)
        (void)close(fd);
    return st;
}

bool redis_link_is_stale(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

/* ---- a command and its reply ------------------------------------------------------------------------------------ */

void redis_command_add(struct redis_command *c, const void *bytes, size_t size)
{
    assert(c->count < REDIS_ARGS_MAX);
    c->args[c->count] = bytes;
    c->sizes[c->count++] = size;
}

void redis_command_add_text(struct redis_command *c, const char *text)
{
    redis_command_add(c, text, strlen(text));
}

/* An error of the server's, which begins with a word in capitals. */
static enum status judge(const char *said, struct error *err)
{
    static const struct {
        const char *word;
        enum status status;
    } words[] = {{"LOADING ", ERR_UNAVAILABLE},
                 {"READONLY ", ERR_UNAVAILABLE},
                 {"MASTERDOWN ", ERR_UNAVAILABLE},
                 {"MISCONF ", ERR_UNAVAILABLE},
                 {"BUSY ", ERR_UNAVAILABLE},
                 {"NOREPLICAS ", ERR_UNAVAILABLE},
                 {"CLUSTERDOWN ", ERR_UNAVAILABLE},
                 {"ERR max number of clients", ERR_UNAVAILABLE},
                 {"NOAUTH ", ERR_CONFIG},
                 {"NOPERM ", ERR_CONFIG},
                 {"DENIED ", ERR_CONFIG}};
    if (strncmp(said, "OOM ", 4) == 0)
        return error_set(err, ERR_STORE, "is full: %.200s", said);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strncmp(said, words[i].word, strlen(words[i].word)) == 0)
            return error_set(err, words[i].status, "says: %.200s", said);
    return error_set(err, ERR_STORE, "says: %.200s", said);
}

/* NULL: out of memory. */
static char *format(const struct redis_command *c, size_t *size)
{
    char *text = NULL;
    const char *args[REDIS_ARGS_MAX]; /* hiredis's const stands elsewhere */
    memcpy(args, c->args, sizeof args);
    const long long bytes = redisFormatCommandArgv(&text, c->count, args, c->sizes);
    *size = bytes >= 0 ? (size_t)bytes : 0;
    return bytes >= 0 ? text : NULL;
}

/* After EAGAIN. False, and EAGAIN still: it is too late. */
static bool await(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    const uint64_t now_ns = clock_now_ns();
    const bool goes_on = now_ns < deadline_ns && poll(&p, 1, (int)((deadline_ns - now_ns) / CLOCK_NS_PER_MS) + 1) != 0;
    errno = EAGAIN;
    return goes_on;
}

static enum status send_all(int fd, const struct redis_command *c, uint64_t deadline_ns, struct error *err)
{
    enum status st = OK;
    size_t size;
    char *text = format(c, &size);
    if (text == NULL)
        return error_set(err, ERR_NOMEM, "finds no memory here for a command");
    for (size_t sent = 0; st == OK && sent < size;) {
        const ssize_t n = send(fd, text + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno != EINTR && !(errno == EAGAIN && await(fd, POLLOUT, deadline_ns)))
            st = fail(err, "has closed the connection", errno);
    }
    redisFreeCommand(text);
    return st;
}

/* How many bytes a reply that begins so may have. Only those of one part are asked for: with others a server could have
 * much more memory taken than it sends. */
static size_t most_of(char first)
{
    return first == '$'                                   ? STATE_BYTES_MAX + CHUNK_BYTES
           : first == '+' || first == '-' || first == ':' ? CHUNK_BYTES
                                                          : 0;
}

/* Read on until *whole is a reply. */
static enum status read_whole(int fd, redisReader *reader, uint64_t deadline_ns, void **whole, struct error *err)
{
    char chunk[CHUNK_BYTES];
    for (size_t got = 0, most = 0; *whole == NULL;) {
        const ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || (errno == EAGAIN && await(fd, POLLIN, deadline_ns))))
            continue;
        if (n < 0)
            return fail(err, "has closed the connection", errno);
        if (n == 0)
            return error_set(err, ERR_UNAVAILABLE, "has closed the connection");
        most = got == 0 ? most_of(chunk[0]) : most;
        got += (size_t)n;
        if (got > most)
            return error_set(err, ERR_FORMAT, "does not answer as a Redis server would");
        if (redisReaderFeed(reader, chunk, (size_t)n) == REDIS_OK && redisReaderGetReply(reader, whole) == REDIS_OK)
            continue;
        if (reader->err == REDIS_ERR_OOM)
            return error_set(err, ERR_NOMEM, "finds no memory here for an answer");
        return error_set(err, ERR_FORMAT, "does not answer as a Redis server would: %s", reader->errstr);
    }
    return reader->pos == reader->len ? OK : error_set(err, ERR_FORMAT, "answers with more than was asked for");
}

enum status redis_link_ask(int fd, const struct redis_command *c, uint32_t timeout_ms, redisReply **ret,
                           struct error *err)
{
    const uint64_t deadline_ns = clock_now_ns() + timeout_ms * CLOCK_NS_PER_MS;
    void *whole = NULL;
    redisReader *reader = redisReaderCreate(); /* which leaves no large buffer with the connection */
    if (reader == NULL)
        return error_set(err, ERR_NOMEM, "finds no memory here for an answer");
    enum status st = send_all(fd, c, deadline_ns, err);
    if (st == OK)
        st = read_whole(fd, reader, deadline_ns, &whole, err);
    redisReaderFree(reader);
    redisReply *reply = whole;
    if (st == OK && reply->type == REDIS_REPLY_ERROR)
        st = judge(reply->str, err);
    else if (st == OK && reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS)
        st = error_set(err, ERR_FORMAT, "does not answer as a Redis server would");
    if (st == OK)
        *ret = reply;
    else if (reply != NULL)
        freeReplyObject(reply);
    return st;
}

bool redis_link_tell(int fd, const struct redis_command *c)
{
    size_t size;
    char *text = format(c, &size);
    const ssize_t n = text != NULL ? send(fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    redisFreeCommand(text);
    if (n >= 0 && (size_t)n < size)
        (void)shutdown(fd, SHUT_RDWR); /* nothing that makes sense can follow half a command */
    return n >= 0 && (size_t)n == size;
}

bool redis_link_tell_greeting(int fd, const struct redis_address *a, const struct redis_password *password)
{
    struct redis_command greeting[GREETING];
    const int count = make_greeting(greeting, a, password);
    for (int i = 0; i < count; i++)
        if (!redis_link_tell(fd, &greeting[i]))
            return false;
    return true;
}

bool redis_link_drain(int fd)
{
    char dropped[4096];
    for (int i = 0; i < DRAINED_CHUNKS_MAX; i++) {
        const ssize_t n = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
    }
    return false; /* nobody was told so much */
}
