/* picture.c - which kind of picture it is, and what the decoders of all kinds share. See picture.h, picture_inner.h. */
#include "server/media/picture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <libexif/exif-data.h>

#include "config/json.h"
#include "config/version.h"
#include "server/media/picture_inner.h"

#define STRIP_ROWS 16u /* turned at a time: they become neighbours in a row of the result */

/* ---- what it is --------------------------------------------------------------------------------------------- */

struct magic {
    const char *name;
    size_t at, length;
    const char *bytes;
};

static bool begins_as(const struct magic *m, const uint8_t *bytes, size_t size)
{
    return size >= m->at + m->length && memcmp(bytes + m->at, m->bytes, m->length) == 0;
}

/* The formats that are read. */
static const struct kind {
    struct magic magic;
    const char *media_type;
    picture_decoder *decode;
} kinds[] = {
    {{"JPEG", 0, 3, "\xff\xd8\xff"}, "image/jpeg", picture_jpeg_decode},
    {{"PNG", 0, 8, "\x89PNG\r\n\x1a\n"}, "image/png", picture_png_decode},
    {{"WebP", 8, 4, "WEBP"}, "image/webp", picture_webp_decode},
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

static const struct kind *kind_of(const uint8_t *bytes, size_t size)
{
    static const struct magic riff = {"RIFF", 0, 4, "RIFF"};
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (begins_as(&kinds[i].magic, bytes, size) && (kinds[i].magic.at == 0 || begins_as(&riff, bytes, size)))
            return &kinds[i];
    return NULL;
}

/* Formats that clients send by mistake. The first that matches names the body. */
static const struct magic others[] = {
    {"GIF", 0, 4, "GIF8"},       {"TIFF", 0, 4, "II*\0"},
    {"TIFF", 0, 4, "MM\0*"},     {"HEIF or AVIF", 4, 4, "ftyp"},
    {"JPEG 2000", 4, 4, "jP  "}, {"JPEG XL", 0, 2, "\xff\x0a"},
    {"JPEG XL", 4, 4, "JXL "},   {"PDF", 0, 4, "%PDF"},
    {"BMP", 0, 2, "BM"},         {"a PNG whose line ends were changed", 0, 4, "\x89PNG"},
};

static enum status picture_refuse(const uint8_t *bytes, size_t size, struct error *err)
{
    if (size == 0)
        return error_set(err, ERR_MEDIA_TYPE, "the picture is empty (0 bytes); expected a JPEG, PNG or WebP");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (begins_as(&others[i], bytes, size))
            return error_set(err, ERR_MEDIA_TYPE, "the picture looks like %s; expected a JPEG, PNG or WebP",
                             others[i].name);
    return error_set(err, ERR_MEDIA_TYPE,
                     "the picture (%zu bytes) is not a JPEG, PNG or WebP: it does not begin like any of them", size);
}

const char *picture_media_type(const uint8_t *bytes, size_t size)
{
    const struct kind *k = kind_of(bytes, size);
    return k != NULL ? k->media_type : NULL;
}

/* The media type that is meant, of those of `kinds`; "": any of them. NULL: none that is read. */
static const char *meant_type(const char *declared)
{
    static const char *const aliases[][2] = {{"image/jpg", "image/jpeg"},      {"image/pjpeg", "image/jpeg"},
                                             {"image/x-png", "image/png"},     {"image/*", ""},
                                             {"application/octet-stream", ""}, {"binary/octet-stream", ""}};
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcasecmp(declared, aliases[i][0]) == 0)
            return aliases[i][1];
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (strcasecmp(declared, kinds[i].media_type) == 0)
            return kinds[i].media_type;
    return NULL;
}

bool picture_reads_type(const char *media_type)
{
    return meant_type(media_type) != NULL;
}

