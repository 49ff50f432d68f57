/* passed.c - see passed.h. */
#include "server/http/passed.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "server/http/listen.h"

/* An address as getsockname gives it. */
union address {
    struct sockaddr any;
    struct sockaddr_un local;
    struct sockaddr_storage storage;
};

static enum status refuse(const char *name, const char *what, struct error *err)
{
    return error_set_param(
        err, ERR_CONFIG, "LISTEN_FDS",
        "the service manager passed \"%.*s\", which is %s; expected a TCP or Unix stream socket that "
        "listens (ListenStream=, Accept=no)",
        SERVICE_SOCKET_NAME_MAX, name, what);
}

/* -1: it has no such option, because it is no socket. */
static int option_of(int fd, int option)
{
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

static void name_local(struct passed *p, const union address *at, socklen_t size)
{
    const size_t before = offsetof(struct sockaddr_un, sun_path), bytes = size > before ? size - before : 0;
    (void)snprintf(p->address, sizeof p->address, "%s%.*s", bytes > 0 && at->local.sun_path[0] == '\0' ? "@" : "",
                   (int)bytes, at->local.sun_path + (bytes > 0 && at->local.sun_path[0] == '\0'));
}

static void name_tcp(struct passed *p, const union address *at, socklen_t size)
{
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE] = "unknown", port[8] = "0";
    const bool v6 = at->any.sa_family == AF_INET6;
    (void)getnameinfo(&at->any, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    (void)snprintf(p->address, sizeof p->address, "%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

enum status passed_examine(struct passed *ret, int fd, const char *name, struct error *err)
{
    union address at = {.storage = {.ss_family = AF_UNSPEC}};
    socklen_t size = sizeof at;
    const int type = option_of(fd, SO_TYPE);
    if (type < 0)
        return refuse(name, "no socket", err);
    if (type != SOCK_STREAM)
        return refuse(name, type == SOCK_DGRAM ? "a datagram socket" : "no stream socket", err);
    if (option_of(fd, SO_ACCEPTCONN) != 1)
        return refuse(name, "a socket that does not listen", err);
    const int flags = fcntl(fd, F_GETFL);
    if (getsockname(fd, &at.any, &size) != 0 || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return refuse(name, strerror(errno), err);
    ret->is_local = at.any.sa_family == AF_UNIX;
    if (ret->is_local) {
        name_local(ret, &at, size);
    } else if (at.any.sa_family == AF_INET || at.any.sa_family == AF_INET6) {
        listen_bound_sending(fd); /* its connections inherit that */
        name_tcp(ret, &at, size);
    } else {
        return refuse(name, "neither TCP nor a Unix socket", err);
    }
    return OK;
}
