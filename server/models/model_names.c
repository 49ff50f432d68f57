/* model_names.c - see model_names.h. */
#include "server/models/model_names.h"

#include <stdio.h>
#include <string.h>

#include "config/limits.h"
#include "config/list.h"

enum { SHOWN_MAX = 100 }; /* bytes of a wrong item in a message */

static int shown(size_t size)
{
    return (int)(size < SHOWN_MAX ? size : SHOWN_MAX);
}

/* The item as a name; false if no model could have it. */
static bool read_name(char ret[MODEL_NAME_MAX + 1], const struct list_item *item)
{
    (void)snprintf(ret, MODEL_NAME_MAX + 1, "%.*s", (int)item->size, item->text);
    return item->size > 0 && item->size <= MODEL_NAME_MAX;
}

enum status model_names_check_defaults(const char *list, model_names_known *is_there, const void *arg,
                                       struct error *err)
{
    struct list_item item;
    char name[MODEL_NAME_MAX + 1];
    if (strcmp(list, MODEL_NAMES_OFF) == 0)
        return OK;
    for (const char *at = list; list_next(&at, &item);)
        if (!read_name(name, &item) || !is_there(arg, name))
            return error_set_param(err, ERR_CONFIG, "default_models",
                                   "default_models names \"%.*s\", which is no model here; expected names of models "
                                   "separated by commas, or " MODEL_NAMES_OFF,
                                   shown(item.size), item.text);
    return OK;
}
