/* thread_pinning.h - where a team has as many threads as there are processors, each keeps to one of its own.
 *
 * A scheduler that wakes a thread of the team while another process has its processor for some microseconds may put it
 * behind its sister, and take milliseconds to part them: one processor idles meanwhile, and all wait at the next
 * barrier. That cost 64 streams through HTTP 2 to 3 %, and was most of their longest gaps.
 *
 * That is for passes whose rows or pictures threads take one after the other, so that one makes up for what another
 * could not do. Where all wait for all behind each product, a thread held up where it is kept holds up the team: two
 * daemons with 2 or 8 streams each had gaps half as long again (p99) as with threads that could move away.
 *
 * Threads are kept by affinity (sched_setaffinity), which those that they create inherit: libgomp ends threads that a
 * smaller team leaves over and makes new ones later, so each asks again, to keep or to leave, at the start of whatever
 * it does in a team. That costs a comparison where nothing changes, and 3 to 30 us where something does.
 *
 * Whoever else sets a thread's affinity, as taskset does or a container's cpuset that changes, is not contradicted: a
 * thread that finds its own other than it left it asks for nothing any more. */
#ifndef ENGINE_CORE_THREAD_PINNING_H
#define ENGINE_CORE_THREAD_PINNING_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"

struct thread_pinning {
    bool is_on;
    uint32_t count; /* 0: nobody keeps to a place, and who came to be at one leaves it */
    uint16_t processors[ENGINE_THREADS_MAX];
    cpu_set_t all;     /* that the opener could run on */
    atomic_int opener; /* its thread id; 0: it is of the team itself */
};

/* Places for a team of `threads` among the processors that the calling thread may run on; none if they are not as many,
 * or if the environment says where OpenMP's threads are to be (OMP_PROC_BIND) or lets it choose how many (OMP_DYNAMIC).
 * The calling thread should be none of a team, this one or another's, and outlive it: threads leave their places for
 * where it may be. */
void thread_pinning_init(struct thread_pinning *p, uint32_t threads);
/* The calling thread, of that number in its team, keeps to its place from now on. */
void thread_pinning_pin(struct thread_pinning *p, size_t thread);
/* The calling thread may run wherever the opener may. */
void thread_pinning_unpin(struct thread_pinning *p);

#endif
