/* aft.c - AFT (Zhai et al. 2021, eq. 2) with a bias for each pair of positions (aft-full), for those within a window,
 * beyond which w is 0 (aft-local, section 3.2), or none (aft-simple, eq. 5: a sequence has one weighted mean for all of
 * its tokens). A stream's state (aft_streams.c) is of fixed size, but for aft-full, whose window is all of T: as with
 * attention, the longer the text is, the more a step costs.
 * In the parallel form numerators and denominators are matrix products of exp(w) [T, T] with e v and e [T, channels],
 * where e = exp(k) / 2^r: every token sees the largest key, so what falls below float32's range cannot matter. For
 * biases beyond BIAS_FACTORED, or tokens that are not seen at all, each position is computed by itself. */
#include "engine/mixers/aft.h"

#include "engine/pass/token_sums.h"

#define TASK_COLUMNS \
    ((size_t)4 * LANES) /* channels of one product: wide enough for sgemm, enough tasks for all threads */

/* The biases as fold.h leaves them, *n of them: of pairs of positions, or a band; NULL for aft-simple. */
static const float *biases_of(const struct engine_core *e, const struct block_weights *bw, size_t *n)
{
    const size_t tokens = model_config_tokens(e->config);
    *n = tokens * (model_config_causal(e->config) ? model_config_span(e->config) : tokens);
    return bw->biases;
}

static void plan(struct block *b, struct workspace *w, const struct engine_core *e, const struct block_weights *bw)
{
    struct aft_block *own = b->mixing;
    size_t n;
    const float *biases = biases_of(e, bw, &n);
    own->span = biases == NULL ? 1 : model_config_span(e->config);
    if (biases == NULL)
        return;
    own->exact = aft_needs_exact(biases, n, e->config->mixer.global);
    workspace_note(w, &own->biases, n, sizeof *own->biases);
}

static void pack(struct block *b, const struct engine_core *e, const struct block_weights *bw)
{
    const struct aft_block *own = b->mixing;
    size_t n;
    const float *biases = biases_of(e, bw, &n);
    for (size_t i = 0; biases != NULL && i < n; i++) /* most of a causal matrix is 0: lags before the beginning */
        own->biases[i] = own->exact ? biases[i] : biases[i] == 0.0f ? 1.0f : (float)exp((double)biases[i]);
}

/* ---- biases to look at ------------------------------------------------------------------------------------------ */

static struct engine_biases biases_shape(const struct engine_core *e)
{
    const struct model_config *c = e->config;
    struct engine_biases s = {.layers = c->depth, .heads = 1, .height = 1};
    if (c->input == INPUT_IMAGE) {
        s.height = c->size[0] / c->patch[0];
        s.width = c->size[1] / c->patch[1];
        s.by_position = true;
    } else {
        s.width = model_config_causal(c) ? model_config_span(c) : model_config_tokens(c);
    }
    return s;
}

static void read_biases(const struct engine_core *e, uint32_t layer, uint32_t head, float *out)
{
    const struct engine_biases s = biases_shape(e);
    const struct model_config *c = e->config;
    const struct aft_block *b = e->blocks[layer].mixing;
    const size_t n = (size_t)s.height * s.width, tokens = model_config_tokens(c);
    if (model_config_causal(c)) { /* one for all channels */
        for (size_t lag = 0; lag < n; lag++)
            out[n - 1 - lag] = aft_surplus(b, b->biases[(tokens - 1) * n + lag]);
        return;
    }
    const size_t before = tokens - n;                          /* the class token */
    const size_t of = before + (s.by_position ? head : n / 2); /* of a text the middle */
    for (size_t t = 0; t < n; t++)
        out[t] = aft_surplus(b, b->biases[of * tokens + before + t]);
}

/* ---- mixing ----------------------------------------------------------------------------------------------------- */

/* e v, then numerator and denominator, which are plain sums without biases. */
static uint64_t macs(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass)
{
    if (pass == NULL)
        return KERNEL(aft_step_macs)(e, b);
    const struct aft_block *own = b->mixing;
    const uint64_t weights = own->biases == NULL ? 0 : pass->tokens;
    return (uint64_t)pass->sequences * pass->tokens * e->dims.dim * (1 + 2 * weights);
}

