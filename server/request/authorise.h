/* authorise.h - may this request be answered? Its key, what the key may do, and its rate limits. HTTP threads. */
#ifndef SERVER_REQUEST_AUTHORISE_H
#define SERVER_REQUEST_AUTHORISE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"

struct request;

/* Let a request in by the key of its headers, Authorization: Bearer KEY or X-API-Key: KEY, for x->kind; from then on
 * x->client is the key's. If the daemon has no keys everybody may do everything. Errors: ERR_KEY, ERR_FORBIDDEN,
 * ERR_RATE. */
enum status authorise(struct request *x, struct error *err);
/* Call before a job is submitted: may it have its priority? The bytes that its request received count against the key's
 * rate limit, and from then on those that it generates. Errors: as authorise_priority; ERR_RATE: the key's requests
 * already have too much ahead of them. */
enum status authorise_job(struct request *x, struct error *err);
/* No job is accepted: only what was received counts. */
void authorise_no_job(struct request *x);
/* At the request's end: account for the bytes that it received and generated, as far as that is not done yet. */
void authorise_end(struct request *x, uint64_t bytes);
/* May the request use the model `name`, which it calls `asked`, as the message does? Errors: ERR_FORBIDDEN. */
enum status authorise_model(const struct request *x, const char *name, const char *asked, struct error *err);
/* The highest priority that the request may ask for. */
int32_t authorise_priority_max(const struct request *x);
/* May the request ask for that priority? Errors: ERR_FORBIDDEN (param "priority"). */
enum status authorise_priority(const struct request *x, int32_t priority, struct error *err);

#endif
