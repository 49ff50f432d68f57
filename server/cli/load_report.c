/* load_report.c - see load.h: what the run showed, for people and as JSON, and the progress meanwhile.
 *
 * The object of --json:
 *   url, loop ("closed" or "open"), concurrency, sessions (do the texts of each client go on with one),
 *   rate (requests/s asked for; null in a closed loop), seed,
 *   warmup_seconds, seconds (the window's length), interrupted,
 *   client_cpu_share (this program's CPU time over `seconds`: 1 is a whole core),
 *   goals {ttfb_ms, e2e_ms, gap_ms} (null where not asked for),
 *   classify, generate (null where not sent), each:
 *     requests, sent, unsent, answered, failed, aborted   requests = sent + unsent, sent = answered + failed + aborted
 *     failures [{what, count, detail (of the first)}]
 *     bytes                                               generated, of all measured requests
 *     offered_per_second, answered_per_second             requests
 *     bytes_per_second or pictures_per_second
 *     ttfb_ms, event_gap_ms, byte_gap_ms, e2e_ms, send_delay_ms
 *                                                         {count, mean, p50, p90, p99, max}; gaps of streams alone
 *     good, goodput_share (of the requests that were not aborted), goodput_per_second */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>

#include "server/cli/load.h"

#define CPU_SHARE_HIGH 0.8 /* beyond it the times are partly this program's own */

static const char *const kind_names[LOAD_KINDS] = {[LOAD_CLASSIFY] = "classify", [LOAD_GENERATE] = "generate"};

static const struct {
    const char *key, *title;
    bool of_streams; /* alone */
} times[LOAD_TIMES] = {
    [LOAD_TTFB] = {"ttfb_ms", "first byte", false},
    [LOAD_EVENT_GAP] = {"event_gap_ms", "between events", true},
    [LOAD_BYTE_GAP] = {"byte_gap_ms", "between bytes", true},
    [LOAD_E2E] = {"e2e_ms", "whole answer", false},
    [LOAD_DELAY] = {"send_delay_ms", "sent late", false},
};

static double per_second(const struct load_result *r, uint64_t count)
{
    return r->seconds > 0.0 ? (double)count / r->seconds : 0.0;
}

static double cpu_share(const struct load_result *r)
{
    return r->seconds > 0.0 ? r->cpu_seconds / r->seconds : 0.0;
}

static double good_share(const struct load_tally *t)
{
    const uint64_t judged = t->requests - t->aborted;
    return judged > 0 ? (double)t->good / (double)judged : 0.0;
}

/* Does the kind, as it was sent, have such times? */
static bool has_times(const struct load_options *o, enum load_kind kind, enum load_time what)
{
    return !times[what].of_streams || (kind == LOAD_GENERATE && !o->whole);
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

/* Print text of the daemon, or of any other server, without control characters that a terminal would obey. */
static void print_plain(const char *text)
{
    for (; *text != '\0'; text++)
        (void)putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '.' : *text);
}

static void print_counts(const struct load_tally *t)
{
    (void)printf("  requests        %" PRIu64 ": %" PRIu64 " answered, %" PRIu64 " failed", t->requests, t->answered,
                 t->failed);
    if (t->unsent > 0)
        (void)printf(", %" PRIu64 " not sent in time", t->unsent);
    if (t->aborted > 0)
        (void)printf(", %" PRIu64 " given up at the end", t->aborted);
    (void)printf("\n");
    for (size_t i = 0; i < t->failure_count; i++) {
        (void)printf("    %-13s %" PRIu64 ", the first: ", t->failures[i].what, t->failures[i].count);
        print_plain(t->failures[i].detail[0] != '\0' ? t->failures[i].detail : "no message");
        (void)printf("\n");
    }
}

