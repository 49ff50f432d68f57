/* batcher.h - the engine thread: takes jobs from the queue, forms passes and batches, runs them and hands the results
 * to the jobs. It alone runs the engines of all models that are served.
 * batcher_start, batcher_stop and batcher_free are for the main thread, everything else is for any thread. */
#ifndef SERVER_OPERATION_BATCHER_H
#define SERVER_OPERATION_BATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"

struct batcher;
struct hosted_model;
struct mailboxes;
struct queue;
struct settings;

/* Start the thread, which serves no model yet. `s` and `mailboxes` are borrowed until batcher_free; the threads of
 * `mailboxes` are notified after every step of what jobs have posted in it; NULL: no waiter posts anything. *ret is set
 * only on OK. Errors: ERR_NOMEM. */
enum status batcher_start(struct batcher **ret, const struct settings *s, struct mailboxes *mailboxes,
                          struct error *err);
/* Refuse new jobs, let the thread end all that is left (to hurry it, batcher_cancel first) and join it. Afterwards
 * every job that was submitted is done. Once. */
void batcher_stop(struct batcher *b);
/* After batcher_stop, when nobody uses the batcher, its queue or a model any more. NULL is a no-op. */
void batcher_free(struct batcher *b);

/* Valid until batcher_free. */
struct queue *batcher_queue(const struct batcher *b);

/* Give a model a lane, which runs its jobs, and which holds it until nobody else does (hosted_model.h). All memory for
 * serving it is allocated here, on the caller's thread.
 * Errors: ERR_NOMEM; ERR_UNAVAILABLE (every lane is taken: by models that were replaced and still have requests). */
enum status batcher_serve(struct batcher *b, struct hosted_model *e, struct error *err);
/* Queue to wake when a model is unused; whoever waits there calls batcher_reap. NULL: none. */
void batcher_wake_for_gone(struct batcher *b, struct queue *q);
/* Bring the gauges of waiting jobs and of the engine's progress up to date: they are measured when somebody asks,
 * rather than kept with every job and step. */
void batcher_measure(struct batcher *b, uint64_t now_ns);
/* Free the models that are unused, on the caller's thread, because that takes a while. */
void batcher_reap(struct batcher *b);

/* Refuse new jobs, and end all that wait or run now, with ERR_UNAVAILABLE. */
void batcher_cancel(struct batcher *b);

/* Is there work, and has no step ended for stuck_after_ms? */
bool batcher_is_stuck(const struct batcher *b, uint64_t now_ns);

#endif
