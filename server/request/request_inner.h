/* request_inner.h - what the files of request.h share among themselves: all requests together, and the parts of one
 * that the library calls or wakes. */
#ifndef SERVER_REQUEST_REQUEST_INNER_H
#define SERVER_REQUEST_REQUEST_INNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "server/http/quota.h"
#include "server/http/transport.h"
#include "server/request/body.h"
#include "server/request/request.h"

struct requests {
    const struct service *service;
    struct http *http;
    atomic_uint count;
    struct bodies bodies, admin_bodies; /* administrators are not shut out by the bodies of others */
    struct quota answers;               /* bytes */
    struct {                            /* those that are shown, see active_requests.c */
        pthread_mutex_t lock;
        TAILQ_HEAD(, request) list;
    } active;
};

/* Where its body counts. */
static inline struct bodies *request_bodies(const struct request *x)
{
    return x->is_admin ? &x->all->admin_bodies : &x->all->bodies;
}

/* ---- answer.c --------------------------------------------------------------------------------------------------- */

void answers_begin(struct requests *all);
/* What the request has reserved; before its connection may be closed. */
void request_release_answer(struct request *x);

/* ---- active_requests.c ------------------------------------------------------------------------------------------ */

/* Once this returns, no other thread sees the request. One that was not shown is a no-op. */
void active_leave(struct request *x);

/* ---- await.c ---------------------------------------------------------------------------------------------------- */

/* A stream begins: pings from now on. */
void request_watch_silence(struct request *x);
/* Is it time to go on with the step that request_watch_job named? If not, the request is suspended and will be
 * resumed. */
bool request_ready_or_suspend(struct request *x);

#endif
