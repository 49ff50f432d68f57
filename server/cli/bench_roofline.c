/* bench_roofline.c - aft bench --roofline: this machine on one thread and on all. Everything is measured once a round,
 * so that a change of the machine's speed, or other work on it, affects all figures alike. Single threaded, but for the
 * teams of engine/roofline. */
#include <stdio.h>
#include <stdlib.h>

#include "server/cli/bench.h"
#include "server/cli/cli.h"

#define ROUNDS_MAX 51
#define ROUNDS_MIN 3
#define SECONDS_MAX 4.5 /* of a series of rounds, of which there are two at most */
/* No product of OpenBLAS is known to come nearer to multiply-adds in registers: if one does, those were slowed down. */
#define OPENBLAS_SHARE_MAX 0.92

static const uint32_t megabytes[] = {1, 4, 19, 38, 76, 300};
#define SIZES (sizeof megabytes / sizeof megabytes[0])
_Static_assert(300 * 1000000 <= ROOFLINE_BYTES_MAX, "the largest working set must be allowed");

/* Per second, in units of 1e9. */
struct sample {
    double values[ROUNDS_MAX];
    double best, median;
};

struct measured {
    struct roofline *roofline;
    struct sample rates[ROOFLINE_RATE_COUNT][2], reads[SIZES][2]; /* on one thread, on all */
    uint32_t rounds;
    uint32_t series;
    bool suspect; /* each time fp32 came out below what OpenBLAS shows it can be */
};

static void finish(struct sample *s, uint32_t rounds)
{
    s->median = bench_median(s->values, rounds);
    s->best = s->values[rounds - 1]; /* sorted by now */
}

enum { SHOWN = 1000 }; /* parts of the progress */

/* A series ends when its rounds or its seconds are over. */
static size_t share_done(const struct measured *m, uint32_t rounds, int half, double start)
{
    const double of_rounds = (2.0 * m->rounds + half + 1) / (2.0 * rounds), of_time = (cli_now() - start) / SECONDS_MAX;
    const double share = of_rounds > of_time ? of_rounds : of_time;
    return share < 1.0 ? (size_t)(SHOWN * share) : SHOWN;
}

static void measure_series(struct measured *m, uint32_t rounds)
{
    const uint32_t threads[2] = {1, roofline_info(m->roofline)->threads};
    const double start = cli_now();
    struct cli_progress progress = cli_progress_begin(SHOWN);
    for (m->rounds = 0; m->rounds < rounds && (m->rounds < ROUNDS_MIN || cli_now() - start < SECONDS_MAX); m->rounds++)
        for (int t = 0; t < 2; t++) {
            for (enum roofline_rate i = 0; i < ROOFLINE_RATE_COUNT; i++)
                if (roofline_has(m->roofline, i))
                    m->rates[i][t].values[m->rounds] = roofline_compute(m->roofline, i, threads[t]) / 1e9;
            for (size_t i = 0; i < SIZES; i++)
                m->reads[i][t].values[m->rounds] =
                    roofline_read(m->roofline, UINT64_C(1000000) * megabytes[i], threads[t]) / 1e9;
            cli_progress_show(&progress, share_done(m, rounds, t, start), "measured");
        }
    cli_progress_end(&progress);
    for (int t = 0; t < 2; t++) {
        for (enum roofline_rate i = 0; i < ROOFLINE_RATE_COUNT; i++)
            if (roofline_has(m->roofline, i))
                finish(&m->rates[i][t], m->rounds);
        for (size_t i = 0; i < SIZES; i++)
            finish(&m->reads[i][t], m->rounds);
    }
    m->series++;
}

/* The share of the rate that bounds it, by the best values; 0: nothing bounds it. OpenBLAS chooses by the processor: a
 * lower instruction set does not bound it. */
static double share(const struct measured *m, enum roofline_rate rate, int t)
{
    const enum roofline_rate bound = roofline_rate_bound(rate);
    if (bound == rate || !roofline_has(m->roofline, rate) || !roofline_has(m->roofline, bound) ||
        (rate == ROOFLINE_OPENBLAS && !roofline_info(m->roofline)->best))
        return 0.0;
    return m->rates[rate][t].best / m->rates[bound][t].best;
}

