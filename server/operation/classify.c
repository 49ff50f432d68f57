/* classify.c - see classify.h. */
#include "server/operation/classify.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/limits.h"
#include "engine/engine.h"
#include "server/models/hosted_model.h"

struct classify_job *classify_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_classify);
    return (struct classify_job *)j;
}

/* Free everything except the inputs' pixels. */
static void clear(struct classify_job *c)
{
    free(c->inputs);
    free(c->logits);
    free(c->map);
    free(c->pooled);
}

/* How many inputs of the trained size it is worth to the engine. */
static uint32_t cost_of(const struct hosted_model *model, const struct classify_input *in)
{
    const struct model_config *c = &model->model->config;
    const uint64_t trained = c->input == INPUT_IMAGE ? (uint64_t)c->size[0] * c->size[1] : c->context;
    const uint64_t pixels = (uint64_t)in->height * in->width;
    return pixels > trained ? (uint32_t)((pixels + trained - 1) / trained) : 1;
}

enum status classify_job_create(struct job **ret, struct hosted_model *model, const struct classify_input *inputs,
                                uint32_t count)
{
    const size_t values = inputs[0].map.values;
    assert(count >= 1 && count <= CLASSIFY_INPUTS_MAX && (count == 1 || values == 0));
    struct classify_job *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ERR_NOMEM;
    c->count = count;
    c->inputs = malloc(count * sizeof *c->inputs);
    c->logits = calloc((size_t)count * inputs[0].classes, sizeof *c->logits);
    c->map = values > 0 ? calloc(values, sizeof *c->map) : NULL;
    if (c->inputs == NULL || c->logits == NULL || (values > 0 && c->map == NULL) ||
        job_init(&c->job, &job_kind_classify, model) != OK) {
        clear(c);
        free(c);
        return ERR_NOMEM;
    }
    memcpy(c->inputs, inputs, count * sizeof *inputs);
    c->job.item.kind = classify_input_size(&inputs[0]);
    for (uint32_t i = 0; i < count; i++)
        c->job.engine_cost += cost_of(model, &inputs[i]);
    *ret = &c->job;
    return OK;
}

enum status classify_job_fill(struct job *j, uint32_t i, const struct classify_input *in)
{
    struct classify_job *c = classify_job_of(j);
    assert(i < c->count && c->inputs[i].pixels == NULL && (c->count == 1 || in->map.values == 0));
    if (in->map.values > 0) {
        c->map = calloc(in->map.values, sizeof *c->map);
        if (c->map == NULL)
            return ERR_NOMEM;
    }
    j->engine_cost += cost_of(j->model, in) - cost_of(j->model, &c->inputs[i]);
    c->inputs[i] = *in;
    if (i == 0)
        j->item.kind = classify_input_size(in);
    return OK;
}

enum status classify_job_keep_pooled(struct job *j)
{
    struct classify_job *c = classify_job_of(j);
    assert(c->pooled == NULL);
    c->pooled = calloc((size_t)c->count * engine_info(j->model->engine)->dim, sizeof *c->pooled);
    return c->pooled != NULL ? OK : ERR_NOMEM;
}

void classify_job_drop_pixels(struct job *j)
{
    struct classify_job *c = classify_job_of(j);
    for (uint32_t i = 0; i < c->count; i++) {
        free(c->inputs[i].pixels);
        c->inputs[i].pixels = NULL;
    }
}

static void free_job(struct job *j)
{
    struct classify_job *c = classify_job_of(j);
    classify_job_drop_pixels(j);
    clear(c);
    free(c);
}

const struct job_kind job_kind_classify = {
    .free = free_job,
};
