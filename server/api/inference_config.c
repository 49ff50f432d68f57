/* inference_config.c - GET /v2/models/M/config: a model as Triton's model configuration extension describes it, with
 * those of its fields that mean something here. HTTP threads; nothing here waits for the engine.
 * https://github.com/triton-inference-server/server, docs/protocol/extension_model_configuration.md */
#include <jansson.h>

#include "config/json_memory.h"
#include "config/limits.h"
#include "config/settings.h"
#include "server/api/inference.h"
#include "server/api/reply.h"
#include "server/api/route_table.h"
#include "server/api/service.h"
#include "server/models/hosted_model.h"

_Static_assert(CLASSIFY_INPUTS_MAX == GENERATE_PROMPTS_MAX, "one max_batch_size for all");

/* Their first side, n, is max_batch_size's. NULL for want of memory. */
static json_t *describe_tensors(const struct inference_tensor_info *tensors, size_t count)
{
    json_t *list = json_array();
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        const struct inference_tensor_info *t = &tensors[i];
        json_t *sides = json_array();
        for (size_t k = 1; k < t->rank; k++)
            failed |= json_array_append_new(sides, json_integer(t->shape[k]));
        failed |= json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", t->name, "data_type",
                                                        t->is_bytes ? "TYPE_STRING" : "TYPE_FP32", "dims", sides));
    }
    if (failed == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *describe(const struct hosted_model *e, const struct settings *s)
{
    const struct model_config *c = &e->model->config;
    struct inference_tensor_info inputs[INFERENCE_INPUTS_MAX], outputs[INFERENCE_OUTPUTS];
    const size_t given = inference_inputs(inputs, c), wanted = inference_outputs(outputs, c);
    json_t *whole = json_pack(
        "{s:s, s:s, s:s, s:{s:{s:i}}, s:i, s:o, s:o, s:[{s:s, s:s, s:i}], s:{s:b}, s:{s:{s:s}, s:{s:s}}}", "name",
        e->model->name, "platform", "aftd", "backend", "aftd", "version_policy", "latest", "num_versions", 1,
        "max_batch_size", given > 0 ? CLASSIFY_INPUTS_MAX : 0, "input", describe_tensors(inputs, given), "output",
        describe_tensors(outputs, wanted), "instance_group", "name", e->model->name, "kind", "KIND_CPU", "count", 1,
        "model_transaction_policy", "decoupled", 0, "parameters", "task", "string_value", model_task_name(c->task),
        "mixer", "string_value", mixer_type_name(c->mixer.type));
    const bool waits = c->task == TASK_IMAGE_CLASSIFICATION || c->task == TASK_TEXT_CLASSIFICATION;
    const bool failed = waits && json_object_set_new(whole, "dynamic_batching",
                                                     json_pack("{s:I}", "max_queue_delay_microseconds",
                                                               (json_int_t)s->batch_wait_us)) != 0;
    return json_unless(failed, whole);
}

void api_inference_config(struct exchange *x)
{
    struct hosted_model *e;
    struct error err;
    if (inference_pick_model(x, &e, &err) == OK)
        reply_send_json(x, 200, describe(e, service_of(x)->settings));
    else
        reply_send_error(x, &err);
}
