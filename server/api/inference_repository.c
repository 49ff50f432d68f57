/* inference_repository.c - /v2/repository: which models there are, and, on the admin listener, loading and unloading
 * them, as Triton's model repository extension has it. HTTP threads; the loader makes the changes.
 * https://github.com/triton-inference-server/server, docs/protocol/extension_model_repository.md */
#include <jansson.h>

#include "config/json.h"
#include "server/access/auth.h"
#include "server/api/inference.h"
#include "server/api/model_change.h"
#include "server/api/route_table.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/service.h"

/* ---- what there is ---------------------------------------------------------------------------------------------- */

struct index_request {
    enum field_switch ready;
};
static const struct field index_table[] = {
    {"ready", FIELD_SWITCH, .offset = offsetof(struct index_request, ready), FIELD_RANGE(0, 0)}};
const struct field_list inference_index_fields = FIELDS_OF(index_table);

/* Why it is not ready; more is an administrator's business. */
static const char *reason_of(enum model_state state)
{
    static const char *const reasons[] = {
        [MODEL_LOADED] = "",
        [MODEL_IDLE] = "not loaded so far: the first request for it has it loaded",
        [MODEL_UNLOADED] = "unloaded by an administrator",
        [MODEL_FAILED] = "its files are not accepted",
    };
    return reasons[state];
}

/* NULL for want of memory. */
static json_t *inference_repository_describe(const struct registry_model *row)
{
    char text[INFERENCE_VERSION_MAX];
    inference_version(text, row->hosted != NULL ? row->hosted->version : row->found.version);
    return json_pack("{s:s, s:s, s:s, s:s}", "name", row->found.name, "version", text, "state",
                     row->state == MODEL_LOADED ? "READY" : "UNAVAILABLE", "reason", reason_of(row->state));
}

enum status api_inference_index(struct request *x, struct error *err)
{
    struct index_request r = {.ready = FIELD_ABSENT};
    struct registry_model *rows = NULL;
    size_t count = 0;
    const enum status st = request_read_fields(x, &inference_index_fields, &r, err);
    if (st != OK)
        return st;
    json_t *list = json_array();
    const bool failed = registry_models(x->service->registry, &rows, &count) != OK;
    for (size_t i = 0; i < count; i++)
        if (auth_may_use(&x->grant, rows[i].found.name) && (r.ready != FIELD_TRUE || rows[i].state == MODEL_LOADED))
            json_append(list, inference_repository_describe(&rows[i]));
    registry_models_free(rows, count);
    return reply_send_json(x, 200, json_unless(failed, list));
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

struct change_request {
    json_t *parameters; /* borrowed; NULL: none */
};
static const struct field change_table[] = {
    {"parameters", FIELD_OBJECT, .offset = offsetof(struct change_request, parameters), .what = "an object"}};
const struct field_list inference_change_fields = FIELDS_OF(change_table);

struct unload_parameters {
    enum field_switch unload_dependents; /* no model here depends on another */
};
static const struct field unload_table[] = {{"unload_dependents", FIELD_SWITCH,
                                             .offset = offsetof(struct unload_parameters, unload_dependents),
                                             FIELD_RANGE(0, 0)}};
static const struct field_list unload_fields = FIELDS_OF(unload_table);

/* Another configuration or other files, as Triton lets a client give, are refused by name: nothing but what lies in the
 * model's folder is loaded. */
static enum status check_change(struct request *x, enum loader_action action, struct error *err)
{
    struct change_request r = {.parameters = NULL};
    struct unload_parameters ignored;
    const enum status st = request_read_fields(x, &inference_change_fields, &r, err);
    if (st != OK || r.parameters == NULL)
        return st;
    return fields_read(action == LOADER_UNLOAD ? &unload_fields : &no_fields, r.parameters, x->service->settings,
                       &ignored, err);
}

/* As KServe's own server answers; Triton's clients look at the status alone. */
static enum status inference_repository_answer(struct request *x, struct error *err)
{
    (void)err;
    const struct loader_change *c = loader_job_change(&x->job);
    return reply_send_json(
        x, 200, json_pack("{s:s, s:b}", "name", c->model, c->action == LOADER_UNLOAD ? "unload" : "load", 1));
}

static enum status change(struct request *x, enum loader_action action, struct error *err)
{
    const enum status st = check_change(x, action, err);
    return st == OK ? model_change_submit(x, action, x->segments[0], inference_repository_answer, err) : st;
}

enum status api_inference_load(struct request *x, struct error *err)
{
    return change(x, LOADER_LOAD, err);
}

enum status api_inference_unload(struct request *x, struct error *err)
{
    return change(x, LOADER_UNLOAD, err);
}
