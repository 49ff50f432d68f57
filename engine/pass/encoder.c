/* encoder.c - see encoder.h. A sequence is embedded as its first block begins and classified as its last one ends, so
 * that no step is much longer than its part of a block. The rows of x are a sequence's own from block to block; all
 * other activations are used from their first row on by whichever sequences are at work. */
#include "engine/pass/encoder.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/core/team.h"
#include "engine/pass/token_map.h"
#include "engine/pass/token_sums.h"

static size_t patch_values(const struct model_config *c)
{
    return (size_t)3 * c->patch[0] * c->patch[1];
}

void encoder_plan(struct encoder *n, struct workspace *w, const struct engine_core *e, const struct model *m,
                  uint32_t pictures_max, uint32_t trained_elements, uint32_t elements_max)
{
    const struct model_config *c = e->config;
    const struct dims *d = &e->dims;
    const uint32_t before = m->cls_token != NULL ? 1 : 0, tokens_max = elements_max + before;
    const uint64_t usual = (uint64_t)pictures_max * (trained_elements + before); /* rows */
    const uint64_t rows = usual > tokens_max ? usual : tokens_max, pictures = pictures_max;
    n->pictures_max = pictures_max;
    n->elements_max = elements_max;
    n->rows_max = rows;
    n->next_block = c->depth;
    if (c->input == INPUT_IMAGE) {
        gemm_plan(&n->patch_embed, w, PRECISION_F32, d->dim, (uint32_t)patch_values(c));
        workspace_note(w, &n->patches, rows * patch_values(c), sizeof *n->patches);
        workspace_note(w, &n->levels, (uint64_t)3 * BYTE_VALUES, sizeof *n->levels);
        workspace_note(w, (void *)&n->maps, pictures_max, sizeof *n->maps);
    } else {
        workspace_note(w, &n->tok_embed, (uint64_t)BYTE_VALUES * d->channels, sizeof *n->tok_embed);
        workspace_note(w, &n->bytes, rows, sizeof *n->bytes);
    }
    if (m->cls_token != NULL)
        workspace_note(w, &n->cls_token, d->channels, sizeof *n->cls_token);
    if (m->pos_embed != NULL)
        workspace_note(w, &n->pos_embed, (uint64_t)model_config_tokens(c) * d->channels, sizeof *n->pos_embed);
    activations_plan(&n->a, w, d, rows, e->threads);
    e->mixer->plan_scratch(&n->scratch, w, e, rows, tokens_max);
    if (m->pool_score != NULL) {
        workspace_note(w, &n->pool_score, d->channels, sizeof *n->pool_score);
        workspace_note(w, &n->weights, rows + pictures * LANES, sizeof *n->weights);
    }
    workspace_note(w, &n->pooled, pictures * d->channels, sizeof *n->pooled);
    workspace_note(w, &n->logits, pictures * lanes_padded(c->classes), sizeof *n->logits);
}

static void fill_levels(struct encoder *n, const struct model_config *c)
{
    for (size_t channel = 0; channel < 3; channel++)
        for (size_t value = 0; value < BYTE_VALUES; value++)
            n->levels[channel * BYTE_VALUES + value] =
                (float)(((double)value / 255.0 - (double)c->mean[channel]) / (double)c->std[channel]);
}

enum status encoder_pack(struct encoder *n, const struct engine_core *e, const struct model *m, struct error *err)
{
    const struct model_config *c = e->config;
    if (c->input == INPUT_IMAGE)
        fill_levels(n, c);
    else
        rows_pack(n->tok_embed, m->tok_embed, BYTE_VALUES, &e->dims);
    if (m->cls_token != NULL)
        rows_pack(n->cls_token, m->cls_token, 1, &e->dims);
    if (m->pos_embed != NULL)
        rows_pack(n->pos_embed, m->pos_embed, model_config_tokens(c), &e->dims);
    if (m->pool_score != NULL)
        for (size_t i = 0; i < c->dim; i++)
            n->pool_score[i] = (float)((double)m->pool_score[i] / sqrt((double)c->dim));
    return c->input == INPUT_IMAGE ? linear_pack(&n->patch_embed, 0, &m->patch_embed, err) : OK;
}

/* One row of patches of a picture: pixels [ph, width * pw, 3] -> out [width, 3 * ph * pw]. */
static void cut_patches(float *out, const uint8_t *pixels, const float *levels, uint32_t width, uint32_t ph,
                        uint32_t pw)
{
    const size_t line = (size_t)3 * width * pw;
    for (size_t i = 0; i < width; i++)
        for (size_t channel = 0; channel < 3; channel++)
            for (size_t y = 0; y < ph; y++)
                for (size_t x = 0; x < pw; x++)
                    *out++ = levels[channel * BYTE_VALUES + pixels[y * line + (i * pw + x) * 3 + channel]];
}

