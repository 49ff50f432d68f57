/* capacity.c - aft capacity: how many replicas, on how many cores, answer so many requests a second in time. It
 * measures what the model costs here, and simulates as many replicas as it takes (capacity_sim.h). Single threaded, but
 * for engines that are measured beside each other. */
#include "server/cli/capacity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"

#define REQUEST_US 150 /* of a daemon's cores, for a request outside of its engine: tests/bench/capacity.py finds it */
#define EVENT_US 40    /* the same for an event of a stream */
#define PASS_US 10     /* of the engine's thread, between two passes, as it looks for work */
#define WATCH_S 20
#define ALONE_REQUESTS 200
#define MOST_REQUESTS 4000
#define USUAL_REQUESTS 20000
#define ROUNDS 20 /* answers of each client, or lengths of the longest that an answer may take, that are simulated */

/* What the command line says. */
struct arguments {
    struct cli_engine with;
    double rate, p99_ms, watch_s, request_us, event_us, pass_us, beside_us, beside_event_us;
    uint64_t concurrency, replicas, replicas_max, cores, per_machine, prompt_bytes, max_tokens, requests, seed;
    uint64_t streams_max, pass_rows_max, batch_images_max, queue_jobs_max;
    const char *mix, *costs;
    bool whole, json;
};

/* ---- the mix ----------------------------------------------------------------------------------------------------- */

/* "PROMPT:TOKENS" or "PROMPT:TOKENS:WEIGHT", up to a comma or the end. */
static bool read_kind(struct capacity_kind *ret, const char **at)
{
    uint64_t prompt = 0, tokens = 0;
    char *end = NULL;
    if (!cli_read_digits(&prompt, at) || *(*at)++ != ':' || !cli_read_digits(&tokens, at) || prompt < 1 ||
        prompt > GENERATE_PROMPT_MAX || tokens < 1 || tokens > GENERATE_TOKENS_MAX)
        return false;
    *ret = (struct capacity_kind){(uint32_t)prompt, (uint32_t)tokens, 1.0};
    if (**at == ':') {
        ++*at;
        if (**at < '0' || **at > '9')
            return false;
        ret->weight = strtod(*at, &end);
        *at = end;
    }
    return ret->weight > 0.0 && ret->weight <= 1e6 && (**at == ',' || **at == '\0');
}

