/* bright_model.h - a picture model whose keys see nothing but brightness, dark pictures with one bright square, and
 * where a map laid over them has its heat. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_BRIGHT_MODEL_H
#define TESTS_SUPPORT_BRIGHT_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* An aft-conv model of 32 x 32 pixels, patches of 4 x 4, in DIR, which is made. Its first block's keys are large where
 * the picture is bright, so large that next to a bright patch a dark one weighs nothing; depth 2, 8 heads, all
 * alike. */
void bright_model_write(const char *dir);

/* A square of `size` pixels at (left, top) in a dark picture. */
struct square {
    uint32_t width, height; /* the picture's, upright */
    uint32_t left, top, size;
};

/* As a JPEG that EXIF `orientation` makes upright; the caller frees. */
uint8_t *square_jpeg(const struct square *s, unsigned orientation, size_t *size);

/* The overlay, a PNG, has the upright picture's proportions, `side` pixels on the longer side, and all its heat in one
 * place: the square, to a part `tolerance` of the longer side. */
void square_assert_found(const struct square *s, const void *png, size_t png_size, uint32_t side, double tolerance);

#endif