/* A batch of `count` grids of elements. */
static void begin(struct encoder *n, const struct engine_core *e, size_t count, uint32_t down, uint32_t across)
{
    const uint32_t tokens = down * across + (uint32_t)encoder_rows_before(n);
    const bool grid = encoder_rows_before(n) == 0;
    n->elements_each = (size_t)down * across;
    n->pass = (struct sequence_pass){
        .sequences = count, .tokens = tokens, .height = grid ? down : 1, .width = grid ? across : tokens};
    n->next_block = 0;
    n->next_sequence = 0;
    n->any_map = false;
    assert(count >= 1 && count <= n->pictures_max && count * tokens <= n->rows_max);
    assert(e->config->input != INPUT_IMAGE || !model_config_fixed_size(e->config, n->pos_embed != NULL) ||
           tokens == model_config_tokens(e->config));
    assert(e->config->input == INPUT_IMAGE || tokens <= e->config->context);
}

void encoder_begin(struct encoder *n, const struct engine_core *e, const uint8_t *const pixels[], size_t pictures,
                   uint32_t height, uint32_t width)
{
    const uint32_t ph = e->config->patch[0], pw = e->config->patch[1];
    assert(height % ph == 0 && width % pw == 0);
    const uint32_t down = height / ph, across = width / pw;
    begin(n, e, pictures, down, across);
    memset(n->maps, 0, pictures * sizeof *n->maps);
    const size_t lines = pictures * down, line_pixels = (size_t)3 * ph * width;
    const size_t line_values = across * patch_values(e->config);
#pragma omp parallel for num_threads(e->threads) schedule(static)
    for (size_t i = 0; i < lines; i++)
        cut_patches(n->patches + i * line_values, pixels[i / down] + i % down * line_pixels, n->levels, across, ph, pw);
}

void encoder_begin_texts(struct encoder *n, const struct engine_core *e, const uint8_t *const texts[], size_t count,
                         uint32_t length)
{
    begin(n, e, count, 1, length);
    for (size_t i = 0; i < count; i++)
        memcpy(n->bytes + i * length, texts[i], length);
}

/* x from this sequence's rows on; all else from the first row. */
static struct activations activations_of(const struct encoder *n, const struct engine_core *e, size_t first)
{
    struct activations a = n->a;
    a.x += first * n->pass.tokens * e->dims.channels;
    return a;
}

/* Team; as what follows, for `count` sequences from `first` on. */
static void embed_patches(struct encoder *n, const struct engine_core *e, size_t first, size_t count)
{
    const size_t channels = e->dims.channels, tokens = n->pass.tokens, values = patch_values(e->config);
    /* One product for all pictures, unless something stands between them. */
    const size_t runs = encoder_rows_before(n) == 0 ? 1 : count, patches = count * n->elements_each / runs;
    const float *from = n->patches + first * n->elements_each * values;
    float *x = n->a.x + first * tokens * channels;
    for (size_t i = 0; i < runs; i++)
        gemm_run(&e->gemm, &n->patch_embed, x + (i * tokens + encoder_rows_before(n)) * channels, channels,
                 from + i * patches * values, values, patches, EPILOGUE_BIAS);
}

static void embed_bytes(struct encoder *n, const struct engine_core *e, size_t first, size_t count)
{
    const size_t channels = e->dims.channels, before = encoder_rows_before(n);
#pragma omp for schedule(static)
    for (size_t i = first * n->elements_each; i < (first + count) * n->elements_each; i++)
        memcpy(n->a.x + (i + (i / n->elements_each + 1) * before) * channels, n->tok_embed + n->bytes[i] * channels,
               channels * sizeof *n->tok_embed);
}

static void embed(struct encoder *n, const struct engine_core *e, size_t first, size_t count)
{
    const size_t channels = e->dims.channels, tokens = n->pass.tokens;
    if (e->config->input == INPUT_IMAGE)
        embed_patches(n, e, first, count);
    else
        embed_bytes(n, e, first, count);
    if (n->cls_token != NULL)
#pragma omp for schedule(static)
        for (size_t i = first; i < first + count; i++)
            memcpy(n->a.x + i * tokens * channels, n->cls_token, channels * sizeof *n->cls_token);
    if (n->pos_embed == NULL)
        return;
#pragma omp for schedule(static)
    for (size_t r = first * tokens; r < (first + count) * tokens; r++)
        for (size_t c = 0; c < channels; c++)
            n->a.x[r * channels + c] += n->pos_embed[r % tokens * channels + c];
}

static void mean_rows(float *mean, const float *rows, size_t count, size_t channels)
{
    token_sums(mean, rows, count, channels, channels);
    for (size_t c = 0; c < channels; c++)
        mean[c] /= (float)count;
}

/* Additive attention (Wu et al. 2021, eq. 3 and 4): the mean weighted by softmax(score . row / sqrt(dim)). */
static void weighted_mean_rows(float *mean, const float *rows, float *weights, const struct encoder *n,
                               const struct engine_core *e)
{
    const size_t channels = e->dims.channels, tokens = n->pass.tokens;
    for (size_t t = 0; t < tokens; t++) {
        double sum = 0.0;
        for (size_t c = 0; c < channels; c++)
            sum += (double)n->pool_score[c] * (double)rows[t * channels + c];
        weights[t] = (float)sum;
    }
    e->kernels->softmax(weights, tokens);
    token_weighted_sums(mean, weights, rows, tokens, channels, channels);
}

