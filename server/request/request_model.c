/* request_model.c - see request_model.h. */
#include "server/request/request_model.h"

#include <assert.h>

#include "config/json.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"
#include "server/request/authorise.h"
#include "server/request/request.h"
#include "server/request/service.h"

/* For a key that is limited to some models, with errors that reveal no others. `asked`: what the request calls it. */
static enum status pick_named_for_key(struct request *x, const char *asked, const char *name, int task,
                                      struct hosted_model **ret, struct error *err)
{
    char bare[MODEL_NAME_MAX + 1]; /* keys name models without versions */
    registry_name_of(bare, name);
    enum status st = authorise_model(x, bare, asked, err);
    if (st == OK)
        st = registry_acquire(x->service->registry, name, task, NULL, ret, err);
    if (st == ERR_NOT_FOUND || st == ERR_ARGUMENT)
        st =
            error_set_param(err, st, "model", "the model \"%s\" does not exist, or does not serve this kind of request",
                            json_quote(asked).text);
    return st;
}

struct registry_choice request_model_choice(const struct request *x)
{
    const struct key *k = x->grant.key;
    return k != NULL ? (struct registry_choice){k->models, k->model_count} : (struct registry_choice){NULL, 0};
}

/* `asked`: what the request calls the model; NULL: it does not name one. */
static enum status pick(struct request *x, const char *asked, int task, struct hosted_model **ret, struct error *err)
{
    struct registry *r = x->service->registry;
    const struct registry_choice among = request_model_choice(x);
    const bool limited = among.count > 0;
    char room[MODEL_REF_MAX + 1];
    if (asked != NULL) {
        const char *name = registry_real_name(r, asked, room);
        return limited ? pick_named_for_key(x, asked, name, task, ret, err)
                       : registry_acquire(r, name, task, NULL, ret, err);
    }
    const enum status st = registry_acquire(r, NULL, task, &among, ret, err);
    if (st == ERR_ARGUMENT && limited)
        return error_set_param(err, st, "model", "none of the models that the key \"%s\" may use is for this",
                               x->grant.key->name);
    return st;
}

enum status request_model_acquire(struct request *x, const char *name, int task, struct hosted_model **ret,
                                  struct error *err)
{
    struct hosted_model *e = NULL;
    enum status st = pick(x, name, task, &e, err);
    assert(st != OK || e != NULL);
    if (st == OK)
        st = authorise_model(x, e->model->name, e->model->name, err);
    if (st != OK) {
        hosted_model_release(e);
        return st;
    }
    job_take_model(&x->job, e);
    x->model_label = e->metrics_label;
    *ret = e;
    return OK;
}
