/* capacity_machine.c - see capacity_machine.h. */
#include "server/cli/capacity_machine.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RING_FIRST 64
#define SLICE_S 0.0014    /* of Linux on two or three cores; twice that on eight or more */
#define TICK_S 0.004      /* a clock of 250 Hz, as Debian has it */
#define OUTSIDE_THREADS 4 /* of a daemon, that serve connections: aftd's default */
#define OTHERS_MAX 64

/* Of a balancer: as many threads as there are cores, as HAProxy has them. */
static uint32_t others_count(const struct capacity_plan *p)
{
    return p->cores < OTHERS_MAX ? p->cores : OTHERS_MAX;
}

bool capacity_machine_init(struct capacity_machine *m, const struct capacity_plan *p, uint32_t first, uint32_t replicas)
{
    *m = (struct capacity_machine){.plan = p, .first = first, .replicas = replicas, .next_s = INFINITY};
    m->count = replicas * (1 + OUTSIDE_THREADS) + others_count(p);
    m->workers = calloc(m->count, sizeof *m->workers);
    for (uint32_t i = 0; m->workers != NULL && i < m->count; i++)
        m->workers[i].left = -1.0;
    m->line = calloc(m->count, sizeof *m->line);
    m->free = p->cores;
    return m->workers != NULL && m->line != NULL;
}

void capacity_machine_clear(struct capacity_machine *m)
{
    for (uint32_t i = 0; m->workers != NULL && i < m->count; i++)
        free(m->workers[i].ring);
    free(m->workers);
    free(m->line);
}

uint32_t capacity_machine_outside(const struct capacity_machine *m, uint32_t place, uint32_t request)
{
    return m->replicas + place * OUTSIDE_THREADS + request % OUTSIDE_THREADS;
}

uint32_t capacity_machine_others(const struct capacity_machine *m, uint32_t request)
{
    return m->replicas * (1 + OUTSIDE_THREADS) + request % others_count(m->plan);
}

/* ---- whose the cores are ----------------------------------------------------------------------------------------- */

static uint32_t width(const struct capacity_machine *m, uint32_t worker)
{
    return worker < m->replicas ? m->plan->threads : 1;
}

static double speed_of(const struct capacity_machine *m, uint32_t worker)
{
    return worker < m->replicas ? 1.0 / (1.0 + m->crowd * (m->workers[worker].crowding - 1.0)) : 1.0;
}

static void wait_at(struct capacity_machine *m, uint32_t worker, uint32_t at)
{
    memmove(m->line + at + 1, m->line + at, (m->waiting - at) * sizeof *m->line);
    m->line[at] = worker;
    m->waiting++;
    m->workers[worker].is_waiting = true;
}

static void wait_in_line(struct capacity_machine *m, uint32_t worker)
{
    wait_at(m, worker, m->waiting);
}

/* Who slept, or was on until such a one came, goes on before the engines that wait. */
static void wait_before_engines(struct capacity_machine *m, uint32_t worker)
{
    uint32_t at = 0;
    while (at < m->waiting && m->line[at] >= m->replicas)
        at++;
    wait_at(m, worker, at);
}

static void leave_cores(struct capacity_machine *m, uint32_t worker)
{
    m->workers[worker].is_on = false;
    m->free += width(m, worker);
}

static void take_cores(struct capacity_machine *m, uint32_t worker)
{
    struct capacity_worker *w = &m->workers[worker];
    m->free -= width(m, worker);
    w->is_waiting = false;
    w->is_on = true;
    w->since_s = m->at_s - w->had_s;
    w->had_s = 0.0;
}

/* A thread that slept takes the core of the engine that has had its own for the longest. */
static void preempt(struct capacity_machine *m, uint32_t worker)
{
    struct capacity_worker *engine = NULL;
    for (uint32_t i = 0; i < m->replicas; i++) {
        struct capacity_worker *w = &m->workers[i];
        if (w->is_on && (engine == NULL || w->since_s < engine->since_s))
            engine = w;
    }
    assert(engine != NULL); /* engines have all cores */
    const uint32_t other = (uint32_t)(engine - m->workers);
    engine->had_s = m->at_s - engine->since_s;
    leave_cores(m, other);
    wait_before_engines(m, other);
    take_cores(m, worker);
}

