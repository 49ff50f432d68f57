/* request_model.h - the model that a request means, as far as its key may use it. HTTP threads; no state. */
#ifndef SERVER_API_REQUEST_MODEL_H
#define SERVER_API_REQUEST_MODEL_H

#include "config/status.h"
#include "server/http/http.h"

struct hosted_model;

/* As registry_acquire_for says which; the exchange keeps it to its end, and *ret is borrowed from it. Once in an
 * exchange. Errors: registry_acquire_for's, ERR_FORBIDDEN: not by this key. */
enum status request_model_acquire(struct exchange *x, const char *name, int task, struct hosted_model **ret,
                                  struct error *err);
/* The same with a model that was found otherwise. Errors: ERR_FORBIDDEN. */
enum status request_model_use(struct exchange *x, struct hosted_model *e, struct error *err);

#endif
