/* classify.h - jobs that classify pictures or texts, one or several. They run in batches (batch/picture_lane.h), which
 * take inputs of one size from several jobs. */
#ifndef SERVER_OPERATION_CLASSIFY_H
#define SERVER_OPERATION_CLASSIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/request/job.h"

struct hosted_model;

/* A picture as its model wants it, or a text; or a picture that is yet to be prepared (classify_fill), of which
 * only `classes` is known. */
struct classify_input {
    uint8_t *pixels; /* [height, width, 3]; for a text its bytes [width], with height 1; malloc'd. NULL: yet to come */
    uint32_t height, width;
    uint32_t classes;
    struct {
        uint32_t values; /* patches of the picture; 0: no map is wanted */
        uint32_t layer, head;
    } map; /* as for engine_batch_want_map */
};

struct classify_job {
    struct job *job;                                   /* whose it is */
    struct classify_input inputs[CLASSIFY_INPUTS_MAX]; /* [count], of one model, of any sizes */
    uint32_t count;
    uint32_t begun, done; /* the engine thread's: inputs that a batch has taken, inputs that have their logits */
    /* The engine thread's until the job is done, then constant. */
    float *logits; /* [count, classes] */
    float *map;    /* [map.values] if the only input wants one, else NULL */
    float *pooled; /* [count, dim] what the model's head was given, if that is to be kept, else NULL */
};

extern const struct job_kind job_kind_classify;

/* What a job of this kind has. */
struct classify_job *classify_job_of(const struct job *j);

/* Begin a job of this kind, which has its model, with no inputs yet. Errors: ERR_NOMEM. */
enum status classify_begin(struct job *j, struct error *err);
/* Add an input, of CLASSIFY_INPUTS_MAX at most, whose pixels are the job's from now on; only a single input may want a
 * map. */
void classify_add(struct job *j, const struct classify_input *in);
/* All inputs are there, at least one. `pooled`: what the head is given is to be kept. Errors: ERR_NOMEM. */
enum status classify_make_room(struct job *j, bool pooled, struct error *err);

/* Set input i of a job that no engine has yet; on OK its pixels are the job's. Errors: ERR_NOMEM. */
enum status classify_fill(struct job *j, uint32_t i, const struct classify_input *in, struct error *err);
/* Of a job that is done: its inputs are not needed any more. */
void classify_drop_pixels(struct job *j);

/* What the inputs of a batch have in common: their size. The `kind` of a job's queue item is that of its first
 * input. */
static inline uint64_t classify_input_size(const struct classify_input *in)
{
    return (uint64_t)in->height << 32 | in->width;
}

#endif
