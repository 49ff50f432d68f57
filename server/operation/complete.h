/* complete.h - jobs that complete a picture: its first sub-pixels go in, and those of several samples come out, drawn
 * by a model of sub-pixels. */
#ifndef SERVER_OPERATION_COMPLETE_H
#define SERVER_OPERATION_COMPLETE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/sampler.h"
#include "server/request/job.h"

/* The first sub-pixels of a picture that is to be completed. */
struct complete_input {
    const uint8_t *known;        /* [known_count], the job's; NULL: there are none, or they are yet to come */
    uint32_t known_count, total; /* total: sub-pixels of a picture, a multiple of row_count */
    uint32_t row_count;          /* sub-pixels of a row */
    uint32_t samples;            /* 1 .. COMPLETE_SAMPLES_MAX pictures, sample i drawn by the sampler's sample i */
    bool stream;                 /* hand out rows as they come, rather than whole pictures at the end */
    struct sampler_options sampler;
};

struct complete_job {
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

/* What a job of this kind has. */
static inline struct complete_job *complete_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_complete);
    return j->op;
}

/* Begin a job of this kind, which has its model, and to which the memory belongs that `in` points to. Errors:
 * ERR_NOMEM. */
enum status complete_begin(struct job *j, const struct complete_input *in, struct error *err);
/* Set the known sub-pixels, the job's, of a job that no engine has yet. */
void complete_fill(struct job *j, const uint8_t *known);

/* The next event: a sample that has more rows than `read` [samples] says, and how many it has in all; or another event.
 * Rows once read from `pixels` do not change. HTTP threads. */
enum job_event complete_read_rows(struct job *j, const uint32_t *read, uint32_t *sample, uint32_t *rows);

#endif
