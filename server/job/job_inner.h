/* job_inner.h - what job.c and job_text.c share; nobody else includes it. Those _locked are called under the job's
 * lock. */
#ifndef SERVER_JOB_JOB_INNER_H
#define SERVER_JOB_JOB_INNER_H

#include "server/job/job.h"

/* ---- job.c ----------------------------------------------------------------------------------------------------- */

/* Does its answer begin before the job is done? */
bool job_streams(const struct job *j);
void job_suspend_locked(struct job *j);
void job_resume_locked(struct job *j); /* if it was suspended */
/* News other than data; JOB_EVENT_LATER has suspended the waiter. */
enum job_event job_other_event_locked(struct job *j);

/* ---- job_text.c ------------------------------------------------------------------------------------------------ */

/* The input and the rings of a generate job. On OK the input's memory is the job's. Errors: ERR_NOMEM. */
enum status job_text_init(struct job *j, const struct generate_input *in, size_t ring_bytes);
void job_text_clear(struct job *j); /* but for the input */
/* The end of all samples that have not ended yet; returns how the whole did. */
enum job_finish job_text_end_locked(struct job *j, enum job_finish finish);

#endif
