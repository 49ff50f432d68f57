/* requests.c - what runs now: GET /admin/requests, and DELETE /admin/requests/ID, which cancels. HTTP threads.
 * Of each request a row is copied while http holds it still; the JSON is made of the rows afterwards. A row has names
 * and numbers, never text of a client. */
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/core/clock.h"
#include "server/models/hosted_model.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/service.h"

struct row {
    char id[REQUEST_ID_BYTES], client[REQUEST_CLIENT_BYTES];
    char key[KEY_NAME_MAX + 1], model[MODEL_NAME_MAX + 1]; /* empty: none */
    const char *route, *state;
    uint64_t start_ns, received;
    bool has_job;
    struct job_look job;
};

/* What was seen so far. */
struct list {
    const char *id; /* only of that id; NULL: of any */
    bool cancels;
    struct row *rows; /* [capacity] */
    size_t count, capacity;
    json_int_t total; /* also of those for which there is no row */
};

/* ---- seeing ----------------------------------------------------------------------------------------------------- */

static const char *state_of(enum request_stage stage, const struct row *r)
{
    switch (stage) {
    case REQUEST_RECEIVING:
        return "receiving";
    case REQUEST_ANSWERING:
        return "streaming";
    case REQUEST_WORKING:
        break;
    }
    return r->has_job && r->job.state == JOB_QUEUED ? "queued" : "running";
}

static void copy(char *to, size_t size, const char *text)
{
    (void)snprintf(to, size, "%s", text != NULL ? text : "");
}

static void requests_fill(struct row *r, struct request *x)
{
    *r = (struct row){.route = x->route->path,
                      .start_ns = x->start_ns,
                      .received = atomic_load_explicit(&x->body.received, memory_order_relaxed),
                      .job = job_look(&x->job)};
    copy(r->id, sizeof r->id, x->id);
    copy(r->key, sizeof r->key, auth_name(&x->grant));
    request_client(x, r->client);
    r->has_job = r->job.state != JOB_NONE;
    if (r->has_job && r->job.model != NULL)
        copy(r->model, sizeof r->model, r->job.model->model->name);
    r->state = state_of(request_stage(x), r);
}

static void see(void *arg, struct request *other)
{
    struct list *l = arg;
    if (l->id != NULL && strcmp(l->id, other->id) != 0)
        return;
    l->total++;
    if (l->count < l->capacity)
        requests_fill(&l->rows[l->count++], other);
    if (l->cancels)
        request_cancel(other, ERR_CANCELLED_BY_ADMIN);
}

static int by_age(const void *a, const void *b)
{
    const struct row *one = a, *other = b;
    return one->start_ns < other->start_ns ? -1 : one->start_ns > other->start_ns ? 1 : 0;
}

/* All requests that were here before `x`. Without memory for them the rows are fewer than the requests. */
static void gather(struct list *l, struct request *x, struct error *err)
{
    l->rows = job_alloc(&x->job, REQUESTS_LISTED_MAX * sizeof *l->rows, err);
    l->capacity = l->rows != NULL ? REQUESTS_LISTED_MAX : 0;
    requests_see_before(x, see, l);
    if (l->count > 0)
        qsort(l->rows, l->count, sizeof l->rows[0], by_age);
}

/* ---- telling ---------------------------------------------------------------------------------------------------- */

static json_t *name_or_null(const char *name)
{
    return name[0] != '\0' ? json_string(name) : json_null();
}

static json_t *milliseconds(uint64_t from_ns, uint64_t to_ns)
{
    return json_real(to_ns > from_ns ? reply_milliseconds(from_ns, to_ns) : 0.0);
}

/* NULL for want of memory. */
static json_t *requests_describe(const struct row *r, uint64_t now_ns)
{
    const uint64_t left_ns = r->job.left_queue_ns != 0 ? r->job.left_queue_ns : now_ns;
    return json_pack("{s:s, s:o, s:s, s:s, s:o, s:s, s:o, s:o, s:I, s:I, s:o}", "id", r->id, "key",
                     name_or_null(r->key), "client", r->client, "endpoint", r->route, "model", name_or_null(r->model),
                     "state", r->state, "age_ms", milliseconds(r->start_ns, now_ns), "queue_ms",
                     r->has_job ? milliseconds(r->job.queued_ns, left_ns) : json_null(), "bytes_in",
                     (json_int_t)r->received, "generated", (json_int_t)r->job.generated, "deadline_in_ms",
                     r->has_job ? milliseconds(now_ns, r->job.deadline_ns) : json_null());
}

static enum status reply_list(struct request *x, unsigned status, const struct list *l)
{
    const uint64_t now_ns = clock_now_ns();
    json_t *rows = json_array();
    for (size_t i = 0; i < l->count; i++)
        json_append(rows, requests_describe(&l->rows[i], now_ns));
    json_t *whole = json_pack("{s:o, s:I}", "requests", rows, "total", l->total);
    return reply_send_json(x, status, whole);
}

enum status api_admin_requests(struct request *x, struct error *err)
{
    struct list l = {.id = NULL};
    gather(&l, x, err);
    return reply_list(x, 200, &l);
}

enum status api_admin_request_cancel(struct request *x, struct error *err)
{
    struct list l = {.id = x->segments[0], .cancels = true};
    gather(&l, x, err);
    return l.total > 0 ? reply_list(x, 202, &l)
                       : error_set(err, ERR_NOT_FOUND,
                                   "no request with the id \"%s\" is running; GET /admin/requests lists them",
                                   json_quote(l.id).text);
}
