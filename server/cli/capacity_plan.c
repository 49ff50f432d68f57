/* capacity_plan.c - see capacity_plan.h. */
#include "server/cli/capacity_plan.h"

double capacity_curve_at(const struct capacity_curve *c, uint32_t count)
{
    uint32_t i = 1;
    if (count <= c->count[0] || c->points == 1)
        return c->seconds[0];
    while (i + 1 < c->points && count > c->count[i])
        i++;
    const double slope = (c->seconds[i] - c->seconds[i - 1]) / (double)(c->count[i] - c->count[i - 1]);
    return c->seconds[i - 1] + slope * ((double)count - (double)c->count[i - 1]);
}
