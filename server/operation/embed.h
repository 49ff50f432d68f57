/* embed.h - jobs that make embeddings of texts with a generating model: of each text the mean of its bytes' hidden
 * states, after the final norm. */
#ifndef SERVER_OPERATION_EMBED_H
#define SERVER_OPERATION_EMBED_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/request/job.h"

/* None is empty or longer than the model's context. */
struct embed_input {
    uint8_t *texts;                    /* one after another, the job's */
    size_t ends[GENERATE_PROMPTS_MAX]; /* where each ends */
    uint32_t count;                    /* >= 1; each takes a stream */
};

struct embed_job {
    struct embed_input in;
    uint32_t dim;
    double *sums; /* [count, dim] of hidden states; the engine thread's until the job is done, then constant */
};

extern const struct job_kind job_kind_embed;

/* What a job of this kind has. */
static inline struct embed_job *embed_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_embed);
    return j->op;
}

/* Begin a job of this kind, which has its model, and to which the memory belongs that `in` points to. Errors:
 * ERR_NOMEM. */
enum status embed_begin(struct job *j, const struct embed_input *in, struct error *err);
/* Of a job that is done: the mean for a text, out [dim]. */
void embed_job_mean(const struct job *j, uint32_t text, float *out);

#endif
