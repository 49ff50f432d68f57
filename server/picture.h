/* picture.h - a client's bytes -> RGB pixels, safely. The only includer of jpeglib.h and of libexif.
 * Grayscale and CMYK become RGB as Pillow does it, EXIF orientation is applied. Bounds of limits.h are checked in the
 * order: pixels, decoder memory, scans. A file that decodes with warnings (truncated, corrupt) is a bad picture.
 * Any thread; no state. */
#ifndef SERVER_PICTURE_H
#define SERVER_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "engine/image.h"

/* Decode `bytes` into *ret (picture_clear it). Errors: ERR_MEDIA_TYPE (not a JPEG), ERR_PICTURE (a JPEG that does not
 * decode or is beyond a bound, saying which), ERR_NOMEM. *ret is set only on OK. */
enum status picture_decode(struct picture *ret, const uint8_t *bytes, size_t size, struct error *err);

#endif
