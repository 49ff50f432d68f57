/* complete.h - jobs that go on with a picture: its first sub-pixels in, those of several samples out, drawn by a model
 * of sub-pixels. */
#ifndef SERVER_KINDS_COMPLETE_H
#define SERVER_KINDS_COMPLETE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/sampler.h"
#include "server/job/job.h"

struct hosted_model;

/* A picture's first sub-pixels, to be gone on with. */
struct complete_input {
    uint8_t *known;              /* [known_count], the job's; may be NULL when that is 0 */
    uint32_t known_count, total; /* total: sub-pixels of a picture, a multiple of row_count */
    uint32_t row_count;          /* sub-pixels of a row */
    uint32_t samples;            /* 1 .. COMPLETE_SAMPLES_MAX pictures, sample i drawn by the sampler's sample i */
    bool stream;                 /* hand out rows while they come, rather than whole pictures at the end */
    struct sampler_options sampler;
};

struct complete_job {
    struct job job;
    struct complete_input in;
    uint8_t *pixels; /* [samples, total], the known ones first; constant below `drawn` */
    struct {         /* the engine thread's */
        struct sampler sampler;
        uint8_t drawn; /* the latest sub-pixel */
    } streams[COMPLETE_SAMPLES_MAX];
    /* under the job's lock */
    uint32_t drawn[COMPLETE_SAMPLES_MAX]; /* sub-pixels of each sample, the known ones included */
};

extern const struct job_kind job_kind_complete;

/* The whole of a job of this kind. */
struct complete_job *complete_job_of(const struct job *j);

/* A job with one reference, the caller's. On OK the memory that `in` points to is the job's. *ret is set only on OK.
 * Errors: ERR_NOMEM. */
enum status complete_job_create(struct job **ret, struct hosted_model *model, const struct complete_input *in);

/* What there is to say: a sample of which more rows are there than `read` [samples] says, and how many are in all; or
 * another event. Those read from `pixels` stay as they are. HTTP threads. */
enum job_event complete_read_rows(struct job *j, const uint32_t *read, uint32_t *sample, uint32_t *rows);

#endif
