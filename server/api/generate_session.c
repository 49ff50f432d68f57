/* generate_session.c - see generate_session.h. */
#include "server/api/generate_session.h"

#include <stdio.h>
#include <string.h>

#include "server/api/generate_state.h"
#include "server/models/hosted_model.h"
#include "server/operation/generate.h"
#include "server/request/request.h"
#include "server/request/service.h"

enum status generate_session_begin(struct session_work **k, struct request *x, struct generate_request *r,
                                   struct error *err)
{
    enum status st = OK;
    if (r->session[0] != '\0' && *k == NULL) { /* else it was fetched */
        st = session_work_create(k, x, 1, err);
        if (st == OK)
            st = sessions_begin(x->service->sessions, &x->client, r->session, &(*k)->infos[0], err);
    }
    if (st == OK && *k != NULL && r->model[0] == '\0')
        (void)snprintf(r->model, sizeof r->model, "%s", (*k)->infos[0].head.model);
    return st;
}

bool generate_session_must_fetch(const struct session_work *k)
{
    return k != NULL && k->infos[0].held != NULL && k->infos[0].state == NULL;
}

enum status generate_session_open(const struct session_work *k, struct generate_request *r,
                                  const struct hosted_model *e, struct error *err)
{
    if (r->state != NULL)
        return generate_state_read(r, e, err);
    if (k == NULL)
        return OK;
    const struct session_info *i = &k->infos[0];
    if (strcmp(e->model->name, i->head.model) != 0)
        return error_set_param(err, ERR_ARGUMENT, "model",
                               "the model \"%s\" is not the session's; expected \"%s\", or none", e->model->name,
                               i->head.model);
    enum status st = session_info_check_model(i, e, err);
    if (st == OK && sessions_are_stored(k->sessions)) /* whoever may write there may have changed it */
        st = stream_snapshot_check(&i->snapshot, e->engine, err);
    return st == OK ? generate_state_continue(r, e, &i->snapshot, err) : st;
}

enum status generate_session_end(struct request *x, bool resumable, struct error *err)
{
    struct session_work *k = x->job.work.arg;
    enum status st = OK;
    if (k == NULL || k->infos[0].held == NULL)
        return OK;
    struct generate_job *j = generate_job_of(&x->job);
    if (resumable && j->has_saved && !sessions_are_stored(k->sessions)) {
        st = sessions_write(k->sessions, &k->infos[0], &j->saved, err);
        if (st == OK)
            j->saved = (struct stream_snapshot){.memory = NULL}; /* the session's */
    }
    sessions_end(k->sessions, &k->infos[0]);
    return st;
}