static void plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens)
{
    (void)tokens;
    for (size_t i = SCRATCH_E; i <= SCRATCH_NUM; i++)
        workspace_note(w, &s->rows[i], rows * e->dims.channels, sizeof *s->rows[i]);
}

/* Without biases every token has the same sums: out[t] = sum_s x[s], for n columns. */
static void sum_tokens(float *out, const float *x, size_t tokens, size_t stride, size_t n)
{
    token_sums(out, x, tokens, stride, n);
    for (size_t t = 1; t < tokens; t++)
        for (size_t c = 0; c < n; c++)
            out[t * stride + c] = out[c];
}

/* context: the length of the biases' rows, however many tokens there are. */
static void weigh_tokens(float *out, const float *x, const struct aft_block *b, size_t context, size_t tokens,
                         size_t stride, size_t n)
{
    if (b->biases == NULL)
        sum_tokens(out, x, tokens, stride, n);
    else
        gemm_sum_tokens(false, tokens, n, tokens, 1.0f, b->biases, context, x, stride, out, stride);
}

static void mix_factored(const struct engine_core *e, const struct aft_block *b, const struct activations *a,
                         const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    const size_t channels = e->dims.channels, slices = (channels + TASK_COLUMNS - 1) / TASK_COLUMNS;
    const size_t context = model_config_tokens(e->config);
    const struct conv_shape shape = {.height = 1,
                                     .width = pass->tokens,
                                     .heads = e->dims.keys,
                                     .channels = e->dims.channels,
                                     .stride = e->dims.qkv,
                                     .token = channels,
                                     .group = LANES};
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * slices; task++) {
        const size_t first = task / slices * pass->tokens, begin = task % slices * TASK_COLUMNS;
        const size_t end = begin + TASK_COLUMNS < channels ? begin + TASK_COLUMNS : channels, n = end - begin;
        const float *q = a->qkv + first * e->dims.qkv, *k = q + channels, *v = k + e->dims.keys;
        float *keys = s->rows[SCRATCH_E] + first * channels, *den = s->rows[SCRATCH_DEN] + first * channels;
        float *ev = s->rows[SCRATCH_EV] + first * channels, *num = s->rows[SCRATCH_NUM] + first * channels;
        for (size_t c = begin; c < end; c += LANES) {
            KERNEL(conv_keys)(keys + c, k + c, &shape);
            KERNEL(conv_values)(ev + c, keys, v + c, e->head_of + c, &shape);
        }
        weigh_tokens(den + begin, keys + begin, b, context, pass->tokens, channels, n);
        weigh_tokens(num + begin, ev + begin, b, context, pass->tokens, channels, n);
        for (size_t c = begin; c < end; c += LANES)
            KERNEL(conv_finish)
        (a->h + first * channels + c, q + c, num + c, den, e->head_of + c, &shape, e->config->mixer.query_gate);
    }
}

static void mix_exact(const struct engine_core *e, const struct aft_block *b, const struct activations *a,
                      const struct sequence_pass *pass)
{
    const size_t context = model_config_tokens(e->config);
#pragma omp for schedule(static)
    for (size_t row = 0; row < pass->sequences * pass->tokens; row++) {
        const size_t t = row % pass->tokens;
        const float *q = a->qkv + row * e->dims.qkv;
        const float *k = a->qkv + (row - t) * e->dims.qkv + e->dims.channels, *v = k + e->dims.keys;
        KERNEL(aft_exact)
        (a->h + row * e->dims.channels, q, k, v, b->biases + t * context, pass->tokens, e->dims.qkv, e->dims.channels,
         e->config->mixer.query_gate);
    }
}

static void mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    const struct aft_block *b = e->blocks[layer].mixing;
    if (b->exact)
        mix_exact(e, b, a, pass);
    else
        mix_factored(e, b, a, s, pass);
}

MIXER(aft) = {
    .block_bytes = sizeof(struct aft_block),
    .plan = plan,
    .pack = pack,
    AFT_STREAMS,
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
    .macs = macs,
    .biases_shape = biases_shape,
    .read_biases = read_biases,
};
