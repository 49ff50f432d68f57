/* info.c - the endpoints that describe the daemon and its state: /v1/models, /metrics, /healthz, /readyz and
 * their like below /v2, /openapi.json. HTTP threads; nothing here waits for the engine. */
#include "server/api/route_table.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/list.h"
#include "config/settings.h"
#include "server/api/inference.h"
#include "server/api/openapi.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/models/model_names.h"
#include "server/models/registry.h"
#include "server/operation/batcher.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_model.h"
#include "server/request/service.h"
#include "server/request/workers.h"

/* Multiply-adds of the linear layers and of mixing, for one unit of work: a token of a stream, a picture, a text. */
static void put_macs(json_t *m, const struct model_config *c, const struct engine_info *info)
{
    const char *unit = model_config_causal(c) ? "token" : c->input == INPUT_IMAGE ? "picture" : "text";
    char key[32], mixer_key[32];
    (void)snprintf(key, sizeof key, "macs_per_%s", unit);
    (void)snprintf(mixer_key, sizeof mixer_key, "mixer_macs_per_%s", unit);
    json_put(m, key, json_integer((json_int_t)info->macs));
    json_put(m, mixer_key, json_integer((json_int_t)info->mixer_macs));
}

/* The list of the model's aliases, if it has any. */
static void put_aliases(json_t *m, const struct request *x, const char *name)
{
    char list[SETTING_TEXT_MAX + 1];
    struct model_alias a;
    json_t *names = json_array();
    registry_aliases(x->service->registry, list);
    for (const char *at = list_begin(list); model_names_next_alias(&at, &a);)
        if (strcmp(a.name, name) == 0)
            json_append(names, json_string(a.alias));
    if (json_array_size(names) > 0)
        json_put(m, "aliases", names);
    else
        json_decref(names);
}

/* What a loaded model is. */
static void put_loaded(json_t *m, const struct hosted_model *e)
{
    const struct model_config *c = &e->model->config;
    const struct engine_info *info = engine_info(e->engine);
    json_put(m, "mixer", json_string(mixer_type_name(c->mixer.type)));
    json_put(m, "parameters", json_integer((json_int_t)e->model->parameters));
    json_put(m, "weight_bytes", json_integer((json_int_t)info->weight_bytes));
    json_put(m, "state_bytes_per_stream", json_integer((json_int_t)info->stream_bytes));
    json_put(m, "precision", json_string(info->precision));
    json_put(m, "precision_by", json_string(precision_reason_word(e->precision_by)));
    if (c->classes != 0)
        json_put(m, "classes", json_integer(c->classes));
    put_macs(m, c, info);
    if (c->size[0] != 0)
        json_put(m, "input_size", json_pack("[i, i]", (int)c->size[0], (int)c->size[1]));
    if (e->version != 0)
        json_put(m, "version", json_integer(e->version));
    const uint32_t most = model_config_causal(c) ? info->context : info->elements_max;
    if (c->input != INPUT_IMAGE && most != ENGINE_CONTEXT_UNLIMITED)
        json_put(m, "context", json_integer(most));
}

/* Clients are told of all that they may ask for, and of those whose files are not accepted. */
static bool is_told_of(const struct request *x, const struct registry_model *m)
{
    return m->state != MODEL_UNLOADED && auth_may_use(&x->grant, m->found.name);
}

static json_t *describe_model(const struct request *x, const struct registry_model *l)
{
    const struct registry_choice mine = request_model_choice(x);
    const int64_t created_s = l->hosted != NULL ? l->hosted->created_s : l->noted_s;
    json_t *m = json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", l->found.name, "object", "model", "created",
                          (json_int_t)created_s, "owned_by", "aftd", "state", model_state_word(l->state));
    if (l->state != MODEL_FAILED)
        json_put(m, "task", json_string(model_task_name(l->task)));
    if (l->hosted != NULL)
        put_loaded(m, l->hosted);
    if (registry_is_default(x->service->registry, l->found.name, &mine))
        json_put(m, "default", json_true());
    put_aliases(m, x, l->found.name);
    return m;
}

/* What a classifier knows, for whoever asks for it alone: a list of models would be long with thousands of them. */
static void put_labels(json_t *m, const struct model_config *c)
{
    json_t *labels = json_array();
    for (uint32_t i = 0; i < c->classes; i++)
        json_append(labels, json_string(c->labels[i]));
    json_put(m, "labels", labels);
}

