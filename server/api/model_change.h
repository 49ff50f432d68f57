/* model_change.h - an administrator's request to change which models are served: the loader does it, and the request
 * waits for that as for any job. HTTP threads. */
#ifndef SERVER_API_MODEL_CHANGE_H
#define SERVER_API_MODEL_CHANGE_H

#include "server/control/loader.h"
#include "server/request/request.h"

/* Have it done, and go on with `next` when its job says how it went. model: "" for LOADER_CONFIG. Errors:
 * ERR_NOT_FOUND, ERR_NOMEM, ERR_FULL, ERR_UNAVAILABLE. */
enum status model_change_submit(struct request *x, enum loader_action action, const char *model, request_step *next,
                                struct error *err);

#endif
