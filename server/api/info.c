/* info.c - the endpoints that describe the daemon and its state: /v1/models, /metrics, /healthz, /readyz and
 * their like below /v2, /openapi.json. HTTP threads; nothing here waits for the engine. */
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/list.h"
#include "config/settings.h"
#include "server/api/api_request.h"
#include "server/api/inference.h"
#include "server/api/openapi.h"
#include "server/api/reply.h"
#include "server/api/request_model.h"
#include "server/api/service.h"
#include "server/batch/batcher.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/job/workers.h"
#include "server/models/model_names.h"
#include "server/models/registry.h"

/* Multiply-adds of the linear layers and of mixing, for one unit of work: a token of a stream, a picture, a text. */
static int set_macs(json_t *m, const struct model_config *c, const struct engine_info *info)
{
    const char *unit = model_config_causal(c) ? "token" : c->input == INPUT_IMAGE ? "picture" : "text";
    char key[32], mixer_key[32];
    (void)snprintf(key, sizeof key, "macs_per_%s", unit);
    (void)snprintf(mixer_key, sizeof mixer_key, "mixer_macs_per_%s", unit);
    return json_object_set_new(m, key, json_integer((json_int_t)info->macs)) |
           json_object_set_new(m, mixer_key, json_integer((json_int_t)info->mixer_macs));
}

/* The list of the model's aliases, if it has any. */
static int add_aliases(json_t *m, const struct exchange *x, const char *name)
{
    char list[SETTING_TEXT_MAX + 1];
    struct model_alias a;
    json_t *names = json_array();
    int failed = names == NULL;
    registry_aliases(service_of(x)->registry, list);
    for (const char *at = list_begin(list); model_names_next_alias(&at, &a);)
        if (strcmp(a.name, name) == 0)
            failed |= json_array_append_new(names, json_string(a.alias));
    if (json_array_size(names) > 0)
        return failed | json_object_set_new(m, "aliases", names);
    json_decref(names);
    return failed;
}

/* What a loaded model is. Non-zero: no memory. */
static int add_loaded(json_t *m, const struct hosted_model *e)
{
    const struct model_config *c = &e->model->config;
    const struct engine_info *info = engine_info(e->engine);
    json_t *more = json_pack("{s:s, s:I, s:I, s:I, s:s, s:s}", "mixer", mixer_type_name(c->mixer.type), "parameters",
                             (json_int_t)e->model->parameters, "weight_bytes", (json_int_t)info->weight_bytes,
                             "state_bytes_per_stream", (json_int_t)info->stream_bytes, "precision", info->precision,
                             "precision_by", precision_reason_word(e->precision_by));
    int failed = more == NULL || json_object_update(m, more) != 0;
    json_decref(more);
    failed |= c->classes != 0 ? json_object_set_new(m, "classes", json_integer(c->classes)) : 0;
    failed |= set_macs(m, c, info);
    if (c->size[0] != 0)
        failed |= json_object_set_new(m, "input_size", json_pack("[i, i]", (int)c->size[0], (int)c->size[1]));
    if (e->version != 0)
        failed |= json_object_set_new(m, "version", json_integer(e->version));
    if (c->input != INPUT_IMAGE)
        failed |= json_object_set_new(m, "context", json_integer(c->context));
    return failed;
}

/* Clients are told of all that they may ask for, and of those whose files are not accepted. */
static bool is_told_of(const struct exchange *x, const struct registry_model *m)
{
    return m->state != MODEL_UNLOADED && auth_may_use(&x->api->grant, m->found.name);
}

static json_t *describe_model(const struct exchange *x, const struct registry_model *l)
{
    const struct registry_choice mine = request_model_choice(x);
    const int64_t created_s = l->hosted != NULL ? l->hosted->created_s : l->noted_s;
    json_t *m = json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", l->found.name, "object", "model", "created",
                          (json_int_t)created_s, "owned_by", "aftd", "state", model_state_word(l->state));
    if (m == NULL)
        return NULL;
    int failed = l->state != MODEL_FAILED ? json_object_set_new(m, "task", json_string(model_task_name(l->task))) : 0;
    failed |= l->hosted != NULL ? add_loaded(m, l->hosted) : 0;
    if (registry_is_default(service_of(x)->registry, l->found.name, &mine))
        failed |= json_object_set_new(m, "default", json_true());
    failed |= add_aliases(m, x, l->found.name);
    return json_unless(failed != 0, m);
}