static void print_times(const struct load_options *o, const struct load_tally *t, enum load_kind kind)
{
    if (t->answered > 0) /* gaps of streams that broke off are only in the JSON */
        (void)printf("  %-15s %9s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90", "p99", "max");
    for (enum load_time i = 0; i < LOAD_TIMES; i++) {
        const struct load_histogram *h = &t->times[i];
        if (t->answered == 0 || !has_times(o, kind, i) || h->count == 0 || (i == LOAD_DELAY && o->rate <= 0.0))
            continue;
        (void)printf("  %-15s %9.3f %9.3f %9.3f %9.3f %9.3f\n", times[i].title, 1e-6 * load_histogram_mean_ns(h),
                     1e-6 * load_histogram_quantile_ns(h, 0.5), 1e-6 * load_histogram_quantile_ns(h, 0.9),
                     1e-6 * load_histogram_quantile_ns(h, 0.99), 1e-6 * (double)h->max_ns);
    }
}

static void print_goal(const char *what, double limit_s, bool *first)
{
    if (isinf(limit_s))
        return;
    (void)printf("%s%s within %g ms", *first ? "" : ", ", what, 1e3 * limit_s);
    *first = false;
}

static void print_goodput(const struct load_options *o, const struct load_result *r, const struct load_tally *t)
{
    bool first = true;
    if (isinf(o->slo_ttfb_s) && isinf(o->slo_e2e_s) && isinf(o->slo_gap_s))
        return;
    (void)printf("  goodput         %.1f %% of the requests, %.1f/s: ", 100.0 * good_share(t),
                 per_second(r, t->window_good));
    print_goal("first byte", o->slo_ttfb_s, &first);
    print_goal("whole answer", o->slo_e2e_s, &first);
    print_goal("every event", o->slo_gap_s, &first);
    (void)printf("\n");
}

static void print_kind(const struct load_options *o, const struct load_result *r, enum load_kind kind)
{
    const struct load_tally *t = &r->tallies[kind];
    (void)printf("\n%s\n", kind_names[kind]);
    print_counts(t);
    (void)printf("  throughput      %.1f %s/s", per_second(r, t->window_answered),
                 kind == LOAD_CLASSIFY ? "pictures" : "answers");
    if (kind == LOAD_GENERATE)
        (void)printf(", %.0f bytes/s", per_second(r, t->window_bytes));
    if (o->rate > 0.0)
        (void)printf(" of %.1f requests/s due", per_second(r, t->requests));
    (void)printf("\n");
    print_times(o, t, kind);
    print_goodput(o, r, t);
}

void load_report_print(const struct load_options *o, const struct load_result *r)
{
    (void)printf("%s: ", remote_name(&o->to));
    if (o->rate > 0.0)
        (void)printf("%g requests/s on at most %" PRIu64 " connections", o->rate, o->concurrency);
    else
        (void)printf("%" PRIu64 " client%s, each with one request at a time", o->concurrency,
                     o->concurrency == 1 ? "" : "s");
    if (o->sessions)
        (void)printf(", each with a session that its texts go on with");
    (void)printf(", %.1f s%s\n", r->seconds, r->interrupted ? ", interrupted" : "");
    (void)printf("aft load itself took %.2f of a core%s\n", cpu_share(r),
                 cpu_share(r) > CPU_SHARE_HIGH ? ": it may be what limits the figures" : "");
    for (enum load_kind k = 0; k < LOAD_KINDS; k++)
        if (o->kinds[k])
            print_kind(o, r, k);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *describe_histogram(const struct load_histogram *h)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)h->count, "mean",
                     1e-6 * load_histogram_mean_ns(h), "p50", 1e-6 * load_histogram_quantile_ns(h, 0.5), "p90",
                     1e-6 * load_histogram_quantile_ns(h, 0.9), "p99", 1e-6 * load_histogram_quantile_ns(h, 0.99),
                     "max", 1e-6 * (double)h->max_ns);
}

