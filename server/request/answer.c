/* answer.c - a request's answer: its headers, whole or as a stream, and the memory that waits for its reader. See
 * request.h.
 *
 * Memory of what is made for clients to read is bounded for all requests together, and shared among clients (quota.h).
 * What a small answer takes is bounded by the number of connections and not counted. A request holds what it has
 * reserved until it ends. When there is no room, readers that take nothing are cut off: those of clients that hold more
 * than the one who asks, the longest stalled first. HTTP threads; answer_look_at and end_answer run on any of them,
 * under the quota's lock, which a request leaves before its connection is closed. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/request/cors.h"
#include "server/request/reply.h"
#include "server/request/request_inner.h"
#include "server/request/request_job.h"
#include "server/request/service.h"

#define STREAM_BLOCK_BYTES 16384  /* most that the library takes from a stream at a time */
#define STALLED_NS CLOCK_NS_PER_S /* a reader that takes nothing for that long is slow */

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static struct request *request_of(const struct quota_share *p)
{
    return (struct request *)(void *)((char *)p - offsetof(struct request, answer));
}

static struct quota_view answer_look_at(const struct quota_share *p, uint64_t now_ns)
{
    const uint64_t since_ns = atomic_load_explicit(&request_of(p)->sends_ns, memory_order_relaxed);
    if (since_ns == 0)
        return (struct quota_view){.ease = QUOTA_STAYS};
    const uint64_t stalled_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    return (struct quota_view){.ease = stalled_ns >= STALLED_NS ? QUOTA_IDLE : QUOTA_BUSY, .order = stalled_ns};
}

static void end_answer(struct quota_share *p)
{
    metrics_counter_add(METRIC_READERS_CUT, 0, 1);
    http_cut(request_of(p)->connection, ERR_NOMEM);
}

void answers_begin(struct requests *all)
{
    const uint64_t most = (uint64_t)all->service->settings->answers_memory_max_mb << 20,
                   ending = most / ANSWERS_ENDING_PART;
    const struct quota_rules rules = {.most = most - ending,
                                      .most_of_client = most - ending - (most - ending) / ANSWERS_KEPT_PART,
                                      .ending_most = ending,
                                      .view = answer_look_at,
                                      .end = end_answer};
    quota_init(&all->answers, &rules);
}

enum status request_reserve_answer(struct request *x, size_t bytes, struct error *err)
{
    if (bytes <= HTTP_ANSWER_SMALL_BYTES || bytes <= x->answer.units)
        return OK;
    const uint64_t more = bytes - x->answer.units;
    switch (quota_take(&x->all->answers, &x->answer, &x->quota_owner, more)) {
    case QUOTA_FITS:
        metrics_gauge_add(METRIC_ANSWER_BYTES, 0, (int64_t)more);
        return OK;
    case QUOTA_NEVER:
        return error_set(err, ERR_ARGUMENT,
                         "the answer may take %zu bytes, more than a client may have of the %u MiB for all answers "
                         "(answers_memory_max_mb)",
                         bytes, x->service->settings->answers_memory_max_mb);
    default:
        return error_set(err, ERR_NOMEM, "no room for the answer beside those that wait to be read; try again later");
    }
}

void request_release_answer(struct request *x)
{
    if (x->answer.owner == NULL)
        return;
    metrics_gauge_add(METRIC_ANSWER_BYTES, 0, -(int64_t)x->answer.units);
    http_note_freed(x->http, x->answer.units);
    quota_release(&x->all->answers, &x->answer);
}

/* ---- the answer ------------------------------------------------------------------------------------------------- */

/* CORS headers, for browsers that show another site's page. */
static bool add_cors_headers(const struct request *x, struct MHD_Response *r)
{
    const char *origins = x->service->settings->cors_origins;
    const bool is_public = x->connection->kind == LISTENER_PUBLIC;
    const char *answer = is_public ? cors_answer(origins, request_header(x, "Origin")) : NULL;
    bool fine = true;
    if (cors_varies(origins))
        fine = MHD_add_response_header(r, "Vary", "Origin") == MHD_YES;
    if (answer != NULL)
        fine = MHD_add_response_header(r, "Access-Control-Allow-Origin", answer) == MHD_YES &&
               MHD_add_response_header(r, "Access-Control-Expose-Headers", CORS_EXPOSED) == MHD_YES && fine;
    return fine;
}

