/* load_tally.c - see load.h: outcomes become counts. Nothing here grows with the number of requests. */
#include <string.h>

#include "server/cli/load.h"

/* The row that counts such failures; the last one takes those that no row is left for. */
static struct load_failure *failure_row(struct load_tally *t, const char *what)
{
    for (size_t i = 0; i < t->failure_count; i++)
        if (strcmp(t->failures[i].what, what) == 0)
            return &t->failures[i];
    if (t->failure_count == LOAD_FAILURES_MAX)
        return &t->failures[LOAD_FAILURES_MAX - 1];
    struct load_failure *row = &t->failures[t->failure_count++];
    (void)snprintf(row->what, sizeof row->what, "%s", t->failure_count == LOAD_FAILURES_MAX ? "other" : what);
    return row;
}

static void add_failure(struct load_tally *t, const struct load_outcome *outcome)
{
    struct load_failure *row = failure_row(t, outcome->fault);
    if (row->count++ == 0)
        (void)snprintf(row->detail, sizeof row->detail, "%s", outcome->detail);
    t->failed++;
}

static bool meets_goals(const struct load_options *o, const struct load_outcome *outcome)
{
    return outcome->first_s - outcome->due_s <= o->slo_ttfb_s && outcome->end_s - outcome->due_s <= o->slo_e2e_s &&
           outcome->longest_gap_s <= o->slo_gap_s;
}

void load_tally_add(struct load_tally *t, const struct load_options *o, const struct load_outcome *outcome)
{
    const bool good = outcome->fault == NULL && meets_goals(o, outcome);
    if (outcome->in_window && outcome->fault == NULL)
        t->window_answered++;
    if (outcome->in_window && good)
        t->window_good++;
    if (!outcome->measured)
        return;
    t->bytes += outcome->bytes;
    if (outcome->fault != NULL) {
        add_failure(t, outcome);
        return;
    }
    t->answered++;
    t->good += good ? 1 : 0;
    load_histogram_add_s(&t->times[LOAD_TTFB], outcome->first_s - outcome->due_s, 1);
    load_histogram_add_s(&t->times[LOAD_E2E], outcome->end_s - outcome->due_s, 1);
}
