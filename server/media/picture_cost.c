/* picture_cost.c - see picture_cost.h. Sizes are read where the formats have them, without the libraries, whose readers
 * of headers go through as many chunks as a client may think up. That the two agree is checked when it counts:
 * picture_decode takes no more memory than was promised. */
#include "server/media/picture_cost.h"

#include <stdbool.h>
#include <string.h>

#include "server/media/picture_inner.h"

enum {
    MARKERS_MAX = 64,  /* of a JPEG before its first scan: photographs have about 10 */
    CHUNKS_MAX = 4096, /* of a PNG: its pixels have one for every 8 KB or more, some 100 ns each to go through */
    SCANS_USUAL = 10,  /* of a progressive JPEG: how many there are its header does not tell */
    NS_BYTE = 10,      /* of the file: entropy coding */
    NS_JPEG = 6,       /* of a pixel: all others as well */
    NS_ARITHMETIC = 20,
    NS_SCAN = 3, /* of a pixel and a further scan */
    NS_PNG = 15,
    NS_WEBP = 20,
    PNG_ALPHA = 4,   /* the bit of a colour type */
    PNG_AROUND = 12, /* a chunk's bytes beside what it says to have */
};

/* What the file's first bytes tell. */
struct header {
    uint32_t width, height;
    uint32_t ns_pixel;
    uint32_t components; /* of a JPEG */
    bool whole_scans;    /* a JPEG of several scans */
    bool alpha, turns;   /* a PNG that has or may have that */
};

static uint32_t big_endian(const uint8_t *at, unsigned bytes)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

static uint32_t little_endian(const uint8_t *at, unsigned bytes)
{
    uint32_t value = 0;
    for (unsigned i = bytes; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* ---- JPEG: markers up to the first scan ------------------------------------------------------------------------- */

static bool is_frame(uint8_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static void read_frame(struct header *h, const uint8_t *at, uint8_t marker)
{
    h->height = big_endian(at + 1, 2);
    h->width = big_endian(at + 3, 2);
    h->components = at[5];
    h->whole_scans = (marker & 3) == 2;
    h->ns_pixel = marker >= 0xc8 ? NS_ARITHMETIC : NS_JPEG;
    if (h->whole_scans)
        h->ns_pixel += NS_SCAN * SCANS_USUAL;
}

static bool read_jpeg(struct header *h, const uint8_t *bytes, size_t size)
{
    size_t at = 2;
    for (int i = 0; i < MARKERS_MAX && at + 4 <= size && bytes[at] == 0xff; i++) {
        const uint8_t marker = bytes[at + 1];
        const size_t length = big_endian(bytes + at + 2, 2);
        if (marker == 0xff) { /* a fill byte */
            at++;
            continue;
        }
        if (is_frame(marker) && length >= 8 && at + 2 + length <= size)
            read_frame(h, bytes + at + 4, marker);
        if (marker == 0xda && h->width > 0 && at + 4 < size) {
            h->whole_scans = h->whole_scans || bytes[at + 4] < h->components;
            return true;
        }
        at += 2 + length;
    }
    return false;
}

/* ---- PNG, WebP: sizes at fixed places --------------------------------------------------------------------------- */

static bool read_png(struct header *h, const uint8_t *bytes, size_t size)
{
    if (size < 29 || memcmp(bytes + 12, "IHDR", 4) != 0)
        return false;
    h->width = big_endian(bytes + 16, 4);
    h->height = big_endian(bytes + 20, 4);
    h->ns_pixel = bytes[24] == 16 || bytes[28] != 0 ? 2 * NS_PNG : NS_PNG; /* 16 bits a channel, or interlaced */
    h->alpha = (bytes[25] & PNG_ALPHA) != 0;
    size_t at = 8;
    for (int i = 0; i < CHUNKS_MAX && at + 8 <= size; i++) {
        h->alpha = h->alpha || memcmp(bytes + at + 4, "tRNS", 4) == 0;
        h->turns = h->turns || memcmp(bytes + at + 4, "eXIf", 4) == 0;
        at += (size_t)big_endian(bytes + at, 4) + PNG_AROUND;
    }
    if (at + 8 <= size) /* what follows may be either */
        h->alpha = h->turns = true;
    return true;
}

static bool read_webp(struct header *h, const uint8_t *bytes, size_t size)
{
    h->ns_pixel = NS_WEBP;
    if (size >= 30 && memcmp(bytes + 12, "VP8X", 4) == 0) {
        h->width = 1 + little_endian(bytes + 24, 3);
        h->height = 1 + little_endian(bytes + 27, 3);
    } else if (size >= 30 && memcmp(bytes + 12, "VP8 ", 4) == 0) {
        h->width = little_endian(bytes + 26, 2) & 0x3fff;
        h->height = little_endian(bytes + 28, 2) & 0x3fff;
    } else if (size >= 25 && memcmp(bytes + 12, "VP8L", 4) == 0) {
        const uint32_t sides = little_endian(bytes + 21, 4);
        h->width = 1 + (sides & 0x3fff);
        h->height = 1 + (sides >> 14 & 0x3fff);
    } else {
        return false;
    }
    return true;
}

/* ---- the cost --------------------------------------------------------------------------------------------------- */

static const struct format {
    const char *media_type;
    bool (*read)(struct header *h, const uint8_t *bytes, size_t size);
} formats[] = {{"image/jpeg", read_jpeg}, {"image/png", read_png}, {"image/webp", read_webp}};
enum { JPEG, PNG, WEBP, FORMAT_COUNT };

static uint64_t memory_of(size_t format, const struct header *h, const struct picture_options *options)
{
    switch (format) {
    case JPEG:
        return picture_jpeg_bytes(h->width, h->height, h->components, h->whole_scans,
                                  picture_reduction(h->width, h->height, options));
    case PNG:
        return picture_png_bytes(h->width, h->height, h->alpha, h->turns);
    default:
        return picture_webp_bytes(h->width, h->height);
    }
}

struct picture_cost picture_cost_of(const uint8_t *bytes, size_t size, const struct picture_options *options)
{
    const char *type = picture_media_type(bytes, size);
    size_t format = 0;
    while (format < FORMAT_COUNT && (type == NULL || strcmp(type, formats[format].media_type) != 0))
        format++;
    struct picture_cost cost = {.ns = (uint64_t)size * NS_BYTE, .bytes = 1};
    if (format == FORMAT_COUNT)
        return cost;
    struct header h = {0};
    if (!formats[format].read(&h, bytes, size)) { /* it does not decode, or tells its size behind much else */
        const bool reducible = format == JPEG && (options->shorter != 0 || options->longer != 0);
        cost.pixels = reducible ? PICTURE_FILE_PIXELS_MAX : PICTURE_PIXELS_MAX;
        cost.ns += cost.pixels * NS_ARITHMETIC;
        cost.bytes = PICTURE_DECODER_BYTES_MAX + (uint64_t)PICTURE_PIXELS_MAX * PICTURE_CHANNELS;
        return cost;
    }
    struct error none;
    const uint32_t reduction = format == JPEG ? picture_reduction(h.width, h.height, options) : 1;
    if (picture_check_size(h.width, h.height, reduction, format == JPEG, &none) != OK || h.width == 0 || h.height == 0)
        return cost;
    cost.ns += (uint64_t)h.width * h.height * h.ns_pixel;
    cost.pixels = (uint64_t)h.width * h.height;
    cost.bytes = memory_of(format, &h, options);
    cost.width = h.width;
    cost.height = h.height;
    return cost;
}
