/* capacity_report.c - see capacity.h: what the simulation showed.
 *
 * The object of --json:
 *   costs                            what the model costs (capacity_record.c), for --costs
 *   rate or concurrency, p99_ms      what was asked for; null where it was not
 *   cores, per_machine, threads
 *   alone_ms, machine_per_second     a whole answer where there is one request at a time; what a machine does at most
 *   replicas_needed, cores_needed    null where none of the rows holds
 *   rows [{replicas, per_second, refused, engine_share, core_share, engine_ms (of its passes, a request),
 *         first_ms {mean, p50, p99}, whole_ms, holds}] */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/capacity.h"

bool capacity_holds(const struct capacity_report *r, const struct capacity_row *row)
{
    return row->refused == 0 && row->whole.p99 <= r->p99_s;
}

static uint32_t cores_of(const struct capacity_report *r, uint32_t replicas)
{
    const struct capacity_plan *p = r->plan;
    return (replicas + p->per_machine - 1) / p->per_machine * p->cores;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void print_curve(const char *title, const struct capacity_curve *c, double unit)
{
    (void)printf("  %-28s", title);
    for (uint32_t i = 0; i < c->points; i++)
        (void)printf("%s%u: %.3g", i > 0 ? ", " : "", c->count[i], c->value[i] / unit);
    (void)printf("\n");
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_slowness(const struct capacity_slowness *s)
{
    float sorted[CAPACITY_WINDOWS_MAX];
    if (s->windows == 0)
        return;
    memcpy(sorted, s->times, s->windows * sizeof sorted[0]);
    qsort(sorted, s->windows, sizeof sorted[0], by_size);
    (void)printf("  %-28s%.3g times for 10 %% of the time, %.3g times for 1 %%\n", "slower at times",
                 (double)sorted[s->windows * 9 / 10], (double)sorted[s->windows * 99 / 100]);
}

static void print_costs(const struct capacity_report *r)
{
    const struct capacity_costs *c = &r->plan->costs;
    (void)printf("%s: %s kernels, %s, %u thread%s; milliseconds\n", r->whose->model, r->whose->isa, r->whose->precision,
                 r->whose->threads, r->whose->threads == 1 ? "" : "s");
    if (c->generates) {
        print_curve("a byte of each of streams", &c->step, 1e-3);
        print_curve("bytes of a prompt", &c->prompt, 1e-3);
    } else {
        print_curve("a batch of", &c->batch, 1e-3);
    }
    if (c->per_machine > 1)
        print_curve("times as long beside others", &c->crowding, 1.0);
    (void)printf("  %-28s%.3g more until it is as fast again\n", "after an idle time", 1e3 * c->idle_s);
    (void)printf("  %-28s%.3g, and %.3g more until it works\n", "to wake a thread", 1e3 * c->waker_s, 1e3 * c->wake_s);
    print_slowness(&c->slowness);
    (void)printf("  %-28s%.3g; a machine answers at most %.4g/s\n", "one request alone", 1e3 * r->alone_s, r->most);
}

static void print_plan(const struct capacity_report *r)
{
    const struct capacity_plan *p = r->plan;
    if (p->rate > 0.0)
        (void)printf("%g requests/s", p->rate);
    else
        (void)printf("%u clients", p->clients);
    if (p->costs.generates)
        for (uint32_t i = 0; i < p->kind_count; i++)
            (void)printf("%s%u bytes -> %u", i > 0 ? " or " : ", ", p->kinds[i].prompt_bytes, p->kinds[i].max_tokens);
    (void)printf("; %u core%s a machine, %u replica%s on each\n", p->cores, p->cores == 1 ? "" : "s", p->per_machine,
                 p->per_machine == 1 ? "" : "s");
}

static void print_row(const struct capacity_report *r, const struct capacity_row *row)
{
    char refused[32] = "";
    if (row->refused > 0)
        (void)snprintf(refused, sizeof refused, "  %" PRIu64 " refused", row->refused);
    (void)printf("%8u %6u %12.1f %8.0f %% %6.0f %% %11.1f %9.1f %11.1f %9.1f  %s%s\n", row->replicas,
                 cores_of(r, row->replicas), row->per_second, 100.0 * row->engine_share, 100.0 * row->core_share,
                 1e3 * row->first.p50, 1e3 * row->first.p99, 1e3 * row->whole.p50, 1e3 * row->whole.p99,
                 isinf(r->p99_s)          ? ""
                 : capacity_holds(r, row) ? "holds"
                                          : "no",
                 refused);
}

static void print_end(const struct capacity_report *r)
{
    if (isinf(r->p99_s))
        return;
    if (r->needed == 0)
        (void)printf("none of these answers 99 of 100 requests within %g ms and refuses none\n", 1e3 * r->p99_s);
    else
        (void)printf("%u replica%s, %u core%s: 99 of 100 requests are answered within %g ms\n", r->needed,
                     r->needed == 1 ? "" : "s", cores_of(r, r->needed), cores_of(r, r->needed) == 1 ? "" : "s",
                     1e3 * r->p99_s);
}

static void print_all(const struct capacity_report *r)
{
    print_costs(r);
    print_plan(r);
    (void)printf("%8s %6s %12s %10s %8s %11s %9s %11s %9s\n", "replicas", "cores", "answered/s", "engines", "cores",
                 "first, p50", "p99", "whole, p50", "p99");
    for (uint32_t i = 0; i < r->count; i++)
        print_row(r, &r->rows[i]);
    print_end(r);
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------- */

static json_t *times_of(const struct capacity_times *t)
{
    return json_pack("{s:f,s:f,s:f}", "mean", 1e3 * t->mean, "p50", 1e3 * t->p50, "p99", 1e3 * t->p99);
}

static json_t *make_rows(const struct capacity_report *r)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < r->count; i++) {
        const struct capacity_row *row = &r->rows[i];
        json_t *o =
            json_pack("{s:i,s:f,s:I,s:f,s:f,s:f,s:f,s:f,s:o,s:o,s:o}", "replicas", (int)row->replicas, "per_second",
                      row->per_second, "refused", (json_int_t)row->refused, "engine_share", row->engine_share,
                      "core_share", row->core_share, "engine_ms", 1e3 * row->request_s, "pass_ms", 1e3 * row->pass_s,
                      "pass_size", row->pass_size, "first_ms", times_of(&row->first), "whole_ms", times_of(&row->whole),
                      "holds", isinf(r->p99_s) ? json_null() : json_boolean(capacity_holds(r, row)));
        if (json_array_append_new(rows, o) != 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}

static json_t *number_or_null(bool is_there, double value)
{
    return is_there ? json_real(value) : json_null();
}

static json_t *count_or_null(uint32_t count)
{
    return count > 0 ? json_integer(count) : json_null();
}

static int print_json(const struct capacity_report *r)
{
    const struct capacity_plan *p = r->plan;
    return cli_print_json(
        json_pack("{s:o,s:o,s:o,s:o,s:i,s:i,s:i,s:f,s:f,s:o,s:o,s:o}", "costs",
                  capacity_record_make(&p->costs, r->whose), "rate", number_or_null(p->rate > 0.0, p->rate),
                  "concurrency", count_or_null(p->clients), "p99_ms", number_or_null(!isinf(r->p99_s), 1e3 * r->p99_s),
                  "cores", (int)p->cores, "per_machine", (int)p->per_machine, "threads", (int)p->threads, "alone_ms",
                  1e3 * r->alone_s, "machine_per_second", r->most, "replicas_needed", count_or_null(r->needed),
                  "cores_needed", count_or_null(r->needed > 0 ? cores_of(r, r->needed) : 0), "rows", make_rows(r)));
}

int capacity_tell_all(const struct capacity_report *r)
{
    int code = CLI_OK;
    if (r->json)
        code = print_json(r);
    else
        print_all(r);
    return code != CLI_OK || r->needed > 0 || isinf(r->p99_s) ? code : CLI_FAILED;
}
