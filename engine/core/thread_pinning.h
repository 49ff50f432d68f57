/* thread_pinning.h - where a team has as many threads as there are processors, each is pinned to one of its own.
 *
 * A scheduler that wakes a thread of the team while another process has its processor for some microseconds may queue
 * it behind another thread of the team, and take milliseconds to separate them: one processor idles meanwhile, and all
 * wait at the next barrier. That cost 64 streams over HTTP 2 to 3 %, and caused most of their longest gaps.
 *
 * Threads are pinned only for passes whose rows or pictures they take one after the other, so that one makes up for
 * what another could not do. Where all wait for each other after every product, a pinned thread that is held up holds
 * up the team: two daemons with 2 or 8 streams each had gaps 1.5 times as long (p99) as with threads that could move
 * away.
 *
 * Threads are pinned by affinity (sched_setaffinity), which those that they create inherit: libgomp ends threads that a
 * smaller team does not need and creates new ones later, so each pins or unpins itself again at the start of whatever
 * it does in a team. That costs a comparison where nothing changes, and 3 to 30 us where something does.
 *
 * An affinity that somebody else sets, as taskset does or a container's cpuset that changes, is respected: a thread
 * that finds its affinity other than it left it never sets it again. */
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
    uint32_t count; /* 0: no thread is pinned, and one that is gets unpinned */
    uint16_t processors[ENGINE_THREADS_MAX];
    cpu_set_t all;     /* the processors that the opener could run on */
    atomic_int opener; /* its thread id; 0: it belongs to the team itself */
};

/* Choose processors for a team of `threads` among those that the calling thread may run on; none if their numbers
 * differ, or if the environment says where OpenMP's threads are to be (OMP_PROC_BIND) or lets it choose how many
 * (OMP_DYNAMIC). The calling thread should belong to no team, this one or another, and outlive it: unpinned threads may
 * run where it may. */
void thread_pinning_init(struct thread_pinning *p, uint32_t threads);
/* Pin the calling thread, number `thread` of its team, to its processor from now on. */
void thread_pinning_pin(struct thread_pinning *p, size_t thread);
/* Unpin the calling thread: it may run wherever the opener may. */
void thread_pinning_unpin(struct thread_pinning *p);

#endif
