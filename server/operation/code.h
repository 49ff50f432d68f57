/* code.h - jobs that compress a text or restore one, block by block (block_coder.h): two kinds that differ only in
 * direction. */
#ifndef SERVER_OPERATION_CODE_H
#define SERVER_OPERATION_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/operation/archive.h"
#include "server/operation/block_coder.h"
#include "server/request/job.h"

struct hosted_model;

struct code_job {
    struct job job;
    struct archive_blocks in;   /* their output is constant once the job is done */
    struct block_coder *coders; /* [in.count]; the engine thread's */
};

extern const struct job_kind job_kind_compress, job_kind_decompress;

/* The struct that begins with a job of either kind. */
struct code_job *code_job_of(const struct job *j);

/* Create a job of one of these kinds with one reference, the caller's, for at least one block. On OK the job owns them.
 * *ret is set only on OK. Errors: ERR_NOMEM. */
enum status code_job_create(struct job **ret, const struct job_kind *kind, struct hosted_model *model,
                            const struct archive_blocks *in);

#endif
