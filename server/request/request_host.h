/* request_host.h - whom a request is for, and from whose page it comes, if from one: what browsers tell in Host and
 * Origin. Both keep pages in a browser from using a daemon that is not meant for them. HTTP threads; no state. */
#ifndef SERVER_REQUEST_REQUEST_HOST_H
#define SERVER_REQUEST_REQUEST_HOST_H

#include "config/status.h"

struct request;

/* Where the path of a request target begins, which may name the server too (RFC 9112, 3.2.2). */
const char *request_host_path(const char *target);

/* May a request for that host, from that page, be answered? What comes through a Unix socket may name any host: no
 * browser gets there by itself. x->kind is set. Errors: ERR_ARGUMENT, ERR_FORBIDDEN. */
enum status request_host_check(const struct request *x, struct error *err);

#endif
