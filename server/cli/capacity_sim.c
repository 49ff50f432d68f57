/* capacity_sim.c - see capacity_sim.h. The simulation goes from one event to the next: a request comes, or some work on
 * a machine is done. A tenth of the requests comes before anything is counted. */
#include "server/cli/capacity_sim.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "server/cli/capacity_lane.h"
#include "server/cli/capacity_machine.h"
#include "server/cli/load.h"

#define KINDS_SEED 0x6b696e64 /* kinds are drawn by another seed than the times between requests */

struct request {
    double due_s;
    uint32_t replica;
    uint8_t kind;
    bool begun;  /* its first byte was seen */
    bool unsent; /* bytes of it wait for a thread of the daemon, which will take all there are */
};

/* What machines have done until some moment. */
struct done {
    double at_s, engine_s, core_s;
};

struct sim {
    const struct capacity_plan *plan;
    uint32_t replicas, machine_count, turn;
    struct capacity_machine *machines;
    struct capacity_lane *lanes;
    struct request *requests;
    double now_s, arrival_s;
    struct done opened, closed; /* the window */
    uint64_t sent, answered, refused, in_window;
    bool no_memory;
    struct load_histogram first, whole;
};

static struct capacity_machine *machine_of(struct sim *s, uint32_t replica)
{
    return &s->machines[replica / s->plan->per_machine];
}

/* Cores were seen to be slow independently of each other: engines of a machine play what was measured from places
 * evenly apart, and those of other machines from places between these. */
static double slowness_of(const struct sim *s, const struct capacity_machine *m, uint32_t place)
{
    const double golden = 0.6180339887498949;
    const uint32_t machine = m->first / s->plan->per_machine;
    const double from = (place + fmod(golden * machine, 1.0)) / s->plan->per_machine;
    return capacity_slowness_at(&s->plan->costs.slowness, from, s->now_s);
}

static void begin_pass(struct sim *s, struct capacity_machine *m, uint32_t place)
{
    struct capacity_worker *w = &m->workers[place];
    if (w->left >= 0.0)
        return;
    const struct capacity_pass pass = capacity_lane_begin(&s->lanes[m->first + place], s->plan, s->now_s);
    if (pass.seconds > 0.0)
        w->left = pass.seconds * slowness_of(s, m, place);
    w->crowding = pass.crowding;
}

static void add(struct sim *s, struct capacity_machine *m, uint32_t worker, double seconds, uint32_t request,
                enum capacity_step step)
{
    const struct capacity_work work = {.seconds = seconds, .request = request, .step = step};
    if (!capacity_machine_add(m, worker, work))
        s->no_memory = true;
}

/* ---- the window -------------------------------------------------------------------------------------------------- */

static uint64_t uncounted(const struct sim *s)
{
    return s->plan->requests / 10;
}

