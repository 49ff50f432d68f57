/* listen.c - see listen.h. */
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/limits.h"

enum {
    BACKLOG = 1024
}; /* connections that wait to be accepted: a burst of clients while all threads decode pictures */

static enum status resolve(struct addrinfo **ret, const char *address, uint16_t port, struct error *err)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    char service[8];
    (void)snprintf(service, sizeof service, "%u", (unsigned)port);
    const int code = getaddrinfo(address, service, &hints, ret);
    return code == 0 ? OK
                     : error_set_param(err, ERR_CONFIG, "listen_address",
                                       "listen_address = \"%s\": expected a numeric IPv4 or IPv6 address (%s)", address,
                                       gai_strerror(code));
}

enum status listen_open(int *ret, uint16_t *bound, const char *address, uint16_t port, struct error *err)
{
    struct addrinfo *info = NULL;
    enum status st = resolve(&info, address, port, err);
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
        bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, &name.any, &name_bytes) != 0) {
        st = error_set(err, ERR_IO, "cannot listen on %s port %u: %s", address, (unsigned)port, strerror(errno));
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

void listen_describe(const struct sockaddr *address, char *out, size_t size)
{
    const socklen_t bytes =
        address != NULL && address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (address == NULL || getnameinfo(address, bytes, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
        (void)snprintf(out, size, "unknown");
}
