/* listen.c - see listen.h. */
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/limits.h"

enum {
    BACKLOG = 1024
}; /* connections that wait to be accepted: a burst of clients while all threads decode pictures */

/* ---- TCP -------------------------------------------------------------------------------------------------------- */

static enum status resolve(struct addrinfo **ret, const char *address, uint16_t port, const char *setting,
                           struct error *err)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    char service[8];
    (void)snprintf(service, sizeof service, "%u", (unsigned)port);
    const int code = getaddrinfo(address, service, &hints, ret);
    if (code == EAI_MEMORY)
        return error_set_param(err, ERR_NOMEM, setting, "%s: out of memory while reading the address \"%s\"", setting,
                               address);
    return code == 0 ? OK
                     : error_set_param(err, ERR_CONFIG, setting,
                                       "%s: \"%s\": expected a numeric IPv4 or IPv6 address, or localhost (%s)",
                                       setting, address, gai_strerror(code));
}

enum status listen_check(const char *address, const char *setting, struct error *err)
{
    struct addrinfo *info = NULL;
    const enum status st = resolve(&info, address, 0, setting, err);
    if (st == OK)
        freeaddrinfo(info);
    return st;
}

/* What to do about it. The port's setting is named like the address's. */
static void advise(char *out, size_t size, int why, const char *setting)
{
    const int stem = (int)strcspn(setting, "_");
    out[0] = '\0';
    if (why == EADDRINUSE)
        (void)snprintf(out, size, "; `ss -ltnp` tells who has it, --%.*s-port chooses another", stem, setting);
    else if (why == EACCES)
        (void)snprintf(
            out, size,
            "; expected --%.*s-port 1024 or more, a socket that systemd passes, or a proxy before the daemon", stem,
            setting);
}

enum status listen_open(int *ret, uint16_t *bound, const char *address, uint16_t port, bool only_v6,
                        const char *setting, struct error *err)
{
    struct addrinfo *info = NULL;
    enum status st = resolve(&info, address, port, setting, err);
    if (st != OK)
        return st;
    const int one = 1, send_bytes = HTTP_SEND_BYTES_MAX;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } name = {0};
    socklen_t name_bytes = sizeof name;
    const int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes) != 0 ||
        (only_v6 && info->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) != 0) ||
        bind(fd, info->ai_addr, info->ai_addrlen) != 0 || getsockname(fd, &name.any, &name_bytes) != 0) {
        const int why = errno;
        char advice[160];
        advise(advice, sizeof advice, why, setting);
        st = error_set_param(err, ERR_IO, setting, "cannot listen on %s port %u: %s%s", address, (unsigned)port,
                             strerror(why), advice);
        goto done;
    }
    *bound = ntohs(name.any.sa_family == AF_INET6 ? name.v6.sin6_port : name.v4.sin_port);
    *ret = fd;
done:
    freeaddrinfo(info);
    if (st != OK && fd >= 0)
        (void)close(fd);
    return st;
}

/* ---- Unix sockets ----------------------------------------------------------------------------------------------- */

enum status listen_check_unix(const char *path, const char *setting, struct error *err)
{
    const size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    struct stat there;
    if (strlen(path) > most)
        return error_set_param(err, ERR_CONFIG, setting, "%s = \"%s\": expected a path of at most %zu bytes", setting,
                               path, most);
    if (lstat(path, &there) == 0 && !S_ISSOCK(there.st_mode))
        return error_set_param(err, ERR_IO, setting, "%s: %s exists and is not a socket", setting, path);
    return OK;
}

/* Remove what an earlier daemon has left: a socket that refuses connections. */
static enum status remove_stale(const struct sockaddr_un *name, const char *setting, struct error *err)
{
    struct stat there;
    if (lstat(name->sun_path, &there) != 0)
        return OK; /* nothing is there, or bind will say what is wrong */
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool refused =
        fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)name, sizeof *name) != 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        (void)close(fd);
    if (!refused)
        return error_set_param(err, ERR_IO, setting, "cannot listen on %s: another process does", name->sun_path);
    (void)unlink(name->sun_path);
    return OK;
}

enum status listen_open_unix(int *ret, struct stat *id, const char *path, mode_t mode, const char *setting,
                             struct error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    enum status st = listen_check_unix(path, setting, err);
    if (st != OK)
        return st;
    memcpy(name.sun_path, path, strlen(path) + 1);
    st = remove_stale(&name, setting, err);
    if (st != OK)
        return st;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* The file is made with the socket's own mode, less the umask; then it gets what the umask has taken. */
    if (fd < 0 || fchmod(fd, mode) != 0 || bind(fd, (const struct sockaddr *)(const void *)&name, sizeof name) != 0) {
        st = error_set_param(err, ERR_IO, setting, "cannot listen on %s: %s", path, strerror(errno));
    } else if (chmod(path, mode) != 0 || lstat(path, id) != 0) {
        st = error_set_param(err, ERR_IO, setting, "cannot listen on %s: %s", path, strerror(errno));
        (void)unlink(path);
    }
    if (st == OK)
        *ret = fd;
    else if (fd >= 0)
        (void)close(fd);
    return st;
}

enum status listen_begin(int fd, const char *name, struct error *err)
{
    if (listen(fd, BACKLOG) == 0)
        return OK;
    return error_set(err, ERR_IO, "cannot listen on %s: %s", name, strerror(errno));
}

void listen_remove_unix(const char *path, const struct stat *id)
{
    struct stat there;
    if (lstat(path, &there) == 0 && there.st_dev == id->st_dev && there.st_ino == id->st_ino)
        (void)unlink(path);
}

void listen_bound_sending(int fd)
{
    const int send_bytes = HTTP_SEND_BYTES_MAX;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
}
