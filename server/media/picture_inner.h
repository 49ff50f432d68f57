/* picture_inner.h - what the decoders of picture.h share: bounds, orientation, transparency. Any thread; no state. */
#ifndef SERVER_MEDIA_PICTURE_INNER_H
#define SERVER_MEDIA_PICTURE_INNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/picture.h"
#include "server/media/picture.h"

#define PICTURE_CHANNELS 3u

_Static_assert((uint64_t)PICTURE_SIDE_MAX *PICTURE_SIDE_MAX <= UINT32_MAX, "width * height fits a uint32_t");

/* Bytes that begin like a file of that format -> *ret, upright; set only on OK. Errors: ERR_PICTURE, ERR_NOMEM, and
 * what *options->stop says. */
typedef enum status picture_decoder(struct picture *ret, const uint8_t *bytes, size_t size,
                                    const struct picture_options *options, struct error *err);
picture_decoder picture_jpeg_decode, picture_png_decode, picture_webp_decode;

/* The divisor of its sides, 1, 2, 4 or 8, that a JPEG of this size is decoded with. */
uint32_t picture_reduction(uint32_t width, uint32_t height, const struct picture_options *options);
/* What the library says of the file against what its header had promised: `bytes` by picture_*_bytes. Errors:
 * ERR_PICTURE. */
enum status picture_check_options(const struct picture_options *options, uint64_t bytes, struct error *err);
/* What *options->stop says. */
enum status picture_stop(const struct picture_options *options, struct error *err);

/* Most memory that decoding takes, result included. */
uint64_t picture_jpeg_bytes(uint32_t width, uint32_t height, uint32_t components, bool whole_scans, uint32_t reduction);
uint64_t picture_png_bytes(uint32_t width, uint32_t height, bool alpha, bool turned);
uint64_t picture_webp_bytes(uint32_t width, uint32_t height);

/* What the header says, before anything of that size exists. `reduction` is the divisor of the sides that are decoded,
 * `reducible`: it might be larger if less were wanted. Errors: ERR_PICTURE. */
enum status picture_check_size(uint64_t width, uint64_t height, uint32_t reduction, bool reducible, struct error *err);

/* How a stored picture is brought upright: mirror it in x, in y, then swap x and y. Zeroed: it is upright. */
struct picture_turn {
    bool mirror_x, mirror_y, swap;
};

/* Versions of the libraries; libjpeg's and libexif's as far as they are known. Static memory, or `out`. */
const char *picture_jpeg_version(void);
const char *picture_png_version(void);
const char *picture_webp_version(char out[16]);

/* The turn that an EXIF block, which begins with "Exif\0\0", asks for; none if it has no orientation or makes no
 * sense. *ret is set only on OK. Errors: ERR_NOMEM. */
enum status picture_turn_from_exif(struct picture_turn *ret, const uint8_t *bytes, size_t size, struct error *err);
/* The same without those six bytes, as files other than JPEG keep it. */
enum status picture_turn_from_tiff(struct picture_turn *ret, const uint8_t *bytes, size_t size, struct error *err);

/* Put `rows` stored rows, the first of them row `top` of the stored picture of width x height, into *p, whose sides are
 * the upright ones. */
void picture_place_rows(struct picture *p, const uint8_t *stored, uint32_t top, uint32_t rows, uint32_t width,
                        uint32_t height, struct picture_turn turn);

/* A whole decoded picture, malloc'd: [height, width, 3], or [height, width, 4] with alpha last, which is laid on white.
 * Takes `pixels` in any case. Errors: ERR_NOMEM. */
enum status picture_from_stored(struct picture *ret, uint8_t *pixels, uint32_t width, uint32_t height, bool alpha,
                                struct picture_turn turn, struct error *err);

/* a * b / 255 of bytes, rounded, without a division. */
static inline uint8_t picture_multiply_255(unsigned a, unsigned b)
{
    const unsigned product = a * b + 128;
    return (uint8_t)(((product >> 8) + product) >> 8);
}

#endif