static bool add_headers(const struct request *x, struct MHD_Response *r)
{
    char trace[TRACEPARENT_BYTES];
    bool fine = MHD_add_response_header(r, "X-Request-Id", x->id) == MHD_YES;
    if (x->trace.trace[0] != '\0') {
        traceparent_print(&x->trace, trace);
        fine = MHD_add_response_header(r, "traceparent", trace) == MHD_YES && fine;
    }
    for (size_t i = 0; i < x->header_count; i++)
        fine = MHD_add_response_header(r, x->headers[i].name, x->headers[i].value) == MHD_YES && fine;
    if (x->closes || atomic_load_explicit(&x->http->closes_after_answers, memory_order_relaxed))
        fine = MHD_add_response_header(r, "Connection", "close") == MHD_YES && fine;
    return add_cors_headers(x, r) && fine;
}

/* Takes `r`, which may be NULL if memory ran out. */
static void queue_response(struct request *x, unsigned status, const char *type, struct MHD_Response *r)
{
    assert(x->http_status == 0);
    x->http_status = status;
    atomic_store_explicit(&x->stage, REQUEST_ANSWERING, memory_order_relaxed);
    if (r == NULL) {
        x->is_broken = true;
        return;
    }
    if (!add_headers(x, r) || (type != NULL && MHD_add_response_header(r, "Content-Type", type) != MHD_YES) ||
        MHD_queue_response(x->mhd, status, r) != MHD_YES)
        x->is_broken = true;
    MHD_destroy_response(r);
}

void request_add_header(struct request *x, const char *name, const char *value)
{
    assert(x->header_count < HTTP_REPLY_HEADERS_MAX);
    x->headers[x->header_count].name = name;
    (void)snprintf(x->headers[x->header_count].value, HTTP_HEADER_VALUE_MAX, "%s", value);
    x->header_count++;
}

/* What every whole answer tells: streams begin before it is known. */
static void add_facts(struct request *x)
{
    char text[96];
    const struct request_times t = request_job_times(x);
    (void)snprintf(text, sizeof text, "queue;dur=%.3f, compute;dur=%.3f", t.queue_ms, t.compute_ms);
    request_add_header(x, "Server-Timing", text);
    if (x->job.model != NULL)
        request_add_header(x, "X-Model", x->job.model->model->name);
    request_job_tell_dropped(x);
}

enum status request_reply(struct request *x, unsigned status, const char *type, char *body, size_t bytes)
{
    struct error err;
    if (request_reserve_answer(x, bytes, &err) != OK) {
        free(body);
        x->header_count = 0;
        reply_send_error(x, &err); /* a short one */
        return OK;
    }
    if (x->answer.owner != NULL)
        atomic_store_explicit(&x->sends_ns, clock_now_ns(), memory_order_relaxed);
    struct MHD_Response *r = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
    if (r == NULL)
        free(body);
    x->bytes_out = bytes;
    add_facts(x);
    queue_response(x, status, type, r);
    return OK;
}

static ssize_t read_stream(void *cls, uint64_t position, char *out, size_t size)
{
    struct request *x = cls;
    (void)position;
    if (x->piece_sent == x->piece_bytes) {
        free(x->piece);
        x->piece = NULL;
        x->piece_sent = x->piece_bytes = 0;
        atomic_store_explicit(&x->sends_ns, 0, memory_order_relaxed); /* before it may be suspended */
        switch (x->reader(x, &x->piece, &x->piece_bytes)) {
        case REQUEST_PIECE:
            if (request_reserve_answer(x, x->piece_bytes, NULL) != OK)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            break;
        case REQUEST_LATER:
            return 0;     /* suspended, so the library does not ask again before the job has news */
        case REQUEST_END: /* the last of it may still wait for the client */
            atomic_store_explicit(&x->sends_ns, clock_now_ns(), memory_order_relaxed);
            return MHD_CONTENT_READER_END_OF_STREAM;
        case REQUEST_BROKEN:
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
    const size_t left = x->piece_bytes - x->piece_sent;
    const size_t n = left < size ? left : size;
    memcpy(out, x->piece + x->piece_sent, n);
    x->piece_sent += n;
    x->bytes_out += n;
    const uint64_t now_ns = clock_now_ns();
    atomic_store_explicit(&x->spoke_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&x->sends_ns, now_ns, memory_order_relaxed);
    return (ssize_t)n;
}

void request_reply_stream(struct request *x, const char *type)
{
    atomic_store_explicit(&x->spoke_ns, clock_now_ns(), memory_order_relaxed);
    request_watch_silence(x);
    queue_response(x, MHD_HTTP_OK, type,
                   MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, x, NULL));
}