static bool is_suspect(const struct measured *m)
{
    return share(m, ROOFLINE_OPENBLAS, 0) > OPENBLAS_SHARE_MAX || share(m, ROOFLINE_OPENBLAS, 1) > OPENBLAS_SHARE_MAX;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

/* Without the end of the line. */
static void print_row(const char *text, const struct sample s[2], const char *unit)
{
    (void)printf("  %-46s %8.1f %8.1f   %8.1f %8.1f  %s", text, s[0].best, s[0].median, s[1].best, s[1].median, unit);
}

static void print_rate(const struct measured *m, enum roofline_rate rate)
{
    const enum roofline_rate bound = roofline_rate_bound(rate);
    if (!roofline_has(m->roofline, rate)) {
        (void)printf("  %-46s %17s   %17s\n", roofline_rate_text(rate), "not here", "not here");
        return;
    }
    print_row(roofline_rate_text(rate), m->rates[rate], bound == ROOFLINE_INT8 ? "GOP/s" : "GFLOP/s");
    if (share(m, rate, 0) > 0.0)
        (void)printf(", %.2f and %.2f of %s", share(m, rate, 0), share(m, rate, 1), roofline_rate_name(bound));
    (void)printf("\n");
}

static void print_text(const struct measured *m)
{
    const struct roofline_info *info = roofline_info(m->roofline);
    char text[64], all[32];
    (void)printf("this machine: %s, best and median of %u rounds, everything once a round; shares are of the bests\n",
                 info->isa, m->rounds);
    (void)snprintf(all, sizeof all, "%u thread%s", info->threads, info->threads == 1 ? "" : "s");
    (void)printf("  %-46s %17s   %17s\n", "", "1 thread", all);
    for (enum roofline_rate i = 0; i < ROOFLINE_RATE_COUNT; i++)
        print_rate(m, i);
    for (size_t i = 0; i < SIZES; i++) {
        (void)snprintf(text, sizeof text, "reading %u MB", megabytes[i]);
        print_row(text, m->reads[i], "GB/s\n");
    }
    if (m->series > 1)
        (void)printf("  measured again: OpenBLAS came out above %.2f of fp32 at first, so fp32 was too low\n",
                     OPENBLAS_SHARE_MAX);
    if (m->suspect)
        (void)printf("  and it did so again: fp32 is still too low; is the machine busy?\n");
}

static json_t *json_of(const struct sample s[2])
{
    return json_pack("{s:{s:f,s:f},s:{s:f,s:f}}", "one", "best", s[0].best, "median", s[0].median, "all", "best",
                     s[1].best, "median", s[1].median);
}

/* {"openblas": {"one": .., "all": ..}, ..}: for each rate that something else bounds; null where there is no share. */
static json_t *json_of_shares(const struct measured *m)
{
    json_t *shares = json_object();
    int lost = 0;
    for (enum roofline_rate i = 0; i < ROOFLINE_RATE_COUNT; i++)
        if (roofline_rate_bound(i) != i)
            lost |= json_object_set_new(shares, roofline_rate_name(i),
                                        share(m, i, 0) > 0.0
                                            ? json_pack("{s:f,s:f}", "one", share(m, i, 0), "all", share(m, i, 1))
                                            : json_null());
    if (lost == 0)
        return shares;
    json_decref(shares);
    return NULL;
}

static int print_json(const struct measured *m)
{
    const struct roofline_info *info = roofline_info(m->roofline);
    json_t *gflops = json_object(), *reads = json_array();
    int lost = 0;
    for (enum roofline_rate i = 0; i < ROOFLINE_RATE_COUNT; i++)
        lost |= json_object_set_new(gflops, roofline_rate_name(i),
                                    roofline_has(m->roofline, i) ? json_of(m->rates[i]) : json_null());
    for (size_t i = 0; i < SIZES; i++) {
        json_t *read = json_of(m->reads[i]);
        lost |= json_object_set_new(read, "megabytes", json_integer(megabytes[i]));
        lost |= json_array_append_new(reads, read);
    }
    json_t *all = json_pack("{s:s,s:i,s:i,s:b,s:b,s:o,s:o,s:o}", "isa", info->isa, "threads", (int)info->threads,
                            "rounds", (int)m->rounds, "measured_again", m->series > 1, "suspect", m->suspect, "gflops",
                            gflops, "shares", json_of_shares(m), "read_gbps", reads);
    if (lost != 0 || all == NULL) {
        json_decref(all);
        return cli_fail("a figure could not be kept: out of memory, or it is not a finite number");
    }
    return cli_print_json(all);
}

int bench_roofline(uint32_t rounds, uint32_t threads, bool json)
{
    int code = CLI_OK;
    struct error err;
    struct measured *m = calloc(1, sizeof *m);
    if (m == NULL)
        return cli_fail("out of memory");
    if (roofline_open(&m->roofline, getenv("AFTD_ISA"), threads, UINT64_C(1000000) * megabytes[SIZES - 1], &err) !=
        OK) {
        code = cli_fail_error(&err);
        goto done;
    }
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    measure_series(m, rounds);
    if (is_suspect(m)) {
        measure_series(m, rounds);
        m->suspect = is_suspect(m);
    }
    if (json)
        code = print_json(m);
    else
        print_text(m);
done:
    roofline_close(m->roofline);
    free(m);
    return code;
}
