/* classify.c - see classify.h. */
#include "server/operation/classify.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "server/models/hosted_model.h"

struct classify_job *classify_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_classify);
    return j->op;
}

static void drop_pixels(void *op)
{
    struct classify_job *c = op;
    for (uint32_t i = 0; i < c->count; i++) {
        free(c->inputs[i].pixels);
        c->inputs[i].pixels = NULL;
    }
}

void classify_drop_pixels(struct job *j)
{
    drop_pixels(classify_job_of(j));
}

/* How many inputs of the trained size it is worth to the engine. */
static uint32_t cost_of(const struct hosted_model *model, const struct classify_input *in)
{
    const struct model_config *c = &model->model->config;
    const uint64_t trained = c->input == INPUT_IMAGE ? (uint64_t)c->size[0] * c->size[1] : c->context;
    const uint64_t pixels = (uint64_t)in->height * in->width;
    return pixels > trained ? (uint32_t)((pixels + trained - 1) / trained) : 1;
}

enum status classify_begin(struct job *j, struct error *err)
{
    struct classify_job *c = job_alloc(j, sizeof *c, err);
    if (c == NULL || job_defer(j, drop_pixels, c, err) != OK)
        return ERR_NOMEM;
    c->job = j;
    job_begin(j, &job_kind_classify, c);
    return OK;
}

static enum status add_map(struct job *j, const struct classify_input *in, struct error *err)
{
    struct classify_job *c = classify_job_of(j);
    if (in->map.values > 0)
        c->map = job_alloc(j, in->map.values * sizeof *c->map, err);
    return in->map.values == 0 || c->map != NULL ? OK : ERR_NOMEM;
}

void classify_add(struct job *j, const struct classify_input *in)
{
    struct classify_job *c = classify_job_of(j);
    assert(c->count < CLASSIFY_INPUTS_MAX);
    c->inputs[c->count++] = *in;
    if (c->count == 1)
        j->item.kind = classify_input_size(in);
    j->engine_cost += cost_of(j->model, in);
}

enum status classify_make_room(struct job *j, bool pooled, struct error *err)
{
    struct classify_job *c = classify_job_of(j);
    assert(c->count >= 1 && (c->count == 1 || c->inputs[0].map.values == 0));
    c->logits = job_alloc(j, (size_t)c->count * c->inputs[0].classes * sizeof *c->logits, err);
    if (c->logits == NULL || add_map(j, &c->inputs[0], err) != OK)
        return ERR_NOMEM;
    if (pooled)
        c->pooled = job_alloc(j, (size_t)c->count * engine_info(j->model->engine)->dim * sizeof *c->pooled, err);
    return !pooled || c->pooled != NULL ? OK : ERR_NOMEM;
}

enum status classify_fill(struct job *j, uint32_t i, const struct classify_input *in, struct error *err)
{
    struct classify_job *c = classify_job_of(j);
    assert(i < c->count && c->inputs[i].pixels == NULL && (c->count == 1 || in->map.values == 0));
    if (add_map(j, in, err) != OK)
        return ERR_NOMEM;
    j->engine_cost += cost_of(j->model, in) - cost_of(j->model, &c->inputs[i]);
    c->inputs[i] = *in;
    if (i == 0)
        j->item.kind = classify_input_size(in);
    return OK;
}

const struct job_kind job_kind_classify = {.tells_finish = false};
