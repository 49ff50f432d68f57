/* pictures.c - see pictures.h. */
#include "tests/support/pictures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

#include "server/media/picture.h"

enum { SCANS_MAX = 128 }; /* DC and 63 coefficients, each in two steps */

uint8_t *picture_file_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("%s: cannot be opened", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long end = ftell(f);
    assert_true(end > 0);
    assert_int_equal(fseek(f, 0, SEEK_SET), 0);
    uint8_t *bytes = malloc((size_t)end);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)end, f), (size_t)end);
    (void)fclose(f);
    *size = (size_t)end;
    return bytes;
}

/* Scan i of a progressive gray picture: all coefficients one by one without their last bit, then their last bits. */
static jpeg_scan_info scan_of(int i)
{
    const int coefficient = i % 64, step = i / 64;
    return (jpeg_scan_info){
        .comps_in_scan = 1, .Ss = coefficient, .Se = coefficient, .Ah = step == 0 ? 0 : 1, .Al = step == 0 ? 1 : 0};
}

uint8_t *jpeg_write(const struct jpeg_recipe *recipe, size_t *size)
{
    static const J_COLOR_SPACE spaces[] = {JCS_UNKNOWN, JCS_GRAYSCALE, JCS_UNKNOWN, JCS_RGB, JCS_CMYK};
    jpeg_scan_info script[SCANS_MAX];
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;

    j.err = jpeg_std_error(&errors); /* exits: a test that asks for what libjpeg does not write is wrong */
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &bytes, &length);
    j.image_width = recipe->width;
    j.image_height = recipe->height;
    j.input_components = recipe->components;
    j.in_color_space = spaces[recipe->components];
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 100, TRUE);
    j.arith_code = recipe->arithmetic ? TRUE : FALSE;
    if (recipe->ycck)
        jpeg_set_colorspace(&j, JCS_YCCK);
    j.comp_info[0].h_samp_factor = j.comp_info[0].v_samp_factor = 1;
    j.comp_info[recipe->components - 1].h_samp_factor = j.comp_info[recipe->components - 1].v_samp_factor = 1;
    if (recipe->scans > 0) {
        assert_true(recipe->components == 1 && recipe->scans <= SCANS_MAX);
        for (int i = 0; i < recipe->scans; i++)
            script[i] = scan_of(i);
        j.scan_info = script;
        j.num_scans = recipe->scans;
    }
    jpeg_start_compress(&j, TRUE);
    if (recipe->exif != NULL)
        jpeg_write_marker(&j, JPEG_APP0 + 1, recipe->exif, (unsigned)recipe->exif_size);
    const size_t pitch = (size_t)recipe->width * (size_t)recipe->components;
    for (uint32_t y = 0; y < recipe->height; y++) {
        JSAMPROW row = recipe->pixels + y * pitch;
        assert_int_equal(jpeg_write_scanlines(&j, &row, 1), 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    *size = length;
    return bytes;
}

static void put(uint8_t *at, unsigned bytes, bool big, unsigned value)
{
    for (unsigned i = 0; i < bytes; i++)
        at[big ? bytes - 1 - i : i] = (uint8_t)(value >> 8 * i);
}

void exif_write(uint8_t out[EXIF_SIZE], bool big, unsigned type, unsigned orientation)
{
    static const uint8_t exif[] = {'E', 'x', 'i', 'f', 0, 0};
    memset(out, 0, EXIF_SIZE);
    memcpy(out, exif, sizeof(exif));
    memset(out + 6, big ? 'M' : 'I', 2);
    put(out + 8, 2, big, 42);
    put(out + 10, 4, big, 8);      /* the first directory follows the header, */
    put(out + 14, 2, big, 1);      /* has one entry, */
    put(out + 16, 2, big, 0x0112); /* the orientation, */
    put(out + 18, 2, big, type);
    put(out + 20, 4, big, 1); /* one value */
    put(out + 24, type == EXIF_LONG ? 4 : 2, big, orientation);
}

uint8_t *jpeg_write_turned(const uint8_t *upright, uint32_t width, uint32_t height, unsigned orientation, size_t *size)
{
    const bool lies = orientation >= 5; /* rows and columns are exchanged */
    struct jpeg_recipe r = {.width = lies ? height : width, .height = lies ? width : height, .components = 3};
    uint8_t exif[EXIF_SIZE];
    r.pixels = malloc((size_t)width * height * 3);
    assert_non_null(r.pixels);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            /* EXIF 2.3, 4.6.4: where the stored picture's first row and first column are seen. */
            const bool flips_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
            const bool flips_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
            const uint32_t across = flips_x ? width - 1 - x : x, down = flips_y ? height - 1 - y : y;
            const size_t row = lies ? across : down, column = lies ? down : across;
            memcpy(r.pixels + (row * r.width + column) * 3, upright + ((size_t)y * width + x) * 3, 3);
        }
    exif_write(exif, orientation % 2 == 0, EXIF_SHORT, orientation);
    r.exif = exif;
    r.exif_size = sizeof exif;
    uint8_t *bytes = jpeg_write(&r, size);
    free(r.pixels);
    return bytes;
}

uint8_t *jpeg_frame(uint8_t *bytes, size_t size)
{
    for (size_t i = 2; i + 10 < size; i += 2 + ((size_t)bytes[i + 2] << 8 | bytes[i + 3])) {
        assert_int_equal(bytes[i], 0xff);
        if (bytes[i + 1] >= 0xc0 && bytes[i + 1] <= 0xc2)
            return bytes + i;
    }
    fail_msg("no frame header");
    return NULL;
}

void jpeg_set_size(uint8_t *bytes, size_t size, unsigned width, unsigned height)
{
    uint8_t *frame = jpeg_frame(bytes, size);
    put(frame + 5, 2, true, height);
    put(frame + 7, 2, true, width);
}

void png_set_size(uint8_t *bytes, uint32_t width, uint32_t height)
{
    put(bytes + 16, 4, true, width);
    put(bytes + 20, 4, true, height);
    put(bytes + 29, 4, true, picture_crc32(bytes + 12, 17));
}

uint32_t picture_crc32(const uint8_t *bytes, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
    }
    return ~crc;
}

uint8_t *png_read(const void *bytes, size_t size, uint32_t *width, uint32_t *height)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_int_not_equal(png_image_begin_read_from_memory(&image, bytes, size), 0);
    image.format = PNG_FORMAT_RGB;
    uint8_t *pixels = malloc((size_t)image.width * image.height * 3);
    assert_non_null(pixels);
    assert_int_not_equal(png_image_finish_read(&image, NULL, pixels, 0, NULL), 0);
    *width = image.width;
    *height = image.height;
    return pixels;
}

void picture_assert_refused(const char *name, const uint8_t *bytes, size_t size, const char *said)
{
    struct picture p = {0};
    struct error err = {0};
    const enum status st = picture_decode(&p, bytes, size, NULL, &err);
    if (st != ERR_PICTURE || err.status != ERR_PICTURE)
        fail_msg("%s: %s, expected ERR_PICTURE", name, status_name(st));
    if (strstr(err.message, said) == NULL)
        fail_msg("%s: expected \"%s\" in: %s", name, said, err.message);
    assert_null(p.pixels);
    assert_int_equal(picture_decode(&p, bytes, size, NULL, NULL), ERR_PICTURE);
}
