/* store_redis_url.c - see store_redis_url.h. */
#include "server/session/store_redis_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "config/digits.h"
#include "config/file.h"

enum { PORT_MAX = 65535, DATABASE_MAX = 65535, SOCKET_PATH_MAX = sizeof((struct sockaddr_un *)0)->sun_path - 1 };

_Static_assert(SOCKET_PATH_MAX <= HOST_NAME_BYTES_MAX, "a path fits where a host does");

/* ---- the URL ---------------------------------------------------------------------------------------------------- */

static enum status store_redis_url_refuse(struct error *err, const char *url, const char *expected)
{
    return error_set(err, ERR_CONFIG, "the URL of the session store is \"%.200s\", expected %s", url, expected);
}

/* The number [size] from `min` to `max`, which something else or the end follows, printed as such into out. */
static bool read_number(char out[8], const char *text, size_t size, unsigned min, unsigned max)
{
    const char *end = text;
    uint64_t number = 0;
    if (size > 5 || !digits_read(&number, &end) || end != text + size || number < min || number > max)
        return false;
    (void)snprintf(out, 8, "%u", (unsigned)number);
    return true;
}

static enum status read_database(struct redis_address *a, const char *url, const char *text, struct error *err)
{
    if (!read_number(a->database, text, strlen(text), 0, DATABASE_MAX))
        return store_redis_url_refuse(err, url, "a database's number at its end, 0 to 65535");
    return OK;
}

static enum status read_unix(struct redis_address *a, const char *url, const char *path, struct error *err)
{
    static const char query[] = "?db=";
    const size_t size = strcspn(path, "?");
    if (path[0] != '/' || size < 2 || size > SOCKET_PATH_MAX)
        return store_redis_url_refuse(err, url, "unix:/PATH with an absolute path of at most 107 bytes");
    if (path[size] != '\0' && strncmp(path + size, query, sizeof query - 1) != 0)
        return store_redis_url_refuse(err, url, "nothing but ?db=NUMBER after the path");
    memcpy(a->host, path, size);
    return path[size] == '\0' ? OK : read_database(a, url, path + size + sizeof query - 1, err);
}

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT, of [size] bytes. */
static enum status read_host(struct redis_address *a, const char *url, const char *text, size_t size, struct error *err)
{
    static const char hosts[] = "redis://HOST:PORT/DB, where HOST is a name, an IPv4 address or [an IPv6 address]";
    const bool is_v6 = size > 0 && text[0] == '[';
    const char *colon = memchr(text, is_v6 ? ']' : ':', size), *host = text + is_v6;
    const size_t host_size = colon != NULL ? (size_t)(colon - host) : size;
    if (is_v6 && colon != NULL)
        colon = ++colon == text + size ? NULL : colon;
    else if (is_v6)
        return store_redis_url_refuse(err, url, hosts);
    if (host_size == 0 || host_size > HOST_NAME_BYTES_MAX || (colon != NULL && *colon != ':'))
        return store_redis_url_refuse(err, url, hosts);
    for (size_t i = 0; i < host_size; i++)
        if (host[i] <= ' ' || host[i] > '~' || strchr(is_v6 ? "[]?#/\\" : "[]?#/\\:", host[i]) != NULL)
            return store_redis_url_refuse(err, url, hosts);
    memcpy(a->host, host, host_size);
    (void)snprintf(a->service, sizeof a->service, "6379");
    if (colon != NULL && !read_number(a->service, colon + 1, size - (size_t)(colon + 1 - text), 1, PORT_MAX))
        return store_redis_url_refuse(err, url, "a port from 1 to 65535");
    return OK;
}

enum status redis_address_read(struct redis_address *ret, const char *url, struct error *err)
{
    struct redis_address a = {.database = "0"};
    enum status st;
    if (strncmp(url, "unix:", 5) == 0) {
        st = read_unix(&a, url, url + 5, err);
    } else if (strncmp(url, "rediss:", 7) == 0) {
        st = store_redis_url_refuse(
            err, url, "redis://HOST:PORT/DB: TLS is not supported, use a private network or a Unix socket");
    } else if (strncmp(url, "redis://", 8) != 0) {
        st = store_redis_url_refuse(err, url, "redis://HOST:PORT/DB or unix:/PATH?db=DB");
    } else if (strchr(url, '@') != NULL) {
        /* not repeated: this ends in a log */
        st =
            error_set(err, ERR_CONFIG,
                      "the URL of the session store holds a user or a password, expected these in a file of their own");
    } else {
        const char *at = url + 8, *slash = strchr(at, '/');
        st = read_host(&a, url, at, slash != NULL ? (size_t)(slash - at) : strlen(at), err);
        if (st == OK && slash != NULL && slash[1] != '\0')
            st = read_database(&a, url, slash + 1, err);
    }
    if (st == OK)
        *ret = a;
    return st;
}

/* ---- the password ----------------------------------------------------------------------------------------------- */

enum status redis_password_read(struct redis_password *ret, const char *path, struct error *err)
{
    struct redis_password p = {.password = ""};
    char *text = NULL;
    size_t size = 0;
    if (path == NULL || path[0] == '\0') {
        *ret = p;
        return OK;
    }
    const enum status st = file_read_all(&text, &size, path, 2 * STORE_PASSWORD_MAX + 3, err);
    if (st != OK)
        return st;
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        text[--size] = '\0';
    const char *colon = strchr(text, ':'), *password = colon != NULL ? colon + 1 : text;
    const size_t user_size = colon != NULL ? (size_t)(colon - text) : 0;
    const bool is_fine = strlen(text) == size && strpbrk(text, "\r\n") == NULL && *password != '\0' &&
                         strlen(password) <= STORE_PASSWORD_MAX && user_size <= STORE_PASSWORD_MAX;
    if (is_fine) {
        memcpy(p.user, text, user_size);
        memcpy(p.password, password, strlen(password));
        *ret = p;
    }
    explicit_bzero(text, size);
    free(text);
    explicit_bzero(&p, sizeof p);
    if (!is_fine)
        return error_set(err, ERR_FORMAT, "%s: expected one line, PASSWORD or USER:PASSWORD, of at most %d bytes each",
                         path, STORE_PASSWORD_MAX);
    return OK;
}
