/* bench_limits.c - what the machine would allow a model at most, from rates measured between the runs of the very
 * figure that is compared, so that a machine that changes its speed changes both. The bounds come from arithmetic and
 * memory alone, as if nothing waited and everything overlapped. Single threaded. */
#include <inttypes.h>
#include <string.h>

#include "server/cli/bench.h"
#include "server/cli/cli.h"

/* Multiply-adds that one exp, sigmoid or GELU stands for: range reduction, a polynomial of degree 5, scaling, and what
 * a division costs. They are vector arithmetic like any other, and 4 % of a model of dim 256. */
#define FUNCTION_MACS 16

/* What one step of one stream, one picture or one text costs. */
struct costs {
    double macs;      /* of the blocks' products, in the engine's precision */
    double fp32_macs; /* of the head, the patches, of mixing and functions */
    double weight_bytes, stream_bytes;
};

/* The rate of the engine's products; fp32 where there is no loop for it on the machine, which is too low for int8 on
 * AVX2. */
static enum roofline_rate rate_of(const struct bench *b)
{
    const char *precision = engine_info(b->engine)->precision;
    const enum roofline_rate rate = strcmp(precision, engine_precision_word(ENGINE_BF16)) == 0   ? ROOFLINE_BF16
                                    : strcmp(precision, engine_precision_word(ENGINE_INT8)) == 0 ? ROOFLINE_INT8
                                                                                                 : ROOFLINE_FP32;
    return roofline_has(b->roofline, rate) ? rate : ROOFLINE_FP32;
}

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

static struct costs costs_of(const struct bench *b)
{
    const struct engine_info *info = engine_info(b->engine);
    const struct model_config *c = &b->model->config;
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
        .fp32_macs = outputs + patches + mixing,
        .weight_bytes = (double)info->weight_bytes,
        .stream_bytes = grows ? 0.0 : (double)info->stream_bytes,
    };
}

uint64_t bench_limits_bytes(const struct bench *b, uint32_t streams)
{
    const struct costs n = costs_of(b);
    return (uint64_t)(n.weight_bytes + streams * n.stream_bytes);
}

int bench_limits_open(struct bench *b)
{
    const struct engine_info *info = engine_info(b->engine);
    const uint64_t most = model_config_causal(&b->model->config) ? bench_limits_bytes(b, BENCH_STREAMS_LARGE) : 1;
    struct error err;
    /* The machine's best instruction set, whatever AFTD_ISA asks of the engine: that is what the machine allows. */
    if (roofline_open(&b->roofline, NULL, info->threads, most < ROOFLINE_BYTES_MAX ? most : ROOFLINE_BYTES_MAX, &err) !=
        OK)
        return cli_fail_error(&err);
    return CLI_OK;
}

void bench_limits_explain(struct bench *b)
{
    if (b->roofline == NULL)
        return;
    const struct costs n = costs_of(b);
    const char *isa = roofline_info(b->roofline)->isa, *rate = roofline_rate_name(rate_of(b));
    json_t *limits = json_object();
    b->shares = json_object();
    if (json_object_set_new(b->result, "limits", limits) != 0 ||
        json_object_set_new(limits, "isa", json_string(isa)) != 0 ||
        json_object_set_new(limits, "rate", json_string(rate)) != 0)
        b->lost = true;
    bench_keep(b, limits, "macs", n.macs);
    bench_keep(b, limits, "fp32_macs", n.fp32_macs);
    bench_keep(b, limits, "weight_bytes", n.weight_bytes);
    bench_keep(b, limits, "stream_bytes", n.stream_bytes);
    if (json_object_set_new(limits, "figures", b->shares) != 0)
        b->lost = true;
    bench_say(b, "limits, from rates of this machine (%s) between the runs of each figure:\n", isa);
    bench_say(b, "  arithmetic  2 * (%.4g MAC / %s rate + %.4g MAC / fp32 rate)\n", n.macs, rate, n.fp32_macs);
    if (!model_config_causal(&b->model->config)) {
        bench_say(b, "  batches     1 / arithmetic\n");
        return;
    }
    bench_say(b, "  1 stream    bandwidth / %.4g MB of weights\n", n.weight_bytes / 1e6);
    bench_say(b, "  n streams   n / max(n * arithmetic, (%.4g MB + n * %.4g MB) / bandwidth)\n", n.weight_bytes / 1e6,
              n.stream_bytes / 1e6);
    bench_say(b, "  prefill     %s rate / (2 * %.4g MAC)\n", rate, n.macs);
}