bool picture_has_name(const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path, *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && dot != name && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

enum status picture_decode(struct picture *ret, const uint8_t *bytes, size_t size,
                           const struct picture_options *options, struct error *err)
{
    static const struct picture_options whole = {0};
    assert(ret != NULL && (bytes != NULL || size == 0));
    const struct kind *k = kind_of(bytes, size);
    return k != NULL ? k->decode(ret, bytes, size, options != NULL ? options : &whole, err)
                     : picture_refuse(bytes, size, err);
}

/* ---- what is wanted of it ------------------------------------------------------------------------------------- */

uint32_t picture_reduction(uint32_t width, uint32_t height, const struct picture_options *options)
{
    const uint32_t shorter = width < height ? width : height, longer = width < height ? height : width;
    if ((options->shorter == 0 && options->longer == 0) || (uint64_t)width * height < PICTURE_REDUCED_PIXELS_MIN)
        return 1;
    for (uint32_t by = 8; by > 1; by /= 2)
        if (shorter >= (uint64_t)by * PICTURE_REDUCTION_GAP * options->shorter &&
            longer >= (uint64_t)by * PICTURE_REDUCTION_GAP * options->longer)
            return by;
    return 1;
}

enum status picture_check_options(const struct picture_options *options, uint64_t bytes, struct error *err)
{
    if (options->bytes_max == 0 || bytes <= options->bytes_max)
        return OK;
    return error_set(err, ERR_PICTURE, "the picture takes %llu bytes of memory to decode, and its header promised %llu",
                     (unsigned long long)bytes, (unsigned long long)options->bytes_max);
}

enum status picture_stop(const struct picture_options *options, struct error *err)
{
    const enum status st = options->stop != NULL ? (enum status)atomic_load(options->stop) : OK;
    return st == OK ? OK : error_set(err, st, "the picture is no longer wanted");
}

/* ---- bounds ------------------------------------------------------------------------------------------------- */

static double megapixels(uint64_t pixels)
{
    return (double)pixels / 1e6;
}

enum status picture_check_size(uint64_t width, uint64_t height, uint32_t reduction, bool reducible, struct error *err)
{
    const uint64_t pixels = width * height, file_max = reducible ? PICTURE_FILE_PIXELS_MAX : PICTURE_PIXELS_MAX;
    if (width > PICTURE_SIDE_MAX || height > PICTURE_SIDE_MAX)
        return error_set(err, ERR_PICTURE, "the picture is %llu x %llu; at most %d pixels per side are accepted",
                         (unsigned long long)width, (unsigned long long)height, PICTURE_SIDE_MAX);
    if (pixels > file_max)
        return error_set(err, ERR_PICTURE, "the picture is %llu x %llu, %.1f megapixels; at most %.1f are accepted%s",
                         (unsigned long long)width, (unsigned long long)height, megapixels(pixels),
                         megapixels(file_max), reducible ? "" : ", and more only of a JPEG");
    if (pixels / reduction / reduction > PICTURE_PIXELS_MAX)
        return error_set(err, ERR_PICTURE,
                         "the picture is %llu x %llu, %.1f megapixels; at most %.1f are accepted where so many are "
                         "wanted of it: ask for a smaller size",
                         (unsigned long long)width, (unsigned long long)height, megapixels(pixels),
                         megapixels(PICTURE_PIXELS_MAX));
    return OK;
}

/* ---- orientation -------------------------------------------------------------------------------------------- */

/* EXIF's orientations 1 to 8. */
static const struct picture_turn turns[] = {
    {false, false, false}, /* 1: upright */
    {true, false, false},  /* 2: mirrored left to right */
    {true, true, false},   /* 3: upside down */
    {false, true, false},  /* 4: mirrored top to bottom */
    {false, false, true},  /* 5: transposed */
    {false, true, true},   /* 6: to be turned clockwise */
    {true, true, true},    /* 7: transposed along the other diagonal */
    {true, false, true},   /* 8: to be turned counterclockwise */
};

static const uint8_t exif_header[] = {'E', 'x', 'i', 'f', 0, 0};
enum { EXIF_BYTES_MAX = 65536 }; /* a JPEG's block has at most that many; libexif accepts no more either */

/* libexif leaves out what it finds no memory for, and does not say so. */
static _Thread_local bool exif_lacks_memory;

static void *exif_calloc(ExifLong size)
{
    void *memory = calloc(1, size);
    exif_lacks_memory |= memory == NULL;
    return memory;
}

static void *exif_realloc(void *before, ExifLong size)
{
    void *memory = realloc(before, size);
    exif_lacks_memory |= memory == NULL && size > 0;
    return memory;
}

static enum status no_memory_for_exif(struct error *err)
{
    return error_set(err, ERR_NOMEM, "out of memory for the picture's EXIF data");
}

enum status picture_turn_from_exif(struct picture_turn *ret, const uint8_t *bytes, size_t size, struct error *err)
{
    unsigned orientation = 1;
    if (size > EXIF_BYTES_MAX) {
        *ret = turns[0];
        return OK;
    }
    exif_lacks_memory = false;
    ExifMem *memory = exif_mem_new(exif_calloc, exif_realloc, free);
    ExifData *exif = memory != NULL ? exif_data_new_mem(memory) : NULL;
    exif_mem_unref(memory); /* the data holds it */
    if (exif == NULL)
        return no_memory_for_exif(err);
    /* Unrepaired: the repairs that libexif makes to meet the specification are for those who write it again. */
    exif_data_unset_option(exif, EXIF_DATA_OPTION_FOLLOW_SPECIFICATION);
    exif_data_unset_option(exif, EXIF_DATA_OPTION_IGNORE_UNKNOWN_TAGS);
    exif_data_load_data(exif, bytes, (unsigned)size);
    const ExifEntry *entry = exif_content_get_entry(exif->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
    if (entry != NULL && entry->components == 1) {
        const ExifByteOrder order = exif_data_get_byte_order(exif);
        if (entry->format == EXIF_FORMAT_SHORT && entry->size >= 2)
            orientation = exif_get_short(entry->data, order);
        else if (entry->format == EXIF_FORMAT_LONG && entry->size >= 4)
            orientation = exif_get_long(entry->data, order);
    }
    exif_data_unref(exif);
    if (exif_lacks_memory)
        return no_memory_for_exif(err);
    *ret = orientation >= 1 && orientation <= sizeof turns / sizeof turns[0] ? turns[orientation - 1] : turns[0];
    return OK;
}

enum status picture_turn_from_tiff(struct picture_turn *ret, const uint8_t *bytes, size_t size, struct error *err)
{
    if (size >= sizeof exif_header && memcmp(bytes, exif_header, sizeof exif_header) == 0)
        return picture_turn_from_exif(ret, bytes, size, err); /* some files have it nevertheless */
    if (size == 0 || size > EXIF_BYTES_MAX - sizeof exif_header) {
        *ret = turns[0];
        return OK;
    }
    uint8_t *block = malloc(sizeof exif_header + size);
    if (block == NULL)
        return no_memory_for_exif(err);
    memcpy(block, exif_header, sizeof exif_header);
    memcpy(block + sizeof exif_header, bytes, size);
    const enum status st = picture_turn_from_exif(ret, block, sizeof exif_header + size, err);
    free(block);
    return st;
}

void picture_place_rows(struct picture *p, const uint8_t *stored, uint32_t top, uint32_t rows, uint32_t width,
                        uint32_t height, struct picture_turn turn)
{
    const size_t pitch = (size_t)width * PICTURE_CHANNELS;
    if (!turn.swap && !turn.mirror_x) {
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t y = turn.mirror_y ? height - 1 - (top + r) : top + r;
            memcpy(p->pixels + y * pitch, stored + r * pitch, pitch);
        }
        return;
    }
    for (uint32_t c = 0; c < width; c++) {
        const uint32_t x = turn.mirror_x ? width - 1 - c : c;
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t y = turn.mirror_y ? height - 1 - (top + r) : top + r;
            uint8_t *to =
                p->pixels + (turn.swap ? (size_t)x * p->width + y : (size_t)y * p->width + x) * PICTURE_CHANNELS;
            const uint8_t *from = stored + r * pitch + (size_t)c * PICTURE_CHANNELS;
            to[0] = from[0];
            to[1] = from[1];
            to[2] = from[2];
        }
    }
}