static int read_mix(struct capacity_plan *p, const struct arguments *a)
{
    const char *at = a->mix;
    p->kinds[0] = (struct capacity_kind){(uint32_t)a->prompt_bytes, (uint32_t)a->max_tokens, 1.0};
    p->kind_count = 1;
    if (at == NULL)
        return CLI_OK;
    for (p->kind_count = 0; p->kind_count < CAPACITY_KINDS_MAX;) {
        if (!read_kind(&p->kinds[p->kind_count++], &at))
            return cli_fail_usage("--mix is \"%s\", expected PROMPT:TOKENS or PROMPT:TOKENS:WEIGHT for each kind of "
                                  "request, separated by commas, as in 100:50:3,1000:20:1: prompts and tokens from 1 "
                                  "to %d and %d, weights above 0 and up to 1e6",
                                  a->mix, GENERATE_PROMPT_MAX, GENERATE_TOKENS_MAX);
        if (*at++ == '\0')
            return CLI_OK;
    }
    return cli_fail_usage("--mix has more than %d kinds of requests", CAPACITY_KINDS_MAX);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static int check(const struct arguments *a, int count)
{
    if ((count > 0) == (a->costs != NULL))
        return cli_fail_usage("expected exactly one of MODEL and --costs FILE");
    if ((a->rate > 0.0) == (a->concurrency > 0))
        return cli_fail_usage("expected exactly one of --rate and --concurrency");
    if (a->p99_ms <= 0.0 && a->replicas == 0)
        return cli_fail_usage("expected a goal, --p99 MS, or --replicas N to see what these do");
    if (a->costs != NULL && (a->with.threads != 0 || a->with.precision != NULL))
        return cli_fail_usage("--%s is for measuring, and --costs has what was measured",
                              a->with.precision != NULL ? "precision" : "threads");
    if (a->requests > 0 && a->requests < a->concurrency)
        return cli_fail_usage("--requests is %" PRIu64 ", expected at least one for each of the %" PRIu64 " clients of "
                              "--concurrency",
                              a->requests, a->concurrency);
    return CLI_OK;
}

static int make_plan(struct capacity_plan *p, const struct arguments *a)
{
    struct engine_info here = {.threads = 0};
    struct error err;
    if (engine_describe(&here, &(struct engine_options){.threads = 0}, &err) != OK)
        return cli_fail_error(&err);
    *p = (struct capacity_plan){
        .rate = a->rate,
        .clients = (uint32_t)a->concurrency,
        .whole = a->whole,
        .seed = a->seed,
        .cores = (uint32_t)(a->cores > 0 ? a->cores : here.threads),
        .per_machine = (uint32_t)a->per_machine,
        .streams_max = (uint32_t)a->streams_max,
        .pass_rows_max = (uint32_t)a->pass_rows_max,
        .batch_max = (uint32_t)a->batch_images_max,
        .queue_max = (uint32_t)a->queue_jobs_max,
    };
    const uint32_t rows = p->streams_max + p->pass_rows_max;
    p->rows_max = rows > ENGINE_PROMPT_ROWS ? rows : ENGINE_PROMPT_ROWS; /* as hosted_model.c has it */
    p->threads = (uint32_t)(a->with.threads > 0 ? a->with.threads : p->cores / p->per_machine);
    p->threads = p->threads > 0 ? p->threads : 1;
    if (a->costs == NULL && p->threads > here.threads)
        return cli_fail_usage("engines of %u threads cannot be measured on this machine, which has %u processor%s; "
                              "expected fewer --threads or --cores, or --costs of a machine of that kind",
                              p->threads, here.threads, here.threads == 1 ? "" : "s");
    if (a->costs == NULL && p->threads > p->cores)
        return cli_fail_usage("an engine of %u threads does not fit on a machine of --cores %u", p->threads, p->cores);
    return read_mix(p, a);
}

/* Costs of a file are good for what was measured. */
static int check_costs(const struct capacity_plan *p)
{
    const struct capacity_costs *c = &p->costs;
    const uint32_t most = capacity_curve_end(c->generates ? &c->step : &c->batch);
    if (capacity_slots(p) > most)
        return cli_fail_usage("--%s is %u, and the costs were measured for at most %u",
                              c->generates ? "streams-max" : "batch-images-max", capacity_slots(p), most);
    if (p->per_machine > c->per_machine)
        return cli_fail_usage("--per-machine is %u, and the costs were measured for %u on a machine", p->per_machine,
                              c->per_machine);
    if (p->threads > p->cores)
        return cli_fail_usage("an engine of %u threads does not fit on a machine of --cores %u", p->threads, p->cores);
    return CLI_OK;
}

static int find_costs(struct capacity_plan *p, struct capacity_whose *w, const struct arguments *a, const char *name)
{
    int code;
    if (a->costs != NULL) {
        code = capacity_record_read(&p->costs, w, a->costs);
        p->threads = w->threads;
    } else {
        struct cli_engine with = a->with;
        struct model *m = cli_load_model(name, NULL);
        with.threads = p->threads;
        code = m != NULL ? capacity_measure(p, w, m, &with, a->watch_s) : CLI_FAILED;
        model_free(m);
    }
    p->costs.pass_s = 1e-6 * a->pass_us;
    p->costs.request_s = 1e-6 * a->request_us;
    p->costs.event_s = 1e-6 * a->event_us;
    p->costs.beside_s = 1e-6 * a->beside_us;
    p->costs.beside_event_s = 1e-6 * a->beside_event_us;
    return code == CLI_OK && a->costs != NULL ? check_costs(p) : code;
}

/* ---- how many ---------------------------------------------------------------------------------------------------- */

/* The row of so many replicas, simulated unless it is there; NULL: no room or no memory. */
static const struct capacity_row *row_of(struct capacity_report *r, uint32_t replicas)
{
    uint32_t at = 0;
    while (at < r->count && r->rows[at].replicas < replicas)
        at++;
    if (at < r->count && r->rows[at].replicas == replicas)
        return &r->rows[at];
    if (r->count == CAPACITY_ROWS_MAX)
        return NULL;
    memmove(&r->rows[at + 1], &r->rows[at], (r->count - at) * sizeof r->rows[0]);
    if (!capacity_simulate(&r->rows[at], r->plan, replicas))
        return NULL;
    r->count++;
    return &r->rows[at];
}

/* What one request at a time takes, and what one machine does at most. */
static bool find_bounds(struct capacity_report *r)
{
    struct capacity_plan p = *r->plan;
    struct capacity_row row;
    const uint32_t slots = capacity_slots(&p);
    p.rate = 0.0;
    p.clients = 1;
    p.requests = ALONE_REQUESTS;
    if (!capacity_simulate(&row, &p, 1))
        return false;
    r->alone_s = row.whole.p50;
    r->alone_p99_s = row.whole.p99;
    p.clients = 2 * slots * p.per_machine;
    p.queue_max = p.clients; /* nobody is refused and comes again at once */
    p.requests = MOST_REQUESTS > ROUNDS * (uint64_t)p.clients ? MOST_REQUESTS : ROUNDS * (uint64_t)p.clients;
    if (!capacity_simulate(&row, &p, p.per_machine))
        return false;
    r->most = row.per_second;
    return true;
}

/* From the fewest that the rate leaves possible, as many as fill machines (replicas of one that is not full have more
 * cores each): a few one by one, then in growing steps, and back by halves. */
static int search(struct capacity_report *r, uint32_t most)
{
    const double machines = r->plan->rate / r->most;
    const double full = floor(machines) * r->plan->per_machine, first = full > 1.0 ? full : 1.0;
    if (first > most)
        return cli_fail("%g requests a second take at least %.0f replicas, and --replicas-max is %u", r->plan->rate,
                        first, most);
    uint32_t below = (uint32_t)first - 1, step = 1, at = below + 1;
    const struct capacity_row *row;
    while ((row = row_of(r, at)) != NULL && !capacity_holds(r, row) && at < most) {
        below = at;
        step = r->count > 4 ? 2 * step : 1;
        at = most - at < step ? most : at + step;
    }
    while (row != NULL && capacity_holds(r, row) && at - below > 1) {
        const uint32_t middle = below + (at - below) / 2;
        const struct capacity_row *tried = row_of(r, middle);
        if (tried == NULL)
            return cli_fail("out of memory");
        if (capacity_holds(r, tried))
            at = middle;
        else
            below = middle;
        row = row_of(r, at);
    }
    if (row == NULL)
        return cli_fail("out of memory");
    r->needed = capacity_holds(r, row) ? at : 0;
    if (r->needed > 0 && at < most && row_of(r, at + 1) == NULL) /* what one more would give */
        return cli_fail("out of memory");
    return CLI_OK;
}

/* So many that an overload is seen: queues that grow for twenty times as long as an answer may take. */
static int find_requests(struct capacity_plan *p, const struct capacity_report *r, const struct arguments *a)
{
    const double goal_s = isinf(r->p99_s) ? r->alone_p99_s : r->p99_s;
    const double needed = ceil(ROUNDS * fmax(a->rate * goal_s, (double)a->concurrency));
    if (a->requests == 0 && needed > CAPACITY_REQUESTS_MAX)
        return cli_fail("%g requests would have to be simulated to see whether queues grow, and at most %d can be; "
                        "expected a lower --rate or a shorter --p99, or --requests N all the same",
                        needed, CAPACITY_REQUESTS_MAX);
    p->requests = a->requests > 0 ? a->requests : needed > USUAL_REQUESTS ? (uint64_t)needed : USUAL_REQUESTS;
    return CLI_OK;
}

static int run(struct capacity_plan *p, struct capacity_report *r, const struct arguments *a)
{
    int code = CLI_OK;
    if (!find_bounds(r))
        return cli_fail("out of memory");
    if (a->replicas == 0 && r->alone_p99_s > r->p99_s)
        return cli_fail("one of 100 requests takes %.3g ms where there is no other, more than --p99 %g: more replicas "
                        "do not help; expected a longer time, fewer tokens, or a faster machine",
                        1e3 * r->alone_p99_s, a->p99_ms);
    code = find_requests(p, r, a);
    if (code != CLI_OK)
        return code;
    if (a->replicas == 0) {
        code = search(r, (uint32_t)a->replicas_max);
    } else {
        const struct capacity_row *row = row_of(r, (uint32_t)a->replicas);
        if (row == NULL)
            return cli_fail("out of memory");
        r->needed = !isinf(r->p99_s) && capacity_holds(r, row) ? row->replicas : 0;
    }
    return code == CLI_OK ? capacity_tell_all(r) : code;
}

static int parse(struct arguments *a, int argc, char **argv, int *count)
{
    const double us = CAPACITY_US_MAX;
    const struct cli_option options[] = {
        {"rate", CLI_NUMBER, &a->rate, LOAD_RATE_MIN, 1e7, "X", NULL, "X requests per second at random times"},
        {"concurrency", CLI_UNSIGNED, &a->concurrency, 1, 1e6, "N", NULL,
         "instead of --rate: clients that each wait for an answer"},
        {"p99", CLI_NUMBER, &a->p99_ms, 1e-3, 1e3 * LOAD_DURATION_MAX_S, "MS", NULL,
         "goal: 99 of 100 whole answers within MS, none refused"},
        {"prompt-bytes", CLI_UNSIGNED, &a->prompt_bytes, 1, GENERATE_PROMPT_MAX, "N", "100", "how long a prompt is"},
        {"max-tokens", CLI_UNSIGNED, &a->max_tokens, 1, GENERATE_TOKENS_MAX, "N", "256",
         "how many bytes are generated"},
        {"mix", CLI_TEXT, &a->mix, 0, 0, "KINDS", NULL,
         "requests of several kinds instead, as PROMPT:TOKENS[:WEIGHT],..."},
        {"no-stream", CLI_FLAG, &a->whole, 0, 0, NULL, NULL, "the whole text in one answer"},
        {"replicas", CLI_UNSIGNED, &a->replicas, 1, CAPACITY_REPLICAS_MAX, "N", "as many as it takes",
         "simulate N replicas alone"},
        {"replicas-max", CLI_UNSIGNED, &a->replicas_max, 1, CAPACITY_REPLICAS_MAX, "N", "1024",
         "give up beyond N replicas"},
        {"cores", CLI_UNSIGNED, &a->cores, 1, CAPACITY_CORES_MAX, "N", "this machine's", "cores of a machine"},
        {"per-machine", CLI_UNSIGNED, &a->per_machine, 1, CAPACITY_REPLICAS_MAX, "N", "1",
         "replicas that share a machine's cores"},
        {"threads", CLI_UNSIGNED, &a->with.threads, 1, ENGINE_THREADS_MAX, "N", "its share of the cores",
         "compute threads of a replica"},
        CLI_PRECISION_OPTION(&a->with, "$AFTD_PRECISION, or auto"){
            "costs", CLI_TEXT, &a->costs, 0, 0, "FILE", NULL,
            "take what the model costs from a line of --json instead of measuring it"},
        {"watch", CLI_NUMBER, &a->watch_s, 0, CAPACITY_WATCH_MAX_S, "SECONDS", "20",
         "how long to watch how much slower this machine is at times"},
        {"request-us", CLI_NUMBER, &a->request_us, 0, us, "X", "150",
         "microseconds of a core that a request takes outside of engines"},
        {"event-us", CLI_NUMBER, &a->event_us, 0, us, "X", "40", "the same for an event of a stream"},
        {"pass-us", CLI_NUMBER, &a->pass_us, 0, us, "X", "10", "microseconds of the engine's thread between passes"},
        {"beside-us", CLI_NUMBER, &a->beside_us, 0, us, "X", "0",
         "microseconds that others on a machine, as a balancer, have for it"},
        {"beside-event-us", CLI_NUMBER, &a->beside_event_us, 0, us, "X", "0", "the same for an event of a stream"},
        {"streams-max", CLI_UNSIGNED, &a->streams_max, 1, ENGINE_STREAMS_MAX, "N", "64", "as aftd's setting"},
        {"pass-rows-max", CLI_UNSIGNED, &a->pass_rows_max, 1, ENGINE_STREAMS_MAX, "N", "16", "as aftd's setting"},
        {"batch-images-max", CLI_UNSIGNED, &a->batch_images_max, 1, ENGINE_IMAGES_MAX, "N", "8", "as aftd's setting"},
        {"queue-jobs-max", CLI_UNSIGNED, &a->queue_jobs_max, 1, 65536, "N", "256", "as aftd's setting"},
        {"requests", CLI_UNSIGNED, &a->requests, CAPACITY_REQUESTS_MIN, CAPACITY_REQUESTS_MAX, "N", "20000 or more",
         "requests to simulate; the first tenth is not counted"},
        {"seed", CLI_UNSIGNED, &a->seed, 0, (double)SEED_MAX, "N", "0",
         "seed of their times, which are those of aft load, and of their kinds"},
        {"json", CLI_FLAG, &a->json, 0, 0, NULL, NULL, "print one JSON object on one line"},
        {0},
    };
    const int code = cli_parse(options, argc, argv, 0, 1, count);
    return code == CLI_OK && *count >= 0 ? check(a, *count) : code;
}

int cli_capacity(int argc, char **argv)
{
    struct settings defaults;
    settings_init(&defaults);
    struct arguments a = {.watch_s = WATCH_S,
                          .request_us = REQUEST_US,
                          .event_us = EVENT_US,
                          .pass_us = PASS_US,
                          .per_machine = 1,
                          .prompt_bytes = 100,
                          .max_tokens = defaults.max_tokens,
                          .replicas_max = CAPACITY_REPLICAS_MAX,
                          .streams_max = defaults.streams_max,
                          .pass_rows_max = defaults.pass_rows_max,
                          .batch_images_max = defaults.batch_images_max,
                          .queue_jobs_max = defaults.queue_jobs_max};
    struct capacity_plan plan = {.threads = 1};
    struct capacity_whose whose = {.threads = 1};
    int count;
    int code = parse(&a, argc, argv, &count);
    if (code != CLI_OK || count < 0)
        return code;
    code = make_plan(&plan, &a);
    if (code == CLI_OK)
        code = find_costs(&plan, &whose, &a, argv[1]);
    struct capacity_report r = {.plan = &plan, .whose = &whose, .json = a.json};
    r.p99_s = a.p99_ms > 0.0 ? 1e-3 * a.p99_ms : INFINITY;
    return code == CLI_OK ? run(&plan, &r, &a) : code;
}
