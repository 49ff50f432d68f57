/* stream_offset.c - see stream_offset.h. */
#include "server/api/stream_offset.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/core/little_endian.h"
#include "server/models/hosted_model.h"

#define EXPECTED "expected the id of an event of a stream of /generate"

_Static_assert(sizeof "1.1fffffffffffff.0123456789abcdef.01234567.0123456789abcdef.01234567.ffffffff.z" <=
                   STREAM_OFFSET_MAX + 1,
               "any id fits");

/* ---- digests --------------------------------------------------------------------------------------------------- */

/* The number that a digest begins with. */
static uint64_t finish(struct sha256_ctx *sha, unsigned bytes)
{
    uint8_t digest[8];
    uint64_t number = 0;
    sha256_digest(sha, sizeof digest, digest);
    for (unsigned i = 0; i < bytes; i++)
        number = number << 8 | digest[i];
    return number;
}

static void add_number(struct sha256_ctx *sha, uint64_t value)
{
    uint8_t bytes[8], *at = bytes;
    le_put(&at, value, sizeof bytes);
    sha256_update(sha, sizeof bytes, bytes);
}

static void add_float(struct sha256_ctx *sha, float value)
{
    uint8_t bytes[4], *at = bytes;
    le_put_float(&at, value);
    sha256_update(sha, sizeof bytes, bytes);
}

/* With the number of bytes first, so that no two lists of texts are the same bytes. */
static void add_bytes(struct sha256_ctx *sha, const void *bytes, size_t size)
{
    add_number(sha, size);
    if (size > 0)
        sha256_update(sha, size, bytes);
}

/* All but the seed. */
static void add_options(struct sha256_ctx *sha, const struct sampler_options *o)
{
    add_number(sha, o->sample);
    add_float(sha, o->temperature);
    add_number(sha, o->top_k);
    add_float(sha, o->top_p);
    add_float(sha, o->min_p);
    add_float(sha, o->repetition_penalty);
    add_float(sha, o->presence_penalty);
    add_float(sha, o->frequency_penalty);
    add_number(sha, o->utf8);
    add_bytes(sha, o->allowed, sizeof o->allowed);
    for (size_t b = 0; b < BYTE_VALUES && o->is_biased; b++)
        add_float(sha, o->bias[b]);
}

static uint64_t request_digest(const struct generate_request *r)
{
    const struct generate_input *in = &r->in;
    struct sha256_ctx sha;
    sha256_init(&sha);
    add_bytes(&sha, in->prompt, in->prompt_bytes);
    add_number(&sha, in->n);
    add_number(&sha, in->max_tokens);
    add_number(&sha, in->shift);
    add_number(&sha, r->echo);
    add_options(&sha, &in->sampler);
    for (uint32_t i = 0; i < in->stops.count; i++)
        add_bytes(&sha, in->stops.bytes[i], in->stops.lengths[i]);
    return finish(&sha, 8);
}

/* What the model was fed makes its state, so of a state with all of that the numbers are not looked at, megabytes
 * perhaps, unless a client may have made them up. */
static uint32_t beginning_digest(const struct stream_snapshot *from)
{
    struct sha256_ctx sha;
    if (from->memory == NULL)
        return 0;
    const bool is_known = from->fed_count > 0 && !from->is_foreign;
    sha256_init(&sha);
    add_number(&sha, from->position);
    add_number(&sha, from->sampler.draws);
    add_number(&sha, from->sampler.seen);
    add_bytes(&sha, from->sampler.history, sizeof from->sampler.history);
    add_bytes(&sha, from->memory, (size_t)from->fed_count + from->pending_count);
    if (!is_known)
        add_bytes(&sha, stream_snapshot_state(from), from->state_bytes);
    const uint32_t number = (uint32_t)finish(&sha, 4);
    return number != 0 ? number : 1;
}

/* ---- ids ------------------------------------------------------------------------------------------------------- */

void stream_offset_print(const struct stream_offset *p, char out[STREAM_OFFSET_MAX + 1])
{
    int n =
        snprintf(out, STREAM_OFFSET_MAX + 1, "1.%" PRIx64 ".%016" PRIx64 ".%08" PRIx32 ".%016" PRIx64 ".%" PRIx32 ".",
                 p->seed, p->model, p->arithmetic, p->request, p->beginning);
    if (p->is_several)
        n += snprintf(out + n, STREAM_OFFSET_MAX + 1 - (size_t)n, "n");
    else
        n += snprintf(out + n, STREAM_OFFSET_MAX + 1 - (size_t)n, "%" PRIx32, p->bytes);
    if (p->is_end)
        (void)snprintf(out + n, STREAM_OFFSET_MAX + 1 - (size_t)n, ".z");
}

static uint64_t take_number(const char **at)
{
    char *end;
    const uint64_t number = strtoull(*at, &end, 16);
    *at = *end == '.' ? end + 1 : end;
    return number;
}

