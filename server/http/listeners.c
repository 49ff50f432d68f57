/* listeners.c - see listeners.h. */
#include "server/http/listeners.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/settings.h"
#include "server/core/log.h"
#include "server/core/service_manager.h"
#include "server/http/listen.h"
#include "server/http/tls.h"

enum { ADMIN_UNIX_MODE = 0600 }; /* the daemon's own user, and root */

static bool is_off(const char *value)
{
    return strcmp(value, LISTENERS_OFF) == 0;
}

/* What is being opened. */
struct opening {
    struct listeners *l; /* NULL: the settings are only checked */
    size_t count;        /* of addresses so far */
    const char *setting;
    struct error *err;
};

/* Is there room for one more? */
static enum status count_one(struct opening *o)
{
    if (++o->count <= LISTENERS_MAX)
        return OK;
    return error_set_param(o->err, ERR_CONFIG, o->setting, "%s: expected at most %d listeners in all", o->setting,
                           LISTENERS_MAX);
}

/* *port becomes the one in use. */
static enum status add_tcp(struct opening *o, struct listener kind, const char *address, bool is_one_of_many,
                           uint16_t *port)
{
    enum status st = count_one(o);
    if (st == OK && o->l == NULL)
        return listen_check(address, o->setting, o->err);
    if (st == OK)
        st = listen_open(&kind.fd, port, address, *port, is_one_of_many, o->setting, o->err);
    if (st != OK)
        return st;
    const bool v6 = strchr(address, ':') != NULL;
    (void)snprintf(kind.name, sizeof kind.name, "%s://%s%s%s:%u", kind.is_tls ? "https" : "http", v6 ? "[" : "",
                   address, v6 ? "]" : "", (unsigned)*port);
    o->l->all[o->l->count++] = kind;
    return OK;
}

/* Has this machine that address? */
static bool is_own_address(const char *address)
{
    uint16_t port;
    int fd;
    if (listen_open(&fd, &port, address, 0, true, "", NULL) != OK)
        return false;
    (void)close(fd);
    return true;
}

/* localhost is what names of it mean: 127.0.0.1 and, on the same port, ::1, which not every machine has; * is every
 * address, of both kinds. */
static enum status add_address(struct opening *o, struct listener kind, const char *address, bool many, uint16_t port)
{
    const bool is_any = strcmp(address, "*") == 0;
    if (!is_any && strcmp(address, "localhost") != 0)
        return add_tcp(o, kind, address, many, &port);
    const enum status st = add_tcp(o, kind, is_any ? "0.0.0.0" : "127.0.0.1", true, &port);
    const char *v6 = is_any ? "::" : "::1";
    return st == OK && is_own_address(v6) ? add_tcp(o, kind, v6, true, &port) : st;
}

/* `list`: comma-separated addresses. */
static enum status add_addresses(struct opening *o, struct listener kind, const char *list, uint32_t port,
                                 const char *setting)
{
    char text[SETTING_TEXT_MAX + 1], *rest = text;
    const bool many = strchr(list, ',') != NULL;
    enum status st = OK;
    if (is_off(list))
        return OK;
    o->setting = setting;
    (void)snprintf(text, sizeof text, "%s", list);
    while (st == OK && rest != NULL) {
        char *address = strsep(&rest, ",");
        address += strspn(address, " ");
        for (size_t n = strlen(address); n > 0 && address[n - 1] == ' '; n--)
            address[n - 1] = '\0';
        st = add_address(o, kind, address, many, (uint16_t)port);
    }
    return st;
}

static enum status add_unix(struct opening *o, struct listener kind, const char *path, mode_t mode, const char *setting)
{
    if (is_off(path))
        return OK;
    o->setting = setting;
    enum status st = count_one(o);
    if (st == OK && o->l == NULL)
        return listen_check_unix(path, setting, o->err);
    if (st == OK)
        st = listen_open_unix(&kind.fd, &kind.id, path, mode, setting, o->err);
    if (st != OK)
        return st;
    kind.is_local = true;
    kind.path = path;
    (void)snprintf(kind.name, sizeof kind.name, "unix:%s", path);
    o->l->all[o->l->count++] = kind;
    return OK;
}