static struct done done_so_far(struct sim *s)
{
    struct done d = {.at_s = s->now_s};
    for (uint32_t i = 0; i < s->machine_count; i++) {
        struct capacity_machine *m = &s->machines[i];
        capacity_machine_settle(m, s->now_s);
        d.core_s += m->core_s;
        for (uint32_t j = 0; j < m->replicas; j++)
            d.engine_s += m->workers[j].busy_s;
    }
    return d;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static uint32_t least_connections(struct sim *s)
{
    uint32_t best = s->turn;
    for (uint32_t i = 1; i < s->replicas; i++) {
        const uint32_t other = (s->turn + i) % s->replicas;
        if (s->lanes[other].in_flight < s->lanes[best].in_flight)
            best = other;
    }
    s->turn = (best + 1) % s->replicas;
    return best;
}

/* By weight, from a number of its own for each request. */
static uint8_t kind_of(const struct capacity_plan *p, uint64_t request)
{
    double sum = 0.0;
    uint8_t kind = 0;
    for (uint32_t i = 0; i < p->kind_count; i++)
        sum += p->kinds[i].weight;
    double at = sum * exp(-load_arrival_gap_s(p->seed ^ KINDS_SEED, request, 1.0)); /* of an even number in (0, 1] */
    while (kind + 1u < p->kind_count && at > p->kinds[kind].weight)
        at -= p->kinds[kind++].weight;
    return kind;
}

static void send_request(struct sim *s)
{
    const uint32_t id = (uint32_t)s->sent, replica = least_connections(s);
    struct capacity_machine *m = machine_of(s, replica);
    if (s->sent == uncounted(s))
        s->opened = done_so_far(s);
    s->requests[id] = (struct request){.due_s = s->now_s, .replica = replica, .kind = kind_of(s->plan, s->sent)};
    s->lanes[replica].in_flight++;
    capacity_machine_settle(m, s->now_s);
    add(s, m, capacity_machine_others(m, id), 0.5 * s->plan->costs.beside_s, id, CAPACITY_TO_DAEMON);
    capacity_machine_pace(m, CAPACITY_NOBODY);
    if (++s->sent == s->plan->requests)
        s->closed = done_so_far(s);
    if (s->plan->rate > 0.0)
        s->arrival_s += load_arrival_gap_s(s->plan->seed, s->sent, s->plan->rate);
}

/* A request is over; a client that waited for it sends the next. */
static void leave(struct sim *s, uint32_t request)
{
    s->lanes[s->requests[request].replica].in_flight--;
    if (s->plan->rate <= 0.0 && s->sent < s->plan->requests)
        send_request(s);
}

static void see_first(struct sim *s, uint32_t request)
{
    struct request *r = &s->requests[request];
    if (!r->begun && request >= uncounted(s))
        load_histogram_add_s(&s->first, s->now_s - r->due_s, 1);
    r->begun = true;
}

static void answer(struct sim *s, uint32_t request)
{
    see_first(s, request);
    s->answered++;
    s->in_window += s->sent > uncounted(s) && s->sent < s->plan->requests;
    if (request >= uncounted(s))
        load_histogram_add_s(&s->whole, s->now_s - s->requests[request].due_s, 1);
    leave(s, request);
}

/* ---- work that is done ------------------------------------------------------------------------------------------- */

static void tell(void *arg, uint32_t request, enum capacity_news news)
{
    static const enum capacity_step steps[] = {[CAPACITY_EVENT] = CAPACITY_EVENT_OUT,
                                               [CAPACITY_FIRST] = CAPACITY_FIRST_OUT,
                                               [CAPACITY_LAST] = CAPACITY_LAST_OUT};
    struct sim *s = arg;
    const struct capacity_costs *c = &s->plan->costs;
    struct request *r = &s->requests[request];
    struct capacity_machine *m = machine_of(s, r->replica);
    if (r->unsent && news == CAPACITY_EVENT)
        return;
    r->unsent = true;
    const uint32_t outside = capacity_machine_outside(m, r->replica - m->first, request);
    if (capacity_machine_sleeps(m, outside)) /* on a core that works it takes two thirds of that: left out */
        s->lanes[r->replica].owed_s += c->waker_s;
    add(s, m, outside, news == CAPACITY_LAST ? 0.5 * c->request_s : c->event_s, request, steps[news]);
}

static void enter_queue(struct sim *s, struct capacity_machine *m, uint32_t place, uint32_t request)
{
    if (capacity_lane_push(&s->lanes[m->first + place], s->plan, request, s->requests[request].kind)) {
        begin_pass(s, m, place);
    } else {
        s->refused++;
        leave(s, request);
    }
}

/* Something outside of an engine is done. */
static void go_on(struct sim *s, struct capacity_machine *m, const struct capacity_work *w)
{
    const struct capacity_costs *c = &s->plan->costs;
    const uint32_t request = w->request, place = s->requests[request].replica - m->first;
    const uint32_t others = capacity_machine_others(m, request);
    switch (w->step) {
    case CAPACITY_TO_DAEMON:
        add(s, m, capacity_machine_outside(m, place, request), 0.5 * c->request_s, request, CAPACITY_TO_QUEUE);
        break;
    case CAPACITY_TO_QUEUE:
        enter_queue(s, m, place, request);
        break;
    case CAPACITY_EVENT_OUT:
        s->requests[request].unsent = false;
        add(s, m, others, c->beside_event_s, request, CAPACITY_EVENT_SEEN);
        break;
    case CAPACITY_FIRST_OUT:
        s->requests[request].unsent = false;
        add(s, m, others, c->beside_event_s, request, CAPACITY_FIRST_SEEN);
        break;
    case CAPACITY_LAST_OUT:
        add(s, m, others, 0.5 * c->beside_s, request, CAPACITY_LAST_SEEN);
        break;
    case CAPACITY_FIRST_SEEN:
        see_first(s, request);
        break;
    case CAPACITY_LAST_SEEN:
        answer(s, request);
        break;
    case CAPACITY_EVENT_SEEN:
        break;
    }
}

static void end_work(struct sim *s, struct capacity_machine *m)
{
    const uint32_t worker = m->next;
    capacity_machine_settle(m, s->now_s);
    if (worker < m->replicas) {
        m->workers[worker].left = -1.0;
        capacity_lane_end(&s->lanes[m->first + worker], s->plan, s->now_s, tell, s);
        begin_pass(s, m, worker);
    } else if (worker != CAPACITY_NOBODY) {
        const struct capacity_work done = capacity_machine_take(m);
        go_on(s, m, &done);
    }
    capacity_machine_pace(m, worker);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static struct capacity_times times_of(const struct load_histogram *h)
{
    return (struct capacity_times){.mean = 1e-9 * load_histogram_mean_ns(h),
                                   .p50 = 1e-9 * load_histogram_quantile_ns(h, 0.5),
                                   .p99 = 1e-9 * load_histogram_quantile_ns(h, 0.99)};
}

/* That engines had their cores. */
static double pass_seconds(const struct sim *s)
{
    double seconds = 0.0;
    for (uint32_t i = 0; i < s->machine_count; i++)
        for (uint32_t j = 0; j < s->machines[i].replicas; j++)
            seconds += s->machines[i].workers[j].core_s;
    return seconds;
}

static uint64_t count_passes(const struct sim *s, uint64_t *in_passes)
{
    uint64_t passes = 0;
    *in_passes = 0;
    for (uint32_t i = 0; i < s->replicas; i++) {
        passes += s->lanes[i].passes;
        *in_passes += s->lanes[i].in_passes;
    }
    return passes;
}

static struct capacity_row row_of(const struct sim *s)
{
    const double window_s = s->closed.at_s - s->opened.at_s;
    const double seconds = window_s > 0.0 ? window_s : INFINITY; /* all were refused at once */
    uint64_t in_passes;
    const uint64_t passes = count_passes(s, &in_passes);
    const double engines_s = pass_seconds(s);
    return (struct capacity_row){
        .replicas = s->replicas,
        .answered = s->answered,
        .refused = s->refused,
        .per_second = (double)s->in_window / seconds,
        .engine_share = (s->closed.engine_s - s->opened.engine_s) / seconds / s->replicas,
        .core_share = (s->closed.core_s - s->opened.core_s) / seconds / s->machine_count / s->plan->cores,
        .request_s = s->answered > 0 ? engines_s / (double)s->answered : 0.0,
        .pass_s = passes > 0 ? engines_s / (double)passes : 0.0,
        .pass_size = passes > 0 ? (double)in_passes / (double)passes : 0.0,
        .first = times_of(&s->first),
        .whole = times_of(&s->whole),
    };
}

static bool init(struct sim *s)
{
    const uint32_t each = s->plan->per_machine;
    s->machine_count = (s->replicas + each - 1) / each;
    s->machines = calloc(s->machine_count, sizeof *s->machines);
    s->lanes = calloc(s->replicas, sizeof *s->lanes);
    s->requests = calloc(s->plan->requests, sizeof *s->requests);
    bool is_fine = s->machines != NULL && s->lanes != NULL && s->requests != NULL;
    for (uint32_t i = 0; i < s->machine_count && is_fine; i++) {
        const uint32_t first = i * each, left = s->replicas - first;
        is_fine = capacity_machine_init(&s->machines[i], s->plan, first, left < each ? left : each);
    }
    for (uint32_t i = 0; i < s->replicas && is_fine; i++)
        is_fine = capacity_lane_init(&s->lanes[i], s->plan);
    return is_fine;
}

static void clear(struct sim *s)
{
    for (uint32_t i = 0; s->machines != NULL && i < s->machine_count; i++)
        capacity_machine_clear(&s->machines[i]);
    for (uint32_t i = 0; s->lanes != NULL && i < s->replicas; i++)
        capacity_lane_clear(&s->lanes[i]);
    free(s->requests);
    free(s->lanes);
    free(s->machines);
}

static void run(struct sim *s)
{
    const bool open = s->plan->rate > 0.0;
    s->arrival_s = open ? load_arrival_gap_s(s->plan->seed, 0, s->plan->rate) : INFINITY;
    for (uint32_t i = 0; !open && i < s->plan->clients && s->sent < s->plan->requests; i++)
        send_request(s);
    while (!s->no_memory && s->answered + s->refused < s->plan->requests) {
        struct capacity_machine *m = &s->machines[0];
        for (uint32_t i = 1; i < s->machine_count; i++)
            m = s->machines[i].next_s < m->next_s ? &s->machines[i] : m;
        if (open && s->sent < s->plan->requests && s->arrival_s <= m->next_s) {
            s->now_s = s->arrival_s;
            send_request(s);
        } else {
            assert(isfinite(m->next_s)); /* what was sent is somewhere */
            s->now_s = m->next_s;
            end_work(s, m);
        }
    }
}

bool capacity_simulate(struct capacity_row *ret, const struct capacity_plan *p, uint32_t replicas)
{
    struct sim *s = calloc(1, sizeof *s); /* histograms: too large for the stack */
    bool is_fine = false;
    if (s == NULL)
        return false;
    s->plan = p;
    s->replicas = replicas;
    is_fine = init(s);
    if (is_fine)
        run(s);
    is_fine = is_fine && !s->no_memory;
    if (is_fine)
        *ret = row_of(s);
    clear(s);
    free(s);
    return is_fine;
}
