/* picture_png.c - a PNG -> RGB pixels, upright, with libpng.
 *
 * libpng's own simple interface would apply gAMA and sRGB, which Pillow does not; so this is the interface by rows.
 * Errors jump to decoder_run, the only setjmp, as libpng wants it; what is allocated hangs on struct decoder and on
 * libpng's structs, and picture_png_decode releases both. The end of the file is read too: one that is cut after its
 * pixels is refused like any other truncated file.
 *
 * What a hostile file may cost: sides and pixels are checked before anything of that size exists; of the chunks beside
 * pixels only eXIf and those that say what the pixels mean are read, so that nothing compressed but the pixels is ever
 * unpacked; libpng refuses chunks of more than 8 MB that are not pixels, and pixels beyond the picture's own.
 *
 * Palettes, gray and transparent colours become RGB, or RGB and alpha; of 16 bits the upper 8 count, as for Pillow.
 *
 * Any thread; no state, nothing is printed. */
#include "server/media/picture_inner.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

enum { ROWS_BETWEEN_STOPS = 16 };

struct decoder {
    png_structp png;
    png_infop info;
    const uint8_t *bytes; /* what is left */
    size_t size;
    uint8_t *pixels; /* [height, width, alpha ? 4 : 3] */
    uint32_t width, height;
    bool alpha;
    struct picture_turn turn;
    const struct picture_options *options;
    bool lacks_memory;  /* libpng asked for some in vain; it may go on without a part of the file */
    enum status status; /* set before the jump, with the message */
    struct error *err;
};

/* ---- libpng's callbacks ------------------------------------------------------------------------------------- */

static _Noreturn void decoder_fail(struct decoder *d, enum status st)
{
    d->status = st;
    png_longjmp(d->png, 1);
}

static png_voidp on_malloc(png_structp png, png_alloc_size_t size)
{
    struct decoder *d = png_get_mem_ptr(png);
    void *memory = malloc(size);
    d->lacks_memory |= memory == NULL;
    return memory;
}

static void on_free(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static enum status no_memory(struct decoder *d)
{
    return error_set(d->err, ERR_NOMEM, "out of memory for decoding a PNG");
}

static _Noreturn void on_error(png_structp png, png_const_charp message)
{
    struct decoder *d = png_get_error_ptr(png);
    if (d->lacks_memory)
        decoder_fail(d, no_memory(d));
    decoder_fail(d, error_set(d->err, ERR_PICTURE, "the PNG does not decode: %s", message));
}

/* Warnings concern optional parts, or data beyond the pixels. */
static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep out, size_t size)
{
    struct decoder *d = png_get_io_ptr(png);
    if (size > d->size)
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "the PNG does not decode: it is cut short"));
    memcpy(out, d->bytes, size);
    d->bytes += size;
    d->size -= size;
}

/* ---- decoding ----------------------------------------------------------------------------------------------- */

/* What the header says, against the bounds; then what to decode to. */
static void read_header(struct decoder *d)
{
    static const png_byte orientation[] = "eXIf";
    png_set_keep_unknown_chunks(d->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* all that can be left out */
    png_set_keep_unknown_chunks(d->png, PNG_HANDLE_CHUNK_AS_DEFAULT, orientation, 1);
    png_set_user_limits(d->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* ours say what the size is */
    png_read_info(d->png, d->info);
    d->width = png_get_image_width(d->png, d->info);
    d->height = png_get_image_height(d->png, d->info);
    enum status st = picture_check_size(d->width, d->height, 1, false, d->err);
    if (st != OK)
        decoder_fail(d, st);

    png_set_expand(d->png); /* palettes, 1 to 4 bits, tRNS */
    png_set_strip_16(d->png);
    png_set_gray_to_rgb(d->png);
    const int passes = png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    const unsigned channels = png_get_channels(d->png, d->info);
    const size_t pitch = (size_t)d->width * channels;
    if ((channels != 3 && channels != 4) || png_get_bit_depth(d->png, d->info) != 8 ||
        png_get_rowbytes(d->png, d->info) != pitch)
        decoder_fail(d, error_set(d->err, ERR_PICTURE, "the PNG does not decode: it has %u channels", channels));
    d->alpha = channels == 4;
    st = picture_check_options(d->options, picture_png_bytes(d->width, d->height, d->alpha, false), d->err);
    if (st != OK)
        decoder_fail(d, st);
    d->pixels = malloc(d->height * pitch);
    if (d->pixels == NULL)
        decoder_fail(d, error_set(d->err, ERR_NOMEM, "out of memory for a picture of %u x %u pixels: %zu bytes",
                                  d->width, d->height, d->height * pitch));
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < d->height; y++) {
            png_read_row(d->png, d->pixels + y * pitch, NULL);
            st = y % ROWS_BETWEEN_STOPS == 0 ? picture_stop(d->options, d->err) : OK;
            if (st != OK)
                decoder_fail(d, st);
        }
}

/* The pixels as they are stored, from which alpha is taken where they lie; where they are turned, twice without it. */
uint64_t picture_png_bytes(uint32_t width, uint32_t height, bool alpha, bool turned)
{
    const uint64_t stored = alpha ? 4 : PICTURE_CHANNELS, most = turned ? UINT64_C(2) * PICTURE_CHANNELS : stored;
    return (uint64_t)width * height * most;
}

/* It may stand before the pixels or behind them. */
static void read_orientation(struct decoder *d)
{
    png_bytep exif = NULL;
    png_uint_32 size = 0;
    enum status st = OK;
    if (png_get_eXIf_1(d->png, d->info, &size, &exif) != 0)
        st = picture_turn_from_tiff(&d->turn, exif, size, d->err);
    const bool turned = d->turn.mirror_x || d->turn.mirror_y || d->turn.swap;
    if (st == OK)
        st = picture_check_options(d->options, picture_png_bytes(d->width, d->height, d->alpha, turned), d->err);
    if (st != OK)
        decoder_fail(d, st);
}

/* Returns false, with d->status set, on failure. d lives in the caller, so that what changes after setjmp stays
 * defined. */
static bool decoder_run(struct decoder *d)
{
    if (setjmp(png_jmpbuf(d->png)) != 0)
        return false;
    png_set_read_fn(d->png, d, on_read);
    read_header(d);
    png_read_end(d->png, d->info);
    if (d->lacks_memory)
        decoder_fail(d, no_memory(d));
    read_orientation(d);
    return true;
}

enum status picture_png_decode(struct picture *ret, const uint8_t *bytes, size_t size,
                               const struct picture_options *options, struct error *err)
{
    struct decoder d = {.bytes = bytes, .size = size, .options = options, .err = err};
    d.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning, &d, on_malloc, on_free);
    d.info = d.png != NULL ? png_create_info_struct(d.png) : NULL;
    if (d.info == NULL)
        d.status = error_set(err, ERR_NOMEM, "out of memory for a PNG decoder");
    else if (decoder_run(&d)) {
        d.status = picture_from_stored(ret, d.pixels, d.width, d.height, d.alpha, d.turn, err);
        d.pixels = NULL; /* taken */
    }
    png_destroy_read_struct(&d.png, &d.info, NULL);
    free(d.pixels);
    return d.status;
}

const char *picture_png_version(void)
{
    return png_get_libpng_ver(NULL);
}
