/* capacity_lane.c - see capacity_lane.h. */
#include "server/cli/capacity_lane.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WARMS_S 0.0025 /* of work, until two thirds of it are made up for */

bool capacity_lane_init(struct capacity_lane *l, const struct capacity_plan *p)
{
    memset(l, 0, sizeof *l);
    l->queue = calloc(p->queue_max, sizeof *l->queue);
    l->slots = calloc(capacity_slots(p), sizeof *l->slots);
    return l->queue != NULL && l->slots != NULL;
}

void capacity_lane_clear(struct capacity_lane *l)
{
    free(l->queue);
    free(l->slots);
}

/* What a stream is fed that begins with so much text: of more than the context has room for, the last half of it, as
 * server/stream/stream_window.c does. */
static uint32_t fed_first(const struct capacity_costs *c, uint32_t text)
{
    const uint32_t start = c->starts ? 1 : 0, half = c->context > 1 ? c->context / 2 : 1 - start;
    return start + (c->context > 0 && text > c->context - start ? half : text);
}

bool capacity_lane_push(struct capacity_lane *l, const struct capacity_plan *p, uint32_t request, uint8_t kind)
{
    if (l->queued == p->queue_max)
        return false;
    l->queue[(l->queue_at + l->queued++) % p->queue_max] =
        (struct capacity_slot){.request = request,
                               .waiting = fed_first(&p->costs, p->kinds[kind].prompt_bytes),
                               .left = p->kinds[kind].max_tokens};
    return true;
}

static void enter(struct capacity_lane *l, const struct capacity_plan *p)
{
    while (l->queued > 0 && l->running < capacity_slots(p)) {
        l->slots[l->running++] = l->queue[l->queue_at];
        l->queue_at = (l->queue_at + 1) % p->queue_max;
        l->queued--;
    }
}

/* The element that the pass feeds ahead of the end of the context of a stream with one to feed, if it comes to that: of
 * the second half, as many as of its own (server/batch/stream_ahead.h, without its turns, whose sum is the same). */
static uint32_t feed_ahead(const struct capacity_costs *c, struct capacity_slot *s)
{
    const uint32_t kept = fed_first(c, UINT32_MAX);
    if (!c->ahead || s->position + kept <= c->context || s->position + s->left <= c->context)
        return 0;
    s->ahead++;
    return 1;
}

/* What a pass is made of. */
struct shape {
    uint32_t prompts, rows; /* streams with more than one element to feed, and how many are fed of those or ahead */
    uint32_t ends;          /* of these streams, those that have no more to feed behind the pass */
    uint32_t others;
};

/* One row for each stream with one element to feed; the others share those that are for prompts, as share_rows of
 * stream_lane.c does. */
static struct shape share_rows(struct capacity_lane *l, const struct capacity_plan *p)
{
    struct shape shape = {.prompts = 0};
    for (uint32_t i = 0; i < l->running; i++)
        shape.prompts += l->slots[i].waiting > 1;
    shape.others = l->running - shape.prompts;
    uint32_t sharers = shape.prompts, rows = shape.others > 0 ? p->pass_rows_max : p->rows_max;
    l->sharer = l->sharer + 1 < l->running ? l->sharer + 1 : 0;
    for (uint32_t i = 0; i < l->running; i++) {
        struct capacity_slot *s = &l->slots[(l->sharer + i) % l->running];
        s->taken = 1;
        if (s->waiting <= 1) {
            shape.rows += feed_ahead(&p->costs, s);
            continue;
        }
        assert(sharers > 0); /* it is one of them */
        const uint32_t share = (rows + sharers - 1) / sharers;
        s->taken = s->waiting < share ? s->waiting : share;
        shape.ends += s->taken == s->waiting;
        shape.rows += s->taken;
        rows -= s->taken;
        sharers--;
    }
    return shape;
}

/* The products take all rows together, whoever's they are; what logits and the next byte take comes on top for each
 * stream that draws. Alone, each of the two is what was measured. */
static double pass_seconds(const struct capacity_costs *c, const struct shape *s)
{
    const uint32_t draws = s->others + s->ends;
    const double over = draws > 0 ? capacity_curve_at(&c->step, draws) - capacity_curve_at(&c->prompt, draws) : 0.0;
    return capacity_curve_at(&c->prompt, s->others + s->rows) + (over > 0.0 ? over : 0.0);
}

/* What the passes behind an idle time take longer fades away while they compute. */
static double warm_up(struct capacity_lane *l, const struct capacity_costs *c, double seconds, double now_s)
{
    const double idle_s = now_s - l->ended_s;
    l->cold_s += (c->idle_s - l->cold_s) * capacity_lost_share(idle_s);
    const double longer = l->cold_s * (1.0 - exp(-seconds / WARMS_S));
    l->cold_s -= longer;
    return longer;
}

static struct capacity_pass pass_of(struct capacity_lane *l, const struct capacity_costs *c, double seconds,
                                    uint32_t rows, double now_s)
{
    const double crowding = capacity_curve_at(&c->crowding, rows), owed_s = l->owed_s;
    l->owed_s = 0.0;
    return (struct capacity_pass){owed_s + c->pass_s + seconds + warm_up(l, c, seconds, now_s),
                                  crowding > 1.0 ? crowding : 1.0};
}

struct capacity_pass capacity_lane_begin(struct capacity_lane *l, const struct capacity_plan *p, double now_s)
{
    enter(l, p);
    if (l->running == 0) {
        l->owed_s = 0.0;
        return (struct capacity_pass){0.0, 1.0};
    }
    l->passes++;
    l->in_passes += l->running;
    if (!p->costs.generates)
        return pass_of(l, &p->costs, capacity_curve_at(&p->costs.batch, l->running), l->running, now_s);
    const struct shape shape = share_rows(l, p);
    return pass_of(l, &p->costs, pass_seconds(&p->costs, &shape), shape.others + shape.rows, now_s);
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
        s->waiting = fed_first(&p->costs, UINT32_MAX) - s->ahead;
        s->ahead = 0;
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
    l->ended_s = now_s;
}
