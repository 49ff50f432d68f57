/* picture_webp.c - a WebP -> RGB pixels, upright, with libwebp.
 *
 * The container is checked whole before a pixel is decoded (WebPDemux takes no file that is cut), and sides and pixels
 * against their bounds; then libwebp writes into a buffer of ours. An animation is not a picture: it is refused. A
 * WebP's pixels have no checksum: what is damaged may decode to other pixels, as with any reader.
 *
 * Any thread; no state, nothing is printed. */
#include "server/media/picture_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

enum { DEMUX_BYTES = 4096, DECODER_BYTES = 1 << 20 }; /* that it may take beside the file, and beside pixels */

static const char *reason_of(VP8StatusCode code)
{
    switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return "out of memory";
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return "it is cut short";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return "it uses a feature that is not supported";
    default:
        return "its data are corrupt";
    }
}

static enum status picture_webp_refuse(VP8StatusCode code, struct error *err)
{
    return error_set(err, code == VP8_STATUS_OUT_OF_MEMORY ? ERR_NOMEM : ERR_PICTURE, "the WebP does not decode: %s",
                     reason_of(code));
}

/* Is there as much as libwebp may take? Where it gets none it may take the file for one that makes no sense, and
 * version 1.2 even writes through a null pointer. */
static bool has_memory(size_t size)
{
    void *volatile some = malloc(size); /* volatile, or the compiler knows better */
    const bool is_there = some != NULL;
    free(some);
    return is_there;
}

/* *ret is NULL if the container is not whole. */
static enum status open_container(WebPDemuxer **ret, const WebPData *file, struct error *err)
{
    *ret = WebPDemux(file);
    if (*ret != NULL)
        return OK;
    if (!has_memory(DEMUX_BYTES))
        return error_set(err, ERR_NOMEM, "out of memory for a WebP decoder");
    *ret = WebPDemux(file);
    return OK;
}

/* The orientation in the container's EXIF chunk. Errors: ERR_PICTURE (the container is not whole), ERR_NOMEM. */
static enum status read_container(struct picture_turn *turn, const WebPData *file, struct error *err)
{
    WebPDemuxer *demux;
    WebPChunkIterator exif;
    enum status st = open_container(&demux, file, err);
    if (st != OK)
        return st;
    if (demux == NULL)
        return error_set(err, ERR_PICTURE, "the WebP does not decode: it is cut short, or its chunks make no sense");
    if (WebPDemuxGetChunk(demux, "EXIF", 1, &exif) != 0) {
        st = picture_turn_from_tiff(turn, exif.chunk.bytes, exif.chunk.size, err);
        WebPDemuxReleaseChunkIterator(&exif);
    }
    WebPDemuxDelete(demux);
    return st;
}

static enum status check_header(WebPDecoderConfig *config, const WebPData *file, struct error *err)
{
    const VP8StatusCode code = WebPGetFeatures(file->bytes, file->size, &config->input);
    if (code != VP8_STATUS_OK)
        return picture_webp_refuse(code, err);
    if (config->input.has_animation != 0)
        return error_set(err, ERR_PICTURE, "the WebP is an animation; expected one picture");
    return picture_check_size((uint64_t)config->input.width, (uint64_t)config->input.height, 1, false, err);
}

/* With alpha; as much again for the decoder where nothing is lost, or where alpha is by itself; and once more without
 * alpha where the picture is turned. */
uint64_t picture_webp_bytes(uint32_t width, uint32_t height)
{
    return (uint64_t)width * height * (4 + 4 + PICTURE_CHANNELS);
}

/* Version 1.5 calls some damage to an alpha plane a lack of memory: that is what it is if it is said again where there
 * is as much as may be needed. */
static VP8StatusCode decode(WebPDecoderConfig *config, const WebPData *file, size_t needed)
{
    const VP8StatusCode code = WebPDecode(file->bytes, file->size, config);
    if (code != VP8_STATUS_OUT_OF_MEMORY || !has_memory(needed))
        return code;
    const VP8StatusCode again = WebPDecode(file->bytes, file->size, config);
    return again == VP8_STATUS_OUT_OF_MEMORY ? VP8_STATUS_BITSTREAM_ERROR : again;
}

enum status picture_webp_decode(struct picture *ret, const uint8_t *bytes, size_t size,
                                const struct picture_options *options, struct error *err)
{
    const WebPData file = {bytes, size};
    struct picture_turn turn = {0};
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0)
        return error_set(err, ERR_INTERNAL, "the version of libwebp is not the one that this was built with");
    enum status st = check_header(&config, &file, err);
    if (st == OK)
        st = picture_check_options(
            options, picture_webp_bytes((uint32_t)config.input.width, (uint32_t)config.input.height), err);
    if (st == OK)
        st = read_container(&turn, &file, err);
    if (st == OK)
        st = picture_stop(options, err); /* once it has begun it goes on to its end */
    if (st != OK)
        return st;

    const bool alpha = config.input.has_alpha != 0;
    const uint32_t width = (uint32_t)config.input.width, height = (uint32_t)config.input.height;
    const size_t pitch = (size_t)width * (alpha ? 4u : PICTURE_CHANNELS), total = height * pitch;
    uint8_t *pixels = malloc(total);
    const size_t needed = (size_t)width * height * 4 + DECODER_BYTES;
    if (pixels == NULL || !has_memory(needed)) {
        free(pixels);
        return error_set(err, ERR_NOMEM, "out of memory for a picture of %u x %u pixels: %zu bytes", width, height,
                         total);
    }
    config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){.rgba = pixels, .stride = (int)pitch, .size = total};
    const VP8StatusCode code = decode(&config, &file, needed);
    WebPFreeDecBuffer(&config.output);
    if (code != VP8_STATUS_OK) {
        free(pixels);
        return picture_webp_refuse(code, err);
    }
    return picture_from_stored(ret, pixels, width, height, alpha, turn, err);
}

const char *picture_webp_version(char out[16])
{
    const unsigned version = (unsigned)WebPGetDecoderVersion(); /* 0x010203 */
    (void)snprintf(out, 16, "%u.%u.%u", version >> 16 & 0xff, version >> 8 & 0xff, version & 0xff);
    return out;
}
