/* listeners.c - see listeners.h. */
#include "server/http/listeners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/core/log.h"
#include "server/core/service_manager.h"
#include "server/http/listen.h"
#include "server/http/passed.h"
#include "server/http/tls.h"

enum { ADMIN_UNIX_MODE = 0600 }; /* the daemon's own user, and root */

static bool is_off(const char *value)
{
    return strcmp(value, LISTENERS_OFF) == 0;
}

static enum status add_tcp(struct listeners *l, struct listener kind, const char *address, bool is_one_of_many,
                           uint32_t port, const char *setting, struct error *err)
{
    uint16_t bound;
    if (l->count == LISTENERS_MAX)
        return error_set_param(err, ERR_CONFIG, setting, "%s: expected at most %d addresses in all", setting,
                               LISTENERS_MAX);
    const enum status st = listen_open(&kind.fd, &bound, address, (uint16_t)port, is_one_of_many, setting, err);
    if (st != OK)
        return st;
    const bool v6 = strchr(address, ':') != NULL;
    (void)snprintf(kind.name, sizeof kind.name, "%s://%s%s%s:%u", kind.is_tls ? "https" : "http", v6 ? "[" : "",
                   address, v6 ? "]" : "", (unsigned)bound);
    l->all[l->count++] = kind;
    return OK;
}

/* `list`: comma-separated addresses. */
static enum status add_addresses(struct listeners *l, struct listener kind, const char *list, uint32_t port,
                                 const char *setting, struct error *err)
{
    char text[SETTING_TEXT_MAX + 1], *rest = text;
    const bool many = strchr(list, ',') != NULL;
    enum status st = OK;
    if (is_off(list))
        return OK;
    (void)snprintf(text, sizeof text, "%s", list);
    while (st == OK && rest != NULL) {
        char *address = strsep(&rest, ",");
        address += strspn(address, " ");
        for (size_t n = strlen(address); n > 0 && address[n - 1] == ' '; n--)
            address[n - 1] = '\0';
        st = add_tcp(l, kind, address, many, port, setting, err);
    }
    return st;
}

static enum status add_unix(struct listeners *l, struct listener kind, const char *path, mode_t mode,
                            const char *setting, struct error *err)
{
    if (is_off(path))
        return OK;
    if (l->count == LISTENERS_MAX)
        return error_set_param(err, ERR_CONFIG, setting, "%s: expected at most %d listeners", setting, LISTENERS_MAX);
    const enum status st = listen_open_unix(&kind.fd, &kind.id, path, mode, setting, err);
    if (st != OK)
        return st;
    kind.is_local = true;
    kind.path = path;
    (void)snprintf(kind.name, sizeof kind.name, "unix:%s", path);
    l->all[l->count++] = kind;
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

static enum status open_kind(struct listeners *l, enum listener_kind kind, const struct settings *s, struct error *err)
{
    const struct listener plain = {.fd = -1, .kind = kind}, tcp = {.fd = -1, .kind = kind, .is_tls = tls_is_on(s)};
    mode_t mode = 0;
    enum status st = OK;
    switch (kind) {
    case LISTENER_ADMIN:
        st = add_addresses(l, plain, s->admin_address, s->admin_port, "admin_address", err);
        return st == OK ? add_unix(l, plain, s->admin_unix, ADMIN_UNIX_MODE, "admin_unix", err) : st;
    case LISTENER_METRICS:
        return add_addresses(l, plain, s->metrics_address, s->metrics_port, "metrics_address", err);
    default:
        break;
    }
    if (is_off(s->listen_address) && is_off(s->listen_unix))
        return error_set_param(err, ERR_CONFIG, "listen_address",
                               "listen_address and listen_unix are both " LISTENERS_OFF ": expected at least one");
    st = read_mode(s->listen_unix_mode, &mode, err);
    if (st == OK)
        st = add_addresses(l, tcp, s->listen_address, s->listen_port, "listen_address", err);
    return st == OK ? add_unix(l, plain, s->listen_unix, mode, "listen_unix", err) : st;
}

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

static enum status take_one(struct listeners *l, enum listener_kind kind, const struct settings *s, int fd,
                            const char *name, struct error *err)
{
    struct passed p;
    const enum status st = passed_examine(&p, fd, name, err);
    if (st != OK)
        return st;
    struct listener *next = &l->all[l->count++];
    *next = (struct listener){.fd = fd, .kind = kind, .is_local = p.is_local};
    next->is_tls = kind == LISTENER_PUBLIC && !p.is_local && tls_is_on(s);
    (void)snprintf(next->name, sizeof next->name, "%s%s (passed as %s)",
                   p.is_local     ? "unix:"
                   : next->is_tls ? "https://"
                                  : "http://",
                   p.address, name);
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
        if (st == OK && !any)
            st = open_kind(&l, (enum listener_kind)kind, s, err);
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
