/* pass_choice.c - see pass_choice.h. A trial's first pass does not count: it wakes threads that were asleep. Trials
 * become rarer while they change nothing. */
#include "engine/core/pass_choice.h"

#include <assert.h>

#define MS UINT64_C(1000000)
#define TRIAL_NS (4 * MS)       /* about a time slice of another process: a shorter trial would miss it */
#define REST_FIRST_NS (50 * MS) /* before the first trial */
#define REST_LEAST 12           /* times a trial: one of what takes 1.5 times as long costs 4 % of that */
#define REST_MOST 200           /* and a quarter of a percent of this */
#define BETTER 0.95             /* of the usual time: a smaller gain is not worth a change */

enum {
    TRIAL_PASSES_MIN = 5,
    LATELY = 32, /* passes over which the usual time is a mean */
};

bool pass_choice_is_other(const struct pass_choice *c)
{
    return c->is_other != c->tries;
}

static void begin(struct pass_choice *c, bool tries)
{
    c->tries = tries;
    c->passes = 0;
    c->spent_ns = 0;
}

static void try_other(struct pass_choice *c, uint64_t ns)
{
    if (c->passes++ == 0)
        return;
    c->spent_ns += ns;
    if (c->passes <= TRIAL_PASSES_MIN || c->spent_ns < TRIAL_NS)
        return;
    const double tried_ns = (double)c->spent_ns / (c->passes - 1);
    const uint64_t least = REST_LEAST * c->spent_ns, most = REST_MOST * c->spent_ns;
    c->rest_ns = 2 * c->rest_ns < least ? least : 2 * c->rest_ns < most ? 2 * c->rest_ns : most;
    if (tried_ns < BETTER * c->usual_ns) {
        c->is_other = !c->is_other;
        c->usual_ns = tried_ns;
        c->rest_ns = least;
    }
    begin(c, false);
}

void pass_choice_tell(struct pass_choice *c, bool is_other, uint64_t ns)
{
    assert(is_other == pass_choice_is_other(c));
    if (c->tries) {
        try_other(c, ns);
        return;
    }
    c->rest_ns = c->rest_ns > 0 ? c->rest_ns : REST_FIRST_NS;
    c->usual_ns += ((double)ns - c->usual_ns) / (c->usual_ns > 0.0 ? LATELY : 1);
    c->passes++;
    c->spent_ns += ns;
    if (c->spent_ns >= c->rest_ns && c->passes >= TRIAL_PASSES_MIN)
        begin(c, true);
}
