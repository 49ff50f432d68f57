/* job.h - one request's life between the HTTP thread that answers it and the engine thread that works for it.
 *
 * A job is counted: its connection holds one reference, the engine's side (queue, then slot or batch) another. What a
 * job is about is written before job_submit and only read afterwards; what happens to it lies under its lock.
 * Lock order: job -> MHD, job -> a box of news (the waiter's functions are called under the job's lock; resuming makes
 * no system call and wakes nobody: who made news rings afterwards, see mailbox.h). The queue's lock is never held together
 * with a job's. */
#ifndef SERVER_JOB_JOB_H
#define SERVER_JOB_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/sampler.h"
#include "server/core/queue.h"
#include "server/core/text.h"
#include "server/job/stream_snapshot.h"

struct coding_block;
struct hosted_model;

enum job_kind {
    JOB_CLASSIFY,
    JOB_GENERATE,
    JOB_COMPLETE,
    JOB_SCORE,
    JOB_COMPRESS,
    JOB_DECOMPRESS,
    JOB_CHANGE,
};
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

/* A picture as its model wants it, or a text. */
struct classify_input {
    uint8_t *pixels; /* [height, width, 3]; of a text its bytes, height 1, [width]; malloc'd */
    uint32_t height, width;
    uint32_t classes;
    struct {
        uint32_t values; /* patches of the picture; 0: no map is wanted */
        uint32_t layer, head;
    } map; /* as for engine_batch_want_map */
};

/* Prompts, and how each is to be gone on with. Sample i is the (i % n)-th of prompt i / n, and drawn by the sampler's
 * sample i % n: a prompt's text is the same alone and in a list. */
struct generate_input {
    uint8_t *prompt; /* [prompt_bytes]: all prompts, one after another; the job's; may be NULL when there is no byte */
    size_t prompt_bytes;               /* of all */
    size_t ends[GENERATE_PROMPTS_MAX]; /* where each prompt ends; the last: prompt_bytes */
    uint32_t prompt_count;             /* 1 .. GENERATE_PROMPTS_MAX */
    uint32_t n;                        /* >= 1; prompt_count * n <= GENERATE_SAMPLES_MAX */
    uint32_t max_tokens;               /* of a sample; 0: the prompt is only looked at */
    uint32_t logprobs;                 /* numbers told of a byte: its own and those of the likeliest; 0: none */
    bool prompt_logprobs;              /* of the prompts' bytes too */
    bool stream;                       /* hand out bytes while they come, rather than all at the end */
    bool shift;                        /* context_overflow */
    int32_t priority;                  /* QUEUE_PRIORITY_MIN .. QUEUE_PRIORITY_MAX */
    struct sampler_options sampler;
    struct stop_set stops;
    /* Go on from there rather than from nothing; the prompt, a single one, begins with what is pending. The job's. It
     * has room for the whole prompt, or the job shifts. */
    struct stream_snapshot from;
    /* Keep what the stream is at its end; one sample. With max_tokens 0 that is behind the prompt: as the model takes
     * the prompt, that has two bytes or more then. */
    bool saves;
};

/* A picture's first sub-pixels, to be gone on with. */
struct complete_input {
    uint8_t *known;              /* [known_count], the job's; may be NULL when that is 0 */
    uint32_t known_count, total; /* total: sub-pixels of a picture, a multiple of row_count */
    uint32_t row_count;          /* sub-pixels of a row */
    uint32_t samples;            /* 1 .. COMPLETE_SAMPLES_MAX pictures, sample i drawn by the sampler's sample i */
    bool stream;                 /* hand out rows while they come, rather than whole pictures at the end */
    struct sampler_options sampler;
};

/* Bytes or sub-pixels to tell the probabilities of. */
struct score_input {
    uint8_t *elements; /* [count], the job's */
    size_t count;
    size_t first; /* the first one that has a probability: 1 for a model without start embedding, else 0 */
};

/* One of a generate job's texts. */
struct job_sample {
    struct stop_matcher matcher; /* the engine thread's; what it holds lies in the ring, behind what may be read */
    /* under the job's lock */
    size_t start, bytes; /* of its ring: what is to be read */
    bool is_over, is_told;
    enum job_finish finish; /* once over */
};

/* Something to be done that no model does: see loader.h. */
struct change_input {
    void *what; /* the job's */
    void (*free)(void *what);
};

/* A text to compress or to restore, block by block. */
struct coding_input {
    uint8_t *text, *code;        /* what the blocks' lie in; the job's */
    struct coding_block *blocks; /* [block_count], the job's: what is to be made is constant once the job is done */
    uint32_t block_count;        /* >= 1 */
    size_t text_bytes;           /* of all blocks */
};

/* Who is told that there is news. Both are called under the job's lock, from any thread, and must not block. */
struct job_waiter {
    void (*suspend)(void *arg);
    void (*resume)(void *arg);
    void *arg;
};

