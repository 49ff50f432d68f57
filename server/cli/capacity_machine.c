/* capacity_machine.c - see capacity_machine.h. What is called there, or marked here, as Linux has it is so in 6.18. */
#include "server/cli/capacity_machine.h"

#include <math.h>
#include <stdlib.h>

#define RING_FIRST 64
#define SLICE_S 0.0014  /* of Linux on two or three cores; twice that on eight or more */
#define LAG_MAX_S 0.004 /* a tick */
#define TICK_S 0.004    /* a clock of 250 Hz, as Debian has it */
#define LOAD_S 0.032    /* half-life of what is known of a thread's load: of Linux's PELT */
#define HOT_S 0.0005    /* a thread that ran so lately is left where it is: Linux's sysctl_sched_migration_cost */
#define PULL_IDLES 4    /* of so many times that a core gets idle, one looks at the others' queues */
#define PULL_TICKS 8    /* a busy core looks at them at one of so many ticks */
/* Threads woken by engines that had 10 to 60 % of a core were seen to move to it in 5 to 8 of 100 cases, and by busier
 * ones in none; a virtual machine of two cores. Of others it is assumed. */
#define MOVE_WAKES 15
#define MOVE_LOAD_MAX 0.7
#define OUTSIDE_THREADS 4 /* of a daemon, that serve connections: aftd's default */
#define OTHERS_MAX 64

/* Of a balancer: as many threads as there are cores, as HAProxy has them. */
static uint32_t others_count(const struct capacity_plan *p)
{
    return p->cores < OTHERS_MAX ? p->cores : OTHERS_MAX;
}

static uint32_t width(const struct capacity_machine *m, uint32_t worker)
{
    return worker < m->replicas ? m->plan->threads : 1;
}

static uint32_t first_thread(const struct capacity_machine *m, uint32_t worker)
{
    return worker < m->replicas ? worker * m->plan->threads : m->replicas * (m->plan->threads - 1) + worker;
}

bool capacity_machine_init(struct capacity_machine *m, const struct capacity_plan *p, uint32_t first, uint32_t replicas)
{
    *m = (struct capacity_machine){.plan = p, .first = first, .replicas = replicas, .next_s = INFINITY};
    m->count = replicas * (1 + OUTSIDE_THREADS) + others_count(p);
    m->thread_count = first_thread(m, m->count);
    m->workers = calloc(m->count, sizeof *m->workers);
    m->threads = calloc(m->thread_count, sizeof *m->threads);
    m->cores = calloc(p->cores, sizeof *m->cores);
    if (m->workers == NULL || m->threads == NULL || m->cores == NULL)
        return false;
    for (uint32_t i = 0; i < m->count; i++) {
        const uint32_t at = first_thread(m, i);
        m->workers[i].left = -1.0;
        for (uint32_t j = 0; j < width(m, i); j++)
            m->threads[at + j] = (struct capacity_thread){.worker = i, .core = (at + j) % p->cores};
    }
    for (uint32_t i = 0; i < p->cores; i++)
        m->cores[i].on = CAPACITY_NOBODY;
    return true;
}

void capacity_machine_clear(struct capacity_machine *m)
{
    for (uint32_t i = 0; m->workers != NULL && i < m->count; i++)
        free(m->workers[i].ring);
    free(m->workers);
    free(m->threads);
    free(m->cores);
}

uint32_t capacity_machine_outside(const struct capacity_machine *m, uint32_t place, uint32_t request)
{
    return m->replicas + place * OUTSIDE_THREADS + request % OUTSIDE_THREADS;
}

uint32_t capacity_machine_others(const struct capacity_machine *m, uint32_t request)
{
    return m->replicas * (1 + OUTSIDE_THREADS) + request % others_count(m->plan);
}

/* ---- the turns of one core --------------------------------------------------------------------------------------- */

/* Who counts on a core, and the mean of what they had. */
struct queue {
    uint32_t count;
    double mean_s;
};

