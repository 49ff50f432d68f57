/* text_reader.h - the texts of a generate job as its client gets them: the prompt first, if it is to be echoed, whole
 * characters of valid UTF-8, and the log probabilities of each byte. The HTTP thread that answers; a reader has one
 * job. */
#ifndef SERVER_OPERATION_TEXT_READER_H
#define SERVER_OPERATION_TEXT_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/status.h"
#include "server/operation/generate.h"

struct text_reader;

/* A piece of a sample's text, or its end. The memory is the reader's, valid until the next piece. */
struct text_piece {
    uint32_t sample;
    const char *text; /* [text_bytes], valid UTF-8 */
    size_t text_bytes;
    const uint8_t *bytes;     /* [size] that the text stands for */
    size_t size;              /* 0: what was read is left out (text_reader_skip) */
    size_t generated;         /* how many of these, at the end, were generated; the others are the prompt's */
    size_t offset;            /* of the first of these among the sample's bytes, an echoed prompt included */
    const float *logprobs;    /* as in generate_rows; NULL if the job reports none. NAN: not known */
    const uint8_t *likeliest; /* likewise */
    /* with JOB_EVENT_SAMPLE_END, as in generate_reading */
    enum job_finish finish;
    bool is_cut_off;
};

/* The job's, as long as it is there. With `echo`, a job that reports logprobs must report those of its prompts. *ret is
 * set only on OK. Errors: ERR_NOMEM. */
enum status text_reader_create(struct text_reader **ret, struct job *j, bool echo, struct error *err);
/* Likewise, where the job is begun with `in`, whose prompt and state are its from now on. A stream's ring has at most
 * `buffer` bytes. */
enum status text_reader_begin(struct text_reader **ret, struct job *j, struct generate_input *in, size_t buffer,
                              bool echo, struct error *err);

/* Leave out the first `bytes` bytes of the only sample, an echoed prompt included, which end where a piece does. Before
 * the first event. As they are read, there are pieces of size 0. */
void text_reader_skip(struct text_reader *r, size_t bytes);
/* How many of them the job has not come to; after its end: that its text lacks. */
size_t text_reader_to_skip(const struct text_reader *r);

/* The job's next event, as from generate_read. */
enum job_event text_reader_next(struct text_reader *r, struct text_piece *p);

/* A text, assembled from its pieces. */
struct whole_text {
    char *text, *bytes; /* valid UTF-8 [text_bytes]; what it stands for [size], NULL unless that is asked for */
    size_t text_bytes, size;
    size_t generated; /* of these bytes */
    double logprob;   /* of all the generated ones together, if the job reports them */
    enum job_finish finish;
    json_t *told;             /* whatever `tell` makes of the pieces' log probabilities; NULL: nothing */
    FILE *to_text, *to_bytes; /* that these lie in */
};
/* Called with each piece of a text, and first with one of nothing, without log probabilities. */
typedef void text_teller(void *arg, struct whole_text *t, const struct text_piece *p);
/* All texts of a job that has finished, [sample_count], instead of reading it piece by piece. They are the reader's,
 * until text_reader_free_texts. `tell` may be NULL. NULL for want of memory. */
const struct whole_text *text_reader_read_all(struct text_reader *r, bool bytes, text_teller *tell, void *arg);
/* What text_reader_read_all took, before the job is released. */
void text_reader_free_texts(struct text_reader *r);

#endif
