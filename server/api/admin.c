/* admin.c - the admin API, on the admin listener only: listing and changing models, the settings in force, reloading
 * files, draining. The loader makes the changes; the request waits for it as for any job. */
#include "server/api/route_table.h"

#include <signal.h>
#include <unistd.h>

#include "config/config.h"
#include "config/json_memory.h"
#include "server/api/model_change.h"
#include "server/control/loader.h"
#include "server/control/reload.h"
#include "server/core/clock.h"
#include "server/models/registry.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/service.h"

/* ---- models ---------------------------------------------------------------------------------------------------- */

/* NULL for want of memory. */
static json_t *admin_describe(const struct registry_model *row)
{
    const struct hosted_model *e = row->hosted;
    json_t *m = json_pack("{s:s, s:s}", "model", row->found.name, "state", model_state_word(row->state));
    const uint32_t version = e != NULL ? e->version : row->found.version;
    if (version != 0)
        json_put(m, "version", json_integer(version));
    if (row->state == MODEL_LOADED || row->state == MODEL_IDLE)
        json_put(m, "task", json_string(model_task_name(row->task)));
    if (e != NULL) {
        json_put(m, "memory_bytes", json_integer((json_int_t)e->bytes));
        json_put(m, "created", json_integer((json_int_t)e->created_s));
        json_put(m, "in_use", json_boolean(row->in_use));
    }
    if (row->failure[0] != '\0')
        json_put(m, "failure", json_string(row->failure));
    return m;
}

enum status api_admin_models(struct request *x, struct error *err)
{
    (void)err;
    const struct service *s = x->service;
    struct registry_model *rows = NULL;
    size_t count = 0;
    uint64_t bytes = 0;
    json_t *list = json_array();
    const bool failed = registry_models(s->registry, &rows, &count) != OK;
    for (size_t i = 0; i < count; i++) {
        json_append(list, admin_describe(&rows[i]));
        bytes += rows[i].hosted != NULL ? rows[i].hosted->bytes : 0;
    }
    registry_models_free(rows, count);
    json_t *whole = json_pack("{s:o, s:I, s:i}", "models", list, "memory_bytes", (json_int_t)bytes,
                              "models_memory_max_mb", (int)s->settings->models_memory_max_mb);
    return reply_send_json(x, 200, json_unless(failed, whole));
}

/* ---- changes --------------------------------------------------------------------------------------------------- */

/* NULL for want of memory. */
static json_t *describe_change(const struct loader_change *c)
{
    if (c->action == LOADER_CONFIG)
        return json_incref(c->report);
    return json_pack("{s:s, s:s}", "model", c->model, "state",
                     model_state_word(c->action == LOADER_UNLOAD ? MODEL_UNLOADED : MODEL_LOADED));
}

static enum status answer_change(struct request *x, struct error *err)
{
    (void)err;
    return reply_send_json(x, 200, describe_change(loader_job_change(&x->job)));
}

struct fields {
    enum loader_action action;
};

#define X(constant, word) word,
static const struct field table[] = {
    {"action", FIELD_WORD, .required = true, .offset = offsetof(struct fields, action), .words = {LOADER_ACTIONS(X)},
     .what = "load, unload or reload"},
};
#undef X
const struct field_list admin_model_fields = FIELDS_OF(table);

enum status api_admin_model(struct request *x, struct error *err)
{
    struct fields f = {LOADER_LOAD};
    const enum status st = request_read_fields(x, &admin_model_fields, &f, err);
    return st == OK ? model_change_submit(x, f.action, x->segments[0], answer_change, err) : st;
}

enum status api_admin_reload(struct request *x, struct error *err)
{
    return model_change_submit(x, LOADER_CONFIG, "", answer_change, err);
}

/* ---- settings -------------------------------------------------------------------------------------------------- */

enum status api_admin_config(struct request *x, struct error *err)
{
    struct config *config = job_alloc(&x->job, sizeof *config, err); /* tens of kilobytes */
    if (config == NULL)
        return ERR_NOMEM;
    reload_config(x->service->reload, config);
    return reply_send_json(x, 200, config_describe(config));
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

/* Sends SIGTERM, once only: a second request must not cut the draining short, as a second signal would. */
enum status api_admin_drain(struct request *x, struct error *err)
{
    static atomic_bool asked;
    if (!atomic_exchange(&asked, true) && !atomic_load(&x->service->draining))
        (void)kill(getpid(), SIGTERM);
    (void)err;
    return reply_send_json(x, 202, json_pack("{s:s}", "status", "draining"));
}
