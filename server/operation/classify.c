/* classify.c - see classify.h. */
#include "server/operation/classify.h"

#include <assert.h>

#include "engine/engine.h"
#include "server/models/hosted_model.h"
#include "server/request/workers.h"

void classify_drop_pixels(struct job *j)
{
    picture_inputs_drop(&classify_job_of(j)->in);
    workers_give_back(j);
}

/* How many inputs of the trained size it is worth to the engine. */
static uint32_t cost_of(const struct hosted_model *model, const struct picture_input *in)
{
    const struct model_config *c = &model->model->config;
    const uint64_t trained = c->input == INPUT_IMAGE ? (uint64_t)c->size[0] * c->size[1] : c->context;
    const uint64_t pixels = (uint64_t)in->height * in->width;
    return pixels > trained ? (uint32_t)((pixels + trained - 1) / trained) : 1;
}

enum status classify_begin(struct job *j, struct error *err)
{
    struct classify_job *c = job_begin(j, &job_kind_classify, sizeof *c, err);
    if (c == NULL)
        return ERR_NOMEM;
    c->job = j;
    return OK;
}

/* What input i costs the engine; and a map, if it wants one. */
static enum status note_input(struct job *j, uint32_t i, struct error *err)
{
    struct classify_job *c = classify_job_of(j);
    struct picture_input *in = &c->in.list[i];
    if (i == 0)
        j->item.kind = classify_input_size(in);
    j->engine_cost += cost_of(j->model, in);
    if (in->map.layers == 0)
        return OK;
    assert(c->in.count == 1);
    c->map = in->map.out = job_alloc(j, in->map_values * sizeof *c->map, err);
    return c->map != NULL ? OK : ERR_NOMEM;
}

enum status classify_make_outputs(struct job *j, bool pooled, struct error *err)
{
    struct classify_job *c = classify_job_of(j);
    const uint32_t count = c->in.count;
    assert(count >= 1);
    j->work.pictures = j->work.preprocess != NULL ? count : 0;
    for (uint32_t i = 0; i < count; i++)
        if (note_input(j, i, err) != OK)
            return ERR_NOMEM;
    c->logits = job_alloc(j, (size_t)count * c->in.list[0].classes * sizeof *c->logits, err);
    if (c->logits == NULL || !pooled)
        return c->logits != NULL ? OK : ERR_NOMEM;
    c->pooled = job_alloc(j, (size_t)count * engine_info(j->model->engine)->dim * sizeof *c->pooled, err);
    return c->pooled != NULL ? OK : ERR_NOMEM;
}

enum status classify_note_input(struct job *j, uint32_t i, const struct picture *whole, const struct picture_fit *f,
                                struct error *err)
{
    (void)whole;
    j->engine_cost--; /* what it was taken for as a file */
    j->work.retained += UINT64_C(3) * f->height * f->width;
    return note_input(j, i, err);
}

const struct job_kind job_kind_classify = {.tells_finish = false};