/* Complete and constant once the job is done. Times are clock_now_ns(), 0 where it did not come to that. */
struct job_result {
    enum status status;     /* OK: there is an answer */
    enum job_finish finish; /* if OK and text; of several samples the last in the list that any has */
    char message[ERROR_MESSAGE_MAX];
    uint64_t queued_ns, started_ns, first_ns, done_ns;
    /* Bytes drawn, those of a stop string included; sub-pixels of all samples; bytes restored, once all are. */
    uint32_t generated;
    uint32_t prompt_dropped;
    uint32_t prompt_cached; /* bytes of prompts that were not fed, for a state was kept that has been */
};

struct job {
    /* constant after job_submit */
    enum job_kind kind;
    struct hosted_model *model; /* one reference; NULL of a change */
    uint64_t deadline_ns;
    struct queue *queue;
    bool keeps_prefixes; /* its prompts leave states and go on from some, those of this owner */
    char prefix_owner[KEY_NAME_MAX + 1];
    union {
        struct {
            struct classify_input *inputs; /* [count], the job's copies; of one model, of any sizes */
            uint32_t count;
            uint32_t begun, done; /* the engine thread's: inputs that a batch has taken, that have their logits */
        } pictures;
        struct generate_input text;
        struct complete_input completion;
        struct score_input score;
        struct change_input change;
        struct coding_input coding;
    } in;
    /* The engine thread's until the job is done, then constant. classify: logits [count, classes] and, where one is
     * wanted of the only input, a map [map.values]; score: log2 of the probability of each element from the first on
     * [count - first]. */
    float *logits, *map;
    /* complete: [samples, total], the known ones first; constant below `drawn`. */
    uint8_t *pixels;
    /* generate that saves: once done, where `has_saved`, what the stream is then, with the last byte pending. */
    struct stream_snapshot saved;
    bool has_saved;
    /* generate with prompt_logprobs: of each byte of the prompts, as job_reading has them; NAN where the model was
     * given nothing before it. The engine thread's until something of a sample of the prompt was read. */
    float *prompt_logprobs;    /* [prompt_bytes, in.text.logprobs] */
    uint8_t *prompt_likeliest; /* [prompt_bytes, in.text.logprobs - 1] */

    struct queue_item item; /* the queue's */
    uint64_t resumed_ns;    /* the engine thread's: when job_emit last resumed the waiter */
    atomic_uint references;
    atomic_int cancelled; /* the first enum status that job_cancel was given; OK: none */

    pthread_mutex_t lock;
    /* under the lock */
    enum job_state state;
    bool attached;  /* the waiter may be called */
    bool suspended; /* the waiter's suspend was called, resume not yet */
    bool ping;
    struct job_waiter waiter;
    /* generate: for each sample a ring of bytes for the reader, and what is told of each of them. */
    struct job_sample *samples;           /* [sample_count] */
    uint32_t sample_count, next_sample;   /* the one that is looked at first when something is to be read */
    size_t ring_size, ring_limit;         /* of a ring; and of these bytes what may wait to be read */
    uint8_t *ring;                        /* [sample_count, ring_size] */
    float *ring_logprobs;                 /* [sample_count, ring_size, logprobs] */
    uint8_t *ring_likeliest;              /* [sample_count, ring_size, logprobs - 1] */
    uint32_t drawn[COMPLETE_SAMPLES_MAX]; /* complete: sub-pixels of each sample, the known ones included */
    struct job_result result;
};

/* ---- HTTP threads ---------------------------------------------------------------------------------------------- */

/* A job for a model, with one reference, the caller's. Takes a reference of its own to `model`, and on OK the memory
 * that `in` points to. ring_bytes: how much output of a sample may wait to be read; for whole answers at least
 * max_tokens.
 * *ret is set only on OK. Errors: ERR_NOMEM. */
enum status job_create_classify(struct job **ret, struct hosted_model *model, const struct classify_input *in);
/* The same of 1 .. CLASSIFY_INPUTS_MAX inputs; none of several wants a map. */
enum status job_create_classify_many(struct job **ret, struct hosted_model *model, const struct classify_input *inputs,
                                     uint32_t count);
enum status job_create_generate(struct job **ret, struct hosted_model *model, const struct generate_input *in,
                                size_t ring_bytes);
enum status job_create_complete(struct job **ret, struct hosted_model *model, const struct complete_input *in);
enum status job_create_score(struct job **ret, struct hosted_model *model, const struct score_input *in);
enum status job_create_change(struct job **ret, const struct change_input *in);
enum status job_create_compress(struct job **ret, struct hosted_model *model, const struct coding_input *in);
enum status job_create_decompress(struct job **ret, struct hosted_model *model, const struct coding_input *in);
void job_reference(struct job *j);
void job_release(struct job *j); /* NULL is a no-op */

/* Before job_submit: have its prompts leave states behind, and begin with those that prompts of that owner left. */
void job_keep_prefixes(struct job *j, const char *owner);

/* Into its model's lane; at most once. Errors: ERR_FULL, ERR_UNAVAILABLE (closed): the job is as it was. */
enum status job_submit(struct job *j, struct queue *q, uint32_t lane, uint64_t deadline_ns);

/* Name who waits. After job_detach returns, the waiter is not called any more. */
void job_attach(struct job *j, const struct job_waiter *waiter);
void job_detach(struct job *j);

