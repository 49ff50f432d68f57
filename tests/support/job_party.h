/* job_party.h - a thread that waits for a job as an HTTP connection does: suspended by the job, resumed by whoever has
 * news, counting both. A failing step ends the test. */
#ifndef TESTS_SUPPORT_JOB_PARTY_H
#define TESTS_SUPPORT_JOB_PARTY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/operation/generate.h"

struct hosted_model;

struct party {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool suspended;
    unsigned suspends, resumes;
};

void party_init(struct party *p);
void party_clear(struct party *p);
struct job_waiter party_waiter(struct party *p);

/* Wait as the party of this job until job_ready_or_suspend returns true; the test fails after 20 s. */
void party_await(struct party *p, struct job *j);
/* Read to the end: out [size_max] gets the bytes, the return value is their number. */
size_t party_read(struct party *p, struct job *j, uint8_t *out, size_t size_max);

/* A job with that model, begun. */
struct job *party_generate(struct hosted_model *model, const struct generate_input *in, size_t ring_bytes);

/* A hosted model without files, for jobs that no engine runs; hosted_model_release it. */
struct hosted_model *party_model(void);
/* A small one for texts, loaded; likewise. */
struct hosted_model *party_text_model(void);

#endif