/* ---- whole pictures ----------------------------------------------------------------------------------------- */

/* [count, 4] -> [count, 3] in place: colour * alpha + white * (1 - alpha), rounded once, as Pillow pastes. */
static void lay_on_white(uint8_t *pixels, size_t count)
{
    const uint8_t *from = pixels;
    for (uint8_t *to = pixels; count > 0; count--, from += 4, to += PICTURE_CHANNELS) {
        const unsigned alpha = from[3];
        for (unsigned c = 0; c < PICTURE_CHANNELS; c++)
            to[c] = (uint8_t)(255u - picture_multiply_255(255u - from[c], alpha));
    }
}

enum status picture_from_stored(struct picture *ret, uint8_t *pixels, uint32_t width, uint32_t height, bool alpha,
                                struct picture_turn turn, struct error *err)
{
    const size_t pitch = (size_t)width * PICTURE_CHANNELS;
    if (alpha) {
        lay_on_white(pixels, (size_t)width * height);
        uint8_t *fitting = realloc(pixels, height * pitch);
        pixels = fitting != NULL ? fitting : pixels;
    }
    struct picture p = {.pixels = pixels, .width = width, .height = height};
    if (turn.mirror_x || turn.mirror_y || turn.swap) {
        p = (struct picture){.pixels = malloc(height * pitch),
                             .width = turn.swap ? height : width,
                             .height = turn.swap ? width : height};
        if (p.pixels == NULL) {
            free(pixels);
            return error_set(err, ERR_NOMEM, "out of memory for a picture of %u x %u pixels: %zu bytes", width, height,
                             height * pitch);
        }
        for (uint32_t top = 0; top < height; top += STRIP_ROWS) {
            const uint32_t rows = height - top < STRIP_ROWS ? height - top : STRIP_ROWS;
            picture_place_rows(&p, pixels + top * pitch, top, rows, width, height, turn);
        }
        free(pixels);
    }
    *ret = p;
    return OK;
}

enum status picture_check(const char *declared, const char *param, const uint8_t *bytes, size_t size, struct error *err)
{
    const bool is_said = declared != NULL && declared[0] != '\0';
    const char *is = picture_media_type(bytes, size), *meant = is_said ? meant_type(declared) : "";
    if (meant == NULL)
        return error_set_param(err, ERR_MEDIA_TYPE, param,
                               "the picture is declared as \"%s\"; expected image/jpeg, image/png, image/webp or "
                               "application/octet-stream",
                               json_quote(declared).text);
    if (is == NULL)
        return picture_refuse(bytes, size, err);
    if (meant[0] == '\0' || strcmp(is, meant) == 0)
        return OK;
    return error_set_param(err, ERR_MEDIA_TYPE, param,
                           "the picture is declared as %s, but its bytes are those of %s; expected both to agree, or "
                           "application/octet-stream",
                           declared, is);
}

void picture_print_versions(FILE *to)
{
    char webp[16];
    version_print_library("libjpeg", picture_jpeg_version(), to);
    version_print_library("libpng", picture_png_version(), to);
    version_print_library("libwebp", picture_webp_version(webp), to);
    version_print_file("libexif", (void (*)(void))exif_data_new, to);
}
