/* model_change.h - an administrator's request to change which models are served: the loader does it, and the exchange
 * waits for that as for any job. HTTP threads. */
#ifndef SERVER_API_MODEL_CHANGE_H
#define SERVER_API_MODEL_CHANGE_H

#include "server/control/loader.h"
#include "server/request/request.h"

/* Have it done, and continue with `next` when x->job says how it went; or answer with an error. model: "" for
 * LOADER_CONFIG. */
void model_change_submit(struct request *x, enum loader_action action, const char *model, request_handler *next);

#endif
