/* classify.h - jobs that classify pictures or texts, one or several. They run in batches (picture_lane.h), which
 * take inputs of one size from several jobs. */
#ifndef SERVER_OPERATION_CLASSIFY_H
#define SERVER_OPERATION_CLASSIFY_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/operation/picture_inputs.h"
#include "server/request/job.h"

struct classify_job {
    struct job *job; /* whose it is */
    struct picture_inputs in;
    uint32_t begun, done; /* the engine thread's: inputs that a batch has taken, inputs that have their logits */
    /* The engine thread's until the job is done, then constant. */
    float *logits; /* [in.count, classes] */
    float *map;    /* [map_values] if the only input wants maps, else NULL */
    float *pooled; /* [in.count, dim] what the model's head was given, if that is to be kept, else NULL */
};

extern const struct job_kind job_kind_classify;

/* What a job of this kind has. */
static inline struct classify_job *classify_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_classify);
    return j->op;
}

/* Begin a job of this kind, which has its model, with no inputs yet. Errors: ERR_NOMEM. */
enum status classify_begin(struct job *j, struct error *err);
/* All inputs are there, at least one, if perhaps as files. `pooled`: what the head is given is to be kept. Errors:
 * ERR_NOMEM. */
enum status classify_make_outputs(struct job *j, bool pooled, struct error *err);
/* A picture_fill: input i has its pixels, and its map. */
enum status classify_note_input(struct job *j, uint32_t i, const struct picture *whole, const struct picture_fit *f,
                                struct error *err);
/* Of a job that is done: its inputs are not needed any more. */
void classify_drop_pixels(struct job *j);

/* What the inputs of a batch have in common: their size. The `kind` of a job's queue item is that of its first
 * input. */
static inline uint64_t classify_input_size(const struct picture_input *in)
{
    return (uint64_t)in->height << 32 | in->width;
}

#endif
