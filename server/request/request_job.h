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

/* True: the queue is full, and the request was answered so, before any work is spent on it. */
bool request_job_refuse_if_full(struct request *x);

/* How an endpoint with a state begins: makes one of so many zeros, x->state. NULL: the request was answered, since
 * the queue is full or there is no memory. */
void *request_job_begin(struct request *x, size_t bytes, void (*state_free)(void *state));

/* The request's pictures have so many pixels, as their files say. A key's rate of bytes counts a byte for each
 * PICTURE_BLOCK_PIXELS at least, so that a small file brings no great work for nothing. Before request_job_submit. */
void request_job_charge_pixels(struct request *x, uint64_t pixels);

/* Submit a job to the engine, by way of the workers if it has work for them, and continue with `next` when it is ready,
 * or answer with an error. Takes `j`. */
void request_job_submit(struct request *x, struct job *j, request_handler *next);
/* How most endpoints end: with OK, drop the body, unless it was kept, and request_job_submit; else answer with
 * the error. Takes `j`, which may be non-NULL despite an error, or NULL. */
void request_job_submit_or_refuse(struct request *x, enum status st, const struct error *err, struct job *j,
                                  request_handler *next);

/* Notes the times of the awaited job, which is done. False: it was answered with the error that it ended with. */
bool request_job_ended_well(struct request *x);
/* How long the awaited job, which is done or streaming, took: for a generating endpoint's answer; and for
 * Server-Timing. */
json_t *request_job_timings(const struct request *x);
void request_job_note_times(struct request *x);
/* Add X-Prompt-Tokens-Dropped where the model's context had no room for all of the prompts: not every API's answer has
 * a place for it, nor any stream before its end. x->job is NULL, done or streaming. */
void request_job_tell_dropped(struct request *x);

#endif
