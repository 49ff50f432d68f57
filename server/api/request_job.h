/* request_job.h - the job of a request: handed to the engine, awaited, and how long it took. HTTP threads. */
#ifndef SERVER_API_REQUEST_JOB_H
#define SERVER_API_REQUEST_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "server/http/http.h"

struct job;

/* Is the queue full? Then that was answered: before work is spent on a request that would be refused. */
bool request_job_refuse_if_full(struct exchange *x);

/* Hand a job to the engine and go on with `next` when it is ready, or answer that this cannot be. Takes `j`. */
void request_job_submit(struct exchange *x, struct job *j, uint32_t timeout_ms, http_handler *next);
/* How most endpoints end: with OK as request_job_submit, of a request whose body is of no use any more; else with the
 * error. Takes `j`, which may be there although there is an error, and NULL. */
void request_job_submit_or_refuse(struct exchange *x, enum status st, const struct error *err, struct job *j,
                                  uint32_t timeout_ms, http_handler *next);

/* What the awaited job, which is done or streams, took: for the answer of one that generates; and for Server-Timing. */
json_t *request_job_timings(const struct exchange *x);
void request_job_note_times(struct exchange *x);

#endif