/* Whatever is not printed as it is written is no id. */
bool stream_offset_read(struct stream_offset *ret, const char *id)
{
    char printed[STREAM_OFFSET_MAX + 1];
    const size_t size = strlen(id);
    const char *at = id + (size < 2 ? size : 2);
    struct stream_offset p = {.is_given = true, .is_end = size > 2 && strcmp(id + size - 2, ".z") == 0};
    p.seed = take_number(&at);
    p.model = take_number(&at);
    p.arithmetic = (uint32_t)take_number(&at);
    p.request = take_number(&at);
    p.beginning = (uint32_t)take_number(&at);
    p.is_several = *at == 'n';
    p.bytes = p.is_several ? 0 : (uint32_t)take_number(&at);
    stream_offset_print(&p, printed);
    if (p.seed > SEED_MAX || strcmp(id, printed) != 0)
        return false;
    *ret = p;
    return true;
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

enum status stream_offset_take(struct stream_offset *ret, const char *header, struct generate_request *r,
                               struct error *err)
{
    const bool by_header = header != NULL && header[0] != '\0'; /* an empty one: no event has told one */
    const char *id = by_header ? header : r->offset, *param = by_header ? STREAM_OFFSET_HEADER : "from";
    struct stream_offset p = {.is_given = false};
    *ret = p;
    if (r->in.resumable && !r->in.stream)
        return error_set_param(err, ERR_ARGUMENT, "moves",
                               "\"moves\" is true, and the request is for the whole text; expected \"stream\": true");
    if (id[0] == '\0')
        return OK;
    if (!stream_offset_read(&p, id))
        return error_set_param(err, ERR_ARGUMENT, param, "\"%s\" is \"%s\"; " EXPECTED, param, json_quote(id).text);
    p.param = param;
    *ret = p;
    if (p.is_end)
        return OK;
    if (!r->in.stream)
        return error_set_param(err, ERR_ARGUMENT, param,
                               "\"%s\" says after which event a stream goes on, and the request is for the whole "
                               "text; expected \"stream\": true",
                               param);
    if (p.is_several || r->in.n > 1)
        return error_set_param(err, ERR_ARGUMENT, param,
                               "\"%s\" is for a stream of one text, with \"n\" 1: a stream of several cannot go on; "
                               "begin it anew, or ask for each text by itself",
                               param);
    if (r->is_seeded && r->in.sampler.seed != p.seed)
        return error_set_param(err, ERR_CONFLICT, param,
                               "\"seed\" is %" PRIu64 ", and the text of \"%s\" has the seed %" PRIu64
                               ": it cannot go on by this request",
                               r->in.sampler.seed, param, p.seed);
    r->in.sampler.seed = p.seed;
    r->is_seeded = true;
    return OK;
}

struct stream_offset stream_offset_begin(const struct generate_request *r, const struct hosted_model *e)
{
    struct stream_offset p = {.is_given = true,
                              .is_several = r->in.n > 1,
                              .seed = r->in.sampler.seed,
                              .request = request_digest(r),
                              .beginning = beginning_digest(&r->in.from)};
    struct sha256_ctx sha;
    for (unsigned i = 0; i < 8; i++)
        p.model = p.model << 8 | e->identity.digest[i];
    sha256_init(&sha);
    add_bytes(&sha, e->identity.arithmetic, strlen(e->identity.arithmetic));
    p.arithmetic = (uint32_t)finish(&sha, 4);
    return p;
}

enum status stream_offset_check(const struct stream_offset *asked, const struct stream_offset *begin,
                                const struct generate_request *r, const struct hosted_model *e, struct error *err)
{
    const char *param = asked->param;
    const uint64_t most = r->in.max_tokens + (r->echo ? r->in.prompt_bytes : 0);
    if (!asked->is_given)
        return OK;
    if (asked->model != begin->model)
        return error_set_param(err, ERR_CONFLICT, param,
                               "the text is another model's, whose files' digest begins with %016" PRIx64
                               "; that of \"%s\" begins with %016" PRIx64 ": it cannot go on here",
                               asked->model, e->model->name, begin->model);
    if (asked->arithmetic != begin->arithmetic)
        return error_set_param(err, ERR_CONFLICT, param,
                               "the text was computed by another version, instruction set or precision than \"%s\": it "
                               "cannot be continued bit for bit here",
                               e->identity.arithmetic);
    if (asked->beginning != begin->beginning)
        return error_set_param(err, ERR_CONFLICT, param,
                               "the text began at another state: %s; it cannot go on by this request",
                               r->session[0] != '\0' ? "the session is another, or has moved on since"
                               : r->state != NULL    ? "\"state\" is another"
                                                     : "the request had a \"session\" or a \"state\"");
    if (asked->request != begin->request)
        return error_set_param(err, ERR_CONFLICT, param,
                               "the text is another request's: the prompt, \"max_tokens\", \"stop\", \"n\", "
                               "\"context_overflow\", \"echo\" or an option of how bytes are drawn differs");
    if (asked->bytes > most)
        return error_set_param(err, ERR_ARGUMENT, param,
                               "\"%s\" is a place after %" PRIu32 " bytes of a text that has "
                               "at most %" PRIu64 "; " EXPECTED,
                               param, asked->bytes, most);
    return OK;
}