/* Is it time to answer: the first byte of a stream is there, or the job is done? If not, false, and the waiter was
 * suspended and will be resumed. */
bool job_await(struct job *j);

enum job_event { JOB_EVENT_BYTES, JOB_EVENT_SAMPLE_END, JOB_EVENT_PING, JOB_EVENT_END, JOB_EVENT_LATER };

/* Where what is read goes: [size_max] bytes and, if the job tells them, for each byte in.text.logprobs natural
 * logarithms of softmax(logits), whatever it was drawn by: its own and those of the likeliest bytes. */
struct job_reading {
    size_t size_max;
    uint8_t *bytes;
    float *logprobs;    /* [size_max, in.text.logprobs] */
    uint8_t *likeliest; /* [size_max, in.text.logprobs - 1] */
    /* what was read */
    uint32_t sample;
    size_t size;            /* > 0 */
    enum job_finish finish; /* of a sample that has ended */
};
/* What there is to say of a text: bytes of a sample; once that all of a sample was read; a ping; the end, when all was
 * read; or nothing yet, and the waiter was suspended and will be resumed. Samples take turns. */
enum job_event job_read(struct job *j, struct job_reading *r);

/* The prompt of a sample. */
struct job_prompt {
    const uint8_t *bytes; /* [size], may be NULL when that is 0 */
    size_t size;
    size_t offset; /* in all prompts */
};
struct job_prompt job_prompt(const struct job *j, uint32_t sample);

/* The same as job_read for a completion, by rows: a sample of which more rows are there than `read` [samples] says, and
 * how many are in all. Those read from job.pixels stay as they are. */
enum job_event job_read_rows(struct job *j, const uint32_t *read, uint32_t *sample, uint32_t *rows);

/* The result of a job for which job_await, job_read or job_read_rows said that it is done. */
const struct job_result *job_result(const struct job *j);
bool job_is_done(struct job *j);
/* Elements that the request gave a generating model: its prompts but for what a state has pending, the known part of a
 * picture, what is to be scored. */
size_t job_given(const struct job *j);
/* How far a text or picture has come, done or not: elements generated, and when the first was (0: not yet). Any
 * thread. */
void job_progress(struct job *j, uint32_t *generated, uint64_t *first_ns);

/* ---- any thread ------------------------------------------------------------------------------------------------ */

/* Ask for an end, for the reason `st`; the first reason counts. A job that waits in the queue is done before this
 * returns, a running one after the step that it is in. */
void job_cancel(struct job *j, enum status st);
/* A streaming job whose waiter is suspended is resumed, to say a ping. */
void job_ping(struct job *j);

/* ---- engine thread --------------------------------------------------------------------------------------------- */

/* What the inputs of a batch have in common, their size: the kind of a job's item is that of its first. */
static inline uint64_t job_input_kind(const struct classify_input *in)
{
    return (uint64_t)in->height << 32 | in->width;
}

/* The job that a queue's item is part of. */
struct job *job_of_item(struct queue_item *item);
/* OK, or why this job must stop now: it was cancelled, or its deadline has passed. */
enum status job_stop_reason(const struct job *j, uint64_t now_ns);
/* The caller has popped it and begins. */
void job_start(struct job *j, uint32_t prompt_dropped, uint64_t now_ns);

/* So many bytes more of its prompts need not be fed. */
void job_note_cached(struct job *j, uint32_t bytes);

enum job_next { JOB_CONTINUE, JOB_STOPPED, JOB_OVERRUN };
/* A sample's next byte was generated; logprobs, likeliest: as in job_reading, of this byte, not looked at if the job
 * tells none. JOB_STOPPED: it ended a stop string; JOB_OVERRUN: the reader is too slow, the ring is full.
 * A waiter is resumed for the job's first byte, and then not before gap_ns have passed since the last time: what comes
 * in between it gets with the next byte, or at an end. */
enum job_next job_emit(struct job *j, uint32_t sample, uint8_t byte, const float *logprobs, const uint8_t *likeliest,
                       uint64_t gap_ns, uint64_t now_ns);
/* A sample has ended, others may go on; bytes withheld for a stop string become text unless it came. */
void job_end_sample(struct job *j, uint32_t sample, enum job_finish finish);

/* The next sub-pixel of a sample was drawn. A waiter is resumed for the first of all, and for each row's last. */
void job_draw(struct job *j, uint32_t sample, uint8_t value, uint64_t now_ns);

/* The end. Both give up the engine side's reference.
 * job_finish: with an answer. `finish` is for the samples of a text that have not ended before. */
void job_finish(struct job *j, enum job_finish finish, uint64_t now_ns);
/* job_abort: without a full one, because of `st` (not OK) and, for a person, `message`. What was generated by then
 * still is an answer if the deadline passed (FINISH_TIMEOUT; but not half a picture), or if the client has begun to
 * read it and the cause is no fault of ours (FINISH_CANCELLED). */
void job_abort(struct job *j, enum status st, const char *message, uint64_t now_ns);

#endif
