/* job.h - work that other threads do for a request: the engine's or the loader's, and for some before or after that a
 * worker's (workers.h). A request begins with its job, and may have several done, one after another, each of a
 * kind (struct job_kind), with what that needs in `op`.
 *
 * The struct is reference counted: the connection, or whoever else has it made, holds one reference, the working side
 * (queue, then slot or batch) another. With the last one it goes, and all that job_alloc gave with it.
 * The input is written before job_submit and only read afterwards; the job's lock guards its state.
 * Lock order: job -> MHD, job -> a mailbox (the waiter's functions are called under the job's lock; resuming makes no
 * system call and wakes nobody: whoever posted notifies afterwards, see mailbox.h), job -> a queue. */
#ifndef SERVER_REQUEST_JOB_H
#define SERVER_REQUEST_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/core/queue.h"

struct hosted_model;
struct job;
struct job_block;
struct workers;
struct stream_kind;

enum job_state { JOB_NONE, JOB_QUEUED, JOB_RUNNING, JOB_STREAMING, JOB_DONE };

/* How a generated text ended, in the words of the API: those before FINISH_TIMEOUT by itself, those after it in the
 * middle, because the daemon stops and the client goes on elsewhere, or because it may not go on at all. */
#define JOB_FINISHES(X)          \
    X(FINISH_STOP, "stop")       \
    X(FINISH_LENGTH, "length")   \
    X(FINISH_CONTEXT, "context") \
    X(FINISH_TIMEOUT, "timeout") \
    X(FINISH_MOVED, "moved")     \
    X(FINISH_CANCELLED, "cancelled")
#define X(constant, word) constant,
enum job_finish { JOB_FINISHES(X) };
#undef X
extern const char *const job_finish_words[];

/* What a kind of job provides: a table in its file, most of them in server/operation/. */
struct job_kind {
    /* The job ends; called under its lock. Completes the output and returns how it ended. NULL: as `finish` says. */
    enum job_finish (*end_locked)(struct job *j, enum status st, enum job_finish finish);
    bool ends_late;                   /* what there is at the deadline is an answer, even if it is not streamed */
    bool tells_finish;                /* the log gives its finish as its outcome */
    const struct stream_kind *stream; /* how it runs in the slots of a stream lane; NULL: it does not */
};

/* The connection that waits: suspended while there is nothing to read, resumed when there is. Both functions are called
 * under the job's lock, from any thread, and must not block. */
struct job_waiter {
    void (*suspend)(void *arg);
    void (*resume)(void *arg);
    void *arg;
};

/* Complete and constant once the job is done. Times are clock_now_ns(), 0 if the job did not get that far. */
struct job_result {
    enum status status;     /* OK: there is an answer */
    enum job_finish finish; /* if OK; of several texts, the latest in JOB_FINISHES that any has */
    struct error error;     /* if not OK */
    /* queued_ns: when it came to wait for the engine. computed_ns: when that was done with it, where a worker goes on;
     * else 0. */
    uint64_t queued_ns, started_ns, first_ns, computed_ns, done_ns;
    /* Bytes drawn, including those of a stop string; sub-pixels of all samples; bytes restored, once all of them
     * are. */
    uint32_t generated;
};

/* What workers do for a job, before the engine or after it (workers.h). */
struct job_work {
    /* Each is called at most once, with no lock held. NULL: there is nothing to do before the engine, or after it. When
     * `preprocess` returns OK, the job is ready for the engine, and `retained` is set. Their errors end the job, with
     * the param; what must stop says why (job_stop_reason). */
    enum status (*preprocess)(struct job *j, struct error *err);
    enum status (*postprocess)(struct job *j, struct error *err);
    void *arg;                              /* that they work with */
    uint64_t preprocess_ns, postprocess_ns; /* how long they take, roughly: what the queues of workers go by */
    uint64_t preprocess_bytes;  /* most memory for pixels that `preprocess` takes, of which it keeps `retained` ... */
    uint64_t retained;          /* ... until workers_give_back or the end of `postprocess` */
    uint64_t postprocess_bytes; /* most that `postprocess` takes beside that; not 0 only where nothing is kept */
    uint32_t pictures;          /* that count as made ahead for a batch of the engine's, from when they are taken up */
    bool commits; /* what comes of the engine's work is not given up any more, however late: it is written down */
    /* workers.c's; NULL: no worker has the job, nor had it */
    struct workers *workers;
    /* The engine has ended the job with an answer: true: a worker goes on with it, and ends it. Asked again of a job
     * that has been with one, it says false. */
    bool (*hand_off)(struct job *j, enum job_finish finish, uint64_t now_ns);
    struct queue *engine; /* where it goes from here; NULL: nowhere */
    uint32_t lane;
    uint64_t held; /* of the budget */
    bool is_ahead, is_postprocessed;
    enum job_finish finish;
};

