/* bright_model.c - see bright_model.h. */
#include "tests/support/bright_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/pictures.h"

enum { DIM = 32, HEADS = 8, PATCH_VALUES = 3 * 4 * 4 };

void bright_model_write(const char *dir)
{
    static float embed[DIM * PATCH_VALUES], bias[DIM], ones[DIM], zeros[DIM], key[HEADS * DIM];
    struct model_copy c;
    /* Channel 0 is the brightness, channel 1 always one, so that the norm leaves their ratio. */
    for (size_t i = 0; i < PATCH_VALUES; i++)
        embed[i] = 1.0f / PATCH_VALUES;
    bias[1] = 1.0f;
    for (size_t i = 0; i < DIM; i++)
        ones[i] = 1.0f;
    for (size_t h = 0; h < HEADS; h++)
        key[h * DIM] = 4.0f;
    assert_int_equal(mkdir(dir, 0700), 0);
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    struct tensor *patches = model_copy_tensor(&c, "patch_embed.weight");
    assert_int_equal(patches->elements, DIM * PATCH_VALUES);
    patches->data = (const uint8_t *)embed;
    model_copy_set(&c, "patch_embed.bias", bias, DIM, 0);
    model_copy_set(&c, "blocks.0.norm1.weight", ones, DIM, 0);
    model_copy_set(&c, "blocks.0.norm1.bias", zeros, DIM, 0);
    model_copy_set(&c, "blocks.0.mixer.k.weight", key, HEADS, DIM);
    model_copy_set(&c, "blocks.0.mixer.k.bias", zeros, HEADS, 0);
    model_copy_write(&c, dir);
    model_copy_clear(&c);
}

uint8_t *square_jpeg(const struct square *s, unsigned orientation, size_t *size)
{
    uint8_t *pixels = calloc((size_t)s->width * s->height, 3);
    assert_non_null(pixels);
    for (uint32_t y = s->top; y < s->top + s->size; y++)
        memset(pixels + ((size_t)y * s->width + s->left) * 3, 255, (size_t)s->size * 3);
    uint8_t *jpeg = jpeg_write_turned(pixels, s->width, s->height, orientation, size);
    free(pixels);
    return jpeg;
}

void square_assert_found(const struct square *s, const void *png, size_t png_size, uint32_t side, double tolerance)
{
    uint32_t width = 0, height = 0;
    uint8_t *pixels = png_read(png, png_size, &width, &height);
    const uint32_t longer = s->width > s->height ? s->width : s->height;
    const double scale = (double)side / longer;
    double heat = 0.0, x = 0.0, y = 0.0;
    assert_true(fabs(width - scale * s->width) <= 0.5 && fabs(height - scale * s->height) <= 0.5);
    for (size_t i = 0; i < (size_t)width * height; i++) {
        /* Yellow; nothing of the grey picture, whatever its brightness. */
        const double yellow = (double)pixels[i * 3] + pixels[i * 3 + 1] - 2.0 * pixels[i * 3 + 2];
        if (yellow < 10.0)
            continue;
        const size_t row = i / width, column = i % width;
        heat += yellow;
        x += yellow * ((double)column + 0.5);
        y += yellow * ((double)row + 0.5);
    }
    free(pixels);
    const double want_x = scale * (s->left + s->size / 2.0), want_y = scale * (s->top + s->size / 2.0);
    if (heat == 0.0 || fabs(x / heat - want_x) > tolerance * side || fabs(y / heat - want_y) > tolerance * side)
        fail_msg("the square of %u x %u at %u, %u is shown at %.1f, %.1f of %u x %u, expected %.1f, %.1f", s->width,
                 s->height, s->left, s->top, x / heat, y / heat, width, height, want_x, want_y);
}
