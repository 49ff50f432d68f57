/* session_work.h - sessions that a request holds or has found, and what is read or written of them where they are
 * stored, on threads that may wait for a disk or a network (workers.h). It is the request's: with that ends whatever is
 * still held. HTTP threads, except as the pool calls it. */
#ifndef SERVER_API_SESSION_WORK_H
#define SERVER_API_SESSION_WORK_H

#include <jansson.h>
#include <stddef.h>

#include "config/status.h"
#include "server/request/request.h"
#include "server/request/workers.h"
#include "server/session/sessions.h"

/* The id of the session that a request is about, in requests and in answers, where balancers see it. */
#define SESSION_HEADER "X-Session-ID"

typedef enum status session_work_use(struct request *x, const struct session_info *i, struct error *err);

struct session_work {
    struct sessions *sessions;
    struct stream_snapshot snapshot; /* where the first one begins, or is to be moved */
    struct client_id client;         /* whose request it is */
    session_work_use *use;           /* with the first one, once it was fetched; NULL: nothing */
    size_t count;
    struct session_info infos[]; /* [count] */
};

/* With room for that many, zeroed. Errors: ERR_NOMEM. */
enum status session_work_create(struct session_work **ret, struct request *x, size_t count, struct error *err);
/* End what is held, as it is, before the client can know of the request's end; on an error the phases do. NULL is a
 * no-op. */
void session_work_let_go(struct session_work *k);

/* Move the first one to `snapshot`: sessions_write. */
enum status session_work_write(struct session_work *k, struct error *err);

/* Go on with `next` when `postprocess`, one of those below, has been run by the pool. Errors: ERR_FULL,
 * ERR_UNAVAILABLE. */
typedef enum status session_work_do(struct job *j, struct error *err);
enum status session_work_run(struct request *x, struct session_work *k, session_work_do *postprocess,
                             request_step *next, struct error *err);
session_work_do session_work_fetch;     /* the first one */
session_work_do session_work_write_new; /* all */
session_work_do session_work_move;      /* session_work_write */
session_work_do session_work_remove;    /* the first one, of a store that is shared */

/* What session_work_run was given, once that is done. */
static inline struct session_work *session_work_of(const struct job *j)
{
    return j->work.arg;
}

/* The job generates a text of the first one, which is held; with a store that has the text before the job is done. */
void session_work_follow(struct session_work *k, struct job *j);

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* NULL for want of memory. */
json_t *session_describe(const struct session_info *i);

#endif