struct job {
    /* of whoever has the job: its HTTP thread until job_submit, then who works for it */
    const struct job_kind *kind;
    void *op;                   /* the kind's own struct */
    struct hosted_model *model; /* one reference; NULL: it needs no model */
    bool streams;               /* its answer begins before it is done */
    bool resumable;             /* its client goes on elsewhere, where the daemon stops */
    uint32_t engine_cost;       /* its item's in an engine's queue: places in batches; a job of streams counts as 1 */
    size_t input_len;           /* elements (bytes, sub-pixels) in the request; 0: it has none */
    uint32_t dropped;           /* of these, what the context has no room for */
    uint32_t samples;           /* that take slots; 0: one */
    bool is_from_outside; /* it goes on from a state that a client has sent: one that may be made up, finite, and still
                             lead to logits that are not */
    bool saves;           /* its streams' states, also where it is cut off (struct stream_kind) */
    uint64_t max_output;  /* that it may generate; 0: it generates none */
    bool keeps_prefixes;  /* its prompts leave states in the cache and start from some, those of this owner: */
    struct client_id prefix_owner;
    size_t answer_bytes; /* what it takes until its output is read; 0: little, or told with the answer */
    uint64_t deadline_ns;
    struct job_work work;

    struct queue_item item; /* the queue's; priority, cost and client are set before job_submit */
    atomic_uint references;
    struct job_block *memory; /* what job_alloc gave */
    atomic_int cancelled;     /* the first enum status given to job_cancel; OK: not cancelled */

    pthread_mutex_t lock;
    /* under the lock */
    struct queue *queue; /* the last that it was put into */
    enum job_state state;
    bool attached;     /* the waiter may be called */
    bool suspended;    /* the waiter's suspend was called, resume not yet */
    bool is_committed; /* job_cancel comes too late: what the engine has made of it is being written down */
    bool ping;
    struct job_waiter waiter;
    struct job_result result;
};

/* ---- its memory: who has it -------------------------------------------------------------------------------------- */

/* A zeroed struct of so many bytes that begins with a job, with one reference, the caller's. NULL: no memory. */
void *job_create(size_t bytes);
void job_reference(struct job *j);
void job_release(struct job *j); /* NULL is a no-op */

/* So many bytes, zeroed, which are freed with the job's last reference: for whoever has the job, its HTTP thread until
 * it is submitted, then who works for it. NULL: ERR_NOMEM. */
void *job_alloc(struct job *j, size_t bytes, struct error *err);
/* With the last reference, before all memory of job_alloc goes: fn(arg). The latest comes first. Errors: ERR_NOMEM:
 * nothing was noted. */
enum status job_defer(struct job *j, void (*fn)(void *arg), void *arg, struct error *err);

/* Call now what job_defer was told since j->memory was `since`; it is not called again. Nobody works for the job. */
void job_undo(struct job *j, const struct job_block *since);

/* The model that it is for, once and for all; takes over a reference of the caller's. */
void job_take_model(struct job *j, struct hosted_model *model);
/* What is to be done next: nothing else is under way. Clears what the last one had, and returns `bytes` of job_alloc
 * for its own struct, j->op; NULL: ERR_NOMEM. */
void *job_begin(struct job *j, const struct job_kind *kind, size_t bytes, struct error *err);

/* ---- HTTP threads ------------------------------------------------------------------------------------------------ */

/* Put the job into a lane of the queue, that of its model; at most once. Errors: ERR_FULL, ERR_UNAVAILABLE (closed):
 * the job is unchanged. If the queue is full of another client's jobs, its newest gives way (queue_make_room), and ends
 * with ERR_FULL. */
enum status job_submit(struct job *j, struct queue *q, uint32_t lane, uint64_t deadline_ns);

/* Set the waiter. After job_detach has returned, it is not called any more. */
void job_attach(struct job *j, const struct job_waiter *waiter);
void job_detach(struct job *j);

