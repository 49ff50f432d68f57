/* png_read.c - see png_read.h. */
#include "tests/support/png_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <png.h>

void png_read(struct picture *ret, const void *bytes, size_t size)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (png_image_begin_read_from_memory(&image, bytes, size) == 0)
        fail_msg("not a PNG: %s", image.message);
    image.format = PNG_FORMAT_RGB;
    uint8_t *pixels = malloc(PNG_IMAGE_SIZE(image));
    assert_non_null(pixels);
    if (png_image_finish_read(&image, NULL, pixels, 0, NULL) == 0)
        fail_msg("a PNG that does not decode: %s", image.message);
    *ret = (struct picture){.pixels = pixels, .width = image.width, .height = image.height};
}
