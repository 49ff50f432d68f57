/* answers.c - memory of what is made for clients to read: bounded for all exchanges together and shared among clients
 * (room.h), and given back to the system after a storm. See http.h.
 *
 * What a small answer takes is bounded by the number of connections and not counted. An exchange holds what it has
 * reserved until it ends. When there is no room, readers that take nothing are cut off: those of clients that hold more
 * than the one who asks, the longest stalled first.
 * HTTP threads; look_at and end_answer run on any of them, under the room's lock, which an exchange leaves before its
 * connection is closed. */
#include <malloc.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/http/http_inner.h"

#define STALLED_NS CLOCK_NS_PER_S       /* a reader that takes nothing for that long is slow */
#define TRIM_BYTES (UINT64_C(32) << 20) /* freed since the last time: less is soon used again */
#define QUIET_NS (CLOCK_NS_PER_S / 2)
#define QUIET_BYTES (UINT64_C(1) << 20)
#define TRIM_EVERY_NS (10 * CLOCK_NS_PER_S) /* at least: it takes some milliseconds */

static struct http_exchange *exchange_of(const struct room_place *p)
{
    return (struct http_exchange *)(void *)((char *)p - offsetof(struct http_exchange, answer));
}

static struct room_look look_at(const struct room_place *p, uint64_t now_ns)
{
    const uint64_t since_ns = atomic_load_explicit(&exchange_of(p)->sends_ns, memory_order_relaxed);
    if (since_ns == 0)
        return (struct room_look){.ease = ROOM_STAYS};
    const uint64_t stalled_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    return (struct room_look){.ease = stalled_ns >= STALLED_NS ? ROOM_IDLE : ROOM_BUSY, .order = stalled_ns};
}

static void end_answer(struct room_place *p)
{
    metrics_counter_add(METRIC_READERS_CUT, 0, 1);
    http_cut(exchange_of(p)->connection, ERR_NOMEM);
}

void http_answers_begin(struct http *h)
{
    const uint64_t most = (uint64_t)h->settings->answers_memory_max_mb << 20, ending = most / ANSWERS_ENDING_PART;
    const struct room_rules rules = {.most = most - ending,
                                     .most_of_client = most - ending - (most - ending) / ANSWERS_KEPT_PART,
                                     .ending_most = ending,
                                     .look = look_at,
                                     .end = end_answer};
    room_init(&h->answers, &rules);
}

enum status http_reserve_answer(struct exchange *base, size_t bytes, struct error *err)
{
    struct http_exchange *x = http_exchange_of(base);
    if (bytes <= HTTP_ANSWER_SMALL_BYTES || bytes <= x->answer.units)
        return OK;
    const uint64_t more = bytes - x->answer.units;
    switch (room_take(&x->http->answers, &x->answer, &x->sharer, more)) {
    case ROOM_FITS:
        metrics_gauge_add(METRIC_ANSWER_BYTES, 0, (int64_t)more);
        return OK;
    case ROOM_NEVER:
        return error_set(err, ERR_ARGUMENT,
                         "the answer may take %zu bytes, more than a client may have of the %u MiB for all answers "
                         "(answers_memory_max_mb)",
                         bytes, x->http->settings->answers_memory_max_mb);
    default:
        return error_set(err, ERR_NOMEM, "no room for the answer beside those that wait to be read; try again later");
    }
}

void http_release_answer(struct http_exchange *x)
{
    if (x->answer.holder == NULL)
        return;
    metrics_gauge_add(METRIC_ANSWER_BYTES, 0, -(int64_t)x->answer.units);
    http_note_freed(x->http, x->answer.units);
    room_leave(&x->http->answers, &x->answer);
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

void http_note_freed(struct http *h, uint64_t bytes)
{
    if (bytes <= HTTP_ANSWER_SMALL_BYTES)
        return;
    const uint64_t before = atomic_fetch_add_explicit(&h->freed_bytes, bytes, memory_order_relaxed);
    if (before < TRIM_BYTES && before + bytes >= TRIM_BYTES)
        mailbox_wake(h->mailboxes, h->loops[0].box);
}

bool http_owes_memory(const struct http_loop *l)
{
    return l->box == l->http->loops[0].box &&
           atomic_load_explicit(&l->http->freed_bytes, memory_order_relaxed) >= TRIM_BYTES;
}

/* Has little been freed in the last second or so? What goes with the last answers, as connections do, is freed
 * by then. */
static bool is_quiet(struct http *h, uint64_t freed, uint64_t now_ns)
{
    const uint64_t since = freed - h->seen_freed_bytes;
    if (now_ns - h->seen_ns < QUIET_NS)
        return false;
    h->seen_freed_bytes = freed;
    h->seen_ns = now_ns;
    return since < QUIET_BYTES;
}

void http_give_memory_back(struct http_loop *l)
{
    struct http *h = l->http;
    const uint64_t now_ns = clock_now_ns(), freed = atomic_load_explicit(&h->freed_bytes, memory_order_relaxed);
    if (!is_quiet(h, freed, now_ns) || (h->trimmed_ns != 0 && now_ns - h->trimmed_ns < TRIM_EVERY_NS) ||
        metrics_total(METRIC_BODY_BYTES) + metrics_total(METRIC_ANSWER_BYTES) > freed / 4) /* the storm goes on */
        return;
    h->trimmed_ns = now_ns;
    h->seen_freed_bytes = 0;
    atomic_store_explicit(&h->freed_bytes, 0, memory_order_relaxed);
    (void)malloc_trim(0);
    log_debug("memory that bodies, answers and connections had taken is given back: %.1f ms",
              clock_ms_between(now_ns, clock_now_ns()));
}
