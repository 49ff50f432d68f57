/* png.h - RGB pixels -> a PNG. The only includer of libpng. Any thread; no state. */
#ifndef SERVER_MEDIA_PNG_H
#define SERVER_MEDIA_PNG_H

#include <stddef.h>

#include "config/status.h"
#include "engine/picture.h"

/* Encode a picture of at least one pixel, 8 bits a channel, no alpha: *ret is malloc'd, *size bytes. Set only on OK.
 * Errors: ERR_NOMEM. */
enum status png_encode(char **ret, size_t *size, const struct picture *p, struct error *err);

#endif
