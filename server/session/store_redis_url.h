/* store_redis_url.h - where a Redis server is: the URL as an operator writes it, and the password beside it.
 * Any thread; no state. */
#ifndef SERVER_SESSION_STORE_REDIS_URL_H
#define SERVER_SESSION_STORE_REDIS_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

struct redis_address {
    char host[HOST_NAME_BYTES_MAX + 1]; /* or the path of a Unix socket, which is shorter */
    char service[8];                    /* the port; "": a Unix socket */
    char database[8];                   /* its number */
};

/* redis://HOST:PORT/DB or unix:/PATH?db=DB. Errors: ERR_CONFIG. */
enum status redis_address_read(struct redis_address *ret, const char *url, struct error *err);

/* What AUTH is given; all empty: it is not sent. */
struct redis_password {
    char user[STORE_PASSWORD_MAX + 1]; /* "": the server's default */
    char password[STORE_PASSWORD_MAX + 1];
};

/* PASSWORD or USER:PASSWORD, the one line of the file; NULL or "": there is none. Errors: ERR_IO, ERR_FORMAT,
 * ERR_NOMEM. */
enum status redis_password_read(struct redis_password *ret, const char *path, struct error *err);

#endif
