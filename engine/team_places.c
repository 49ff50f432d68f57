/* team_places.c - see team_places.h. */
#include "engine/team_places.h"

#include <assert.h>
#include <sched.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* Where the calling thread keeps to, + 1; 0: to none. */
static _Thread_local uint32_t kept;

/* Is there a team at all, and has the user not said where its threads are to be? */
static bool is_ours_to_say(void)
{
#ifdef _OPENMP
    return omp_get_proc_bind() == omp_proc_bind_false;
#else
    return false;
#endif
}

void team_places_init(struct team_places *p, uint32_t threads)
{
    cpu_set_t set;
    p->count = 0;
    if (threads > ENGINE_THREADS_MAX || !is_ours_to_say() || sched_getaffinity(0, sizeof set, &set) != 0 ||
        (uint32_t)CPU_COUNT(&set) != threads)
        return;
    for (uint16_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            p->processors[p->count++] = i;
}

void team_places_keep(const struct team_places *p, size_t thread)
{
    cpu_set_t own;
    if (p->count == 0)
        return;
    assert(thread < p->count);
    if (kept == p->processors[thread] + 1u)
        return;
    CPU_ZERO(&own);
    CPU_SET(p->processors[thread], &own);
    (void)sched_setaffinity(0, sizeof own, &own);
    kept = p->processors[thread] + 1u;
}

void team_places_leave(const struct team_places *p)
{
    cpu_set_t all;
    if (p->count == 0 || kept == 0)
        return;
    CPU_ZERO(&all);
    for (uint32_t i = 0; i < p->count; i++)
        CPU_SET(p->processors[i], &all);
    (void)sched_setaffinity(0, sizeof all, &all);
    kept = 0;
}
