/* png_read.h - a PNG of an answer or a file -> RGB pixels, by libpng. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_PNG_READ_H
#define TESTS_SUPPORT_PNG_READ_H

#include <stddef.h>

#include "engine/image.h"

/* picture_clear *ret. */
void png_read(struct picture *ret, const void *bytes, size_t size);

#endif
