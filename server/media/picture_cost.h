/* picture_cost.h - what a picture will take to decode, read off its first bytes, before any work is spent on it. Any
 * thread; no state. */
#ifndef SERVER_MEDIA_PICTURE_COST_H
#define SERVER_MEDIA_PICTURE_COST_H

#include <stddef.h>
#include <stdint.h>

#include "server/media/picture.h"

struct picture_cost {
    uint64_t ns;            /* a rough guess, for one thread of an ordinary processor */
    uint64_t bytes;         /* most memory, pixels and the decoder's own: picture_decode takes it as bytes_max */
    uint64_t pixels;        /* at most, for what counts them */
    uint32_t width, height; /* as stored; 0: nothing is known, or a bound of limits.h is exceeded */
};

/* Takes some microseconds, however the file is made: where it does not tell soon, the largest picture is assumed. What
 * cannot be a picture, or is beyond a bound, costs nothing: picture_decode refuses it at once. */
struct picture_cost picture_cost_of(const uint8_t *bytes, size_t size, const struct picture_options *options);

#endif
