/* locate.c - see locate.h. */
#include "server/cli/locate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"

/* The first of a list with commas, without the spaces around it. */
static void first_address(char out[LOCATE_ADDRESS_BYTES], const char *list)
{
    list += strspn(list, " ");
    size_t size = strcspn(list, ",");
    while (size > 0 && list[size - 1] == ' ')
        size--;
    (void)snprintf(out, LOCATE_ADDRESS_BYTES, "%.*s", (int)size, list);
}

/* For an address that a daemon listens on, how to get there from the same machine. */
static void make_url(struct locate *l, const char *list, uint32_t port, bool is_tls)
{
    struct in_addr v4;
    struct in6_addr v6;
    char address[LOCATE_ADDRESS_BYTES];
    first_address(address, list);
    const char *scheme = is_tls ? "https" : "http";
    const size_t bare = strcspn(address, "%"); /* before an interface's name, whose sign a URL has escaped */
    const char *zone = address[bare] != '\0' ? address + bare + 1 : NULL;
    if (strcmp(address, "*") == 0 || (inet_pton(AF_INET, address, &v4) == 1 && v4.s_addr == htonl(INADDR_ANY)))
        (void)snprintf(l->url, sizeof l->url, "%s://127.0.0.1:%u", scheme, port);
    else if (inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6))
        (void)snprintf(l->url, sizeof l->url, "%s://[::1]:%u", scheme, port);
    else if (strchr(address, ':') != NULL)
        (void)snprintf(l->url, sizeof l->url, "%s://[%.*s%s%s]:%u", scheme, (int)bare, address,
                       zone != NULL ? "%25" : "", zone != NULL ? zone : "", port);
    else
        (void)snprintf(l->url, sizeof l->url, "%s://%s:%u", scheme, address, port);
    l->to.url = l->url;
}

/* A pair of settings, or three, that make a listener. False: it is off, or at a port that the kernel chooses. */
static bool try_tcp(struct locate *l, const char *list, uint32_t port, bool is_tls)
{
    if (!config_is_on(list) || port == 0)
        return false;
    make_url(l, list, port, is_tls);
    l->to.trusts_all = is_tls;
    return true;
}

static bool try_unix(struct locate *l, const char *path)
{
    if (!config_is_on(path))
        return false;
    (void)snprintf(l->unix_path, sizeof l->unix_path, "%s", path);
    l->to.unix_path = l->unix_path;
    return true;
}

/* The socket is for the daemon's own user, who needs no port. Where no setting names a place, it may be where `make
 * run` has it, or deploy/systemd/aftd-admin.socket. */
static bool try_admin(struct locate *l, const struct settings *s)
{
    static const char run[] = "build/admin.sock", passed[] = "/run/aftd/admin.sock";
    return (access(s->admin_unix, W_OK) == 0 && try_unix(l, s->admin_unix)) ||
           try_tcp(l, s->admin_address, s->admin_port, false) || try_unix(l, s->admin_unix) ||
           (access(run, F_OK) == 0 && try_unix(l, run)) || (access(passed, F_OK) == 0 && try_unix(l, passed));
}

static int from_config(struct locate *l, bool admin)
{
    extern char **environ;
    char *argv[] = {"aft", "--config", (char *)l->config, NULL};
    struct config config;
    struct error err;
    if (config_load(&config, argv[2] != NULL ? 3 : 1, argv, environ, NULL, NULL, &err) != OK) {
        (void)cli_fail_error(&err);
        return CLI_USAGE;
    }
    const struct settings *s = &config.settings;
    const char *file = config.path[0] != '\0' ? config.path : "no file";
    if ((!admin && (try_tcp(l, s->listen_address, s->listen_port, config_is_on(s->tls_certificate)) ||
                    try_unix(l, s->listen_unix))) ||
        try_admin(l, s))
        return CLI_OK;
    return cli_fail_usage("no %s is configured (%s, the environment): expected %s, or --url or --unix",
                          admin ? "admin listener" : "listener", file,
                          admin ? "admin_unix, or admin_address and admin_port"
                                : "listen_port, listen_unix or a listener for administration");
}

int locate_parse(struct locate *l, bool admin, const struct cli_option *options, int argc, char **argv, int min,
                 int max, int *count)
{
    int code = cli_parse(options, argc, argv, min, max, count);
    if (code == CLI_OK && *count >= 0 && l->to.url == NULL && l->to.unix_path == NULL)
        code = from_config(l, admin);
    if (code != CLI_OK || *count < 0)
        return code;
    if (l->to.url == NULL)
        l->to.url = "http://localhost";
    if (!admin)
        return CLI_OK;
    l->to.timeout_s = ADMIN_ANSWER_S;
    return remote_check(&l->to);
}
