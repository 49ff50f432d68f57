/* picture.h - a client's bytes -> RGB pixels, safely. picture_*.c are the only includers of the picture libraries'
 * decoders.
 * The first bytes of a file say what it is: JPEG, PNG or WebP. Colours become RGB as in Pillow, transparent pixels are
 * laid on white, EXIF orientation is applied. Bounds of limits.h are checked before anything of a picture's size
 * exists. A file that is truncated or corrupt is a bad picture. Any thread; no state. */
#ifndef SERVER_MEDIA_PICTURE_H
#define SERVER_MEDIA_PICTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/status.h"
#include "engine/picture.h"

/* What is wanted of a picture, and what decoding it may cost. Zeroed: all pixels, whatever the limits allow. */
struct picture_options {
    /* The longest that the shorter and the longer side of anything made of it will be. A large JPEG of which that is a
     * small part is decoded to a half, a quarter or an eighth of its sides: to no less than PICTURE_REDUCTION_GAP times
     * what is wanted (limits.h). 0: that side does not matter; both: all pixels are wanted. */
    uint32_t shorter, longer;
    uint64_t bytes_max;     /* of memory while it is decoded; 0: no bound but those of limits.h */
    const atomic_int *stop; /* an enum status, looked at now and then: not OK, and decoding ends with it; or NULL */
};
/* Decode `bytes` into *ret (picture_clear it), by options or, NULL, as a zeroed one says. Errors: ERR_MEDIA_TYPE (not a
 * picture of these formats), ERR_PICTURE (one that does not decode, is beyond a bound or takes more than bytes_max,
 * saying which), ERR_NOMEM, and what *stop says. *ret is set only on OK. */
enum status picture_decode(struct picture *ret, const uint8_t *bytes, size_t size,
                           const struct picture_options *options, struct error *err);

/* What picture_decode would read them as: "image/jpeg", "image/png", "image/webp"; else NULL. */
const char *picture_media_type(const uint8_t *bytes, size_t size);
/* Is this one of those three, another name of one (image/jpg), or one that says nothing (application/octet-stream,
 * binary/octet-stream, "image/" with a star)? Case does not matter. */
bool picture_reads_type(const char *media_type);

/* Is it the name of such a file, by its ending? */
bool picture_has_name(const char *path);

#define PICTURE_KINDS "a JPEG, PNG or WebP picture"

/* Do the bytes begin like a picture that is read, that which `declared` says, a media type without parameters? NULL,
 * "": any. Errors: ERR_MEDIA_TYPE, saying what they look like instead or (`param`) naming both. */
enum status picture_check(const char *declared, const char *param, const uint8_t *bytes, size_t size,
                          struct error *err);

/* Lines for --version: the libraries that decode. */
void picture_print_versions(FILE *to);

#endif
