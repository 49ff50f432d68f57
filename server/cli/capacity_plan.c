/* capacity_plan.c - see capacity_plan.h. */
#include "server/cli/capacity_plan.h"

#include <math.h>

uint32_t capacity_curve_end(const struct capacity_curve *c)
{
    return c->count[c->points - 1];
}

#define COOLS_S 0.003 /* until half of it is lost; measured */

double capacity_lost_share(double idle_s)
{
    return idle_s / (idle_s + COOLS_S);
}

double capacity_curve_at(const struct capacity_curve *c, uint32_t count)
{
    uint32_t i = 1;
    if (count <= c->count[0] || c->points == 1)
        return c->value[0];
    while (i + 1 < c->points && count > c->count[i])
        i++;
    const double slope = (c->value[i] - c->value[i - 1]) / (double)(c->count[i] - c->count[i - 1]);
    return c->value[i - 1] + slope * ((double)count - (double)c->count[i - 1]);
}

double capacity_slowness_at(const struct capacity_slowness *s, double from, double at_s)
{
    if (s->windows == 0)
        return 1.0;
    const double window = fmod(at_s / s->window_s + from * s->windows, s->windows);
    return (double)s->times[(uint32_t)window % s->windows]; /* a product's rounding may lead to the end */
}

uint32_t capacity_slots(const struct capacity_plan *p)
{
    return p->costs.generates ? p->streams_max : p->batch_max;
}

struct capacity_kind capacity_mean_kind(const struct capacity_plan *p)
{
    double prompt = 0.0, tokens = 0.0, weight = 0.0;
    for (uint32_t i = 0; i < p->kind_count; i++) {
        prompt += p->kinds[i].weight * p->kinds[i].prompt_bytes;
        tokens += p->kinds[i].weight * p->kinds[i].max_tokens;
        weight += p->kinds[i].weight;
    }
    return (struct capacity_kind){(uint32_t)ceil(prompt / weight), (uint32_t)ceil(tokens / weight), weight};
}
