/* team_places.h - where a team has as many threads as there are processors, each keeps to one of its own.
 *
 * A scheduler that wakes a thread of the team while another process has its processor for some microseconds may put it
 * behind its sister, and take milliseconds to part them: one processor idles meanwhile, and all wait at the next
 * barrier. That costs streams through HTTP 1 to 2 %, and is most of their longest gaps.
 *
 * Threads are kept by affinity (sched_setaffinity), which those that they create inherit: libgomp ends threads that a
 * smaller team leaves over and makes new ones later, so each asks again at the start of whatever it does in a team. */
#ifndef ENGINE_TEAM_PLACES_H
#define ENGINE_TEAM_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"

struct team_places {
    uint32_t count; /* 0: nobody keeps to a place */
    uint16_t processors[ENGINE_THREADS_MAX];
};

/* Places for a team of `threads` among the processors that the calling thread may run on; none if they are not as many,
 * or if the user has said where threads are to be (OMP_PROC_BIND). */
void team_places_init(struct team_places *p, uint32_t threads);
/* The calling thread, of that number in its team, keeps to its place from now on. Costs a comparison if it already
 * does. Where the kernel does not allow it, it goes on as it was. */
void team_places_keep(const struct team_places *p, size_t thread);
/* The calling thread may run on all of the places again: for what one thread does alone, or nearly, and what another
 * process that keeps to the same places should not be waited for. */
void team_places_leave(const struct team_places *p);

#endif
