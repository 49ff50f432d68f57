/* generate_session.h - the session whose text a request to /generate continues: from when the request takes it until
 * its answer, when it stands behind that or where it was. HTTP threads; no state. */
#ifndef SERVER_API_GENERATE_SESSION_H
#define SERVER_API_GENERATE_SESSION_H

#include <stdbool.h>

#include "config/status.h"
#include "server/api/generate_request.h"
#include "server/api/session_work.h"

struct hosted_model;

/* Take the session that the request names, if it does, into *k, unless it is there already since it was fetched: no
 * other request can use it until it ends. The model becomes the session's. Errors: those of sessions_begin. */
enum status generate_session_begin(struct session_work **k, struct request *x, struct generate_request *r,
                                   struct error *err);
/* Is its state not in memory? NULL: there is no session. */
bool generate_session_must_fetch(const struct session_work *k);
/* Let the text continue from the request's state, or from the session of `k` (NULL: none), or from nothing. Errors:
 * ERR_ARGUMENT, ERR_CONFLICT (the model is another), ERR_NOMEM. */
enum status generate_session_open(const struct session_work *k, struct generate_request *r,
                                  const struct hosted_model *e, struct error *err);
/* Release the session of the request's job, if there is one, to others: moved to the text's end, or where it was
 * before. Call this before the client can know of the end. A stored one has moved already. Errors: those of
 * sessions_write; it is then where it was, which is to be answered. */
enum status generate_session_end(struct request *x, bool resumable, struct error *err);

#endif
