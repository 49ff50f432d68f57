/* picture.c - a client's JPEG -> RGB pixels, upright, with libjpeg-turbo and libexif.
 *
 * libjpeg reports what is wrong through callbacks that must not return; ours keep the message and jump to
 * decoder_run, the only setjmp, which then falls out with nothing in hand: what libjpeg allocated hangs on its own
 * struct, the pixels on struct decoder, and picture_decode releases both. A warning means that data were missing or
 * made up, so the first one ends the decoding as an error does; a damaged picture costs no more than its sound part.
 *
 * What a hostile file may cost is bounded in this order: the sides and the pixels as soon as the header tells them,
 * before anything of that size exists; the memory of libjpeg, whose coefficient arrays a progressive file needs; the
 * number of scans, each of which goes over all coefficients again.
 *
 * Colours are Pillow's: gray is repeated, YCbCr is libjpeg's business, four components are taken for Adobe's inverted
 * inks whether or not the file says so.
 *
 * Any thread; no state, nothing is printed. */
#include "server/picture.h"

#include <assert.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>
#include <libexif/exif-data.h>

#include "config/limits.h"

#define CHANNELS 3u
#define STRIP_ROWS 16u /* decoded at a time: turning a picture writes as many neighbours in a row of the result */
#define EXIF_MARKER (JPEG_APP0 + 1)

_Static_assert((uint64_t)PICTURE_SIDE_MAX *PICTURE_SIDE_MAX <= UINT32_MAX, "width * height fits a uint32_t");
_Static_assert(PICTURE_DECODER_BYTES_MAX <= INT32_MAX, "libjpeg counts its memory in a long");

struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const uint8_t *bytes;
    size_t size;
    struct picture picture; /* what has been decoded so far */
    enum status status;     /* set before the jump, with the message */
    struct error *err;
};

/* ---- what it is --------------------------------------------------------------------------------------------- */

/* Formats that clients send by mistake. The first that matches names the body. */
static const struct magic {
    const char *name;
    size_t at, length;
    const char *bytes;
} magics[] = {
    {"PNG", 0, 4, "\x89PNG"},    {"GIF", 0, 4, "GIF8"},         {"WebP", 8, 4, "WEBP"},
    {"TIFF", 0, 4, "II*\0"},     {"TIFF", 0, 4, "MM\0*"},       {"HEIF or AVIF", 4, 4, "ftyp"},
    {"JPEG 2000", 4, 4, "jP  "}, {"JPEG XL", 0, 2, "\xff\x0a"}, {"JPEG XL", 4, 4, "JXL "},
    {"PDF", 0, 4, "%PDF"},       {"BMP", 0, 2, "BM"},
};

static enum status check_magic(const uint8_t *bytes, size_t size, struct error *err)
{
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    if (size == 0)
        return error_set(err, ERR_MEDIA_TYPE, "the picture is empty (0 bytes); expected a JPEG");
    if (size >= sizeof(jpeg) && memcmp(bytes, jpeg, sizeof(jpeg)) == 0)
        return OK;
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
        const struct magic *m = &magics[i];
        if (size >= m->at + m->length && memcmp(bytes + m->at, m->bytes, m->length) == 0)
            return error_set(err, ERR_MEDIA_TYPE, "the picture looks like %s; expected a JPEG", m->name);
    }
    return error_set(err, ERR_MEDIA_TYPE, "the picture (%zu bytes) is not a JPEG: it does not begin with FF D8 FF",
                     size);
}

/* ---- libjpeg's callbacks ------------------------------------------------------------------------------------ */

static _Noreturn void decoder_fail(struct decoder *d, enum status st)
{
    d->status = st;
    longjmp(d->failed, 1);
}

/* The message that libjpeg has prepared, as the reason why this is a bad picture. */
static _Noreturn void decoder_fail_with_message(struct decoder *d)
{
    char text[JMSG_LENGTH_MAX];
    d->errors.format_message((j_common_ptr)&d->jpeg, text);
    switch (d->errors.msg_code) {
    case JERR_OUT_OF_MEMORY:
        decoder_fail(d, error_set(d->err, ERR_NOMEM, "decoding the JPEG: %s", text));
    case JERR_NO_BACKING_STORE:
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "decoding the JPEG (%u x %u) needs more than %u bytes",
                                  d->jpeg.image_width, d->jpeg.image_height, PICTURE_DECODER_BYTES_MAX));
    default:
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "the JPEG does not decode: %s", text));
    }
}

static _Noreturn void on_error(j_common_ptr jpeg)
{
    decoder_fail_with_message(jpeg->client_data);
}

