/* pass_choice.h - of two ways to do a pass, which is the faster here? Only trying can tell, so the other way is tried
 * now and then.
 * - A pass of few rows, whose products all threads share, by one of them: it has microseconds of work between two
 *   barriers. All are faster where each has a processor for itself; beside another busy thread, of HTTP or of another
 *   process, they wait at every barrier, and a pass takes several times as long as by one thread alone.
 * - A pass of many streams without fetching their states during the products: with it a pass takes 1.15 times as long,
 *   or as much less, depending on the processor's caches.
 * Engine thread only; a value, zeroed at first. What is computed does not depend on it. */
#ifndef ENGINE_CORE_PASS_CHOICE_H
#define ENGINE_CORE_PASS_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

struct pass_choice {
    bool is_other, tries; /* what is usual; whether the opposite is being tried */
    uint32_t passes;      /* of this trial, or since the last one */
    uint64_t spent_ns;    /* on those passes */
    uint64_t rest_ns;     /* to be spent between two trials */
    double usual_ns;      /* of a pass, as a recent mean */
};

/* Shall the next pass be done the other way? */
bool pass_choice_is_other(const struct pass_choice *c);
/* Report how long the pass took, done the way that pass_choice_is_other said. */
void pass_choice_tell(struct pass_choice *c, bool is_other, uint64_t ns);

#endif