static struct queue queue_of(const struct capacity_machine *m, uint32_t core)
{
    struct queue q = {.count = 0};
    for (uint32_t i = 0; i < m->thread_count; i++)
        if (m->threads[i].is_there && m->threads[i].core == core) {
            q.count++;
            q.mean_s += m->threads[i].had_s;
        }
    q.mean_s = q.count > 0 ? q.mean_s / q.count : 0.0;
    return q;
}

static bool is_eligible(const struct capacity_thread *t, const struct queue *q)
{
    return t->had_s <= q->mean_s + 1e-9;
}

/* Threads of an engine that has several sleep at its barriers again and again, and leave their core to any other. */
static uint32_t pick_beside_barriers(const struct capacity_machine *m, uint32_t core)
{
    uint32_t best = CAPACITY_NOBODY;
    for (uint32_t i = first_thread(m, m->replicas); i < m->thread_count; i++) {
        const struct capacity_thread *t = &m->threads[i];
        if (t->is_there && t->core == core && (best == CAPACITY_NOBODY || t->deadline_s < m->threads[best].deadline_s))
            best = i;
    }
    return best;
}

static uint32_t pick(const struct capacity_machine *m, uint32_t core)
{
    const uint32_t other = m->plan->threads > 1 ? pick_beside_barriers(m, core) : CAPACITY_NOBODY;
    if (other != CAPACITY_NOBODY)
        return other;
    const struct queue q = queue_of(m, core);
    uint32_t best = CAPACITY_NOBODY;
    for (uint32_t i = 0; i < m->thread_count; i++) {
        const struct capacity_thread *t = &m->threads[i];
        if (t->is_there && t->core == core && is_eligible(t, &q) &&
            (best == CAPACITY_NOBODY || t->deadline_s < m->threads[best].deadline_s))
            best = i;
    }
    return best;
}

/* The thread that has the core begins another slice when the last one is over; then others may have their turn. */
static void renew(struct capacity_machine *m, uint32_t core)
{
    struct capacity_core *c = &m->cores[core];
    if (c->on == CAPACITY_NOBODY)
        return;
    struct capacity_thread *t = &m->threads[c->on];
    const bool is_over = t->had_s >= t->deadline_s;
    if (is_over)
        t->deadline_s = t->had_s + SLICE_S;
    c->is_due = c->is_due || is_over;
}

static double load_of(const struct capacity_machine *m, const struct capacity_thread *t)
{
    const double wants = t->is_there ? 1.0 : 0.0;
    return wants + (t->load - wants) * exp2((t->load_s - m->at_s) / LOAD_S);
}

static void set_there(struct capacity_machine *m, struct capacity_thread *t, bool is_there)
{
    t->load = load_of(m, t);
    t->load_s = m->at_s;
    t->is_there = is_there;
}

static double core_load(const struct capacity_machine *m, uint32_t core)
{
    double load = 0.0;
    for (uint32_t i = 0; i < m->thread_count; i++)
        load += m->threads[i].core == core ? load_of(m, &m->threads[i]) : 0.0;
    return load;
}

/* It comes with the lag that it went with, which then is what it was beside the others, too. */
static void come(struct capacity_machine *m, struct capacity_thread *t)
{
    const struct queue q = queue_of(m, t->core);
    t->had_s = q.mean_s - (q.count > 0 ? t->lag_s * (q.count + 1.0) / q.count : 0.0);
    t->deadline_s = t->had_s + SLICE_S;
    set_there(m, t, true);
}

static void go(struct capacity_machine *m, struct capacity_thread *t)
{
    const struct queue q = queue_of(m, t->core);
    t->lag_s = fmin(fmax(q.mean_s - t->had_s, -LAG_MAX_S), LAG_MAX_S);
    set_there(m, t, false);
}

