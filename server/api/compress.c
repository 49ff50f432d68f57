/* compress.c - POST /v1/compress and /v1/decompress: any bytes, compressed with the probabilities that a model
 * of bytes gives each next byte, and restored. HTTP threads; the blocks are coded where streams run. */
#include "config/settings.h"
#include "server/api/route_table.h"

#include <stdlib.h>

#include "server/api/api_request.h"
#include "server/api/reply.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/service.h"
#include "server/coding/archive.h"
#include "server/kinds/code.h"
#include "server/models/registry.h"

/* Texts are borrowed from the JSON that the query became. */
struct fields {
    const json_t *model;
    int64_t timeout_ms;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_WISH_MAX)},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX), .max_set = field_max_timeout},
};
#undef AT
enum { FIELD_COUNT = sizeof table / sizeof table[0] };
const struct field_list compress_query = {table, FIELD_COUNT};

/* The exchange's state. */
struct coding {
    struct archive_blocks blocks; /* owned by the job once it is made; these pointers remain */
    struct archive archive;       /* the one to restore; `blocks` in it is NULL */
};

static void reply_bytes(struct exchange *x, uint8_t *bytes, size_t size)
{
    http_reply(x, 200, "application/octet-stream", (char *)bytes, size);
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void say_compressed(struct exchange *x, const struct archive_blocks *b)
{
    uint8_t *bytes;
    size_t size;
    struct error err;
    if (archive_make(&bytes, &size, b, &x->api->hosted->identity, &err) == OK)
        reply_bytes(x, bytes, size);
    else
        reply_send_error(x, &err);
}

/* If the text is right the answer takes it: *text becomes NULL. */
static void say_restored(struct exchange *x, const struct archive *a, uint8_t **text)
{
    struct error err;
    if (archive_check_text(a, *text, &err) != OK) {
        reply_send_error(x, &err);
        return;
    }
    uint8_t *bytes = *text;
    *text = NULL;
    reply_bytes(x, bytes, a->text_bytes);
}

static void answer_compressed(struct exchange *x)
{
    const struct coding *c = x->api->state;
    if (request_job_ended_well(x))
        say_compressed(x, &c->blocks);
}

static void answer_restored(struct exchange *x)
{
    const struct coding *c = x->api->state;
    if (request_job_ended_well(x))
        say_restored(x, &c->archive, &code_job_of(x->job)->in.text);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static enum status read_query(struct exchange *x, struct error *err)
{
    struct fields f = {0};
    struct hosted_model *e;
    enum status st = fields_read(table, FIELD_COUNT, x->api->query, service_of(x)->settings, &f, err);
    if (st == OK)
        st = request_model_acquire(x, json_string_value(f.model), TASK_TEXT_GENERATION, &e, err);
    x->api->timeout_ms = (uint32_t)f.timeout_ms;
    return st;
}

static enum status split_body(struct exchange *x, struct coding *c, struct error *err)
{
    const enum status st = request_type_check_size(x->body.size, COMPRESS_BYTES_MAX, err);
    return st == OK ? archive_split(&c->blocks, x->body.bytes, x->body.size, err) : st;
}

static enum status open_body(struct exchange *x, struct coding *c, struct error *err)
{
    enum status st = request_type_check_size(x->body.size, ARCHIVE_BYTES_MAX, err);
    if (st == OK)
        st = archive_read(&c->archive, x->body.bytes, x->body.size, err);
    if (st == OK)
        st = model_identity_check(&x->api->hosted->identity, &c->archive.id, "the archive", "body", err);
    if (st == OK)
        st = archive_open(&c->blocks, &c->archive, err);
    c->archive.blocks = NULL; /* the body is about to be dropped */
    return st;
}

/* A job for the blocks, which takes them and their memory. */
static enum status create_job(struct exchange *x, const struct coding *c, bool restores, struct job **ret)
{
    const struct code_input in = {.text = c->blocks.text,
                                  .code = c->blocks.code,
                                  .blocks = c->blocks.blocks,
                                  .block_count = c->blocks.count,
                                  .text_bytes = c->blocks.text_bytes};
    return code_job_create(ret, restores ? &job_kind_decompress : &job_kind_compress, x->api->hosted, &in);
}

/* *ret: the job that codes the blocks; left NULL if there is nothing to code. */
static enum status prepare(struct exchange *x, struct coding *c, bool restores, struct job **ret, struct error *err)
{
    enum status st = read_query(x, err);
    if (st == OK)
        st = restores ? open_body(x, c, err) : split_body(x, c, err);
    if (st != OK || c->blocks.count == 0)
        return st;
    st = create_job(x, c, restores, ret);
    return st == OK ? OK : error_set(err, st, "out of memory for the request; try again later");
}

static void answer(struct exchange *x, bool restores)
{
    struct error err;
    struct job *j = NULL;
    struct coding *c = request_job_begin(x, sizeof *c, free);
    if (c == NULL)
        return;
    const enum status st = prepare(x, c, restores, &j, &err);
    if (st == OK && j == NULL && restores)
        say_restored(x, &c->archive, &c->blocks.text);
    else if (st == OK && j == NULL)
        say_compressed(x, &c->blocks);
    if (j == NULL)
        archive_blocks_clear(&c->blocks);
    if (st != OK || j != NULL)
        request_job_submit_or_refuse(x, st, &err, j, restores ? answer_restored : answer_compressed);
}

void api_compress(struct exchange *x)
{
    answer(x, false);
}

void api_decompress(struct exchange *x)
{
    answer(x, true);
}
