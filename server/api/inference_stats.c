/* inference_stats.c - GET /v2/models/M/stats and /v2/models/stats: what Triton's statistics extension tells, as far as
 * it is measured here; the figures are those of /metrics. HTTP threads; nothing here waits for the engine.
 * https://github.com/triton-inference-server/server, docs/protocol/extension_statistics.md */
#include <jansson.h>
#include <string.h>

#include "config/json_memory.h"
#include "server/access/auth.h"
#include "server/api/inference.h"
#include "server/api/route_table.h"
#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/route.h"
#include "server/request/service.h"

/* Do requests there ask a model to compute something? What sessions are begun with is fed, but not answered. */
static bool computes(const struct route *r)
{
    static const char sessions[] = "/v1/sessions";
    return strcmp(r->method, "POST") == 0 && r->api != API_ADMIN && strncmp(r->path, sessions, strlen(sessions)) != 0;
}

/* The answers to all that asked the model to compute. */
static struct metrics_answered answered_of(const struct routes *routes, unsigned label)
{
    struct metrics_answered all = {0, 0};
    unsigned endpoint = 0;
    for (const struct route *r = routes->list; r < routes->list + routes->count; r++) {
        endpoint += r > routes->list && route_begins_path(routes, r);
        if (!computes(r))
            continue;
        const struct metrics_answered here = metrics_requests_read(endpoint, label);
        all.good += here.good;
        all.others += here.others;
    }
    return all;
}

static json_t *describe_time(struct metrics_observed o)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)o.count, "ns", (json_int_t)o.sum);
}

/* What has been counted for the model, whatever version of it was served. */
static void add_counts(json_t *to, const struct service *s, const struct hosted_model *e)
{
    const unsigned label = e->metrics_label;
    const struct metrics_answered answered = answered_of(s->routes, label);
    const struct metrics_observed batches = metrics_histogram_read(METRIC_BATCH_SIZE, label),
                                  blocks = metrics_histogram_read(METRIC_ENCODE_BLOCK, label),
                                  prefills = metrics_histogram_read(METRIC_PREFILL, label),
                                  decodes = metrics_histogram_read(METRIC_DECODE, label);
    const struct metrics_observed passes = {batches.count, blocks.sum + prefills.sum + decodes.sum};
    json_put(to, "execution_count", json_integer((json_int_t)passes.count));
    if (e->model->config.classes > 0) /* of others a pass has one byte of each text, or a part of a prompt */
        json_put(to, "inference_count", json_integer((json_int_t)batches.sum));
    json_put(to, "inference_stats",
             json_pack("{s:{s:I}, s:{s:I}, s:o, s:o}", "success", "count", (json_int_t)answered.good, "fail", "count",
                       (json_int_t)answered.others, "queue",
                       describe_time(metrics_histogram_read(METRIC_QUEUE_WAIT, label)), "compute_infer",
                       describe_time(passes)));
}

/* NULL for want of memory. */
static json_t *inference_stats_describe(const struct request *x, const struct hosted_model *e)
{
    char version[INFERENCE_VERSION_MAX];
    inference_version(version, e->version);
    json_t *one = json_pack("{s:s, s:s, s:[{s:s, s:i, s:I}]}", "name", e->model->name, "version", version,
                            "memory_usage", "type", "CPU", "id", 0, "byte_size", (json_int_t)e->bytes);
    /* Beyond so many names, models share series. */
    if (e->metrics_label >= METRICS_MODEL_FIRST)
        add_counts(one, x->service, e);
    return one;
}

enum status api_inference_stats(struct request *x, struct error *err)
{
    struct hosted_model *e;
    const enum status st = inference_model(&e, x, err);
    return st == OK ? reply_send_json(x, 200, json_pack("{s:[o]}", "model_stats", inference_stats_describe(x, e))) : st;
}

enum status api_inference_stats_all(struct request *x, struct error *err)
{
    struct registry_model *rows = NULL;
    size_t count = 0;
    json_t *list = json_array();
    const bool failed = registry_models(x->service->registry, &rows, &count) != OK;
    for (size_t i = 0; i < count; i++)
        if (rows[i].hosted != NULL && auth_may_use(&x->grant, rows[i].found.name))
            json_append(list, inference_stats_describe(x, rows[i].hosted));
    registry_models_free(rows, count);
    (void)err;
    return reply_send_json(x, 200, json_unless(failed, json_pack("{s:o}", "model_stats", list)));
}