/* Octal, as for chmod. */
static enum status read_mode(const char *text, mode_t *ret, struct error *err)
{
    char *end = NULL;
    const unsigned long mode = strtoul(text, &end, 8);
    if (text[0] < '0' || text[0] > '7' || *end != '\0' || mode > 0777)
        return error_set_param(err, ERR_CONFIG, "listen_unix_mode",
                               "listen_unix_mode = \"%s\": expected permissions in octal, such as 0660", text);
    *ret = (mode_t)mode;
    return OK;
}

static enum status open_kind(struct opening *o, enum listener_kind kind, const struct settings *s)
{
    const struct listener plain = {.fd = -1, .kind = kind}, tcp = {.fd = -1, .kind = kind, .is_tls = tls_is_on(s)};
    mode_t mode = 0;
    enum status st = OK;
    switch (kind) {
    case LISTENER_ADMIN:
        st = add_addresses(o, plain, s->admin_address, s->admin_port, "admin_address");
        return st == OK ? add_unix(o, plain, s->admin_unix, ADMIN_UNIX_MODE, "admin_unix") : st;
    case LISTENER_METRICS:
        return add_addresses(o, plain, s->metrics_address, s->metrics_port, "metrics_address");
    default:
        break;
    }
    if (is_off(s->listen_address) && is_off(s->listen_unix))
        return error_set_param(o->err, ERR_CONFIG, "listen_address",
                               "listen_address and listen_unix are both " LISTENERS_OFF ": expected at least one");
    st = read_mode(s->listen_unix_mode, &mode, o->err);
    if (st == OK)
        st = add_addresses(o, tcp, s->listen_address, s->listen_port, "listen_address");
    return st == OK ? add_unix(o, plain, s->listen_unix, mode, "listen_unix") : st;
}

enum status listeners_check(const struct settings *s, struct error *err)
{
    struct opening o = {.err = err};
    enum status st = OK;
    for (int kind = 0; kind < LISTENER_KIND_COUNT && st == OK; kind++)
        st = open_kind(&o, (enum listener_kind)kind, s);
    return st;
}

/* ---- what the service manager has opened and passed: what it is, is asked of the kernel ------------------------- */

static enum listener_kind kind_of_passed(const char *name)
{
    static const char *const names[] = {
#define X(constant, word, passed_as) passed_as,
        LISTENER_KINDS(X)
#undef X
    };
    size_t kind = 0;
    while (kind != LISTENER_PUBLIC && strcmp(name, names[kind]) != 0)
        kind++;
    return (enum listener_kind)kind;
}

/* An address as getsockname gives it. */
union address {
    struct sockaddr any;
    struct sockaddr_un local;
    struct sockaddr_storage storage;
};

static enum status refuse_passed(const char *name, const char *what, struct error *err)
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

/* unix: and a path, or @ and a name. */
static void name_local(struct listener *l, const union address *at, socklen_t size, const char *name)
{
    const size_t before = offsetof(struct sockaddr_un, sun_path), bytes = size > before ? size - before : 0;
    const bool is_abstract = bytes > 0 && at->local.sun_path[0] == '\0';
    (void)snprintf(l->name, sizeof l->name, "unix:%s%.*s (passed as %s)", is_abstract ? "@" : "", (int)bytes,
                   at->local.sun_path + is_abstract, name);
}