bool bench_limits_probe(struct bench *b, struct bench_probe *p, uint32_t run)
{
    const uint32_t probes = b->runs < BENCH_PROBES_MAX ? b->runs : BENCH_PROBES_MAX;
    if (b->roofline == NULL || p->count == probes || run < (uint64_t)p->count * b->runs / probes)
        return run == 0;
    const uint32_t threads = roofline_info(b->roofline)->threads;
    const enum roofline_rate rate = rate_of(b);
    p->flop[p->count] = roofline_compute(b->roofline, rate, threads);
    p->fp32[p->count] =
        rate == ROOFLINE_FP32 ? p->flop[p->count] : roofline_compute(b->roofline, ROOFLINE_FP32, threads);
    if (p->bytes != 0)
        p->read[p->count] =
            roofline_read(b->roofline, p->bytes < ROOFLINE_BYTES_MAX ? p->bytes : ROOFLINE_BYTES_MAX, threads);
    p->count++;
    return run == 0 || p->bytes != 0; /* arithmetic in registers leaves the caches alone */
}

/* Medians of the probes. */
struct rates {
    double flop, fp32, read;
};

static struct rates rates_of(struct bench_probe *p)
{
    return (struct rates){
        .flop = bench_median(p->flop, p->count),
        .fp32 = bench_median(p->fp32, p->count),
        .read = p->bytes != 0 ? bench_median(p->read, p->count) : 0.0,
    };
}

/* The seconds of arithmetic that every step, picture or text needs. */
static double arithmetic(const struct costs *n, const struct rates *r)
{
    return 2.0 * (n->macs / r->flop + n->fp32_macs / r->fp32);
}

static void tell(struct bench *b, const char *key, double figure, double limit, const struct rates *r)
{
    json_t *share = json_object();
    if (json_object_set_new(b->shares, key, share) != 0)
        b->lost = true;
    bench_keep(b, share, "limit", limit);
    bench_keep(b, share, "share", figure / limit);
    bench_keep(b, share, "gflops", r->flop / 1e9);
    bench_keep(b, share, "fp32_gflops", r->fp32 / 1e9);
    if (r->read > 0.0)
        bench_keep(b, share, "read_gbps", r->read / 1e9);
    bench_say(b, "  %.2f of %.*f (%.0f GFLOP/s", figure / limit, limit < 100.0 ? 1 : 0, limit, r->flop / 1e9);
    if (r->read > 0.0)
        bench_say(b, ", %.0f GB/s", r->read / 1e9);
    bench_say(b, ")\n");
}

void bench_limits_batch(struct bench *b, const char *key, double figure, struct bench_probe *p)
{
    if (b->roofline == NULL) {
        bench_say(b, "\n");
        return;
    }
    const struct costs n = costs_of(b);
    const struct rates r = rates_of(p);
    tell(b, key, figure, 1.0 / arithmetic(&n, &r), &r);
}

void bench_limits_streams(struct bench *b, const char *key, double figure, uint32_t streams, struct bench_probe *p)
{
    if (b->roofline == NULL) {
        bench_say(b, "\n");
        return;
    }
    const struct costs n = costs_of(b);
    const struct rates r = rates_of(p);
    const double compute = streams * arithmetic(&n, &r);
    const double memory = (n.weight_bytes + streams * n.stream_bytes) / r.read;
    /* The limit of one stream is the rate of reading the weights alone, which is what a reader compares the figure
     * with. */
    const double limit = streams == 1 ? r.read / n.weight_bytes : streams / (compute > memory ? compute : memory);
    tell(b, key, figure, limit, &r);
}

void bench_limits_prefill(struct bench *b, const char *key, double figure, struct bench_probe *p)
{
    if (b->roofline == NULL) {
        bench_say(b, "\n");
        return;
    }
    const struct rates r = rates_of(p); /* no logits are wanted of a prompt: the head is left out */
    tell(b, key, figure, r.flop / (2.0 * costs_of(b).macs), &r);
}
