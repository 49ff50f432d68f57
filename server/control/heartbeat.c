/* heartbeat.c - see heartbeat.h. */
#include "server/control/heartbeat.h"

#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/core/service_manager.h"
#include "server/models/registry.h"
#include "server/operation/batcher.h"
#include "server/request/requests.h"

/* A line that changes is looked at again soon; one that does not, rarely, so that an idle daemon sleeps. */
#define STATUS_NS (5 * CLOCK_NS_PER_S)
#define STATUS_IDLE_NS (60 * CLOCK_NS_PER_S)

enum {
    FEEDS = 2, /* of the watchdog in its time: one may come late */
    LOOKS = 8, /* in that time, while it is not fed */
};

/* ---- the line -------------------------------------------------------------------------------------------------- */

/* How many models are loaded, and how many streams they have slots for. */
static size_t count_models(const struct heartbeat *h, uint64_t *slots)
{
    struct registry_model *rows = NULL;
    size_t count = 0, loaded = 0;
    (void)registry_models(h->registry, &rows, &count);
    *slots = 0;
    for (size_t i = 0; i < count; i++) {
        loaded += rows[i].hosted != NULL;
        if (rows[i].hosted != NULL && model_config_causal(&rows[i].hosted->model->config))
            *slots += h->settings->streams_max;
    }
    registry_models_free(rows, count);
    return loaded;
}

static void heartbeat_describe(struct heartbeat *h, uint64_t now_ns, char out[HEARTBEAT_STATUS_BYTES])
{
    uint64_t slots;
    char streams[64] = "";
    if (h->ends) {
        (void)snprintf(out, HEARTBEAT_STATUS_BYTES, "stopping, %u requests to answer", requests_count(h->all));
        return;
    }
    const size_t models = count_models(h, &slots);
    const uint64_t requests = metrics_total(METRIC_REQUESTS);
    const double seconds = clock_ms_between(h->looked_ns, now_ns) / 1e3;
    const double rate = seconds > 0.0 ? (double)(requests - h->requests) / seconds : 0.0;
    h->looked_ns = now_ns;
    h->requests = requests;
    if (slots > 0)
        (void)snprintf(streams, sizeof streams, ", %llu of %llu stream slots in use",
                       (unsigned long long)metrics_total(METRIC_STREAMS_RUNNING), (unsigned long long)slots);
    (void)snprintf(out, HEARTBEAT_STATUS_BYTES, "%zu model%s%s, %.1f requests/s", models, models == 1 ? "" : "s",
                   streams, rate);
}

static void tell_status(struct heartbeat *h, uint64_t now_ns)
{
    char line[HEARTBEAT_STATUS_BYTES];
    heartbeat_describe(h, now_ns, line);
    const bool changes = strcmp(line, h->status) != 0;
    if (changes) {
        memcpy(h->status, line, sizeof line);
        service_manager_status(line);
    }
    h->status_ns = now_ns + (changes ? STATUS_NS : STATUS_IDLE_NS);
}

/* ---- the watchdog ---------------------------------------------------------------------------------------------- */

static void feed(struct heartbeat *h, uint64_t now_ns)
{
    const bool stuck = batcher_is_stuck(h->batcher, now_ns);
    if (!stuck)
        service_manager_alive();
    else if (!h->is_late)
        log_error(
            "the engine is stuck: there are jobs, but it has not finished a step for %u ms; the service manager's "
            "watchdog is not fed",
            h->settings->stuck_after_ms);
    h->is_late = stuck;
    h->alive_ns = now_ns + service_manager_watchdog_ns() / (stuck ? LOOKS : FEEDS);
}

/* ---- the main thread ------------------------------------------------------------------------------------------- */

void heartbeat_begin(struct heartbeat *h)
{
    const uint64_t now_ns = clock_now_ns();
    h->alive_ns = service_manager_watchdog_ns() != 0 ? now_ns : 0;
    h->status_ns = service_manager_listens() ? now_ns : 0;
}

void heartbeat_end(struct heartbeat *h)
{
    h->ends = true;
    if (h->status_ns != 0)
        h->status_ns = clock_now_ns();
}

int heartbeat_beat(struct heartbeat *h)
{
    const uint64_t now_ns = clock_now_ns();
    if (h->alive_ns != 0 && now_ns >= h->alive_ns)
        feed(h, now_ns);
    if (h->status_ns != 0 && now_ns >= h->status_ns)
        tell_status(h, now_ns);
    const uint64_t a = h->alive_ns, b = h->status_ns, next_ns = a == 0 || (b != 0 && b < a) ? b : a;
    return next_ns == 0 ? -1 : (int)((next_ns - now_ns) / CLOCK_NS_PER_MS) + 1;
}
