/* picture_jpeg.c - a JPEG -> RGB pixels, upright, with libjpeg-turbo.
 *
 * libjpeg reports what is wrong through callbacks that must not return; ours keep the message and jump to
 * decoder_run, the only setjmp, which then falls out with nothing in hand: what libjpeg allocated hangs on its own
 * struct, the pixels on struct decoder, and picture_jpeg_decode releases both. A warning means that data were missing
 * or made up, so the first one ends the decoding as an error does; a damaged picture costs no more than its sound part.
 *
 * What a hostile file may cost is bounded in this order: the sides and the pixels as soon as the header tells them,
 * before anything of that size exists; the memory of libjpeg, whose coefficient arrays a progressive file needs; the
 * number of scans, each of which goes over all coefficients again. Where much fewer pixels are wanted than the file has
 * (struct picture_options), the inverse DCT makes no more than a half, a quarter or an eighth of each side, as Pillow's
 * draft() does: the same divisors, of the same sides.
 *
 * Colours are Pillow's: gray is repeated, libjpeg converts YCbCr, four components are taken for Adobe's inverted inks
 * whether or not the file says so.
 *
 * Any thread; no state, nothing is printed. */
#include "server/media/picture_inner.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#define STRIP_ROWS 16u /* decoded at a time: turning a picture writes as many neighbours in a row of the result */
#define EXIF_MARKER (JPEG_APP0 + 1)

_Static_assert(PICTURE_DECODER_BYTES_MAX <= INT32_MAX, "libjpeg counts its memory in a long");

struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const uint8_t *bytes;
    size_t size;
    const struct picture_options *options;
    struct picture picture; /* what has been decoded so far */
    enum status status;     /* set before the jump, with the message */
    struct error *err;
};

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
    const enum status st = picture_stop(d->options, d->err);
    if (st != OK)
        decoder_fail(d, st);
    if (d->jpeg.input_scan_number > PICTURE_SCANS_MAX)
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "the JPEG has more than %d scans; expected at most %d",
                                  PICTURE_SCANS_MAX, PICTURE_SCANS_MAX));
    const uint64_t pixels = (uint64_t)d->jpeg.image_width * d->jpeg.image_height;
    if ((uint64_t)d->jpeg.input_scan_number * pixels > PICTURE_SCAN_PIXELS_MAX)
        decoder_fail(d,
                     error_set(d->err, ERR_PICTURE,
                               "the JPEG of %u x %u pixels has %d scans or more; expected at most %llu pixels in all "
                               "scans together, which is %llu scans of this size",
                               d->jpeg.image_width, d->jpeg.image_height, d->jpeg.input_scan_number,
                               (unsigned long long)PICTURE_SCAN_PIXELS_MAX,
                               (unsigned long long)(PICTURE_SCAN_PIXELS_MAX / pixels)));
}

/* ---- orientation -------------------------------------------------------------------------------------------- */

/* From the first EXIF block of the file; other APP1 blocks (XMP) are passed over. */
static struct picture_turn decoder_turn(struct decoder *d)
{
    static const uint8_t exif[] = {'E', 'x', 'i', 'f', 0, 0};
    for (jpeg_saved_marker_ptr m = d->jpeg.marker_list; m != NULL; m = m->next) {
        if (m->marker == EXIF_MARKER && m->data_length > sizeof(exif) && memcmp(m->data, exif, sizeof(exif)) == 0) {
            struct picture_turn turn = {0};
            const enum status st = picture_turn_from_exif(&turn, m->data, m->data_length, d->err);
            if (st != OK)
                decoder_fail(d, st);
            return turn;
        }
    }
    return (struct picture_turn){0};
}

/* ---- colour ------------------------------------------------------------------------------------------------- */

/* Inverted inks, [width, 4] -> [width, 3]: what is stored is 255 - ink, the light that it lets through. */
static void inks_to_rgb(uint8_t *rgb, const uint8_t *inks, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++, rgb += 3, inks += 4) {
        const unsigned black = inks[3];
        for (unsigned c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(black - picture_multiply_255(255u - inks[c], black));
    }
}

/* ---- decoding ----------------------------------------------------------------------------------------------- */