static json_t *describe_failures(const struct load_tally *t)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < t->failure_count; i++) {
        const struct load_failure *f = &t->failures[i];
        json_t *detail = json_string(f->detail); /* NULL where a server's text is not UTF-8 */
        if (json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "what", f->what, "count", (json_int_t)f->count,
                                                  "detail", detail != NULL ? detail : json_string(""))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *describe_kind(const struct load_options *o, const struct load_result *r, enum load_kind kind)
{
    const struct load_tally *t = &r->tallies[kind];
    const uint64_t rate_count = kind == LOAD_CLASSIFY ? t->window_answered : t->window_bytes;
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:f, s:f, s:f, s:I, s:f, s:f}", "requests", (json_int_t)t->requests,
        "sent", (json_int_t)t->sent, "unsent", (json_int_t)t->unsent, "answered", (json_int_t)t->answered, "failed",
        (json_int_t)t->failed, "aborted", (json_int_t)t->aborted, "failures", describe_failures(t), "bytes",
        (json_int_t)t->bytes, "offered_per_second", per_second(r, t->requests), "answered_per_second",
        per_second(r, t->window_answered), kind == LOAD_CLASSIFY ? "pictures_per_second" : "bytes_per_second",
        per_second(r, rate_count), "good", (json_int_t)t->good, "goodput_share", good_share(t), "goodput_per_second",
        per_second(r, t->window_good));
    for (enum load_time i = 0; i < LOAD_TIMES && object != NULL; i++)
        if (has_times(o, kind, i) && json_object_set_new(object, times[i].key, describe_histogram(&t->times[i])) != 0) {
            json_decref(object);
            object = NULL;
        }
    return object;
}

static json_t *goal(double limit_s)
{
    return isinf(limit_s) ? json_null() : json_real(1e3 * limit_s);
}

int load_report_json(const struct load_options *o, const struct load_result *r)
{
    json_t *kinds[LOAD_KINDS];
    for (enum load_kind k = 0; k < LOAD_KINDS; k++)
        kinds[k] = o->kinds[k] ? describe_kind(o, r, k) : json_null();
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:b, s:o, s:I, s:f, s:f, s:b, s:f, s:{s:o, s:o, s:o}, s:o, s:o}", "url", remote_name(&o->to),
        "loop", o->rate > 0.0 ? "open" : "closed", "concurrency", (json_int_t)o->concurrency, "sessions",
        o->sessions ? 1 : 0, "rate", o->rate > 0.0 ? json_real(o->rate) : json_null(), "seed", (json_int_t)o->seed,
        "warmup_seconds", o->warmup_s, "seconds", r->seconds, "interrupted", r->interrupted ? 1 : 0, "client_cpu_share",
        cpu_share(r), "goals", "ttfb_ms", goal(o->slo_ttfb_s), "e2e_ms", goal(o->slo_e2e_s), "gap_ms",
        goal(o->slo_gap_s), kind_names[LOAD_CLASSIFY], kinds[LOAD_CLASSIFY], kind_names[LOAD_GENERATE],
        kinds[LOAD_GENERATE]);
    return cli_print_json(object);
}

/* ---- meanwhile --------------------------------------------------------------------------------------------------- */

static double share_done(const struct load_progress *p, const struct load_options *o)
{
    const double of_time = isinf(p->end_s) ? 0.0 : (p->now_s - p->start_s) / (p->end_s - p->start_s);
    const double of_requests = o->requests != UINT64_MAX ? (double)p->measured / (double)o->requests : 0.0;
    return fmin(1.0, fmax(of_time, of_requests));
}

void load_progress_show(struct cli_progress *bar, const struct load_progress *p, const struct load_options *o,
                        const struct load_result *r)
{
    char text[96], padded[96];
    uint64_t answered = 0, failed = 0;
    for (enum load_kind k = 0; k < LOAD_KINDS; k++) {
        answered += r->tallies[k].answered;
        failed += r->tallies[k].failed;
    }
    const char *phase = p->now_s < p->window_s ? ", warming up" : p->now_s >= p->end_s ? ", waiting for these" : "";
    (void)snprintf(text, sizeof text, "%.0f s, %" PRIu64 " answered, %" PRIu64 " failed, %" PRIu64 " running%s",
                   p->now_s - p->start_s, answered, failed, p->running, phase);
    (void)snprintf(padded, sizeof padded, "%-64s", text); /* overwrites what a longer one left there */
    cli_progress_show(bar, (size_t)(LOAD_PROGRESS_TOTAL * share_done(p, o)), padded);
}
