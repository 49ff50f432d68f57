/* png.c - see png.h. libpng's simplified interface: it takes plain rows and reports what is wrong by return value. */
#include "server/media/png.h"

#include <assert.h>
#include <png.h>
#include <stdlib.h>

enum status png_encode(char **ret, size_t *size, const struct picture *p, struct error *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .width = p->width, .height = p->height, .format = PNG_FORMAT_RGB};
    assert(p->width > 0 && p->height > 0);
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image); /* so that it is compressed once, not twice to measure */
    char *memory = malloc(bytes);
    /* Only memory can fail here: the picture is ours, and valid. */
    if (memory == NULL || png_image_write_to_memory(&image, memory, &bytes, 0, p->pixels, 0, NULL) == 0) {
        png_image_free(&image);
        free(memory);
        return error_set(err, ERR_NOMEM, "out of memory for a PNG of %u x %u pixels", p->width, p->height);
    }
    char *fitting = realloc(memory, bytes);
    *ret = fitting != NULL ? fitting : memory;
    *size = bytes;
    return OK;
}
