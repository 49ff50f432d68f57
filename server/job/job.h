/* job.h - one request's life between the HTTP thread that answers it and the thread that works for it: the engine's, or
 * the loader's.
 *
 * A job is of a kind (struct job_kind), which has what it is about: the kind's own struct begins with the job. It is
 * counted: its connection holds one reference, the working side (queue, then slot or batch) another. What a job is
 * about is written before job_submit and only read afterwards; what happens to it lies under its lock.
 * Lock order: job -> MHD, job -> a mailbox (the waiter's functions are called under the job's lock; resuming makes no
 * system call and wakes nobody: who has posted notifies afterwards, see mailbox.h). The queue's lock is never held
 * together with a job's. */
#ifndef SERVER_JOB_JOB_H
#define SERVER_JOB_JOB_H

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
struct stream_kind;

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_STREAMING, JOB_DONE };

/* How a generated text ended, in the contract's words. */
#define JOB_FINISHES(X)          \
    X(FINISH_STOP, "stop")       \
    X(FINISH_LENGTH, "length")   \
    X(FINISH_TIMEOUT, "timeout") \
    X(FINISH_CANCELLED, "cancelled")
#define X(constant, word) constant,
enum job_finish { JOB_FINISHES(X) };
#undef X
const char *job_finish_word(enum job_finish finish);

/* What a kind of job provides: a table in its file, in server/kinds/. */
struct job_kind {
    /* Free the kind's struct, the job in it included, when nobody has a reference any more. */
    void (*free)(struct job *j);
    /* Elements (bytes, sub-pixels) that the request gave; NULL: it is not about elements, and the log counts none. And
     * how many at most it may generate; NULL: none. Any thread. */
    size_t (*given)(const struct job *j);
    uint64_t (*most)(const struct job *j);
    /* Before job_submit: what the job leaves behind may serve jobs of that owner alone. NULL: it leaves nothing. */
    void (*set_owner)(struct job *j, const char *owner);
    /* Its end has come, under the lock: the last word on what there is and how it ended. NULL: `finish` it is. */
    enum job_finish (*end_locked)(struct job *j, enum status st, enum job_finish finish);
    bool ends_late;                   /* what there is at the deadline is an answer, even if it is not streamed */
    bool tells_finish;                /* its outcome in the log is its finish */
    const struct stream_kind *stream; /* how it runs in slots of a lane of streams; NULL: it does not */
};

/* Who is told that there is something to read. Both are called under the job's lock, from any thread, and must not
 * block. */
struct job_waiter {
    void (*suspend)(void *arg);
    void (*resume)(void *arg);
    void *arg;
};

/* Complete and constant once the job is done. Times are clock_now_ns(), 0 where it did not come to that. */
struct job_result {
    enum status status;     /* OK: there is an answer */
    enum job_finish finish; /* if OK; of several texts the last in the list that any has */
    char message[ERROR_MESSAGE_MAX];
    uint64_t queued_ns, started_ns, first_ns, done_ns;
    /* Bytes drawn, those of a stop string included; sub-pixels of all samples; bytes restored, once all are. */
    uint32_t generated;
};

struct job {
    /* constant after job_submit */
    const struct job_kind *kind;
    struct hosted_model *model; /* one reference; NULL: no model works for it */
    bool streams;               /* its answer begins before it is done */
    uint64_t deadline_ns;
    struct queue *queue;

    struct queue_item item; /* the queue's */
    atomic_uint references;
    atomic_int cancelled; /* the first enum status that job_cancel was given; OK: none */

    pthread_mutex_t lock;
    /* under the lock */
    enum job_state state;
    bool attached;  /* the waiter may be called */
    bool suspended; /* the waiter's suspend was called, resume not yet */
    bool ping;
    struct job_waiter waiter;
    struct job_result result;
};

/* ---- HTTP threads ---------------------------------------------------------------------------------------------- */

void job_reference(struct job *j);
void job_release(struct job *j); /* NULL is a no-op */

/* Before job_submit: whose it is. What a job leaves behind serves those of the same owner alone. */
void job_set_owner(struct job *j, const char *owner);

/* Into a lane of the queue, its model's; at most once. Errors: ERR_FULL, ERR_UNAVAILABLE (closed): the job is as it
 * was. */
enum status job_submit(struct job *j, struct queue *q, uint32_t lane, uint64_t deadline_ns);

/* Name who waits. After job_detach returns, the waiter is not called any more. */
void job_attach(struct job *j, const struct job_waiter *waiter);
void job_detach(struct job *j);

/* Is it time to answer: the first byte of a stream is there, or the job is done? If not, false, and the waiter was
 * suspended and will be resumed. */
bool job_await(struct job *j);

/* What there is to say of a job that streams: something was generated; one of its samples has ended, and all of it was
 * read; a ping; the end, when all was read; or nothing yet, and the waiter was suspended and will be resumed. */
enum job_event { JOB_EVENT_BYTES, JOB_EVENT_SAMPLE_END, JOB_EVENT_PING, JOB_EVENT_END, JOB_EVENT_LATER };

/* The result of a job that is done. */
const struct job_result *job_result(const struct job *j);
bool job_is_done(struct job *j);
/* As the kind's `given` and `most`; 0 of one that is not about elements. */
size_t job_given(const struct job *j);
uint64_t job_most(const struct job *j);
/* How far a text or picture has come, done or not: elements generated, and when the first was (0: not yet). Any
 * thread. */
void job_progress(struct job *j, uint32_t *generated, uint64_t *first_ns);

/* ---- any thread ------------------------------------------------------------------------------------------------ */

/* Ask for an end, for the reason `st`; the first reason counts. A job that waits in the queue is done before this
 * returns, a running one after the step that it is in. */
void job_cancel(struct job *j, enum status st);
/* A streaming job whose waiter is suspended is resumed, to say a ping. */
void job_ping(struct job *j);

/* ---- the thread that works for it ------------------------------------------------------------------------------ */

/* The job that a queue's item is part of. */
struct job *job_of_item(struct queue_item *item);
/* OK, or why this job must stop now: it was cancelled, or its deadline has passed. */
enum status job_stop_reason(const struct job *j, uint64_t now_ns);
/* The caller has popped it and begins. */
void job_start(struct job *j, uint64_t now_ns);

/* The end. Both give up the working side's reference.
 * job_finish: with an answer. `finish` is for the samples of a text that have not ended before. */
void job_finish(struct job *j, enum job_finish finish, uint64_t now_ns);
/* job_abort: without a full one, because of `st` (not OK) and, for a person, `message`. What was generated by then
 * still is an answer if the deadline passed (FINISH_TIMEOUT; of a kind that ends_late, or streamed), or if the client
 * has begun to read it and the cause is no fault of ours (FINISH_CANCELLED). */
void job_abort(struct job *j, enum status st, const char *message, uint64_t now_ns);

/* ---- the kinds ------------------------------------------------------------------------------------------------- */

/* Begin with a zeroed job: one reference, the caller's, and one taken to `model`, which may be NULL. Errors: ERR_NOMEM:
 * nothing was taken. */
enum status job_init(struct job *j, const struct job_kind *kind, struct hosted_model *model);
/* Those _locked are called under the job's lock. */
void job_resume_locked(struct job *j); /* if it was suspended */
/* An event other than data; JOB_EVENT_LATER has suspended the waiter. */
enum job_event job_other_event_locked(struct job *j);
/* An element was generated; true: the first one. */
bool job_generated_locked(struct job *j, uint64_t now_ns);

#endif
