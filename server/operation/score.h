/* score.h - jobs that tell how probable the elements of a text or a picture are under a generating model. */
#ifndef SERVER_OPERATION_SCORE_H
#define SERVER_OPERATION_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/request/job.h"

struct hosted_model;

/* Bytes or sub-pixels whose probabilities are wanted. */
struct score_input {
    uint8_t *elements; /* [count], the job's; NULL: yet to come */
    size_t count;
    size_t first; /* the first one that has a probability: 1 for a model without start embedding, else 0 */
};

struct score_job {
    struct job job;
    struct score_input in;
    /* The engine thread's until the job is done, then constant: log2 of the probability of each element from the first
     * on. */
    float *log2_probs; /* [count - first] */
    size_t scored;     /* of these, so far */
};

extern const struct job_kind job_kind_score;

/* The struct that begins with a job of this kind. */
struct score_job *score_job_of(const struct job *j);

/* Create a job with one reference, the caller's. On OK the job owns the memory that `in` points to. *ret is set only on
 * OK. Errors: ERR_NOMEM. */
enum status score_job_create(struct job **ret, struct hosted_model *model, const struct score_input *in);
/* Give the job that no engine has yet its elements, malloc'd; taken. */
void score_job_fill(struct job *j, uint8_t *elements);

#endif
