/* inference.c - the Open Inference Protocol, version 2: the server, its models and their health. POST .../infer is in
 * inference_infer.c. https://github.com/kserve/open-inference-protocol, with the binary tensor extension.
 * HTTP threads; nothing here waits for the engine. */
#include "server/api/inference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
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
                    json_pack("{s:s, s:s, s:[s, s]}", "name", "aftd", "version", AFTD_VERSION, "extensions",
                              "binary_tensor_data", "classification"));
}

/* In a shape, -1 is any length. NULL for want of memory. */
static json_t *describe_tensor(const char *name, const char *datatype, size_t rank, const int shape[])
{
    json_t *sides = json_array();
    int failed = 0;
    for (size_t i = 0; i < rank; i++)
        failed |= json_array_append_new(sides, json_integer(shape[i]));
    if (failed != 0) {
        json_decref(sides);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o}", "name", name, "datatype", datatype, "shape", sides);
}

static int describe_inputs(json_t *inputs, const struct model_config *c)
{
    const int any[] = {-1}, pixels[] = {-1, (int)c->size[0], (int)c->size[1], 3};
    if (c->task == TASK_IMAGE_CLASSIFICATION)
        return json_array_append_new(inputs, describe_tensor(INFERENCE_IMAGE, "BYTES", 1, any)) |
               json_array_append_new(inputs, describe_tensor(INFERENCE_PIXELS, "FP32", 4, pixels));
    if (c->task == TASK_TEXT_CLASSIFICATION)
        return json_array_append_new(inputs, describe_tensor(INFERENCE_TEXT, "BYTES", 1, any));
    if (c->task == TASK_TEXT_GENERATION)
        return json_array_append_new(inputs, describe_tensor(INFERENCE_PROMPT, "BYTES", 1, any));
    return 0;
}

static int describe_outputs(json_t *outputs, const struct model_config *c)
{
    const int any[] = {-1}, classes[] = {-1, (int)c->classes};
    const char *const *names = inference_output_names(c->task);
    int failed = 0;
    for (size_t i = 0; i < INFERENCE_OUTPUTS && names != NULL; i++)
        failed |= json_array_append_new(outputs, c->task == TASK_TEXT_GENERATION
                                                     ? describe_tensor(names[i], "BYTES", 1, any)
                                                     : describe_tensor(names[i], "FP32", 2, classes));
    return failed;
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
    const struct model_config *c = &e->model->config;
    json_t *inputs = json_array(), *outputs = json_array();
    const bool failed = (describe_inputs(inputs, c) | describe_outputs(outputs, c)) != 0;
    inference_version(version, e);
    json_t *whole = failed ? NULL
                           : json_pack("{s:s, s:[s], s:s, s:O, s:O}", "name", e->model->name, "versions", version,
                                       "platform", "aftd", "inputs", inputs, "outputs", outputs);
    json_decref(inputs);
    json_decref(outputs);
    reply_send_json(x, 200, whole);
}