/* A negative level is a warning, the others are for people who debug. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0)
        decoder_fail_with_message(jpeg->client_data);
}

/* Called at every step of every pass. */
static void on_progress(j_common_ptr jpeg)
{
    struct decoder *d = jpeg->client_data;
    if (d->jpeg.input_scan_number > PICTURE_SCANS_MAX)
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "the JPEG has more than %d scans", PICTURE_SCANS_MAX));
    if ((uint64_t)d->jpeg.input_scan_number * d->jpeg.image_width * d->jpeg.image_height > PICTURE_SCAN_PIXELS_MAX)
        decoder_fail(d, error_set(d->err, ERR_PICTURE,
                                  "the JPEG of %u x %u pixels has %d scans or more, beyond %llu pixels in all scans",
                                  d->jpeg.image_width, d->jpeg.image_height, d->jpeg.input_scan_number,
                                  (unsigned long long)PICTURE_SCAN_PIXELS_MAX));
}

/* ---- orientation -------------------------------------------------------------------------------------------- */

/* How EXIF's orientations 1 to 8 bring a stored picture upright: mirror it in x, in y, then swap x and y. */
static const struct turn {
    bool mirror_x, mirror_y, swap;
} turns[] = {
    {false, false, false}, /* 1: upright */
    {true, false, false},  /* 2: mirrored left to right */
    {true, true, false},   /* 3: upside down */
    {false, true, false},  /* 4: mirrored top to bottom */
    {false, false, true},  /* 5: transposed */
    {false, true, true},   /* 6: to be turned clockwise */
    {true, true, true},    /* 7: transposed along the other diagonal */
    {true, false, true},   /* 8: to be turned counterclockwise */
};

/* The orientation in one EXIF block; upright where it has none or makes no sense. */
static struct turn turn_from_exif(const uint8_t *bytes, unsigned size)
{
    unsigned orientation = 1;
    ExifData *exif = exif_data_new();
    if (exif == NULL)
        return turns[0];
    /* As it is: the repairs that libexif makes to please the specification are for those who write it again. */
    exif_data_unset_option(exif, EXIF_DATA_OPTION_FOLLOW_SPECIFICATION);
    exif_data_unset_option(exif, EXIF_DATA_OPTION_IGNORE_UNKNOWN_TAGS);
    exif_data_load_data(exif, bytes, size);
    const ExifEntry *entry = exif_content_get_entry(exif->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
    if (entry != NULL && entry->components == 1) {
        const ExifByteOrder order = exif_data_get_byte_order(exif);
        if (entry->format == EXIF_FORMAT_SHORT && entry->size >= 2)
            orientation = exif_get_short(entry->data, order);
        else if (entry->format == EXIF_FORMAT_LONG && entry->size >= 4)
            orientation = exif_get_long(entry->data, order);
    }
    exif_data_unref(exif);
    return orientation >= 1 && orientation <= sizeof(turns) / sizeof(turns[0]) ? turns[orientation - 1] : turns[0];
}

/* From the first EXIF block of the file; other APP1 blocks (XMP) are passed over. */
static struct turn decoder_turn(const struct decoder *d)
{
    static const uint8_t exif[] = {'E', 'x', 'i', 'f', 0, 0};
    for (jpeg_saved_marker_ptr m = d->jpeg.marker_list; m != NULL; m = m->next) {
        if (m->marker == EXIF_MARKER && m->data_length > sizeof(exif) && memcmp(m->data, exif, sizeof(exif)) == 0)
            return turn_from_exif(m->data, m->data_length);
    }
    return turns[0];
}

/* Put `rows` decoded rows, the first of them row `top` of the stored picture of width x height, into *p. */
static void place_strip(struct picture *p, const uint8_t *strip, uint32_t top, uint32_t rows, uint32_t width,
                        uint32_t height, struct turn turn)
{
    const size_t pitch = (size_t)width * CHANNELS;
    if (!turn.swap && !turn.mirror_x) {
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t y = turn.mirror_y ? height - 1 - (top + r) : top + r;
            memcpy(p->pixels + y * pitch, strip + r * pitch, pitch);
        }
        return;
    }
    for (uint32_t c = 0; c < width; c++) {
        const uint32_t x = turn.mirror_x ? width - 1 - c : c;
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t y = turn.mirror_y ? height - 1 - (top + r) : top + r;
            uint8_t *to = p->pixels + (turn.swap ? (size_t)x * p->width + y : (size_t)y * p->width + x) * CHANNELS;
            const uint8_t *from = strip + r * pitch + (size_t)c * CHANNELS;
            to[0] = from[0];
            to[1] = from[1];
            to[2] = from[2];
        }
    }
}

/* ---- colour ------------------------------------------------------------------------------------------------- */

/* a * b / 255, rounded, without a division. */
static uint8_t multiply_255(unsigned a, unsigned b)
{
    const unsigned product = a * b + 128;
    return (uint8_t)(((product >> 8) + product) >> 8);
}

