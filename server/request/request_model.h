/* request_model.h - the model that a request asks for, if its key may use it. HTTP threads; no state. */
#ifndef SERVER_REQUEST_REQUEST_MODEL_H
#define SERVER_REQUEST_REQUEST_MODEL_H

#include "config/status.h"
#include "server/request/request.h"

#include "server/models/registry.h"

/* registry_acquire decides which, where `name` is NULL among those that the key may use; the request holds it until
 * its end, and *ret is borrowed from it. At most once in a request. Errors: those of registry_acquire; ERR_FORBIDDEN:
 * the key may not use it. */
enum status request_model_acquire(struct request *x, const char *name, int task, struct hosted_model **ret,
                                  struct error *err);

/* The models that the request's key may use; borrows the exchange. */
struct registry_choice request_model_choice(const struct request *x);

#endif
