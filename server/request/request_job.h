/* request_job.h - the job of a request: submit it to the engine, wait for it, and tell how long it took. HTTP
 * threads. */
#ifndef SERVER_REQUEST_REQUEST_JOB_H
#define SERVER_REQUEST_REQUEST_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "server/request/request.h"

struct job;

/* Is there room for another job of the request's client? Errors: ERR_FULL. */
enum status request_job_check_room(const struct request *x, struct error *err);

/* How a step ends that has begun the request's job: the engine is to do it, by way of the workers if it has work for
 * them, and the request goes on with `next` when it is ready; the body is dropped, unless it is kept. Returns OK. */
enum status request_job_made(struct request *x, request_step *next);
/* Submit the job that was made. Errors: ERR_FULL, ERR_UNAVAILABLE, as workers_submit. */
enum status request_job_submit(struct request *x, struct error *err);

/* The request's pictures have so many pixels, as their files say. A key's rate of bytes counts a byte for each
 * PICTURE_BLOCK_PIXELS at least, so that a small file brings no great work for nothing. Before
 * request_job_made. */
void request_job_charge_pixels(struct request *x, uint64_t pixels);

/* How long the job waited for the engine, and how long that took; 0, 0: it is not done, or there is none. */
struct request_times {
    double queue_ms, compute_ms;
};
struct request_times request_job_times(struct request *x);
/* How long the awaited job, which is done, took: for a generating endpoint's answer. */
json_t *request_job_timings(const struct request *x);
/* Add X-Prompt-Tokens-Dropped where the model's context had no room for all of the prompts: not every API's answer has
 * a place for it, nor any stream before its end. x->job is NULL, done or streaming. */
void request_job_tell_dropped(struct request *x);

#endif