/* What the header says, against the bounds; then what to decode to. */
static void check_header(struct decoder *d)
{
    struct jpeg_decompress_struct *j = &d->jpeg;
    const uint32_t reduction = picture_reduction(j->image_width, j->image_height, d->options);
    enum status st = picture_check_size(j->image_width, j->image_height, reduction, true, d->err);
    if (st != OK)
        decoder_fail(d, st);
    if (j->num_components != 1 && j->num_components != 3 && j->num_components != 4)
        decoder_fail(d, error_set(d->err, ERR_PICTURE,
                                  "the picture has %d colour components; expected 1 (gray), 3 (RGB) or 4 (CMYK)",
                                  j->num_components));
    j->out_color_space = j->num_components == 4 ? JCS_CMYK : JCS_RGB;
    j->scale_num = 1;
    j->scale_denom = reduction;
    st = picture_check_options(d->options,
                               picture_jpeg_bytes(j->image_width, j->image_height, (uint32_t)j->num_components,
                                                  jpeg_has_multiple_scans(j) != FALSE, j->scale_denom),
                               d->err);
    if (st != OK)
        decoder_fail(d, st);
}

/* Pixels, a strip of them, and where there are several scans the coefficients of all components, 2 bytes each. */
uint64_t picture_jpeg_bytes(uint32_t width, uint32_t height, uint32_t components, bool whole_scans, uint32_t reduction)
{
    const uint64_t across = (width + reduction - 1) / reduction, down = (height + reduction - 1) / reduction;
    const uint64_t coefficients = whole_scans ? (width + UINT64_C(63)) * (height + UINT64_C(63)) * components * 2 : 0;
    return (across * (down + STRIP_ROWS) + across) * PICTURE_CHANNELS + coefficients;
}

/* All rows, from jpeg_start_decompress on. The strip belongs to libjpeg's pool of this picture. */
static void decode_rows(struct decoder *d)
{
    struct jpeg_decompress_struct *j = &d->jpeg;
    const struct picture_turn turn = decoder_turn(d);
    const uint32_t width = j->output_width, height = j->output_height;
    const bool inks = j->out_color_space == JCS_CMYK;

    const size_t pitch = (size_t)width * PICTURE_CHANNELS;
    uint8_t *strip = j->mem->alloc_large((j_common_ptr)j, JPOOL_IMAGE, STRIP_ROWS * pitch);
    uint8_t *row = inks ? j->mem->alloc_large((j_common_ptr)j, JPOOL_IMAGE, (size_t)width * 4) : NULL;
    d->picture.width = turn.swap ? height : width;
    d->picture.height = turn.swap ? width : height;
    if (j->scale_denom > 1) {
        d->picture.reduced = j->scale_denom;
        d->picture.whole_width = turn.swap ? j->image_height : j->image_width;
        d->picture.whole_height = turn.swap ? j->image_width : j->image_height;
    }
    d->picture.pixels = malloc(height * pitch);
    if (d->picture.pixels == NULL)
        decoder_fail(d, error_set(d->err, ERR_NOMEM, "out of memory for a picture of %u x %u pixels: %zu bytes", width,
                                  height, height * pitch));

    for (uint32_t top = 0; top < height; top += STRIP_ROWS) {
        const uint32_t rows = height - top < STRIP_ROWS ? height - top : STRIP_ROWS;
        for (uint32_t r = 0; r < rows; r++) {
            JSAMPROW line = inks ? row : strip + r * pitch;
            (void)jpeg_read_scanlines(j, &line, 1); /* always one: the whole file is at hand */
            if (inks)
                inks_to_rgb(strip + r * pitch, row, width);
        }
        picture_place_rows(&d->picture, strip, top, rows, width, height, turn);
    }
}

/* Returns false, with d->status set, on failure. d lives in the caller, so that what changes after setjmp stays
 * defined. */
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

enum status picture_jpeg_decode(struct picture *ret, const uint8_t *bytes, size_t size,
                                const struct picture_options *options, struct error *err)
{
    struct decoder d = {.bytes = bytes, .size = size, .options = options, .err = err};
    if (decoder_run(&d)) {
        *ret = d.picture;
        d.picture = (struct picture){0}; /* the caller's now */
    }
    jpeg_destroy_decompress(&d.jpeg);
    picture_clear(&d.picture);
    return d.status;
}

/* The library tells only which one it stands in for; its headers tell what they came with. */
#define TEXT(number) #number
#define TEXT_OF(macro) TEXT(macro)

const char *picture_jpeg_version(void)
{
#ifdef LIBJPEG_TURBO_VERSION
    return TEXT_OF(LIBJPEG_TURBO_VERSION) " (libjpeg-turbo, at build)";
#else
    return TEXT_OF(JPEG_LIB_VERSION) " (at build)";
#endif
}
