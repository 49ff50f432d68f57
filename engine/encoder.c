/* encoder.c - see encoder.h. A step runs one block; the first one also embeds, the last one also classifies, so that no
 * step is much longer than a block. */
#include "engine/encoder.h"

#include <assert.h>
#include <string.h>

static size_t patch_values(const struct model_config *c)
{
    return (size_t)3 * c->patch[0] * c->patch[1];
}

static size_t trained_tokens(const struct model_config *c)
{
    return (size_t)(c->size[0] / c->patch[0]) * (c->size[1] / c->patch[1]);
}

void encoder_plan(struct encoder *n, struct workspace *w, const struct engine_core *e, const struct model *m,
                  uint32_t images_max, uint32_t tokens_max)
{
    const struct model_config *c = e->config;
    const struct dims *d = &e->dims;
    const uint64_t rows = (uint64_t)images_max * tokens_max + GEMM_ROWS_MAX;
    const uint64_t images = (uint64_t)images_max + GEMM_ROWS_MAX;
    n->images_max = images_max;
    n->tokens_max = tokens_max;
    n->next_block = c->depth;
    gemm_plan(&n->patch_embed, w, d->dim, (uint32_t)patch_values(c));
    if (m->pos_embed != NULL)
        workspace_note(w, &n->pos_embed, (uint64_t)trained_tokens(c) * d->channels, sizeof *n->pos_embed);
    workspace_note(w, &n->levels, (uint64_t)3 * BYTE_VALUES, sizeof *n->levels);
    activations_plan(&n->a, w, d, rows, e->threads);
    n->mixer->plan_scratch(&n->scratch, w, e, rows, tokens_max);
    workspace_note(w, &n->patches, rows * patch_values(c), sizeof *n->patches);
    workspace_note(w, &n->pooled, images * d->channels, sizeof *n->pooled);
    workspace_note(w, &n->logits, images * lanes_padded(c->classes), sizeof *n->logits);
}

void encoder_pack(struct encoder *n, const struct engine_core *e, const struct model *m)
{
    const struct model_config *c = e->config;
    const struct linear *p = &m->patch_embed;
    gemm_pack(&n->patch_embed, 0, p->weight, p->bias, p->out, p->in);
    if (m->pos_embed != NULL)
        for (size_t t = 0; t < trained_tokens(c); t++)
            memcpy(n->pos_embed + t * e->dims.channels, m->pos_embed + t * c->dim, c->dim * sizeof *m->pos_embed);
    for (size_t channel = 0; channel < 3; channel++)
        for (size_t value = 0; value < BYTE_VALUES; value++)
            n->levels[channel * BYTE_VALUES + value] =
                (float)(((double)value / 255.0 - (double)c->mean[channel]) / (double)c->std[channel]);
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

void encoder_begin(struct encoder *n, const struct engine_core *e, const uint8_t *const pixels[], size_t images,
                   uint32_t height, uint32_t width)
{
    const uint32_t ph = e->config->patch[0], pw = e->config->patch[1];
    assert(images >= 1 && images <= n->images_max && height % ph == 0 && width % pw == 0);
    n->pass = (struct picture_pass){.pictures = images, .height = height / ph, .width = width / pw};
    n->next_block = 0;
    assert(n->pass.height > 0 && n->pass.width > 0 && (size_t)n->pass.height * n->pass.width <= n->tokens_max);
    assert(n->pos_embed == NULL || (size_t)n->pass.height * n->pass.width == trained_tokens(e->config));
    const size_t lines = images * n->pass.height, line_pixels = (size_t)3 * ph * width;
    const size_t line_values = n->pass.width * patch_values(e->config);
#pragma omp parallel for num_threads(e->threads) schedule(static)
    for (size_t i = 0; i < lines; i++)
        cut_patches(n->patches + i * line_values, pixels[i / n->pass.height] + i % n->pass.height * line_pixels,
                    n->levels, n->pass.width, ph, pw);
}

/* Team. */
static void embed(struct encoder *n, const struct engine_core *e, size_t rows)
{
    const size_t channels = e->dims.channels, tokens = (size_t)n->pass.height * n->pass.width;
    const size_t values = patch_values(e->config);
    gemm_run(e->kernels, &n->patch_embed, e->gemm_rows, n->a.x, channels, n->patches, values, rows, EPILOGUE_BIAS);
    if (n->pos_embed == NULL)
        return;
#pragma omp for schedule(static)
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < channels; c++)
            n->a.x[r * channels + c] += n->pos_embed[r % tokens * channels + c];
}

/* Team. norm, mean over the tokens, head. */
static void classify(struct encoder *n, const struct engine_core *e, size_t rows)
{
    const size_t channels = e->dims.channels, tokens = (size_t)n->pass.height * n->pass.width;
    block_norm(e, &e->norm, n->a.h, n->a.x, NULL, rows);
#pragma omp for schedule(static)
    for (size_t i = 0; i < n->pass.pictures; i++) {
        float *sum = n->pooled + i * channels;
        memset(sum, 0, channels * sizeof *sum);
        for (size_t t = 0; t < tokens; t++)
            for (size_t c = 0; c < channels; c++)
                sum[c] += n->a.h[(i * tokens + t) * channels + c];
        for (size_t c = 0; c < channels; c++)
            sum[c] /= (float)tokens;
    }
    gemm_run(e->kernels, &e->head, e->gemm_rows, n->logits, e->head.n, n->pooled, channels, n->pass.pictures,
             EPILOGUE_BIAS);
}

bool encoder_step(struct encoder *n, const struct engine_core *e)
{
    const uint32_t layer = n->next_block, depth = e->config->depth;
    const size_t rows = n->pass.pictures * n->pass.height * n->pass.width;
    assert(layer < depth);
#pragma omp parallel num_threads(e->threads)
    {
        if (layer == 0)
            embed(n, e, rows);
        block_before(e, &e->blocks[layer], &n->a, rows);
        n->mixer->mix_pictures(e, layer, &n->a, &n->scratch, &n->pass);
        block_after(e, &e->blocks[layer], &n->a, rows);
        if (layer + 1 == depth)
            classify(n, e, rows);
    }
    n->next_block++;
    return n->next_block == depth;
}

const float *encoder_logits(const struct encoder *n, const struct engine_core *e, size_t image)
{
    assert(n->next_block == e->config->depth && image < n->pass.pictures);
    return n->logits + image * e->head.n;
}
