/* limits.c - what this machine allows at most, from arithmetic and memory alone, as if nothing waited and everything
 * overlapped. One thread, but for the teams of roofline.c.
 *
 *     build/tests/bench/limits [--threads N] [--rounds N]                                           the machine's rates
 *     build/tests/bench/limits [...] [--precision P] [--json] MODEL | --synthetic NAME    limits of aft bench's figures
 *
 * Everything is measured once a round, so that a change of the machine's speed, or other work on it, affects all alike.
 * AFTD_ISA chooses the instruction set, of the rates as well. A model's limits, by medians of rates:
 *
 *     arithmetic = 2 (MAC of the blocks' products / rate of the precision + other MAC / rate of f32)
 *     a batch:      1 / arithmetic, per input
 *     a prompt:     rate of the precision / (2 MAC of the blocks' products): no logits are wanted of it
 *     one stream:   bandwidth / bytes of weights, which is what a reader compares the figure with
 *     n streams:    n / max(n arithmetic, (bytes of weights + n bytes of a state) / bandwidth) */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/digits.h"
#include "server/cli/cli.h"
#include "server/core/short_spin.h"
#include "tests/bench/roofline.h"
#include "weights/synthetic.h"

#define ROUNDS_MAX 99
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char *const words[PRECISION_COUNT] = {"f32", "bf16", "int8"};

