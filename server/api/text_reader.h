/* text_reader.h - the texts of a generate job as its client gets them: the prompt in front, where it is to be echoed,
 * whole characters of valid UTF-8, and what is told of each byte. The HTTP thread that answers; a reader has one
 * job. */
#ifndef SERVER_API_TEXT_READER_H
#define SERVER_API_TEXT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/kinds/generate.h"

struct text_reader;

/* A piece of a sample's text, or that it has ended. Memory is the reader's, until the next piece. */
struct text_piece {
    uint32_t sample;
    const char *text; /* [text_bytes], valid UTF-8 */
    size_t text_bytes;
    const uint8_t *bytes; /* [size] that the text stands for */
    size_t size;
    size_t generated;         /* of these, the last ones; the others are the prompt's */
    size_t offset;            /* of the first of these in the sample's bytes, those of an echo included */
    const float *logprobs;    /* as job_reading has them; NULL where the job tells none. NAN: not known */
    const uint8_t *likeliest; /* likewise */
    enum job_finish finish;   /* of JOB_EVENT_SAMPLE_END */
};

/* `j` is borrowed until text_reader_free. With `echo`, a job that tells logprobs tells those of its prompts. *ret is
 * set only on OK. Errors: ERR_NOMEM. */
enum status text_reader_create(struct text_reader **ret, struct job *j, bool echo);
void text_reader_free(struct text_reader *r); /* NULL is a no-op */

/* The job's next event, as generate_read gives them. */
enum job_event text_reader_next(struct text_reader *r, struct text_piece *p);

#endif
