/* capacity_lane.c - see capacity_lane.h. */
#include "server/cli/capacity_lane.h"

#include <stdlib.h>
#include <string.h>

static uint32_t slots_max(const struct capacity_plan *p)
{
    return p->costs.generates ? p->streams_max : p->batch_max;
}

bool capacity_lane_init(struct capacity_lane *l, const struct capacity_plan *p)
{
    memset(l, 0, sizeof *l);
    l->queue = calloc(p->queue_max, sizeof *l->queue);
    l->slots = calloc(slots_max(p), sizeof *l->slots);
    return l->queue != NULL && l->slots != NULL;
}

void capacity_lane_clear(struct capacity_lane *l)
{
    free(l->queue);
    free(l->slots);
}

bool capacity_lane_push(struct capacity_lane *l, const struct capacity_plan *p, uint32_t request, uint8_t kind)
{
    if (l->queued == p->queue_max)
        return false;
    l->queue[(l->queue_at + l->queued++) % p->queue_max] = (struct capacity_slot){
        .request = request, .waiting = p->kinds[kind].prompt_bytes, .left = p->kinds[kind].max_tokens};
    return true;
}

static void enter(struct capacity_lane *l, const struct capacity_plan *p)
{
    while (l->queued > 0 && l->running < slots_max(p)) {
        l->slots[l->running++] = l->queue[l->queue_at];
        l->queue_at = (l->queue_at + 1) % p->queue_max;
        l->queued--;
    }
}

/* One row for each stream with one element to feed; the others share those that are for prompts, as share_rows of
 * stream_lane.c does. Returns how many rows the prompts have; *prompts: of how many streams. */
static uint32_t share_rows(struct capacity_lane *l, const struct capacity_plan *p, uint32_t *prompts)
{
    uint32_t sharers = 0, given = 0;
    for (uint32_t i = 0; i < l->running; i++)
        sharers += l->slots[i].waiting > 1;
    *prompts = sharers;
    uint32_t rows = sharers < l->running ? p->pass_rows_max : p->rows_max;
    l->sharer = l->sharer + 1 < l->running ? l->sharer + 1 : 0;
    for (uint32_t i = 0; i < l->running; i++) {
        struct capacity_slot *s = &l->slots[(l->sharer + i) % l->running];
        s->taken = 1;
        if (s->waiting <= 1)
            continue;
        const uint32_t share = sharers > 0 ? (rows + sharers - 1) / sharers : 0;
        s->taken = s->waiting < share ? s->waiting : share;
        given += s->taken;
        rows -= s->taken;
        sharers--;
    }
    return given;
}

/* A pass of some streams with a row each and of the rows of prompts: of what the two would take alone, the second's
 * first row for each prompt is counted once. */
static double pass_seconds(const struct capacity_costs *c, uint32_t streams, uint32_t prompts, uint32_t rows)
{
    if (streams == 0)
        return capacity_curve_at(&c->prompt, rows);
    if (rows == 0)
        return capacity_curve_at(&c->step, streams);
    return capacity_curve_at(&c->step, streams + prompts) + capacity_curve_at(&c->prompt, rows) -
           capacity_curve_at(&c->prompt, prompts);
}

double capacity_lane_begin(struct capacity_lane *l, const struct capacity_plan *p)
{
    uint32_t prompts = 0;
    enter(l, p);
    if (l->running == 0)
        return 0.0;
    if (!p->costs.generates)
        return p->costs.pass_s + capacity_curve_at(&p->costs.batch, l->running);
    const uint32_t rows = share_rows(l, p, &prompts);
    return p->costs.pass_s + pass_seconds(&p->costs, l->running - prompts, prompts, rows);
}

/* Feed what the pass took, and draw where that was all. True: the stream has ended. */
static bool advance(struct capacity_slot *s, const struct capacity_plan *p, bool *drawn)
{
    s->position += s->taken;
    s->waiting -= s->taken;
    *drawn = s->waiting == 0;
    if (!*drawn)
        return false;
    s->left--;
    s->waiting = 1;
    if (p->costs.context > 0 && s->position == p->costs.context) {
        s->position = 0;
        s->waiting = (p->costs.context + 1) / 2;
    }
    return s->left == 0;
}

void capacity_lane_end(struct capacity_lane *l, const struct capacity_plan *p, double now_s, capacity_tell *tell,
                       void *arg)
{
    const double wake_s = 1e-9 * (double)STREAM_WAKE_NS * l->running;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->running; i++) {
        struct capacity_slot *s = &l->slots[i];
        bool drawn = true;
        const bool over = !p->costs.generates || advance(s, p, &drawn);
        if (over) {
            tell(arg, s->request, CAPACITY_LAST);
            continue;
        }
        if (drawn && !p->whole && (!s->begun || now_s - s->woken_s >= wake_s)) {
            tell(arg, s->request, s->begun ? CAPACITY_EVENT : CAPACITY_FIRST);
            s->woken_s = now_s;
            s->begun = true;
        }
        l->slots[kept++] = *s;
    }
    l->running = kept;
}