/* Something that is measured: per second, FLOP or bytes. */
struct row {
    const char *text;
    struct roofline_work work;
    double values[2][ROUNDS_MAX]; /* on one thread, on all */
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each row once a round, on one thread where that is wanted, and on all; sorted in the end. */
static void measure(struct roofline *r, struct row rows[], size_t n, size_t rounds, bool one)
{
    for (size_t round = 0; round < rounds; round++)
        for (int all = one ? 0 : 1; all <= 1; all++)
            for (size_t i = 0; i < n; i++)
                if (roofline_has(r, &rows[i].work))
                    rows[i].values[all][round] = roofline_measure(r, &rows[i].work, all == 1 ? roofline_threads(r) : 1);
    for (size_t i = 0; i < n; i++)
        for (int all = 0; all <= 1; all++)
            qsort(rows[i].values[all], rounds, sizeof rows[i].values[all][0], by_value);
}

/* ---- the machine ------------------------------------------------------------------------------------------------ */

#define RATE(text, kind, precision)                           \
    {                                                         \
        text, {ROOFLINE_##kind, PRECISION_##precision, 0, 0}, \
        {                                                     \
            {                                                 \
                0                                             \
            }                                                 \
        }                                                     \
    }
#define READING(megabytes)                                                                    \
    {                                                                                         \
        "reading " #megabytes " MB", {ROOFLINE_READING, 0, (megabytes)*UINT64_C(1000000), 0}, \
        {                                                                                     \
            {                                                                                 \
                0                                                                             \
            }                                                                                 \
        }                                                                                     \
    }

static struct row machine[] = {
    RATE("f32 multiply-adds in registers", REGISTERS, F32),
    RATE("bf16 multiply-adds in registers", REGISTERS, BF16),
    RATE("int8 multiply-adds in registers", REGISTERS, INT8),
    RATE("OpenBLAS's sgemm, 512 x 512 x 512", OPENBLAS, F32),
    RATE("aftd's f32 product of that size", PRODUCT, F32),
    RATE("aftd's bf16 product, converted rows and all", PRODUCT, BF16),
    RATE("aftd's int8 product, converted rows and all", PRODUCT, INT8),
    READING(1),
    READING(4),
    READING(19),
    READING(38),
    READING(76),
    READING(300),
};

static int show_machine(uint32_t threads, size_t rounds)
{
    const char *isa = getenv("AFTD_ISA");
    struct roofline *r = NULL;
    struct error err;
    if (roofline_open(&r, isa, threads, machine[LENGTH(machine) - 1].work.bytes, &err) != OK)
        return cli_fail_error(&err);
    measure(r, machine, LENGTH(machine), rounds, true);
    (void)printf("this machine: %s, best and median of %zu rounds; shares are of the bests in registers\n",
                 kernels_select(isa)->isa, rounds);
    (void)printf("  %-46s %17s   %8u thread%s\n", "", "1 thread", roofline_threads(r),
                 roofline_threads(r) == 1 ? "" : "s");
    for (size_t i = 0; i < LENGTH(machine); i++) {
        const struct row *row = &machine[i], *bound = &machine[row->work.precision];
        const bool reads = row->work.kind == ROOFLINE_READING;
        if (!roofline_has(r, &row->work))
            continue;
        (void)printf("  %-46s", row->text);
        for (int all = 0; all <= 1; all++)
            (void)printf("%s%8.1f %8.1f", all == 0 ? " " : "   ", row->values[all][rounds - 1] / 1e9,
                         row->values[all][rounds / 2] / 1e9);
        (void)printf("  %s", reads ? "GB/s" : row->work.precision == PRECISION_INT8 ? "GOP/s" : "GFLOP/s");
        if (!reads && row->work.kind != ROOFLINE_REGISTERS)
            (void)printf(", %.2f and %.2f of %s", row->values[0][rounds - 1] / bound->values[0][rounds - 1],
                         row->values[1][rounds - 1] / bound->values[1][rounds - 1], words[row->work.precision]);
        (void)printf("\n");
    }
    roofline_close(r);
    return CLI_OK;
}

/* ---- a model ---------------------------------------------------------------------------------------------------- */

/* Multiply-adds that one exp, sigmoid or GELU stands for: range reduction, a polynomial of degree 5, scaling, and what
 * a division costs. They are vector arithmetic like any other, and 4 % of a model of dim 256. */
#define FUNCTION_MACS 16

/* What one step of one stream, one picture or one text costs. */
struct costs {
    double macs;     /* of the blocks' products, in the engine's precision */
    double f32_macs; /* of the head, the patches, of mixing and functions */
    double weight_bytes, stream_bytes;
};

/* The share of a window of `taps`, at each of n places in a row, that lies within the row. */
static double share_inside(uint32_t n, uint32_t taps)
{
    uint64_t inside = 0;
    for (uint32_t at = 0; at < n; at++) {
        const uint32_t first = at < taps / 2 ? taps / 2 - at : 0, end = n - at + taps / 2;
        inside += (end < taps ? end : taps) - first;
    }
    return (double)inside / ((double)n * taps);
}

static struct costs costs_of(const struct model_config *c, const struct engine_info *info)
{
    /* These keep all keys and values, and are measured at the beginning of the context: their mixing and their state
     * are not counted here. */
    const bool grows = mixer_facts(c->mixer.type)->streams == STREAMS_GROWING;
    const bool causal = model_config_causal(c), picture = c->input == INPUT_IMAGE;
    const double outputs = (double)c->dim * (causal ? BYTE_VALUES : c->classes);
    const double patches = picture ? 3.0 * c->size[0] * c->size[1] * c->dim : 0.0;
    double mixing = (double)info->mixer_macs;
    /* The engine counts every tap; those beyond the edges of a picture are 0 and need not be multiplied. */
    if (picture && mixer_has(c->mixer.type, OPTION_KERNEL))
        mixing *= share_inside(c->size[0] / c->patch[0], c->mixer.kernel[0]) *
                  share_inside(c->size[1] / c->patch[1], c->mixer.kernel[1]);
    if (causal && grows)
        mixing = 0.0;
    /* The feed-forward layer's activation; exp of a key, and sigmoid of a query. */
    if (causal)
        mixing += FUNCTION_MACS * (double)c->depth * (c->hidden + 2.0 * c->dim);
    return (struct costs){
        .macs = (double)info->macs - outputs - patches,
        .f32_macs = outputs + patches + mixing,
        .weight_bytes = (double)info->weight_bytes,
        .stream_bytes = grows ? 0.0 : (double)info->stream_bytes,
    };
}

/* What is told of a model. */
struct told {
    json_t *json; /* NULL: told as text */
    json_t *limits, *reads;
};

/* read: bytes/s, of so many; 0: the limit is not about reading. */
static void tell(const struct told *t, const char *key, double limit, double read, double bytes)
{
    if (t->json != NULL) {
        (void)json_object_set_new(t->limits, key, json_real(limit));
        if (read > 0.0)
            (void)json_object_set_new(t->reads, key, json_real(read / 1e9));
        return;
    }
    (void)printf("  %-28s at most %10.*f", key, limit < 100.0 ? 1 : 0, limit);
    if (read > 0.0)
        (void)printf("   (reading %.4g MB at %.0f GB/s)", bytes / 1e6, read / 1e9);
    (void)printf("\n");
}

static const uint32_t streams[] = {1, 8, 64};
enum { PRODUCTS, OTHERS, READS, ROWS = READS + (int)LENGTH(streams) }; /* of a model's rows */

/* The limits of aft bench's figures, by its keys. */
static void tell_limits(const struct told *t, const struct model_config *c, const struct costs *n,
                        const struct row rows[ROWS], size_t rounds)
{
    const double rate = rows[PRODUCTS].values[1][rounds / 2], others = rows[OTHERS].values[1][rounds / 2];
    const double arithmetic = 2.0 * (n->macs / rate + n->f32_macs / others);
    char key[64];
    if (!model_config_causal(c)) {
        for (uint32_t batch = 1; batch <= 8; batch += 7) {
            (void)snprintf(key, sizeof key, "%s_per_second_batch_%u", c->input == INPUT_IMAGE ? "images" : "texts",
                           batch);
            tell(t, key, 1.0 / arithmetic, 0.0, 0.0);
        }
        return;
    }
    for (size_t i = 0; i < LENGTH(streams); i++) {
        const double read = rows[READS + i].values[1][rounds / 2];
        const double bytes = n->weight_bytes + (streams[i] > 1 ? streams[i] * n->stream_bytes : 0.0);
        const double compute = streams[i] > 1 ? streams[i] * arithmetic : 0.0, memory = bytes / read;
        (void)snprintf(key, sizeof key, "bytes_per_second_%u_streams", streams[i]);
        tell(t, key, streams[i] / (compute > memory ? compute : memory), read, bytes);
    }
    tell(t, "prefill_bytes_per_second", rate / (2.0 * n->macs), 0.0, 0.0);
}

static enum precision precision_of(const struct engine_info *info)
{
    enum precision p = PRECISION_F32;
    while (p + 1 < PRECISION_COUNT && strcmp(words[p], info->precision) != 0)
        p++;
    return p;
}

static int show_model(const struct model *m, const struct engine_info *info, size_t rounds, bool json)
{
    const bool causal = model_config_causal(&m->config);
    const struct costs n = costs_of(&m->config, info);
    struct row rows[ROWS] = {[PRODUCTS].work.precision = precision_of(info)};
    struct told told = {NULL, NULL, NULL};
    struct roofline *r = NULL;
    struct error err;
    for (size_t i = 0; causal && i < LENGTH(streams); i++) {
        const double bytes = n.weight_bytes + (streams[i] > 1 ? streams[i] * n.stream_bytes : 0.0);
        rows[READS + i].work.kind = ROOFLINE_READING;
        rows[READS + i].work.bytes = bytes < ROOFLINE_BYTES_MAX ? (uint64_t)bytes : ROOFLINE_BYTES_MAX;
    }
    if (roofline_open(&r, info->isa, info->threads, causal ? rows[ROWS - 1].work.bytes : 1, &err) != OK)
        return cli_fail_error(&err);
    measure(r, rows, causal ? ROWS : READS, rounds, false);
    roofline_close(r);
    const double gflops = rows[PRODUCTS].values[1][rounds / 2] / 1e9, others = rows[OTHERS].values[1][rounds / 2] / 1e9;
    if (json) {
        told.limits = json_object();
        told.reads = json_object();
        told.json = json_pack("{ss ss ss si sf sf sf sf sf sf so so}", "model", m->name, "isa", info->isa, "precision",
                              info->precision, "threads", (int)info->threads, "macs", n.macs, "f32_macs", n.f32_macs,
                              "weight_bytes", n.weight_bytes, "stream_bytes", n.stream_bytes, "gflops", gflops,
                              "f32_gflops", others, "read_gbps", told.reads, "limits", told.limits);
    } else {
        (void)printf("limits of %s: %s, %s, %u thread%s, medians of %zu rounds\n", m->name, info->isa, info->precision,
                     info->threads, info->threads == 1 ? "" : "s", rounds);
        (void)printf("  %-28s %.4g MAC at %.0f GFLOP/s of %s, %.4g MAC at %.0f GFLOP/s of f32\n", "arithmetic", n.macs,
                     gflops, info->precision, n.f32_macs, others);
    }
    tell_limits(&told, &m->config, &n, rows, rounds);
    return json ? cli_print_json(told.json) : CLI_OK;
}

static int open_model(const char *name, const char *synthetic, const struct cli_engine *with, size_t rounds, bool json)
{
    struct engine_options o = {.pictures_max = 1, .streams_max = 1, .rows_max = 1};
    struct model *m = NULL;
    struct error err;
    int code = CLI_FAILED;
    if (synthetic == NULL)
        m = cli_load_model(name, NULL);
    else if (synthetic_model(&m, synthetic, &err) != OK)
        (void)cli_fail_error(&err);
    struct engine *e = cli_open_engine(m, with, &o);
    if (e != NULL)
        code = show_model(m, engine_info(e), rounds, json);
    engine_close(e);
    model_free(m);
    return code;
}

static bool read_number(uint64_t *ret, const char *text, uint64_t least, uint64_t most)
{
    return digits_read(ret, &text) && *text == '\0' && *ret >= least && *ret <= most;
}

int main(int argc, char *argv[])
{
    static const struct option options[] = {{"threads", required_argument, NULL, 't'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"precision", required_argument, NULL, 'p'},
                                            {"synthetic", required_argument, NULL, 's'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    struct cli_engine with = {.precision = NULL};
    const char *synthetic = NULL;
    uint64_t rounds = 0;
    bool json = false, wrong = false;
    short_spin_reexec(argv);
    for (int o; (o = getopt_long(argc, argv, "t:", options, NULL)) != -1;)
        if (o == 't')
            wrong |= !read_number(&with.threads, optarg, 0, ENGINE_THREADS_MAX);
        else if (o == 'r')
            wrong |= !read_number(&rounds, optarg, 1, ROUNDS_MAX);
        else if (o == 'p')
            with.precision = optarg;
        else if (o == 's')
            synthetic = optarg;
        else if (o == 'j')
            json = true;
        else
            wrong = true;
    const bool model = synthetic != NULL || optind < argc;
    wrong |= argc - optind + (synthetic != NULL ? 1 : 0) > 1 || (!model && (json || with.precision != NULL));
    if (wrong) {
        (void)fprintf(stderr,
                      "usage: limits [--threads N] [--rounds N, 1 to %d]\n"
                      "       limits [--threads N] [--rounds N] [--precision P] [--json] MODEL | --synthetic NAME\n",
                      ROUNDS_MAX);
        return CLI_USAGE;
    }
    const int code = model ? open_model(argv[optind], synthetic, &with, rounds != 0 ? rounds : 9, json)
                           : show_machine((uint32_t)with.threads, rounds != 0 ? rounds : 43);
    return code == CLI_OK ? cli_flush() : code;
}
