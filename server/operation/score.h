/* score.h - jobs that tell how probable the elements of a text or a picture are under a generating model. */
#ifndef SERVER_OPERATION_SCORE_H
#define SERVER_OPERATION_SCORE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/request/job.h"

/* Bytes or sub-pixels whose probabilities are wanted. */
struct score_input {
    uint8_t *elements; /* [count], the job's; NULL: to be set before an engine has it */
    size_t count;
    size_t first; /* the first one that has a probability: 1 for a model without start embedding, else 0 */
};

struct score_job {
    struct score_input in;
    /* The engine thread's until the job is done, then constant: log2 of the probability of each element from the first
     * on. */
    float *log2_probs; /* [count - first] */
    size_t scored;     /* of these, so far */
};

extern const struct job_kind job_kind_score;

/* What a job of this kind has. */
static inline struct score_job *score_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_score);
    return j->op;
}

/* Begin a job of this kind, which has its model, and to which the memory belongs that `in` points to. Errors:
 * ERR_NOMEM. */
enum status score_begin(struct job *j, const struct score_input *in, struct error *err);

#endif
