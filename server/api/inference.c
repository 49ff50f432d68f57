/* inference.c - the Open Inference Protocol, version 2: the server, its models and their health. POST .../infer is in
 * inference_infer.c, what Triton's extensions tell in files of their own.
 * https://github.com/kserve/open-inference-protocol, with the binary tensor extension. HTTP threads; nothing here
 * waits for the engine. */
#include "server/api/inference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/api/api_request.h"
#include "server/api/reply.h"
#include "server/api/request_model.h"
#include "server/api/route_table.h"
#include "server/api/service.h"
#include "server/batch/batcher.h"
#include "server/core/clock.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"

enum status inference_pick_model(struct exchange *x, struct hosted_model **ret, struct error *err)
{
    char version[INFERENCE_VERSION_MAX];
    enum status st = request_model_acquire(x, x->api->segments[0], REGISTRY_ANY_TASK, ret, err);
    if (st != OK || x->api->segments[1][0] == '\0')
        return st;
    inference_version(version, *ret);
    if (strcmp(version, x->api->segments[1]) == 0)
        return OK;
    return error_set_param(err, ERR_NOT_FOUND, "version", "there is no version \"%s\" of %s; expected %s",
                           json_quote(x->api->segments[1]).text, (*ret)->model->name, version);
}

void inference_version(char out[INFERENCE_VERSION_MAX], const struct hosted_model *e)
{
    (void)snprintf(out, INFERENCE_VERSION_MAX, "%u", e->version > 0 ? e->version : 1);
}

/* ---- health ----------------------------------------------------------------------------------------------------- */

void api_inference_live(struct exchange *x)
{
    const struct service *s = service_of(x);
    struct error err;
    if (!batcher_is_stuck(s->batcher, clock_now_ns())) {
        reply_send_json(x, 200, json_pack("{s:b}", "live", 1));
        return;
    }
    (void)error_set(&err, ERR_UNAVAILABLE,
                    "the engine is stuck: there are jobs, but it has not finished a step for %u ms",
                    s->settings->stuck_after_ms);
    reply_send_error(x, &err);
}

/* True: the server is draining, and that was the answer. */
static bool refuse_if_draining(struct exchange *x)
{
    struct error err;
    if (!atomic_load(&service_of(x)->draining))
        return false;
    (void)error_set(&err, ERR_UNAVAILABLE, "the server is draining: it will soon refuse connections");
    reply_send_error(x, &err);
    return true;
}

void api_inference_ready(struct exchange *x)
{
    if (!refuse_if_draining(x))
        reply_send_json(x, 200, json_pack("{s:b}", "ready", 1));
}

void api_inference_model_ready(struct exchange *x)
{
    struct hosted_model *e;
    struct error err;
    if (refuse_if_draining(x))
        return;
    if (inference_pick_model(x, &e, &err) != OK)
        reply_send_error(x, &err);
    else
        reply_send_json(x, 200, json_pack("{s:s, s:b}", "name", e->model->name, "ready", 1));
}

/* ---- what there is ---------------------------------------------------------------------------------------------- */

void api_inference_server(struct exchange *x)
{
    reply_send_json(x, 200,
                    json_pack("{s:s, s:s, s:[s, s, s, s, s, s, s]}", "name", "aftd", "version", AFTD_VERSION,
                              "extensions", "binary_tensor_data", "classification", "model_configuration",
                              "model_repository", "parameters", "schedule_policy", "statistics"));
}

size_t inference_inputs(struct inference_tensor_info out[INFERENCE_INPUTS_MAX], const struct model_config *c)
{
    switch (c->task) {
    case TASK_IMAGE_CLASSIFICATION:
        out[0] = (struct inference_tensor_info){INFERENCE_IMAGE, true, 1, {-1}};
        out[1] = (struct inference_tensor_info){INFERENCE_PIXELS, false, 4, {-1, (int)c->size[0], (int)c->size[1], 3}};
        return 2;
    case TASK_TEXT_CLASSIFICATION:
        out[0] = (struct inference_tensor_info){INFERENCE_TEXT, true, 1, {-1}};
        return 1;
    case TASK_TEXT_GENERATION:
        out[0] = (struct inference_tensor_info){INFERENCE_PROMPT, true, 1, {-1}};
        return 1;
    default:
        return 0;
    }
}

size_t inference_outputs(struct inference_tensor_info out[INFERENCE_OUTPUTS], const struct model_config *c)
{
    const char *const *names = inference_output_names(c->task);
    const bool is_text = c->task == TASK_TEXT_GENERATION;
    for (size_t i = 0; i < INFERENCE_OUTPUTS && names != NULL; i++)
        out[i] = (struct inference_tensor_info){names[i], is_text, is_text ? 1 : 2, {-1, (int)c->classes}};
    return names != NULL ? INFERENCE_OUTPUTS : 0;
}

/* NULL for want of memory. */
static json_t *describe_tensors(const struct inference_tensor_info *tensors, size_t count)
{
    json_t *list = json_array();
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        const struct inference_tensor_info *t = &tensors[i];
        json_t *sides = json_array();
        for (size_t k = 0; k < t->rank; k++)
            failed |= json_array_append_new(sides, json_integer(t->shape[k]));
        failed |= json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", t->name, "datatype",
                                                        t->is_bytes ? "BYTES" : "FP32", "shape", sides));
    }
    return json_unless(failed != 0, list);
}

const char *const *inference_output_names(enum model_task task)
{
    static const char *const classifier[INFERENCE_OUTPUTS] = {INFERENCE_LOGITS, INFERENCE_PROBABILITIES},
                             *const generator[INFERENCE_OUTPUTS] = {INFERENCE_TEXT, INFERENCE_FINISH_REASON};
    switch (task) {
    case TASK_IMAGE_CLASSIFICATION:
    case TASK_TEXT_CLASSIFICATION:
        return classifier;
    case TASK_TEXT_GENERATION:
        return generator;
    default:
        return NULL;
    }
}

void api_inference_model(struct exchange *x)
{
    char version[INFERENCE_VERSION_MAX];
    struct hosted_model *e;
    struct error err;
    if (inference_pick_model(x, &e, &err) != OK) {
        reply_send_error(x, &err);
        return;
    }
    struct inference_tensor_info inputs[INFERENCE_INPUTS_MAX], outputs[INFERENCE_OUTPUTS];
    const size_t given = inference_inputs(inputs, &e->model->config),
                 wanted = inference_outputs(outputs, &e->model->config);
    inference_version(version, e);
    reply_send_json(x, 200,
                    json_pack("{s:s, s:[s], s:s, s:o, s:o}", "name", e->model->name, "versions", version, "platform",
                              "aftd", "inputs", describe_tensors(inputs, given), "outputs",
                              describe_tensors(outputs, wanted)));
}
