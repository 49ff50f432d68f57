/* trim.c - memory of bodies, answers and connections is given back to the system after a storm. See http.h. HTTP
 * threads; only the first loop gives back. */
#include <malloc.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/http/transport.h"

#define TRIM_BYTES (UINT64_C(32) << 20) /* freed since the last time: less is soon used again */
#define QUIET_NS (CLOCK_NS_PER_S / 2)
#define QUIET_BYTES (UINT64_C(1) << 20)
#define TRIM_EVERY_NS (10 * CLOCK_NS_PER_S) /* at least: it takes some milliseconds */

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
