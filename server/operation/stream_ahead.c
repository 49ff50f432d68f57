/* stream_ahead.c - see stream_ahead.h. */
#include "server/operation/stream_ahead.h"

#include "server/models/hosted_model.h"
#include "server/operation/stream_slots.h"

enum { TURN_ROWS = 8, TURN_ROWS_MAX = 16 }; /* of a stream in its turn, and of one that has to catch up */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* A stream that has a row of its own in the pass. Is there something to feed ahead of a shift that it can come to? What
 * would be thrown away at the end of its text is not fed. */
static bool looks_ahead(const struct stream_slot *s, struct stream_ahead *ret)
{
    if (s->shifting_draws == 0)
        return false;
    *ret = stream_window_ahead(&s->window);
    return ret->left > 0 && s->shifting_draws - s->drawn > ret->pushes;
}

/* How many rows the pass must have so that each stream is ready in time if it goes on so. *turn: how many a stream
 * waits for until it is its turn; *rows_max: more than that would make the pass too long. */
static uint32_t rows_due(const struct stream_slots *p, const uint32_t *taken, uint32_t prompt_rows_max, uint32_t *turn,
                         uint32_t *rows_max)
{
    uint32_t streams = 0;
    double due = 0.0;
    struct stream_ahead a;
    for (uint32_t rank = 0; rank < p->running; rank++) {
        if (taken[rank] != 1)
            continue;
        streams++;
        if (looks_ahead(&p->slot[p->order[rank]], &a))
            due += (double)a.left / a.pushes;
    }
    *turn = least(TURN_ROWS, streams);
    *rows_max = least(most(2 * streams, prompt_rows_max), p->model->ahead_rows_max);
    return due < *rows_max ? (uint32_t)due : *rows_max;
}

uint32_t stream_ahead_plan(struct stream_slots *p, const uint32_t *taken, uint32_t prompt_rows_max,
                           struct engine_part *parts)
{
    uint32_t turn, left, count = 0;
    struct stream_ahead a;
    if (p->model->ahead_rows_max == 0)
        return 0;
    uint32_t due = rows_due(p, taken, prompt_rows_max, &turn, &left);
    const uint32_t first = p->first_ahead;
    for (uint32_t i = 0; i < p->running && left > 0; i++) {
        const uint32_t rank = (first + i) % p->running;
        struct stream_slot *s = &p->slot[p->order[rank]];
        if (taken[rank] != 1 || !looks_ahead(s, &a) || a.known == 0 || a.known < least(turn, a.pushes))
            continue;
        const bool is_near = a.pushes < turn; /* those that shift soon do not wait for their turn */
        if (!is_near && due == 0)
            continue;
        const uint32_t rows = is_near ? a.known : least(a.known, least(TURN_ROWS_MAX, most(due, turn)));
        parts[count] = stream_window_feed_ahead(&s->window, least(rows, left));
        left -= parts[count].count;
        due -= least(due, parts[count].count);
        count++;
        if (due == 0 && !is_near)
            p->first_ahead = (rank + 1) % p->running;
    }
    return count;
}