/* What a classifier knows, for whoever asks for it alone: a list of models would be long with thousands of them. */
static int add_labels(json_t *m, const struct model_config *c)
{
    json_t *labels = json_array();
    int failed = labels == NULL;
    for (uint32_t i = 0; i < c->classes && failed == 0; i++)
        failed = json_array_append_new(labels, json_string(c->labels[i]));
    if (c->classes > 0)
        return failed | json_object_set_new(m, "labels", labels);
    json_decref(labels);
    return failed;
}

void api_models(struct exchange *x)
{
    struct registry_model *list = NULL;
    size_t count = 0;
    json_t *data = json_array();
    bool failed = registry_models(service_of(x)->registry, &list, &count) != OK;
    for (size_t i = 0; i < count && !failed; i++)
        if (is_told_of(x, &list[i]))
            failed = json_array_append_new(data, describe_model(x, &list[i])) != 0;
    registry_models_free(list, count);
    reply_send_json(x, 200, json_unless(failed, json_pack("{s:s, s:o}", "object", "list", "data", data)));
}

void api_model(struct exchange *x)
{
    struct error err;
    struct registry *r = service_of(x)->registry;
    struct registry_model one = {.hosted = NULL};
    char room[MODEL_WISH_MAX + 1];
    if (registry_look(r, registry_real_name(r, x->api->segments[0], room), &one) && is_told_of(x, &one)) {
        json_t *m = describe_model(x, &one);
        const bool failed = one.hosted != NULL && add_labels(m, &one.hosted->model->config) != 0;
        reply_send_json(x, 200, json_unless(failed, m));
    } else {
        (void)error_set_param(&err, ERR_NOT_FOUND, "model", "there is no model \"%s\"; GET /v1/models lists them",
                              json_quote(x->api->segments[0]).text);
        reply_send_error(x, &err);
    }
    hosted_model_release(one.hosted);
}

void api_metrics(struct exchange *x)
{
    char *text = NULL;
    size_t bytes = 0;
    struct error err;
    batcher_measure(service_of(x)->batcher, clock_now_ns());
    workers_measure(service_of(x)->workers);
    metrics_gauge_set(METRIC_MODELS_FAILED, 0, registry_failed(service_of(x)->registry));
    if (metrics_render(&text, &bytes, &err) == OK)
        http_reply(x, 200, METRICS_CONTENT_TYPE, text, bytes);
    else
        reply_send_error(x, &err);
}

static void reply_state(struct exchange *x, const char *word)
{
    reply_send_json(x, 200, json_pack("{s:s}", "status", word));
}

void api_openapi(struct exchange *x)
{
    size_t bytes;
    char *text = openapi_text_copy(service_of(x)->openapi, x->is_admin, &bytes);
    if (text != NULL)
        http_reply(x, 200, "application/json", text, bytes);
    else
        reply_send_json(x, 200, NULL); /* says that memory is short */
}

/* False: the engine is stuck, and that was the answer. */
static bool lives(struct exchange *x)
{
    const struct service *s = service_of(x);
    struct error err;
    if (!batcher_is_stuck(s->batcher, clock_now_ns()))
        return true;
    (void)error_set(&err, ERR_UNAVAILABLE,
                    "the engine is stuck: there are jobs, but it has not finished a step for %u ms",
                    s->settings->stuck_after_ms);
    reply_send_error(x, &err);
    return false;
}

/* False: the server is draining, and that was the answer. */
static bool is_ready(struct exchange *x)
{
    struct error err;
    if (!atomic_load(&service_of(x)->draining))
        return true;
    (void)error_set(&err, ERR_UNAVAILABLE, "the server is draining: it will soon refuse connections");
    reply_send_error(x, &err);
    return false;
}

void api_healthz(struct exchange *x)
{
    if (lives(x))
        reply_state(x, "ok");
}

/* Ready, though perhaps without some models: their names are for the log and for administrators. */
void api_readyz(struct exchange *x)
{
    const uint32_t failed = registry_failed(service_of(x)->registry);
    if (!is_ready(x))
        return;
    if (failed == 0)
        reply_state(x, "ready");
    else
        reply_send_json(x, 200, json_pack("{s:s, s:I}", "status", "ready", "models_failed", (json_int_t)failed));
}

void api_inference_live(struct exchange *x)
{
    if (lives(x))
        reply_send_json(x, 200, json_pack("{s:b}", "live", 1));
}

void api_inference_ready(struct exchange *x)
{
    if (is_ready(x))
        reply_send_json(x, 200, json_pack("{s:b}", "ready", 1));
}

void api_inference_model_ready(struct exchange *x)
{
    const struct hosted_model *e = is_ready(x) ? inference_model(x) : NULL;
    if (e != NULL)
        reply_send_json(x, 200, json_pack("{s:s, s:b}", "name", e->model->name, "ready", 1));
}
