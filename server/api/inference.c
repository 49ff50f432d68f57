/* inference.c - the Open Inference Protocol, version 2: the server and its models; and a model as Triton's model
 * configuration extension describes it, with those of its fields that mean something here. POST .../infer is in
 * inference_infer.c, health in info.c, Triton's other extensions in files of their own.
 * https://github.com/kserve/open-inference-protocol, with the binary tensor extension;
 * https://github.com/triton-inference-server/server, docs/protocol/extension_model_configuration.md
 * HTTP threads; nothing here waits for the engine. */
#include "server/api/inference.h"

#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/api/route_table.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_model.h"
#include "server/request/service.h"

enum status inference_model(struct hosted_model **ret, struct request *x, struct error *err)
{
    char version[INFERENCE_VERSION_MAX];
    const char *asked = x->segments[1];
    const enum status st = request_model_acquire(x, x->segments[0], REGISTRY_ANY_TASK, ret, err);
    if (st != OK || asked[0] == '\0')
        return st;
    inference_version(version, (*ret)->version);
    return strcmp(version, asked) == 0
               ? OK
               : error_set_param(err, ERR_NOT_FOUND, "version", "there is no version \"%s\" of %s; expected %s",
                                 json_quote(asked).text, (*ret)->model->name, version);
}

void inference_version(char out[INFERENCE_VERSION_MAX], uint32_t version)
{
    (void)snprintf(out, INFERENCE_VERSION_MAX, "%u", version > 0 ? version : 1);
}

/* ---- what there is ---------------------------------------------------------------------------------------------- */

enum status api_inference_server(struct request *x, struct error *err)
{
    (void)err;
    return reply_send_json(x, 200,
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

/* As the protocol has them, or Triton's configuration, where their first side, n, is max_batch_size's. NULL for want of
 * memory. */
static json_t *describe_tensors(const struct inference_tensor_info *tensors, size_t count, bool config)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct inference_tensor_info *t = &tensors[i];
        const char *type = config ? (t->is_bytes ? "TYPE_STRING" : "TYPE_FP32") : t->is_bytes ? "BYTES" : "FP32";
        json_t *sides = json_array();
        for (size_t k = config ? 1 : 0; k < t->rank; k++)
            json_append(sides, json_integer(t->shape[k]));
        json_append(list, json_pack("{s:s, s:s, s:o}", "name", t->name, config ? "data_type" : "datatype", type,
                                    config ? "dims" : "shape", sides));
    }
    return list;
}

const char *const *inference_output_names(enum model_task task)
{
    static const char *const names[][INFERENCE_OUTPUTS] = {
        [TASK_IMAGE_CLASSIFICATION] = {INFERENCE_LOGITS, INFERENCE_PROBABILITIES},
        [TASK_TEXT_CLASSIFICATION] = {INFERENCE_LOGITS, INFERENCE_PROBABILITIES},
        [TASK_TEXT_GENERATION] = {INFERENCE_TEXT, INFERENCE_FINISH_REASON},
        [TASK_IMAGE_GENERATION] = {NULL},
    };
    return names[task][0] != NULL ? names[task] : NULL;
}

enum status api_inference_model(struct request *x, struct error *err)
{
    char version[INFERENCE_VERSION_MAX];
    struct hosted_model *e;
    const enum status st = inference_model(&e, x, err);
    if (st != OK)
        return st;
    struct inference_tensor_info inputs[INFERENCE_INPUTS_MAX], outputs[INFERENCE_OUTPUTS];
    const size_t given = inference_inputs(inputs, &e->model->config),
                 wanted = inference_outputs(outputs, &e->model->config);
    inference_version(version, e->version);
    return reply_send_json(x, 200,
                           json_pack("{s:s, s:[s], s:s, s:o, s:o}", "name", e->model->name, "versions", version,
                                     "platform", "aftd", "inputs", describe_tensors(inputs, given, false), "outputs",
                                     describe_tensors(outputs, wanted, false)));
}

_Static_assert(CLASSIFY_INPUTS_MAX == GENERATE_PROMPTS_MAX, "one max_batch_size for all");

static json_t *describe_config(const struct hosted_model *e, const struct settings *s)
{
    const struct model_config *c = &e->model->config;
    struct inference_tensor_info inputs[INFERENCE_INPUTS_MAX], outputs[INFERENCE_OUTPUTS];
    const size_t given = inference_inputs(inputs, c), wanted = inference_outputs(outputs, c);
    json_t *whole = json_pack(
        "{s:s, s:s, s:s, s:{s:{s:i}}, s:i, s:o, s:o, s:[{s:s, s:s, s:i}], s:{s:b}, s:{s:{s:s}, s:{s:s}}}", "name",
        e->model->name, "platform", "aftd", "backend", "aftd", "version_policy", "latest", "num_versions", 1,
        "max_batch_size", given > 0 ? CLASSIFY_INPUTS_MAX : 0, "input", describe_tensors(inputs, given, true), "output",
        describe_tensors(outputs, wanted, true), "instance_group", "name", e->model->name, "kind", "KIND_CPU", "count",
        1, "model_transaction_policy", "decoupled", 0, "parameters", "task", "string_value", model_task_name(c->task),
        "mixer", "string_value", mixer_type_name(c->mixer.type));
    const bool waits = c->task == TASK_IMAGE_CLASSIFICATION || c->task == TASK_TEXT_CLASSIFICATION;
    if (waits)
        json_put(whole, "dynamic_batching",
                 json_pack("{s:I}", "max_queue_delay_microseconds", (json_int_t)s->batch_wait_us));
    return whole;
}

enum status api_inference_config(struct request *x, struct error *err)
{
    struct hosted_model *e;
    const enum status st = inference_model(&e, x, err);
    return st == OK ? reply_send_json(x, 200, describe_config(e, x->service->settings)) : st;
}
