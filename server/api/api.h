/* api.h - what the endpoints share: the model that a request means, and its job. An endpoint's functions are declared
 * by its row in route_table.h; they run on HTTP threads, and answer their exchange once. */
#ifndef SERVER_API_API_H
#define SERVER_API_API_H

#include <jansson.h>
#include <stdbool.h>

#include "config/status.h"
#include "server/api/api_request.h"
#include "server/api/reply.h"
#include "server/api/route_table.h"
#include "server/http/http.h"
#include "weights/model_config.h"

struct hosted_model;
struct job;

/* The model that a request means (registry_acquire_for), which the exchange then keeps to its end. *ret is borrowed
 * from it. Once in an exchange. */
enum status api_pick_model(struct exchange *x, const char *name, int task, struct hosted_model **ret,
                           struct error *err);
/* The same with a model that was found otherwise. Errors: ERR_FORBIDDEN: not by this key. */
enum status api_use_model(struct exchange *x, struct hosted_model *e, struct error *err);

/* Hand a job to the engine and go on with `next` when it is ready, or answer that this cannot be. Takes `j`. */
void api_submit(struct exchange *x, struct job *j, uint32_t timeout_ms, http_handler *next);
/* How most endpoints end: with OK as api_submit, of a request whose body is of no use any more; else with the error.
 * Takes `j`, which may be there although there is an error, and NULL. */
void api_submit_or_refuse(struct exchange *x, enum status st, const struct error *err, struct job *j,
                          uint32_t timeout_ms, http_handler *next);
/* Is the queue full? Then that was answered: before work is spent on a request that would be refused. */
bool api_refuse_if_full(struct exchange *x);

/* Times in milliseconds, whole microseconds. */
double api_milliseconds(uint64_t from_ns, uint64_t to_ns);

/* What the awaited job, which is done or streams, took: for the answer of one that generates; and for Server-Timing. */
json_t *api_timings(const struct exchange *x);
void api_note_times(struct exchange *x);

#endif
