/* check.c - see check.h. */
#include "server/control/check.h"

#include <stdlib.h>

#include "config/settings.h"
#include "server/models/hosted_model.h"
#include "server/models/model_names.h"
#include "server/models/model_sources.h"
#include "server/models/precision.h"

enum status check_find_models(struct found_model **ret, size_t *count, const struct settings *s, struct error *err)
{
    enum status st = precision_check(s->precision, err) == OK ? OK : ERR_CONFIG;
    if (st == OK)
        st = model_sources_check(s, err);
    if (st == OK)
        st = model_sources_scan(ret, count, s, true, err);
    if (st != OK)
        return st;
    st = model_names_check_precision(s, err);
    if (st == OK)
        st = model_names_check(s, NULL, err);
    if (st != OK)
        free(*ret);
    return st;
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
