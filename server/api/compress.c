/* compress.c - POST /v1/compress and /v1/decompress: any bytes, compressed with the probabilities that a model
 * of bytes gives each next byte, and restored. HTTP threads; the blocks are coded where streams run. */
#include "config/settings.h"
#include "server/api/route_table.h"

#include "server/models/registry.h"
#include "server/operation/archive.h"
#include "server/operation/code.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"

/* Texts are borrowed from the JSON that the query became. */
struct fields {
    const json_t *model;
    int64_t timeout_ms;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_REF_MAX)},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX),
     .max_setting = offsetof(struct settings, timeout_ms_max)},
};
#undef AT
const struct field_list compress_query = FIELDS_OF(table);

/* The request's state. */
struct coding {
    bool restores;
    struct archive_blocks blocks; /* the job's */
    struct archive archive;       /* the one to restore; `blocks` in it is NULL */
};

/* ---- the answer ------------------------------------------------------------------------------------------------- */

/* What came of the blocks; a text that is right is the answer's. */
static enum status compress_answer(struct request *x, struct error *err)
{
    struct coding *c = x->state;
    uint8_t *bytes = c->blocks.text;
    size_t size = c->archive.text_bytes;
    const enum status st = c->restores ? archive_check_text(&c->archive, bytes, err)
                                       : archive_make(&bytes, &size, &c->blocks, &x->job.model->identity, err);
    if (st != OK)
        return st;
    if (c->restores)
        c->blocks.text = NULL;
    return request_reply(x, 200, "application/octet-stream", (char *)bytes, size);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static enum status read_query(struct request *x, struct error *err)
{
    struct fields f = {0};
    struct hosted_model *e;
    enum status st = fields_read(&compress_query, x->query, x->service->settings, &f, err);
    if (st == OK)
        st = request_model_acquire(x, json_string_value(f.model), TASK_TEXT_GENERATION, &e, err);
    x->timeout_ms = (uint32_t)f.timeout_ms;
    return st;
}

static enum status open_body(struct request *x, struct coding *c, struct error *err)
{
    enum status st = archive_read(&c->archive, x->body.bytes, x->body.size, err);
    if (st == OK)
        st = model_identity_check(&x->job.model->identity, &c->archive.id, "the archive", "body", err);
    if (st == OK)
        st = archive_open(&c->blocks, &c->archive, err);
    c->archive.blocks = NULL; /* the body is about to be dropped */
    return st;
}

static void clear_blocks(void *blocks)
{
    archive_blocks_clear(blocks);
}

static enum status code(struct request *x, bool restores, struct error *err)
{
    struct coding *c = x->state = job_alloc(&x->job, sizeof *c, err);
    if (c == NULL || job_defer(&x->job, clear_blocks, &c->blocks, err) != OK)
        return ERR_NOMEM;
    c->restores = restores;
    enum status st = read_query(x, err);
    if (st == OK)
        st = restores ? open_body(x, c, err) : archive_split(&c->blocks, x->body.bytes, x->body.size, err);
    if (st != OK)
        return st;
    if (c->blocks.count == 0) /* there is nothing to code */
        return compress_answer(x, err);
    st = code_begin(&x->job, restores ? &job_kind_decompress : &job_kind_compress, &c->blocks, err);
    return st == OK ? request_job_made(x, compress_answer) : st;
}

enum status api_compress(struct request *x, struct error *err)
{
    return code(x, false, err);
}

enum status api_decompress(struct request *x, struct error *err)
{
    return code(x, true, err);
}