/* Inverted inks, [width, 4] -> [width, 3]: what is stored is 255 - ink, the light that it lets through. */
static void inks_to_rgb(uint8_t *rgb, const uint8_t *inks, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++, rgb += 3, inks += 4) {
        const unsigned black = inks[3];
        for (unsigned c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(black - multiply_255(255u - inks[c], black));
    }
}

/* ---- decoding ----------------------------------------------------------------------------------------------- */

/* What the header says, against the bounds; then what to decode to. */
static void check_header(struct decoder *d)
{
    struct jpeg_decompress_struct *j = &d->jpeg;
    if (j->image_width > PICTURE_SIDE_MAX || j->image_height > PICTURE_SIDE_MAX)
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "the picture is %u x %u; at most %d pixels a side are read",
                                  j->image_width, j->image_height, PICTURE_SIDE_MAX));
    if (j->image_width * j->image_height > PICTURE_PIXELS_MAX)
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "the picture is %u x %u; at most %u pixels are read",
                                  j->image_width, j->image_height, PICTURE_PIXELS_MAX));
    if (j->num_components != 1 && j->num_components != 3 && j->num_components != 4)
        decoder_fail(d, error_set(d->err, ERR_PICTURE,
                                  "the picture has %d colour components; expected 1 (gray), 3 (RGB) or 4 (CMYK)",
                                  j->num_components));
    j->out_color_space = j->num_components == 4 ? JCS_CMYK : JCS_RGB;
}

/* All rows, from jpeg_start_decompress on. The strip belongs to libjpeg's pool of this picture. */
static void decode_rows(struct decoder *d)
{
    struct jpeg_decompress_struct *j = &d->jpeg;
    const struct turn turn = decoder_turn(d);
    const uint32_t width = j->output_width, height = j->output_height;
    const bool inks = j->out_color_space == JCS_CMYK;

    const size_t pitch = (size_t)width * CHANNELS;
    uint8_t *strip = j->mem->alloc_large((j_common_ptr)j, JPOOL_IMAGE, STRIP_ROWS * pitch);
    uint8_t *row = inks ? j->mem->alloc_large((j_common_ptr)j, JPOOL_IMAGE, (size_t)width * 4) : NULL;
    d->picture.width = turn.swap ? height : width;
    d->picture.height = turn.swap ? width : height;
    d->picture.pixels = malloc(height * pitch);
    if (d->picture.pixels == NULL)
        decoder_fail(d, error_set(d->err, ERR_NOMEM, "a picture of %u x %u: %zu bytes", width, height, height * pitch));

    for (uint32_t top = 0; top < height; top += STRIP_ROWS) {
        const uint32_t rows = height - top < STRIP_ROWS ? height - top : STRIP_ROWS;
        for (uint32_t r = 0; r < rows; r++) {
            JSAMPROW line = inks ? row : strip + r * pitch;
            (void)jpeg_read_scanlines(j, &line, 1); /* always one: the whole file is at hand */
            if (inks)
                inks_to_rgb(strip + r * pitch, row, width);
        }
        place_strip(&d->picture, strip, top, rows, width, height, turn);
    }
}

/* False with d->status set where it fails. d lives in the caller, so that what changes after setjmp stays defined. */
static bool decoder_run(struct decoder *d)
{
    struct jpeg_decompress_struct *j = &d->jpeg;
    if (setjmp(d->failed) != 0)
        return false;
    j->err = jpeg_std_error(&d->errors);
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_message;
    j->client_data = d;
    jpeg_create_decompress(j); /* keeps err and client_data */
    d->progress.progress_monitor = on_progress;
    j->progress = &d->progress;

    jpeg_mem_src(j, d->bytes, d->size);
    jpeg_save_markers(j, EXIF_MARKER, 0xffff);
    (void)jpeg_read_header(j, TRUE);
    check_header(d);
    j->mem->max_memory_to_use = PICTURE_DECODER_BYTES_MAX;
    (void)jpeg_start_decompress(j);
    decode_rows(d);
    (void)jpeg_finish_decompress(j); /* looks for the end marker; what follows it is not ours */
    return true;
}

enum status picture_decode(struct picture *ret, const uint8_t *bytes, size_t size, struct error *err)
{
    assert(ret != NULL && (bytes != NULL || size == 0));
    const enum status st = check_magic(bytes, size, err);
    if (st != OK)
        return st;

    struct decoder d = {.bytes = bytes, .size = size, .err = err};
    if (decoder_run(&d)) {
        *ret = d.picture;
        d.picture = (struct picture){0}; /* the caller's now */
    }
    jpeg_destroy_decompress(&d.jpeg);
    picture_clear(&d.picture);
    return d.status;
}
