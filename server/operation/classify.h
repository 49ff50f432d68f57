/* classify.h - jobs that classify pictures or texts, one or several. They run in batches (batch/picture_lane.h), which
 * take inputs of one size from several jobs. */
#ifndef SERVER_OPERATION_CLASSIFY_H
#define SERVER_OPERATION_CLASSIFY_H

#include <stdint.h>

#include "config/status.h"
#include "server/request/job.h"

struct hosted_model;

/* A picture as its model wants it, or a text; or a picture that is yet to be prepared (classify_job_fill), of which
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
    struct job job;
    struct classify_input *inputs; /* [count], the job's copies; of one model, of any sizes */
    uint32_t count;
    uint32_t begun, done; /* the engine thread's: inputs that a batch has taken, inputs that have their logits */
    /* The engine thread's until the job is done, then constant. */
    float *logits; /* [count, classes] */
    float *map;    /* [map.values] if the only input wants one, else NULL */
    float *pooled; /* [count, dim] what the model's head was given, if that is to be kept, else NULL */
};

extern const struct job_kind job_kind_classify;

/* The struct that begins with a job of this kind. */
struct classify_job *classify_job_of(const struct job *j);

/* Create a job with one reference, the caller's, of 1 .. CLASSIFY_INPUTS_MAX inputs; only a single input may want a
 * map. On OK the job owns the memory that they point to. *ret is set only on OK. Errors: ERR_NOMEM. */
enum status classify_job_create(struct job **ret, struct hosted_model *model, const struct classify_input *inputs,
                                uint32_t count);

/* Set input i of a job that no engine has yet; on OK its pixels are the job's. Errors: ERR_NOMEM. */
enum status classify_job_fill(struct job *j, uint32_t i, const struct classify_input *in);
/* Keep what the head is given, of a job that was not submitted yet. Errors: ERR_NOMEM. */
enum status classify_job_keep_pooled(struct job *j);
/* Of a job that is done: its inputs are not needed any more. */
void classify_job_drop_pixels(struct job *j);

/* What the inputs of a batch have in common: their size. The `kind` of a job's queue item is that of its first
 * input. */
static inline uint64_t classify_input_size(const struct classify_input *in)
{
    return (uint64_t)in->height << 32 | in->width;
}

#endif
