/* generate.h - jobs that continue texts: prompts go in, and the bytes of several samples come out, drawn by a model of
 * bytes. generate.c hands the bytes over from the engine thread that draws them to the HTTP thread that reads them;
 * generate_stream.c does the work in the slots of a lane. */
#ifndef SERVER_OPERATION_GENERATE_H
#define SERVER_OPERATION_GENERATE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/sampler.h"
#include "server/core/client_id.h"
#include "server/operation/stops.h"
#include "server/operation/stream_snapshot.h"
#include "server/request/job.h"

struct generate_stream;
struct hosted_model;
struct stream_model;

/* Prompts, and how to continue each. Sample i is the (i % n)-th of prompt i / n and is drawn by the sampler's sample i
 * % n, so a prompt's text is the same whether it is alone or in a list. */
struct generate_input {
    uint8_t *prompt;     /* [prompt_bytes]: all prompts, one after another; the job's; may be NULL if it is empty */
    size_t prompt_bytes; /* of all */
    size_t ends[GENERATE_PROMPTS_MAX]; /* where each prompt ends; the last: prompt_bytes */
    uint32_t prompt_count;             /* 1 .. GENERATE_PROMPTS_MAX */
    uint32_t n;                        /* >= 1; prompt_count * n <= GENERATE_SAMPLES_MAX */
    uint32_t max_tokens;               /* of a sample; 0: the prompt is only evaluated */
    uint32_t logprobs;                 /* logprobs given for a byte: its own and the likeliest; 0: none */
    bool prompt_logprobs;              /* of the prompts' bytes too */
    bool stream;                       /* hand out bytes as they come, rather than all at the end */
    bool resumable;                    /* a stream that ends where the daemon stops, and goes on elsewhere */
    bool hold_partial_stop;            /* if the daemon stops, leave out the end that only what follows decides */
    bool shift;                        /* context_overflow */
    bool refuses;                      /* likewise: a prompt that the context has no room for, generate_check_room */
    int32_t priority;                  /* QUEUE_PRIORITY_MIN .. QUEUE_PRIORITY_MAX */
    struct sampler_options sampler;
    struct stop_set stops;
    /* Continue from this state rather than from nothing; the prompt, a single one, begins with what is pending. The
     * job's. The state has room for the whole prompt, or the job shifts. */
    struct stream_snapshot from;
    /* Save the state of the stream at its end; only with one sample. With max_tokens 0 that is the state after the
     * prompt, of which the model then takes two bytes or more. */
    bool saves;
};

/* Bytes of a text and of each, where its job gives them, so many natural logarithms of softmax(logits), whatever the
 * options that it was drawn with: its own and those of the likeliest bytes. */
struct generate_rows {
    uint8_t *bytes;     /* [count] */
    float *logprobs;    /* [count, numbers] */
    uint8_t *likeliest; /* [count, numbers - 1], if there are any */
    size_t numbers;
};
/* Room for a * b of them, zeroed, which is the job's. Errors: ERR_NOMEM. */
enum status generate_rows_create(struct generate_rows *r, struct job *j, size_t a, size_t b, size_t numbers,
                                 struct error *err);
/* Those from `at` on; NULL what they do not have. */
struct generate_rows generate_rows_at(const struct generate_rows *r, size_t at);
/* The numbers too, if `to` has any. */
void generate_rows_copy(const struct generate_rows *to, const struct generate_rows *from, size_t count);

/* One of the texts, for its reader. */
struct generate_sample {
    struct stop_matcher matcher; /* the engine thread's; what it holds is in the ring, after what may be read */
    /* under the job's lock */
    size_t start, bytes; /* of its ring: what is to be read */
    bool is_over, is_notified;
    enum job_finish finish; /* once over */
    bool is_cut_off;        /* likewise: because the daemon stops, so that the text can go on elsewhere */
};

struct generate_job {
    struct job *job; /* whose it is */
    struct generate_input in;
    uint32_t sample_count;
    size_t ring_size, ring_limit; /* bytes of a ring, and how many of them may wait to be read */

