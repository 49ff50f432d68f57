/* capacity_machine.c - see capacity_machine.h. */
#include "server/cli/capacity_machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RING_FIRST 64

static uint32_t worker_count(const struct capacity_machine *m)
{
    return 2 * m->replicas + 1;
}

bool capacity_machine_init(struct capacity_machine *m, const struct capacity_plan *p, uint32_t first, uint32_t replicas)
{
    *m = (struct capacity_machine){.plan = p, .first = first, .replicas = replicas, .next_s = INFINITY};
    m->workers = calloc(worker_count(m), sizeof *m->workers);
    for (uint32_t i = 0; m->workers != NULL && i < worker_count(m); i++)
        m->workers[i].left = -1.0;
    return m->workers != NULL;
}

void capacity_machine_clear(struct capacity_machine *m)
{
    for (uint32_t i = 0; m->workers != NULL && i < worker_count(m); i++)
        free(m->workers[i].ring);
    free(m->workers);
}

uint32_t capacity_machine_outside(const struct capacity_machine *m, uint32_t place)
{
    return m->replicas + place;
}

uint32_t capacity_machine_others(const struct capacity_machine *m)
{
    return 2 * m->replicas;
}

static double cores_wanted(const struct capacity_machine *m)
{
    double wanted = 0.0;
    for (uint32_t i = 0; i < worker_count(m); i++)
        if (m->workers[i].left >= 0.0)
            wanted += i < m->replicas ? m->plan->threads : 1;
    return wanted;
}

void capacity_machine_settle(struct capacity_machine *m, double now_s)
{
    const double seconds = now_s - m->at_s;
    m->at_s = now_s;
    m->core_s += seconds * fmin(cores_wanted(m), m->plan->cores);
    for (uint32_t i = 0; i < worker_count(m); i++) {
        struct capacity_worker *w = &m->workers[i];
        if (w->left < 0.0)
            continue;
        w->left = fmax(0.0, w->left - seconds * w->speed);
        w->busy_s += seconds;
    }
}

void capacity_machine_pace(struct capacity_machine *m)
{
    const double cores = m->plan->cores, threads = m->plan->threads, wanted = cores_wanted(m);
    const double share = wanted > cores ? cores / wanted : 1.0;
    const double others = fmin(wanted, cores) - threads, room = cores - threads;
    const double crowd = others > 0.0 && room > 0.0 ? others / room : 0.0;
    const double engine = share / (1.0 + crowd * (m->plan->costs.crowding - 1.0));
    m->next_s = INFINITY;
    for (uint32_t i = 0; i < worker_count(m); i++) {
        struct capacity_worker *w = &m->workers[i];
        if (w->left < 0.0)
            continue;
        w->speed = i < m->replicas ? engine : share;
        const double end_s = m->at_s + w->left / w->speed;
        if (end_s < m->next_s) {
            m->next_s = end_s;
            m->next = i;
        }
    }
}

static bool make_room(struct capacity_worker *w)
{
    const uint32_t room = w->room > 0 ? 2 * w->room : RING_FIRST;
    struct capacity_work *ring = malloc(room * sizeof *ring);
    if (ring == NULL)
        return false;
    for (uint32_t i = 0; i < w->count; i++)
        ring[i] = w->ring[(w->at + i) & (w->room - 1)];
    free(w->ring);
    w->ring = ring;
    w->room = room;
    w->at = 0;
    return true;
}

bool capacity_machine_add(struct capacity_machine *m, uint32_t worker, struct capacity_work work)
{
    struct capacity_worker *w = &m->workers[worker];
    if (w->count == w->room && !make_room(w))
        return false;
    w->ring[(w->at + w->count++) & (w->room - 1)] = work;
    if (w->left < 0.0)
        w->left = work.seconds;
    return true;
}

struct capacity_work capacity_machine_take(struct capacity_machine *m)
{
    struct capacity_worker *w = &m->workers[m->next];
    const struct capacity_work work = w->ring[w->at];
    w->at = (w->at + 1) & (w->room - 1);
    w->count--;
    w->left = w->count > 0 ? w->ring[w->at].seconds : -1.0;
    return work;
}