enum status api_models(struct request *x, struct error *err)
{
    struct registry_model *list = NULL;
    size_t count = 0;
    json_t *data = json_array();
    const bool failed = registry_models(x->service->registry, &list, &count) != OK;
    for (size_t i = 0; i < count; i++)
        if (is_told_of(x, &list[i]))
            json_append(data, describe_model(x, &list[i]));
    registry_models_free(list, count);
    (void)err;
    return reply_send_json(x, 200, json_unless(failed, json_pack("{s:s, s:o}", "object", "list", "data", data)));
}

enum status api_model(struct request *x, struct error *err)
{
    struct registry *r = x->service->registry;
    struct registry_model one = {.hosted = NULL};
    char room[MODEL_REF_MAX + 1];
    json_t *m = NULL;
    const bool is_there = registry_look(r, registry_real_name(r, x->segments[0], room), &one) && is_told_of(x, &one);
    if (is_there)
        m = describe_model(x, &one);
    if (is_there && one.hosted != NULL && one.hosted->model->config.classes > 0)
        put_labels(m, &one.hosted->model->config);
    hosted_model_release(one.hosted);
    return is_there
               ? reply_send_json(x, 200, m)
               : error_set_param(err, ERR_NOT_FOUND, "model", "there is no model \"%s\"; GET /v1/models lists them",
                                 json_quote(x->segments[0]).text);
}

enum status api_metrics(struct request *x, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    batcher_measure(x->service->batcher, clock_now_ns());
    workers_measure(x->service->workers);
    metrics_gauge_set(METRIC_MODELS_FAILED, 0, registry_failed(x->service->registry));
    const enum status st = metrics_render(&text, &bytes, err);
    return st == OK ? request_reply(x, 200, METRICS_CONTENT_TYPE, text, bytes) : st;
}

/* Printed when it is first asked for, which takes some milliseconds and 20,000 allocations, and kept. */
enum status api_openapi(struct request *x, struct error *err)
{
    static _Atomic(char *) printed[2]; /* by whether it is the admin listener's */
    char *text = atomic_load(&printed[x->is_admin]), *other = NULL;
    if (text == NULL) {
        text = openapi_print(x->service->settings, x->is_admin);
        if (text == NULL)
            return error_set(err, ERR_NOMEM, "out of memory for the description of the interface");
        if (!atomic_compare_exchange_strong(&printed[x->is_admin], &other, text)) {
            free(text);
            text = other;
        }
    }
    return reply_send_text(x, 200, strdup(text));
}

static enum status check_life(const struct service *s, struct error *err)
{
    if (!batcher_is_stuck(s->batcher, clock_now_ns()))
        return OK;
    return error_set(err, ERR_UNAVAILABLE,
                     "the engine is stuck: there are jobs, but it has not finished a step for %u ms",
                     s->settings->stuck_after_ms);
}

static enum status check_readiness(const struct service *s, struct error *err)
{
    if (!atomic_load(&s->draining))
        return OK;
    return error_set(err, ERR_UNAVAILABLE, "the server is draining: it will soon refuse connections");
}

enum status api_healthz(struct request *x, struct error *err)
{
    const enum status st = check_life(x->service, err);
    return st == OK ? reply_send_json(x, 200, json_pack("{s:s}", "status", "ok")) : st;
}

/* Ready, though perhaps without some models: their names are for the log and for administrators. */
enum status api_readyz(struct request *x, struct error *err)
{
    const uint32_t failed = registry_failed(x->service->registry);
    const enum status st = check_readiness(x->service, err);
    if (st != OK)
        return st;
    json_t *state = json_pack("{s:s}", "status", "ready");
    if (failed > 0)
        json_put(state, "models_failed", json_integer((json_int_t)failed));
    return reply_send_json(x, 200, state);
}

enum status api_inference_live(struct request *x, struct error *err)
{
    const enum status st = check_life(x->service, err);
    return st == OK ? reply_send_json(x, 200, json_pack("{s:b}", "live", 1)) : st;
}

enum status api_inference_ready(struct request *x, struct error *err)
{
    const enum status st = check_readiness(x->service, err);
    return st == OK ? reply_send_json(x, 200, json_pack("{s:b}", "ready", 1)) : st;
}

enum status api_inference_model_ready(struct request *x, struct error *err)
{
    struct hosted_model *e;
    enum status st = check_readiness(x->service, err);
    if (st == OK)
        st = inference_model(&e, x, err);
    return st == OK ? reply_send_json(x, 200, json_pack("{s:s, s:b}", "name", e->model->name, "ready", 1)) : st;
}
