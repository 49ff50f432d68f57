/* team.h - which thread of an OpenMP team runs this; 0 outside a team and in builds without OpenMP. */
#ifndef ENGINE_CORE_TEAM_H
#define ENGINE_CORE_TEAM_H

#include <stddef.h>

#ifdef _OPENMP
#include <omp.h>
static inline size_t team_thread(void)
{
    return (size_t)omp_get_thread_num();
}
#else
static inline size_t team_thread(void)
{
    return 0;
}
#endif

#endif
