/* picture_intake.c - see picture_intake.h. */
#include "server/media/picture_intake.h"

static struct picture_options with_sides(struct picture_options options, const struct picture_audience *a)
{
    options.shorter = picture_fit_shorter(a->size, &a->model->config);
    options.longer = a->longer;
    return options;
}

enum status picture_look(struct picture_cost *ret, uint64_t *fitted, const struct picture_audience *for_whom,
                         const uint8_t *bytes, size_t size, const char *declared, const char *name, struct error *err)
{
    const struct picture_options options = with_sides((struct picture_options){0}, for_whom);
    struct picture_fit f;
    struct error none;
    enum status st = declared != NULL ? picture_check_declared(declared, name, bytes, size, err) : OK;
    if (st == OK)
        st = picture_check_kind(bytes, size, err);
    if (st != OK)
        return st;
    *ret = picture_cost_of(bytes, size, &options);
    const struct picture sides = {.width = ret->width, .height = ret->height};
    const bool fits = picture_fit_choose(&f, for_whom->size, &sides, for_whom->model, for_whom->engine, &none) == OK;
    *fitted = fits ? (uint64_t)f.width * f.height : 0;
    return OK;
}

enum status picture_take_in(struct picture *whole, struct picture_fit *fit, const struct picture_audience *for_whom,
                            const uint8_t *bytes, size_t size, struct picture_options options, struct error *err)
{
    const struct picture_options wanted = with_sides(options, for_whom);
    struct picture p = {0};
    enum status st = picture_decode(&p, bytes, size, &wanted, err);
    if (st == OK)
        st = picture_fit_choose(fit, for_whom->size, &p, for_whom->model, for_whom->engine, err);
    if (st == OK)
        *whole = p;
    else
        picture_clear(&p);
    return st;
}