/* Where it wakes: on its core, or now and then on the one of who wakes it. */
static uint32_t core_to_wake_on(struct capacity_machine *m, const struct capacity_thread *t, uint32_t waker)
{
    const uint32_t here = waker != CAPACITY_NOBODY ? m->threads[first_thread(m, waker)].core : t->core;
    const bool may_move = here != t->core && width(m, t->worker) == 1 && core_load(m, here) <= MOVE_LOAD_MAX;
    return may_move && ++m->wakes % MOVE_WAKES == 0 ? here : t->core;
}

static void wake(struct capacity_machine *m, uint32_t thread, uint32_t waker)
{
    struct capacity_thread *t = &m->threads[thread];
    t->core = core_to_wake_on(m, t, waker);
    come(m, t);
    renew(m, t->core);
    m->cores[t->core].is_due = m->cores[t->core].is_due || pick(m, t->core) == thread;
}

static void fall_asleep(struct capacity_machine *m, uint32_t thread)
{
    go(m, &m->threads[thread]);
    m->cores[m->threads[thread].core].is_due = true;
}

static void set_on(struct capacity_machine *m, uint32_t core, uint32_t thread)
{
    struct capacity_core *c = &m->cores[core];
    if (c->on == thread)
        return;
    if (c->on != CAPACITY_NOBODY) {
        m->threads[c->on].off_s = m->at_s;
        m->workers[m->threads[c->on].worker].on--;
    }
    c->on = thread;
    if (thread != CAPACITY_NOBODY)
        m->workers[m->threads[thread].worker].on++;
}

/* ---- all cores --------------------------------------------------------------------------------------------------- */

/* Take a thread that has waited for another core for the longest, and long enough. */
static bool pull(struct capacity_machine *m, uint32_t core, uint32_t count_min)
{
    uint32_t best = CAPACITY_NOBODY;
    for (uint32_t i = 0; i < m->thread_count; i++) {
        const struct capacity_thread *t = &m->threads[i];
        const bool is_alone = width(m, t->worker) == 1;
        if (t->is_there && is_alone && t->core != core && m->cores[t->core].on != i && t->off_s <= m->at_s - HOT_S &&
            (best == CAPACITY_NOBODY || t->off_s < m->threads[best].off_s) && queue_of(m, t->core).count >= count_min)
            best = i;
    }
    if (best == CAPACITY_NOBODY)
        return false;
    struct capacity_thread *t = &m->threads[best];
    const double slice_s = t->deadline_s - t->had_s;
    go(m, t);
    t->core = core;
    come(m, t);
    t->deadline_s = t->had_s + slice_s;
    m->cores[core].is_due = true;
    return true;
}

/* An engine's other threads, which slept at a barrier, go on with it where another engine has their core. */
static void bring_others(struct capacity_machine *m, uint32_t thread)
{
    const uint32_t worker = m->threads[thread].worker, at = first_thread(m, worker);
    for (uint32_t i = at; worker < m->replicas && i < at + width(m, worker); i++) {
        const uint32_t core = m->threads[i].core, on = m->cores[core].on;
        if (m->threads[i].is_there && on != CAPACITY_NOBODY && m->threads[on].worker < m->replicas)
            set_on(m, core, i);
    }
}

static void choose(struct capacity_machine *m, uint32_t core)
{
    uint32_t thread = pick(m, core);
    if (thread == CAPACITY_NOBODY && m->idles++ % PULL_IDLES == 0 && pull(m, core, 2))
        thread = pick(m, core);
    m->cores[core].is_due = false;
    const bool is_new = thread != m->cores[core].on;
    if (m->cores[core].on == CAPACITY_NOBODY && is_new)
        m->cores[core].works_s = m->at_s + m->plan->costs.wake_s;
    set_on(m, core, thread);
    if (is_new && thread != CAPACITY_NOBODY)
        bring_others(m, thread);
}