/* norm, pooling (the mean over the tokens, plain or weighted, or the class token's row), head. */
static void classify(struct encoder *n, const struct engine_core *e, size_t first, size_t count)
{
    const size_t channels = e->dims.channels, tokens = n->pass.tokens;
    const size_t pooled_rows = e->config->pooling == POOLING_CLASS_TOKEN ? 1 : tokens;
    const struct activations a = activations_of(n, e, first);
    float *pooled = n->pooled + first * channels;
    block_norm(e, &e->norm, a.h, a.x, NULL, count * tokens);
#pragma omp for schedule(static)
    for (size_t i = 0; i < count; i++) {
        const float *rows = a.h + i * tokens * channels;
        if (n->pool_score == NULL)
            mean_rows(pooled + i * channels, rows, pooled_rows, channels);
        else
            weighted_mean_rows(pooled + i * channels, rows, n->weights + (first + i) * lanes_padded(tokens), n, e);
    }
    gemm_run(&e->gemm, &e->head, n->logits + first * e->head.n, e->head.n, pooled, channels, count, EPILOGUE_BIAS);
}

/* Draw the maps of sequence i, whose rows qkv begins with, that are wanted of this layer; before the mixer runs,
 * because some mixers overwrite the keys. */
static void draw_maps(const struct encoder *n, const struct engine_core *e, uint32_t layer, size_t i, const float *qkv)
{
    if (n->any_map && n->maps[i].out != NULL && layer - n->maps[i].layer < n->maps[i].layers)
        token_maps(&n->maps[i], e, layer, qkv, n->pass.tokens, encoder_rows_before(n));
}

/* Does each thread take whole sequences through a block, which then stay in its cache, without waiting for others? Yes
 * if that leaves hardly any thread idle, and the buffers have room for a sequence of each. */
static bool by_sequence(const struct engine_core *e, size_t count)
{
    const size_t rounds = (count + e->threads - 1) / e->threads;
    return e->mixer->mix_alone != NULL && count >= e->threads && 8 * count >= 7 * rounds * e->threads;
}

/* Sequence i through a block: x is its own, all else the thread's. */
static void sequence_alone(struct encoder *n, const struct engine_core *e, uint32_t layer, size_t i)
{
    const size_t tokens = n->pass.tokens;
    struct activations a = activations_from(&n->a, &e->dims, team_thread() * tokens);
    a.x = n->a.x + i * tokens * e->dims.channels;
    block_before_alone(e, &e->blocks[layer], &a, tokens, NULL);
    draw_maps(n, e, layer, i, a.qkv);
    e->mixer->mix_alone(e, layer, &a, &n->scratch, &n->pass);
    block_after_alone(e, &e->blocks[layer], &a, tokens, NULL);
}

/* The same with all threads in each sequence. */
static void sequences_together(struct encoder *n, const struct engine_core *e, uint32_t layer, size_t first,
                               size_t count)
{
    const struct activations a = activations_of(n, e, first);
    const size_t rows = count * n->pass.tokens;
    struct sequence_pass pass = n->pass;
    pass.sequences = count;
    block_before(e, &e->blocks[layer], &a, rows);
    if (n->any_map)
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < count; i++)
            draw_maps(n, e, layer, first + i, a.qkv + i * pass.tokens * e->dims.qkv);
    e->mixer->mix_sequences(e, layer, &a, &n->scratch, &pass);
    block_after(e, &e->blocks[layer], &a, rows);
}

static void pass_block(struct encoder *n, const struct engine_core *e, size_t first, size_t count)
{
    const uint32_t layer = n->next_block;
    const bool alone = by_sequence(e, count);
#pragma omp parallel num_threads(e->threads)
    {
        if (alone)
            thread_pinning_pin(e->pinning, team_thread());
        else
            thread_pinning_unpin(e->pinning);
        if (layer == 0)
            embed(n, e, first, count);
        if (alone)
#pragma omp for schedule(dynamic)
            for (size_t i = first; i < first + count; i++)
                sequence_alone(n, e, layer, i);
        else
            sequences_together(n, e, layer, first, count);
        if (layer + 1 == e->config->depth)
            classify(n, e, first, count);
    }
}

bool encoder_step(struct encoder *n, const struct engine_core *e, size_t inputs_max)
{
    const size_t left = n->pass.sequences - n->next_sequence, count = left < inputs_max ? left : inputs_max;
    assert(n->next_block < e->config->depth && count > 0);
    pass_block(n, e, n->next_sequence, count);
    n->next_sequence += count;
    if (n->next_sequence == n->pass.sequences) {
        n->next_sequence = 0;
        n->next_block++;
    }
    return n->next_block == e->config->depth;
}
