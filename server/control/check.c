/* check.c - see check.h. */
#include "server/control/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "server/models/hosted_model.h"
#include "server/models/model_names.h"
#include "server/models/model_sources.h"
#include "server/models/precision.h"

struct found {
    struct found_model *all;
    size_t count;
};

static bool is_found(const void *arg, const char *name)
{
    const struct found *f = arg;
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->all[i].name, name) == 0)
            return true;
    return false;
}

static enum status check_names(const struct found *f, const struct settings *s, struct error *err)
{
    char name[MODEL_NAME_MAX + 1];
    if (precision_names_unknown(s->precision, is_found, f, name, sizeof name))
        return error_set_param(err, ERR_CONFIG, "precision", "precision names \"%s\", which is no model here", name);
    const enum status st = model_names_check_defaults(s->default_models, is_found, f, err);
    return st == OK ? model_names_check_aliases(s->aliases, is_found, f, err) : st;
}

enum status check_find_models(struct found_model **ret, size_t *count, const struct settings *s, struct error *err)
{
    struct found f = {.all = NULL};
    enum status st = precision_check(s->precision, err) == OK ? OK : ERR_CONFIG;
    if (st == OK)
        st = model_sources_check(s, err);
    if (st == OK)
        st = model_sources_scan(&f.all, &f.count, s, true, err);
    if (st != OK)
        return st;
    st = check_names(&f, s, err);
    if (st != OK) {
        free(f.all);
        return st;
    }
    *ret = f.all;
    *count = f.count;
    return OK;
}

enum status check_models(const struct settings *s, struct error *err)
{
    struct found_model *all = NULL;
    struct error why;
    enum status left_out = OK;
    size_t count = 0, served = 0;
    enum status st = check_find_models(&all, &count, s, err);
    if (st != OK)
        return st;
    for (size_t i = 0; i < count && st == OK; i++) {
        struct hosted_model *e = NULL;
        st = hosted_model_load(&e, &all[i], s, &why);
        hosted_model_release(e);
        served += st == OK;
        if (st == ERR_UNSUPPORTED) { /* it would be left out, which is no reason not to start unless it is the last */
            left_out = st;
            st = OK;
        }
    }
    free(all);
    if (st == OK && served == 0)
        st = left_out;
    if (st != OK && err != NULL)
        *err = why;
    return st;
}