static void name_tcp(struct listener *l, const union address *at, socklen_t size, const char *name)
{
    char host[INET6_ADDRSTRLEN + IF_NAMESIZE] = "unknown", port[8] = "0";
    const bool v6 = at->any.sa_family == AF_INET6;
    (void)getnameinfo(&at->any, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    (void)snprintf(l->name, sizeof l->name, "%s://%s%s%s:%s (passed as %s)", l->is_tls ? "https" : "http",
                   v6 ? "[" : "", host, v6 ? "]" : "", port, name);
}

/* It is made ready to be accepted from. */
static enum status take_one(struct listeners *l, enum listener_kind kind, const struct settings *s, int fd,
                            const char *name, struct error *err)
{
    union address at = {.storage = {.ss_family = AF_UNSPEC}};
    socklen_t size = sizeof at;
    const int type = option_of(fd, SO_TYPE);
    if (type < 0)
        return refuse_passed(name, "no socket", err);
    if (type != SOCK_STREAM)
        return refuse_passed(name, type == SOCK_DGRAM ? "a datagram socket" : "no stream socket", err);
    if (option_of(fd, SO_ACCEPTCONN) != 1)
        return refuse_passed(name, "a socket that does not listen", err);
    const int flags = fcntl(fd, F_GETFL);
    if (getsockname(fd, &at.any, &size) != 0 || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return refuse_passed(name, strerror(errno), err);
    const bool is_local = at.any.sa_family == AF_UNIX;
    if (!is_local && at.any.sa_family != AF_INET && at.any.sa_family != AF_INET6)
        return refuse_passed(name, "neither TCP nor a Unix socket", err);
    struct listener *next = &l->all[l->count++];
    *next = (struct listener){.fd = fd, .kind = kind, .is_local = is_local, .is_passed = true};
    next->is_tls = kind == LISTENER_PUBLIC && !is_local && tls_is_on(s);
    if (is_local) {
        name_local(next, &at, size, name);
        return OK;
    }
    listen_bound_sending(fd); /* its connections inherit that */
    name_tcp(next, &at, size, name);
    return OK;
}

/* All of one kind; *any: there are some. */
static enum status take_passed(struct listeners *l, enum listener_kind kind, const struct settings *s,
                               const struct service_sockets *passed, bool *any, struct error *err)
{
    enum status st = OK;
    *any = false;
    for (size_t i = 0; passed != NULL && i < passed->count && st == OK; i++) {
        if (kind_of_passed(passed->all[i].name) != kind)
            continue;
        *any = true;
        if (l->count == LISTENERS_MAX)
            return error_set_param(err, ERR_CONFIG, passed->all[i].name, "%s: expected at most %d listeners",
                                   passed->all[i].name, LISTENERS_MAX);
        st = take_one(l, kind, s, passed->all[i].fd, passed->all[i].name, err);
    }
    return st;
}

/* Somebody who changes such a setting would wonder why nothing happens. */
static void tell_of_unused(enum listener_kind kind)
{
    static const char *const settings[LISTENER_KIND_COUNT] = {
        [LISTENER_ADMIN] = "admin_address, admin_port and admin_unix",
        [LISTENER_METRICS] = "metrics_address and metrics_port",
        [LISTENER_PUBLIC] = "listen_address, listen_port and listen_unix",
    };
    log_info("%s are not used: the service manager has passed sockets in their place, and says where they listen "
             "(ListenStream=)",
             settings[kind]);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

/* Those that are not public come first: whoever waits for the log line that says where the daemon listens then knows
 * that administration is possible as well. */
enum status listeners_open(struct listeners *ret, const struct settings *s, const struct service_sockets *passed,
                           struct error *err)
{
    struct listeners l = {.count = 0};
    enum status st = OK;
    for (int kind = 0; kind < LISTENER_KIND_COUNT && st == OK; kind++) {
        bool any = false;
        st = take_passed(&l, (enum listener_kind)kind, s, passed, &any, err);
        struct opening o = {.l = &l, .count = l.count, .err = err};
        if (st == OK && any)
            tell_of_unused((enum listener_kind)kind);
        else if (st == OK)
            st = open_kind(&o, (enum listener_kind)kind, s);
    }
    if (st == OK)
        *ret = l;
    else
        listeners_close(&l);
    return st;
}

void listeners_close(struct listeners *l)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->all[i].path != NULL)
            listen_remove_unix(l->all[i].path, &l->all[i].id);
        (void)close(l->all[i].fd);
    }
    l->count = 0;
}

/* Is the Unix socket's file still the one that was made? While models were loaded nobody listened on it, and another
 * daemon may have taken it for a stale one. */
static bool has_its_file(const struct listener *l)
{
    struct stat there;
    return l->path == NULL ||
           (lstat(l->path, &there) == 0 && there.st_dev == l->id.st_dev && there.st_ino == l->id.st_ino);
}

enum status listeners_begin(const struct listeners *l, struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < l->count && st == OK; i++) {
        const struct listener *one = &l->all[i];
        if (!has_its_file(one))
            st = error_set(err, ERR_IO, "cannot listen on %s: its file was replaced meanwhile", one->name);
        else if (!one->is_passed)
            st = listen_begin(one->fd, one->name, err);
    }
    return st;
}

void listeners_log(const struct listeners *l)
{
    static const char *const words[] = {
#define X(constant, word, passed_as) word,
        LISTENER_KINDS(X)
#undef X
    };
    for (size_t i = 0; i < l->count; i++)
        log_info("%s on %s", words[l->all[i].kind], l->all[i].name);
}
