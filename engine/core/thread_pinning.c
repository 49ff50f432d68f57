/* thread_pinning.c - see thread_pinning.h. */
#include "engine/core/thread_pinning.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* What the calling thread knows of its own affinity. A new thread, NEW, has its creator's. */
static _Thread_local enum { NEW, FREE, KEPT, MOVED } state;
static _Thread_local uint16_t kept; /* KEPT: the processor */

/* Is there a team at all, always as large as requested, whose threads nobody else places? */
static bool is_ours_to_say(void)
{
#ifdef _OPENMP
    return getenv("OMP_PROC_BIND") == NULL && omp_get_proc_bind() == omp_proc_bind_false && !omp_get_dynamic();
#else
    return false;
#endif
}

void thread_pinning_init(struct thread_pinning *p, uint32_t threads)
{
    *p = (struct thread_pinning){.is_on = is_ours_to_say()};
    p->is_on = p->is_on && sched_getaffinity(0, sizeof p->all, &p->all) == 0;
    if (!p->is_on)
        return;
    atomic_init(&p->opener, gettid());
    if (threads > ENGINE_THREADS_MAX || (uint32_t)CPU_COUNT(&p->all) != threads)
        return;
    for (uint16_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &p->all))
            p->processors[p->count++] = i;
}

static bool is_place(const struct thread_pinning *p, const cpu_set_t *set)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (CPU_COUNT(set) == 1 && CPU_ISSET(p->processors[i], set))
            return true;
    return false;
}

/* Is the calling thread's affinity what we know it to be? */
static bool is_as_known(const struct thread_pinning *p)
{
    cpu_set_t own;
    if (state == MOVED || sched_getaffinity(0, sizeof own, &own) != 0)
        return false;
    if (state == KEPT)
        return CPU_COUNT(&own) == 1 && CPU_ISSET(kept, &own);
    return CPU_EQUAL(&own, &p->all) || (state == NEW && (p->count == 0 || is_place(p, &own)));
}

/* Has the opener's affinity changed? Then a thread that finds itself on one processor was confined to it with all
 * others, or was created by one that was. */
static bool is_opener_moved(struct thread_pinning *p)
{
    const pid_t opener = atomic_load(&p->opener);
    cpu_set_t set;
    return opener != 0 && sched_getaffinity(opener, sizeof set, &set) == 0 && !CPU_EQUAL(&set, &p->all);
}

void thread_pinning_pin(struct thread_pinning *p, size_t thread)
{
    cpu_set_t own;
    if (p->count == 0 || (state == NEW && is_opener_moved(p))) {
        thread_pinning_unpin(p);
        return;
    }
    assert(thread < p->count);
    if (state == MOVED || (state == KEPT && kept == p->processors[thread]))
        return;
    CPU_ZERO(&own);
    CPU_SET(p->processors[thread], &own);
    if (!is_as_known(p) || sched_setaffinity(0, sizeof own, &own) != 0) {
        state = MOVED;
        return;
    }
    if (gettid() == atomic_load(&p->opener))
        atomic_store(&p->opener, 0);
    state = KEPT;
    kept = p->processors[thread];
}

void thread_pinning_unpin(struct thread_pinning *p)
{
    cpu_set_t all = p->all;
    if (!p->is_on || state == FREE || state == MOVED)
        return;
    if (!is_as_known(p)) {
        state = MOVED;
        return;
    }
    const pid_t opener = atomic_load(&p->opener);
    if (opener != 0 && sched_getaffinity(opener, sizeof all, &all) != 0)
        all = p->all;
    state = sched_setaffinity(0, sizeof all, &all) == 0 ? FREE : MOVED;
}