/* Is it time to answer: the first byte of a stream is there, or the job is done? If not, false, and the waiter was
 * suspended and will be resumed. */
bool job_ready_or_suspend(struct job *j);

/* The next event of a job that streams: something was generated; one of its samples has ended and was read completely;
 * a ping; the end, once all was read; or nothing yet: the waiter was suspended and will be resumed. */
enum job_event { JOB_EVENT_BYTES, JOB_EVENT_SAMPLE_END, JOB_EVENT_PING, JOB_EVENT_END, JOB_EVENT_LATER };

/* The result of a job that is done. */
static inline const struct job_result *job_result(const struct job *j)
{
    return &j->result;
}
bool job_is_done(struct job *j);
/* The reason of job_cancel; OK: there was none. */
static inline enum status job_cancelled(const struct job *j)
{
    return (enum status)atomic_load_explicit(&j->cancelled, memory_order_relaxed);
}
/* How far a job is, once it was submitted. Any thread. */
struct job_look {
    enum job_state state;
    uint64_t queued_ns, left_queue_ns; /* the latter 0: it waits */
    uint64_t first_ns;                 /* when the first element was generated; 0: not yet */
    uint32_t generated;                /* elements of a text or picture, done or not */
    uint64_t deadline_ns;
    bool resumable;
    const struct hosted_model *model; /* NULL: none yet */
};
struct job_look job_look(struct job *j);

/* ---- any thread ------------------------------------------------------------------------------------------------ */

/* Ask the job to end for the reason `st`; the first reason counts. A job that waits in a queue is done before this
 * returns, one that waits for memory for its pictures soon after, a running one after its current step. */
void job_cancel(struct job *j, enum status st);
/* Resume the suspended waiter of a streaming job, so that it sends a ping. */
void job_ping(struct job *j);

/* ---- the thread that works for it ------------------------------------------------------------------------------ */

/* The job that a queue's item is part of. */
static inline struct job *job_of_item(struct queue_item *item)
{
    return (struct job *)(void *)((char *)item - offsetof(struct job, item));
}
/* OK, or why this job must stop now: it was cancelled, or its deadline has passed. */
static inline enum status job_stop_reason(const struct job *j, uint64_t now_ns)
{
    const enum status st = job_cancelled(j);
    return st == OK && now_ns >= j->deadline_ns ? ERR_TIMEOUT : st;
}
/* The caller has popped the job and begins to work on it. */
void job_start(struct job *j, uint64_t now_ns);

/* Put a job that was submitted, and that its caller has popped, into another queue, which may change its cost. Errors:
 * why it must stop now (job_cancel); ERR_FULL, ERR_UNAVAILABLE, as job_submit: it is still the caller's. */
enum status job_pass(struct job *j, struct queue *q, uint32_t lane);
/* Likewise, of a job that from now on is not cancelled any more: there must be room for it in the queue. Errors:
 * ERR_FULL, ERR_UNAVAILABLE. */
enum status job_commit(struct job *j, struct queue *q, uint32_t lane);

/* End the job, and drop the working side's reference. job_finish: with an answer; where a worker is to complete that
 * first, the job goes on to it, and it ends the job. `finish` applies to the samples of a text that have not ended
 * before. */
void job_finish(struct job *j, enum job_finish finish, uint64_t now_ns);
/* The same for the worker, who has completed it. */
void job_complete(struct job *j, enum job_finish finish, uint64_t now_ns);
/* job_abort: without a full answer, because of `st` (not OK), which `message` explains to a person (NULL: a text for
 * `st`). What was generated by then still counts as an answer if the deadline passed (FINISH_TIMEOUT; if the kind has
 * ends_late or the job streams), or if the client has begun to read it and the cause is no fault of ours
 * (FINISH_CANCELLED; FINISH_MOVED, if the daemon stops and the job moves). */
void job_abort(struct job *j, enum status st, const char *message, uint64_t now_ns);

/* ---- the kinds ------------------------------------------------------------------------------------------------- */

/* Functions named _locked are called under the job's lock. */
void job_resume_locked(struct job *j); /* if it was suspended */
/* An event other than data; with JOB_EVENT_LATER the waiter was suspended. */
enum job_event job_other_event_locked(struct job *j);
/* An element was generated; true: the first one. */
bool job_generated_locked(struct job *j, uint64_t now_ns);

#endif
