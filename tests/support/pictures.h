/* pictures.h - JPEGs for tests: read from tests/data/images or written on the spot, as sound or as odd as a test wants
 * them; PNGs read by libpng; headers that lie. Fails the running test if that does not work. Any thread; no state. */
#ifndef TESTS_SUPPORT_PICTURES_H
#define TESTS_SUPPORT_PICTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURES_DIR "tests/data/images/"

/* A file's bytes; the caller frees. */
uint8_t *picture_file_read(const char *path, size_t *size);

struct jpeg_recipe {
    uint32_t width, height;
    int components;      /* 1 gray, 3 RGB, 4 CMYK; 2 is a JPEG of unknown colours */
    int scans;           /* 0: baseline; else a progressive file of that many scans, 3 to 128, for gray only */
    bool arithmetic;     /* coded that way, which takes longest to decode */
    int ycck;            /* not 0: four components are stored as YCCK, as Photoshop does */
    uint8_t *pixels;     /* [height, width, components]; only read, but libjpeg knows no const */
    const uint8_t *exif; /* an APP1 block's content, or NULL */
    size_t exif_size;
};

/* A JPEG of the best quality without chroma subsampling; the caller frees. */
uint8_t *jpeg_write(const struct jpeg_recipe *recipe, size_t *size);

enum { EXIF_SIZE = 32, EXIF_SHORT = 3, EXIF_LONG = 4 };
/* An EXIF block that holds the orientation alone, of that type, with the bytes in either order. */
void exif_write(uint8_t out[EXIF_SIZE], bool big, unsigned type, unsigned orientation);

/* A JPEG of `upright` [height, width, 3] stored so that EXIF orientation 1..8 makes it upright again; the caller
 * frees. */
uint8_t *jpeg_write_turned(const uint8_t *upright, uint32_t width, uint32_t height, unsigned orientation, size_t *size);

/* Where a JPEG's frame header (SOF) begins: FF, C0 to C2, length, precision, height, width, components. */
uint8_t *jpeg_frame(uint8_t *bytes, size_t size);
/* Change the sides in the header of a JPEG or a PNG, which does not have such pixels. */
void jpeg_set_size(uint8_t *bytes, size_t size, unsigned width, unsigned height);
void png_set_size(uint8_t *bytes, uint32_t width, uint32_t height);
/* CRC-32 with the polynomial of zlib and PNG. */
uint32_t picture_crc32(const uint8_t *bytes, size_t size);

/* A PNG's pixels [height, width, 3]; the caller frees. */
uint8_t *png_read(const void *bytes, size_t size, uint32_t *width, uint32_t *height);

/* Assert that picture_decode refuses the bytes with ERR_PICTURE and a message that contains `said`. */
void picture_assert_refused(const char *name, const uint8_t *bytes, size_t size, const char *said);

#endif