static void note_changes(struct capacity_machine *m, uint32_t waker)
{
    for (uint32_t i = 0; i < m->count; i++)
        for (uint32_t j = 0; m->workers[i].left >= 0.0 && !m->workers[i].is_awake && j < width(m, i); j++)
            wake(m, first_thread(m, i) + j, waker);
    for (uint32_t i = 0; i < m->count; i++) {
        for (uint32_t j = 0; m->workers[i].left < 0.0 && m->workers[i].is_awake && j < width(m, i); j++)
            fall_asleep(m, first_thread(m, i) + j);
        m->workers[i].is_awake = m->workers[i].left >= 0.0;
    }
}

static bool is_working(const struct capacity_machine *m, uint32_t worker)
{
    return m->workers[worker].left >= 0.0 && m->workers[worker].on == width(m, worker);
}

/* As soon as all of its cores are awake. */
static double begins_at(const struct capacity_machine *m, uint32_t worker)
{
    double at_s = m->at_s;
    for (uint32_t i = first_thread(m, worker); i < first_thread(m, worker) + width(m, worker); i++)
        at_s = fmax(at_s, m->cores[m->threads[i].core].works_s);
    return at_s;
}

static double speed_of(const struct capacity_machine *m, uint32_t worker)
{
    return worker < m->replicas ? 1.0 / (1.0 + m->crowd * (m->workers[worker].crowding - 1.0)) : 1.0;
}

void capacity_machine_settle(struct capacity_machine *m, double now_s)
{
    const double seconds = now_s - m->at_s;
    for (uint32_t i = 0; i < m->plan->cores; i++)
        if (m->cores[i].on != CAPACITY_NOBODY) {
            m->threads[m->cores[i].on].had_s += seconds;
            m->core_s += fmax(0.0, now_s - fmax(m->at_s, m->cores[i].works_s));
        }
    for (uint32_t i = 0; i < m->count; i++) {
        struct capacity_worker *w = &m->workers[i];
        w->busy_s += w->left >= 0.0 ? seconds : 0.0;
        if (!is_working(m, i))
            continue;
        const double done_s = fmax(0.0, now_s - begins_at(m, i));
        w->left = fmax(0.0, w->left - done_s * speed_of(m, i));
        w->core_s += done_s;
    }
    m->at_s = now_s;
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

static void tick(struct capacity_machine *m)
{
    for (uint32_t i = 0; i < m->plan->cores; i++) {
        renew(m, i);
        if (m->cores[i].on == CAPACITY_NOBODY)
            pull(m, i, 2);
        else if (m->tick % PULL_TICKS == i % PULL_TICKS)
            pull(m, i, queue_of(m, i).count + 1);
    }
}

/* Whatever they do: two of them may be threads of one core, and all share a cache. */
static double crowd_of(const struct capacity_machine *m)
{
    const uint32_t threads = m->plan->threads;
    uint32_t used = 0;
    for (uint32_t i = 0; i < m->plan->cores; i++)
        used += m->cores[i].on != CAPACITY_NOBODY;
    return used > threads ? (double)(used - threads) / (m->plan->cores - threads) : 0.0;
}

static bool does_anyone_wait(const struct capacity_machine *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->workers[i].left >= 0.0 && !is_working(m, i))
            return true;
    return false;
}

void capacity_machine_pace(struct capacity_machine *m, uint32_t waker)
{
    const bool has_ticked = pass_ticks(m);
    note_changes(m, waker);
    if (has_ticked)
        tick(m);
    for (uint32_t i = 0; i < m->plan->cores; i++)
        if (m->cores[i].is_due)
            choose(m, i);
    m->crowd = crowd_of(m);
    m->next = CAPACITY_NOBODY;
    m->next_s = does_anyone_wait(m) ? TICK_S * (double)m->tick : INFINITY;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct capacity_worker *w = &m->workers[i];
        const double end_s = is_working(m, i) ? begins_at(m, i) + w->left / speed_of(m, i) : INFINITY;
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

bool capacity_machine_sleeps(const struct capacity_machine *m, uint32_t worker)
{
    return m->workers[worker].left < 0.0;
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