    /* The engine thread's until the job is done, then constant. */
    struct generate_stream *streams; /* [sample_count]: generate_stream.c's */
    uint32_t prompt_cached; /* bytes of prompts that were not fed, since the state after them was in the cache */
    /* If the job saves: once it is done and if `has_saved`, the state of the stream, with the last byte pending. */
    struct stream_snapshot saved;
    bool has_saved;
    /* With prompt_logprobs: for each byte of the prompts, as in generate_rows; NAN where the model was given nothing
     * before it. The engine thread's until something was read of one of the prompt's samples. */
    float *prompt_logprobs;    /* [prompt_bytes, in.logprobs] */
    uint8_t *prompt_likeliest; /* [prompt_bytes, in.logprobs - 1] */

    /* Under the job's lock: for each sample a ring of rows for the reader. */
    struct generate_sample *samples; /* [sample_count] */
    uint32_t next_sample;            /* the one to try first when something is to be read */
    struct generate_rows ring;       /* [sample_count, ring_size], with in.logprobs numbers */
    bool is_overrun;                 /* bytes were lost, since a ring had no room for them */
    uint64_t resumed_ns;             /* the engine thread's: when generate_emit last resumed the waiter */
};

extern const struct job_kind job_kind_generate;
extern const struct stream_kind stream_kind_generate;

/* What a job of this kind has. */
static inline struct generate_job *generate_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_generate);
    return j->op;
}

/* ---- HTTP threads ---------------------------------------------------------------------------------------------- */

/* Begin a job of this kind, which has its model; on OK the job owns the memory that `in` points to. ring_bytes: how
 * much output of a sample may wait to be read; for whole answers at least max_tokens. Errors: ERR_NOMEM, as
 * generate_check_room. */
enum status generate_begin(struct job *j, const struct generate_input *in, size_t ring_bytes, struct error *err);

struct generate_reading {
    size_t size_max;
    struct generate_rows to; /* [size_max]: where to put what is read, with in.logprobs numbers or none */
    /* what was read */
    uint32_t sample;
    size_t size; /* > 0 */
    /* of a sample that has ended */
    enum job_finish finish;
    bool is_cut_off; /* because the daemon stops, so that the text can go on elsewhere */
};
/* Of a job that refuses it, as generate_begin asks: is there a prompt too long for the model's context? Errors:
 * ERR_ARGUMENT ("prompt"). */
enum status generate_check_room(const struct generate_input *in, const struct hosted_model *model, struct error *err);

/* The next event: bytes of a sample, or another one. Samples take turns. */
enum job_event generate_read(struct job *j, struct generate_reading *r);

/* End all samples with `finish` that have not ended, before the job does. True: no byte was lost to a reader that is
 * too slow, so that a text may go on behind them. Any thread. */
bool generate_settle(struct job *j, enum job_finish finish);

/* The prompt of a sample. */
struct generate_prompt {
    const uint8_t *bytes; /* [size], may be NULL when that is 0 */
    size_t size;
    size_t offset; /* in all prompts */
};
struct generate_prompt generate_prompt(const struct generate_job *g, uint32_t sample);

/* How many bytes at the end of a prompt of `size` bytes are fed. Any thread. */
size_t generate_kept(const struct stream_model *m, const struct generate_input *in, size_t size);

/* ---- engine thread --------------------------------------------------------------------------------------------- */

enum generate_next { GENERATE_CONTINUE, GENERATE_STOPPED, GENERATE_OVERRUN };
/* A sample's next byte was generated: `row`, with in.logprobs numbers. GENERATE_STOPPED: it completed a stop string;
 * GENERATE_OVERRUN: the reader is too slow, the ring is full. The waiter is resumed for the job's first byte, and then
 * not before gap_ns have passed since the last time: what comes in between is read along with the next byte, or at an
 * end. */
enum generate_next generate_emit(struct generate_job *g, uint32_t sample, const struct generate_rows *row,
                                 uint64_t gap_ns, uint64_t now_ns);
/* A sample has ended, others may go on; bytes withheld for a stop string become text unless the string was
 * completed, or the text is cut off and the job withholds. */
void generate_end_sample(struct generate_job *g, uint32_t sample, enum job_finish finish);

/* What generate_stream.c keeps of a sample takes so many. */
size_t generate_stream_bytes(void);

#endif
