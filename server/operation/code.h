/* code.h - jobs that compress a text or restore one, block by block (block_coder.h): two kinds that differ only in
 * direction. */
#ifndef SERVER_OPERATION_CODE_H
#define SERVER_OPERATION_CODE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/operation/archive.h"
#include "server/operation/block_coder.h"
#include "server/request/job.h"

struct code_job {
    struct archive_blocks *in;  /* their output is constant once the job is done */
    struct block_coder *coders; /* [in->count]; the engine thread's */
};

extern const struct job_kind job_kind_compress, job_kind_decompress;

/* What a job of either kind has. */
static inline struct code_job *code_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_compress || j->kind == &job_kind_decompress);
    return j->op;
}

/* Begin a job of one of these kinds, which has its model, for at least one block; they outlive it. Errors:
 * ERR_NOMEM. */
enum status code_begin(struct job *j, const struct job_kind *kind, struct archive_blocks *in, struct error *err);

#endif
