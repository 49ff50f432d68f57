/* request.c - see request.h: what a client sent. */
#include "server/request/request.h"

#include <stdalign.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "config/settings.h"
#include "server/http/transport.h"
#include "server/request/framing.h"
#include "server/request/request_inner.h"
#include "server/request/service.h"

_Static_assert(REQUEST_CLIENT_BYTES >= INET6_ADDRSTRLEN, "any address fits");

const char *request_header(const struct request *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

struct same_headers {
    const char *name, *last;
    size_t count;
};

static enum MHD_Result same_header_step(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct same_headers *s = cls;
    (void)kind;
    if (strcasecmp(name, s->name) == 0) {
        s->last = value != NULL ? value : "";
        s->count++;
    }
    return MHD_YES;
}

size_t request_headers(const struct request *x, const char *name, const char **ret)
{
    struct same_headers same = {.name = name};
    (void)MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, same_header_step, &same);
    if (same.count > 0)
        *ret = same.last;
    return same.count;
}

void request_client(const struct request *x, char out[REQUEST_CLIENT_BYTES])
{
    proxies_print_address(&x->address, out);
}

void request_drop_body(struct request *x)
{
    http_note_freed(x->http, x->body.capacity);
    body_drop(&x->body, request_bodies(x));
}

void request_count_as(struct request *x, const struct client_id *client)
{
    x->quota_owner = *client;
}

static enum MHD_Result framing_step(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_bytes,
                                    const char *value, size_t value_bytes)
{
    (void)kind;
    framing_header(cls, name, name_bytes, value != NULL ? value : name + name_bytes, value != NULL ? value_bytes : 0);
    return MHD_YES;
}

enum status request_check_framing(struct request *x, struct error *err)
{
    const struct connection *c = x->connection;
    const struct settings *s = x->service->settings;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct framing f;
    framing_begin(&f, x->method, c->target, c->target_bytes, x->version,
                  info != NULL && !HTTP_LIBRARY_IS_STRICT ? info->header_size : 0);
    (void)MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, framing_step, &f);
    const enum status st = framing_end(&f, err);
    if (st != OK)
        return st;
    x->has_body = f.has_length || f.is_chunked;
    x->body_bytes = f.length;
    x->closes = f.is_chunked; /* see framing.h */
    if (c->target_has_space)
        return error_set(err, ERR_ARGUMENT, "the URL has a space; expected %%20");
    if (c->path_has_nul)
        return error_set(err, ERR_NOT_FOUND, "there is nothing at a path with a NUL (%%00)");
    if (c->target_bytes > HTTP_URL_MAX)
        return error_set(err, ERR_URL, "the URL has %zu bytes; at most %d are allowed", c->target_bytes, HTTP_URL_MAX);
    if (f.has_length && f.length > s->body_bytes_max)
        return error_set(err, ERR_TOO_LARGE, "the body has %llu bytes; at most %u are allowed",
                         (unsigned long long)f.length, s->body_bytes_max);
    return OK;
}
