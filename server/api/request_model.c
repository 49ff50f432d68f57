/* request_model.c - see request_model.h. */
#include "server/api/request_model.h"

#include <assert.h>

#include "config/json.h"
#include "server/api/api_request.h"
#include "server/api/authorise.h"
#include "server/api/service.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"

enum status request_model_use(struct exchange *x, struct hosted_model *e, struct error *err)
{
    const enum status st = authorise_model(x, e->model->name, err);
    if (st != OK)
        return st;
    hosted_model_reference(e);
    x->api->hosted = e;
    x->api->model = e->metrics_label;
    return OK;
}

static enum status pick_named_for_key(struct exchange *x, const char *name, int task, struct hosted_model **ret,
                                      struct error *err)
{
    char bare[MODEL_NAME_MAX + 1]; /* keys name models without versions */
    registry_name_of(bare, name);
    enum status st = authorise_model(x, bare, err);
    if (st == OK)
        st = registry_acquire_for(service_of(x)->registry, name, task, ret, err);
    if (st == ERR_NOT_FOUND || st == ERR_ARGUMENT)
        st =
            error_set_param(err, st, "model", "the model \"%s\" does not exist, or does not serve this kind of request",
                            json_quote(name).text);
    return st;
}

/* For a key that is limited to some models: choose the only one that fits if none is named, and make errors that reveal
 * no others. */
static enum status pick_for_key(struct exchange *x, const char *name, int task, struct hosted_model **ret,
                                struct error *err)
{
    const struct key *k = x->api->grant.key;
    struct hosted_model *only = NULL;
    struct error why;
    enum status st = OK;
    size_t found = 0;
    if (name != NULL)
        return pick_named_for_key(x, name, task, ret, err);
    for (size_t i = 0; i < k->model_count; i++) {
        struct hosted_model *e = NULL;
        struct error wrong;
        const enum status picked = registry_acquire_for(service_of(x)->registry, k->models[i], task, &e, &wrong);
        if (picked == ERR_NOT_FOUND || picked == ERR_ARGUMENT)
            continue;
        hosted_model_release(only);
        only = e;
        st = picked;
        why = wrong;
        found++;
    }
    if (found == 1 && st == OK) {
        *ret = only;
        return OK;
    }
    hosted_model_release(only);
    if (found == 1)
        return error_set_param(err, st, why.param, "%s", why.message);
    return error_set_param(err, ERR_ARGUMENT, "model",
                           "\"model\" is missing and the key \"%s\" may use %zu models for this%s", k->name, found,
                           found > 0 ? "; expected the name of one of them" : "");
}

enum status request_model_acquire(struct exchange *x, const char *name, int task, struct hosted_model **ret,
                                  struct error *err)
{
    struct hosted_model *e = NULL;
    enum status st = x->api->grant.key != NULL && x->api->grant.key->model_count > 0
                         ? pick_for_key(x, name, task, &e, err)
                         : registry_acquire_for(service_of(x)->registry, name, task, &e, err);
    assert(st != OK || e != NULL);
    if (st == OK)
        st = request_model_use(x, e, err);
    if (st == OK)
        *ret = e; /* the exchange holds it now */
    hosted_model_release(e);
    return st;
}
