/* team_choice.h - is a pass faster on one thread or on all? A pass of one row, which is a single stream's, has
 * microseconds of work between two barriers. All threads are faster where each has a processor for itself; beside
 * another busy process, which takes one of them for a while, they wait at every barrier, and a pass takes several times
 * as long as by one thread alone. Only trying can tell, so the other way is tried now and then.
 * Engine thread only; a value, zeroed at first. What is computed does not depend on it. */
#ifndef ENGINE_CORE_TEAM_CHOICE_H
#define ENGINE_CORE_TEAM_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

struct team_choice {
    bool is_alone, tries; /* what is usual; whether the other is being tried */
    uint32_t passes;      /* of this trial, or since the last one */
    uint64_t spent_ns;    /* on those passes */
    uint64_t rest_ns;     /* to be spent between two trials */
    double usual_ns;      /* of a pass, as a recent mean */
};

/* Shall one thread do the next pass? */
bool team_choice_is_alone(const struct team_choice *c);
/* Report how long the pass took, done the way that team_choice_is_alone said. */
void team_choice_tell(struct team_choice *c, bool is_alone, uint64_t ns);

#endif
