/* picture_fit.c - see picture_fit.h. */
#include "server/media/picture_fit.h"

#include <stdlib.h>
#include <string.h>

#include "config/digits.h"
#include "config/json.h"

/* One side of "HxW", which the character `end` follows; *at is moved behind that. */
static bool read_side(uint32_t *ret, const char **at, char end)
{
    uint64_t value = 0;
    if (!digits_read(&value, at) || **at != end || value > PICTURE_SIDE_MAX)
        return false;
    ++*at;
    *ret = (uint32_t)value;
    return true;
}

static uint32_t shorter(uint32_t height, uint32_t width)
{
    return height < width ? height : width;
}

static uint32_t cut(uint32_t side, uint32_t patch)
{
    return side < patch ? patch : side / patch * patch;
}

/* "HxW": resize_to keeps its ratio to the crop's shorter side. */
static enum status choose_given(struct picture_fit *ret, const char *size, const struct model_config *c,
                                struct error *err)
{
    struct picture_fit f = {0};
    const char *at = size;
    const bool is_size = read_side(&f.height, &at, 'x') && read_side(&f.width, &at, '\0');
    const uint64_t trained = shorter(c->size[0], c->size[1]);
    const uint64_t resize_to = ((uint64_t)c->resize_to * shorter(f.height, f.width) + trained / 2) / trained;
    if (!is_size || f.height == 0 || f.width == 0 || f.height % c->patch[0] != 0 || f.width % c->patch[1] != 0 ||
        resize_to > PICTURE_SIDE_MAX)
        return error_set_param(err, ERR_ARGUMENT, "size",
                               "\"size\" is \"%s\"; expected native, or HxW in pixels, multiples of the patch of %ux%u "
                               "up to %d",
                               json_quote(size).text, c->patch[0], c->patch[1], PICTURE_SIDE_MAX);
    f.resize_to = resize_to > 0 ? (uint32_t)resize_to : 1;
    *ret = f;
    return OK;
}

enum status picture_fit_choose(struct picture_fit *ret, const char *size, const struct picture *p,
                               const struct model *m, const struct engine *e, struct error *err)
{
    const struct model_config *c = &m->config;
    const struct engine_info *info = engine_info(e);
    struct picture_fit f = {.resize_to = c->resize_to, .height = c->size[0], .width = c->size[1]};
    if (size == NULL) {
        *ret = f;
        return OK;
    }
    if (info->fixed_size)
        return error_set_param(
            err, ERR_ARGUMENT, "size",
            "\"size\" is \"%s\"; expected none: the positions of %s are learnt for %ux%u pixels only",
            json_quote(size).text, m->name, c->size[0], c->size[1]);
    if (strcmp(size, "native") == 0) {
        const uint32_t height = picture_whole_height(p), width = picture_whole_width(p);
        f = (struct picture_fit){
            .resize_to = shorter(height, width), .height = cut(height, c->patch[0]), .width = cut(width, c->patch[1])};
    } else {
        const enum status st = choose_given(&f, size, c, err);
        if (st != OK)
            return st;
    }
    const uint64_t patches = (uint64_t)(f.height / c->patch[0]) * (f.width / c->patch[1]);
    if (patches > info->elements_max)
        return error_set_param(
            err, ERR_ARGUMENT, "size",
            "\"size\" is \"%s\", which is %ux%u pixels or %llu patches of %ux%u; expected at most %u "
            "patches",
            json_quote(size).text, f.height, f.width, (unsigned long long)patches, c->patch[0], c->patch[1],
            info->elements_max);
    if ((uint64_t)f.height * f.width > PICTURE_PIXELS_MAX)
        return error_set_param(err, ERR_ARGUMENT, "size", "\"size\" is \"%s\"; expected at most %u pixels",
                               json_quote(size).text, PICTURE_PIXELS_MAX);
    *ret = f;
    return OK;
}

uint32_t picture_fit_shorter(const char *size, const struct model_config *c)
{
    struct picture_fit f = {0};
    struct error none;
    if (size == NULL)
        return c->resize_to;
    return strcmp(size, "native") != 0 && choose_given(&f, size, c, &none) == OK ? f.resize_to : PICTURE_SIDE_MAX;
}

enum status picture_fit_apply(uint8_t **ret, const struct picture_fit *f, const struct picture *p,
                              const struct model_config *c, struct error *err)
{
    uint8_t *pixels = malloc((size_t)f->height * f->width * 3);
    if (pixels == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the picture; try again later");
    const enum status st = picture_prepare(pixels, f->width, f->height, p, f->resize_to, c->interpolation, err);
    if (st != OK) {
        free(pixels);
        return st;
    }
    *ret = pixels;
    return OK;
}
