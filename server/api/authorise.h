/* authorise.h - may this request be answered? The key that it brings, what that may do, and its rates. HTTP threads. */
#ifndef SERVER_API_AUTHORISE_H
#define SERVER_API_AUTHORISE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"

struct exchange;
struct job;

/* Let a request in by the key of its headers, Authorization: Bearer KEY or X-API-Key: KEY, for x->api->kind. False: it
 * was answered with 401, 403 or 429. Where the daemon has no keys everybody may do everything, but that pages in
 * browsers do not administrate. */
bool authorise(struct exchange *x);
/* A job is about to be submitted: what its request has received is taken from what its key may ask for, and what it
 * generates from then on. False: it was answered with 429, the key's requests have too much ahead of them. */
bool authorise_job(struct exchange *x, struct job *j);
/* The job was not taken. */
void authorise_no_job(struct exchange *x);
/* At the exchange's end: what it has received and generated was, or is, taken. */
void authorise_end(struct exchange *x, uint64_t bytes);
/* May the request use a model of that name? Errors: ERR_FORBIDDEN. */
enum status authorise_model(const struct exchange *x, const char *name, struct error *err);

#endif
