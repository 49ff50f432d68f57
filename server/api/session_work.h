/* session_work.h - sessions that a request holds or has found, and what is read or written of them where they are
 * stored, on threads that may wait for a disk or a network (workers.h). It belongs to a job: one of its own, or that
 * which generates a session's text; with that it ends, and so does whatever is still held. HTTP threads, except as the
 * pool calls it. */
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
    struct job_work work;
    struct sessions *sessions;
    struct stream_snapshot snapshot; /* where the first one is to be moved */
    struct client_id client;         /* whose request it is */
    session_work_use *use;           /* with the first one, once it was fetched; NULL: nothing */
    size_t count;
    struct session_info infos[]; /* [count] */
};

/* With room for that many, zeroed. Errors, where it returns NULL: ERR_NOMEM. */
struct session_work *session_work_create(struct request *x, size_t count, struct error *err);
/* End what is held, and free it. NULL is a no-op. */
void session_work_free(struct session_work *k);
/* End what is held, as it is, before the client can know of the request's end. NULL is a no-op. */
void session_work_let_go(struct session_work *k);

/* Move the first one to `snapshot`: sessions_write. */
enum status session_work_write(struct session_work *k, struct error *err);

/* Go on with `next` when `conclude`, one of those below, has been run by the pool. `k` is taken. Errors: ERR_NOMEM,
 * ERR_FULL, ERR_UNAVAILABLE. */
typedef enum status session_work_do(struct job *j, struct error *err);
enum status session_work_run(struct request *x, struct session_work *k, session_work_do *conclude, request_step *next,
                             struct error *err);
session_work_do session_work_fetch;     /* the first one */
session_work_do session_work_write_new; /* all */
session_work_do session_work_move;      /* session_work_write */
session_work_do session_work_remove;    /* the first one, of a store that is shared */

/* The work of the request's job, which is done; it remains the job's. Errors: why it has failed. */
enum status session_work_done(struct session_work **ret, struct request *x, struct error *err);

/* The first one of what is done, for more to be done with it. Errors: also ERR_NOMEM. */
enum status session_work_take(struct session_work **ret, struct request *x, struct error *err);

/* The job generates a text of the first one, which is held; with a store that has the text before the job is done. The
 * work is the job's from now on. */
void session_work_follow(struct session_work *k, struct job *j);

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* NULL for want of memory. */
json_t *session_describe(const struct session_info *i);

#endif