/* None of the cores has work that is soon done? */
static bool are_all_engines(const struct capacity_machine *m)
{
    for (uint32_t i = m->replicas; i < m->count; i++)
        if (m->workers[i].is_on)
            return false;
    return true;
}

/* True: somebody has begun to wait. */
static bool note_changes(struct capacity_machine *m)
{
    bool woken = false;
    for (uint32_t i = 0; i < m->count; i++) {
        struct capacity_worker *w = &m->workers[i];
        if (w->is_on && w->left < 0.0)
            leave_cores(m, i);
        if (w->left < 0.0 || w->is_on || w->is_waiting)
            continue;
        if (i < m->replicas)
            wait_in_line(m, i);
        else if (m->free == 0 && are_all_engines(m))
            preempt(m, i);
        else
            wait_before_engines(m, i);
        woken = true;
    }
    return woken;
}

/* The one, of those from `first` on, that has had its cores for the longest, if that is a slice. */
static uint32_t find_over(const struct capacity_machine *m, uint32_t first)
{
    uint32_t over = CAPACITY_NOBODY;
    double since_s = m->at_s - SLICE_S;
    for (uint32_t i = first; i < m->count; i++)
        if (m->workers[i].is_on && m->workers[i].since_s <= since_s) {
            over = i;
            since_s = m->workers[i].since_s;
        }
    return over;
}

static void fill(struct capacity_machine *m)
{
    while (m->waiting > 0 && width(m, m->line[0]) <= m->free) {
        const uint32_t worker = m->line[0];
        memmove(m->line, m->line + 1, --m->waiting * sizeof *m->line);
        take_cores(m, worker);
    }
}

void capacity_machine_settle(struct capacity_machine *m, double now_s)
{
    const double seconds = now_s - m->at_s;
    m->at_s = now_s;
    m->core_s += seconds * (m->plan->cores - m->free);
    for (uint32_t i = 0; i < m->count; i++) {
        struct capacity_worker *w = &m->workers[i];
        if (w->left < 0.0)
            continue;
        w->busy_s += seconds;
        if (!w->is_on)
            continue;
        w->left = fmax(0.0, w->left - seconds * speed_of(m, i));
        w->core_s += seconds;
    }
}

/* True: there was one since this was asked last. */
static bool pass_ticks(struct capacity_machine *m)
{
    const uint64_t before = m->tick;
    if (m->at_s >= TICK_S * (double)m->tick)
        m->tick = (uint64_t)(m->at_s / TICK_S);
    while (m->at_s >= TICK_S * (double)m->tick) /* a division's rounding */
        m->tick++;
    return m->tick > before;
}

static void take_turns(struct capacity_machine *m)
{
    for (uint32_t turns = m->waiting; turns > 0 && m->waiting > 0; turns--) {
        /* A core of another thread is soon free: no engine has to leave its own for this one. */
        const bool is_soon = m->line[0] >= m->replicas && !are_all_engines(m);
        const uint32_t over = find_over(m, is_soon ? m->replicas : 0);
        if (over == CAPACITY_NOBODY)
            return;
        leave_cores(m, over);
        wait_in_line(m, over);
        fill(m);
    }
}

/* Whatever they do: two of them may be threads of one core, and all share a cache. */
static double crowd_of(const struct capacity_machine *m)
{
    const uint32_t threads = m->plan->threads, used = m->plan->cores - m->free;
    return used > threads ? (double)(used - threads) / (m->plan->cores - threads) : 0.0;
}

void capacity_machine_pace(struct capacity_machine *m)
{
    const bool woken = note_changes(m), ticked = pass_ticks(m);
    fill(m);
    if (woken || ticked)
        take_turns(m);
    m->crowd = crowd_of(m);
    m->next = CAPACITY_NOBODY;
    m->next_s = m->waiting > 0 ? TICK_S * (double)m->tick : INFINITY;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct capacity_worker *w = &m->workers[i];
        const double end_s = w->is_on ? m->at_s + w->left / speed_of(m, i) : INFINITY;
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
