/* request_host.c - see request_host.h. */
#include "server/request/request_host.h"

#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/request/cors.h"
#include "server/request/hosts.h"
#include "server/request/request.h"
#include "server/request/service.h"

const char *request_host_path(const char *target)
{
    const size_t scheme = host_scheme(target);
    if (scheme == 0) /* not in absolute form */
        return target;
    const char *slash = strchr(target + scheme, '/');
    return slash != NULL ? slash : "/";
}

/* For a message. What stands before an '@' may be a secret, and is not repeated. */
static struct quoted request_host_show(const char *text, size_t size)
{
    char host[HOST_NAME_BYTES_MAX + 1];
    const char *at = memrchr(text, '@', size), *from = at != NULL ? at : text;
    const size_t left = (size_t)(text + size - from);
    (void)snprintf(host, sizeof host, "%.*s", (int)(left < sizeof host ? left : sizeof host - 1), from);
    return json_quote(host);
}

/* *ret is set only on OK. */
static enum status read_served(struct host *ret, const struct request *x, const char *text, size_t size,
                               struct error *err)
{
    struct host h;
    while (size > 0 && (text[size - 1] == ' ' || text[size - 1] == '\t')) /* no part of a header's value */
        size--;
    if (!host_read(&h, text, size))
        return error_set_param(err, ERR_ARGUMENT, "Host",
                               "the request is for the host \"%s\"; expected a name or an address, with or without a "
                               "port",
                               request_host_show(text, size).text);
    if (!hosts_serve(x->service->hosts, &h))
        return error_set_param(err, ERR_FORBIDDEN, "Host",
                               "the request is for the host \"%s\", which is not served; expected an address, "
                               "localhost, or a name in the setting hosts",
                               request_host_show(text, size).text);
    *ret = h;
    return OK;
}

/* The host that is asked; an empty one if an old client does not say it. In absolute form the target is what counts,
 * but then a browser did not send it; Host must be fine as well. */
static enum status check_host(struct host *ret, const struct request *x, const char *target, struct error *err)
{
    const char *value = NULL;
    const size_t scheme = host_scheme(target);
    enum status st = OK;
    *ret = (struct host){.is_address = false};
    if (request_headers(x, "Host", &value) > 0) /* framing.c lets only one pass */
        st = read_served(ret, x, value, strlen(value), err);
    if (st == OK && scheme > 0)
        st = read_served(ret, x, target + scheme, strcspn(target + scheme, "/"), err);
    return st;
}

/* Does a page of that origin belong to this daemon, or may it use it as cors_origins says? Ports and schemes do not
 * count, because a proxy in front of the daemon has others; nor does what the proxy made of Host, if the page's own
 * host is named by the setting. */
static bool may_ask(const struct request *x, const struct host *host, const char *origin)
{
    const struct service *s = x->service;
    struct host page;
    if (!x->is_admin && cors_answer(s->settings->cors_origins, origin) != NULL)
        return true;
    return host_read_origin(&page, origin) && (strcmp(page.name, host->name) == 0 || hosts_name(s->hosts, &page));
}

/* Browsers name the page that sends a request, programs do not. A request that a browser sends for a page that somebody
 * merely looks at takes effect even if the page may not read the answer. */
static enum status check_origin(const struct request *x, const struct host *host, struct error *err)
{
    const char *origin = NULL;
    const size_t count = request_headers(x, "Origin", &origin);
    if (count == 0)
        return OK;
    if (x->kind == API_ADMIN)
        return error_set_param(err, ERR_FORBIDDEN, "Origin",
                               "the request comes from a page of \"%s\"; expected no Origin: pages in browsers may not "
                               "use the admin API",
                               json_quote(origin).text);
    if (x->is_local || (count == 1 && may_ask(x, host, origin)))
        return OK;
    return error_set_param(err, ERR_FORBIDDEN, "Origin",
                           "the request comes from a page of \"%s\"; expected one of the host that it is for, of a "
                           "name in the setting hosts, or of an origin in the setting cors_origins",
                           json_quote(origin).text);
}

enum status request_host_check(const struct request *x, struct error *err)
{
    struct host host = {.is_address = false};
    const enum status st = x->is_local ? OK : check_host(&host, x, x->target, err);
    return st == OK ? check_origin(x, &host, err) : st;
}
