/* model_names.c - see model_names.h. */
#include "server/models/model_names.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/list.h"
#include "server/models/model_sources.h"
#include "server/models/registry.h"
#include "weights/model.h"

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

/* Also if it is yet to be loaded. */
static bool is_there(const char *name, const struct settings *s, struct registry *known)
{
    struct found_model found;
    return (known != NULL && registry_row(known, name) != NULL) || model_sources_find(&found, s, name, NULL) == OK;
}

static enum status check_defaults(const struct settings *s, struct registry *known, struct error *err)
{
    struct list_item item;
    char name[MODEL_NAME_MAX + 1];
    for (const char *at = list_begin(s->default_models); list_next(&at, &item);)
        if (!read_name(name, &item) || !is_there(name, s, known))
            return error_set_param(err, ERR_CONFIG, "default_models",
                                   "default_models names \"%.*s\", which is no model here; expected names of models "
                                   "separated by commas, or " CONFIG_OFF,
                                   shown(item.size), item.text);
    return OK;
}

enum status model_names_check_precision(const struct settings *s, struct error *err)
{
    struct list_item item;
    char name[MODEL_NAME_MAX + 1];
    for (const char *at = s->precision; list_next(&at, &item);) {
        const char *equals = memchr(item.text, '=', item.size);
        if (equals == NULL)
            continue;
        item.size = (size_t)(equals - item.text);
        if (!read_name(name, &item) || !is_there(name, s, NULL))
            return error_set_param(err, ERR_CONFIG, "precision", "precision names \"%.*s\", which is no model here",
                                   shown(item.size), item.text);
    }
    return OK;
}

/* ---- aliases ---------------------------------------------------------------------------------------------------- */

static bool read_alias(struct model_alias *ret, const struct list_item *item)
{
    const char *equals = memchr(item->text, '=', item->size);
    if (equals == NULL)
        return false;
    const struct list_item alias = {item->text, (size_t)(equals - item->text)};
    const struct list_item name = {equals + 1, item->size - alias.size - 1};
    return read_name(ret->alias, &alias) && read_name(ret->name, &name) &&
           model_check_name(ret->alias, alias.size, "", NULL) == OK;
}

bool model_names_next_alias(const char **at, struct model_alias *ret)
{
    struct list_item item;
    while (list_next(at, &item))
        if (read_alias(ret, &item))
            return true;
    return false;
}

static bool is_alias_before(const char *list, const char *end, const char *alias)
{
    struct model_alias other;
    for (const char *at = list; at != end && model_names_next_alias(&at, &other);)
        if (strcmp(other.alias, alias) == 0)
            return true;
    return false;
}

static enum status check_aliases(const struct settings *s, struct registry *known, struct error *err)
{
    struct list_item item;
    struct model_alias a;
    for (const char *at = list_begin(s->aliases), *begin = at; list_next(&at, &item); begin = at) {
        const char *why = !read_alias(&a, &item)        ? "expected ALIAS=NAME, both as models are named"
                          : is_there(a.alias, s, known) ? "expected an alias that is no model's name"
                          : !is_there(a.name, s, known) ? "expected the name of a model that is here"
                          : is_alias_before(s->aliases, begin, a.alias) ? "expected each alias once"
                                                                        : NULL;
        if (why != NULL)
            return error_set_param(err, ERR_CONFIG, "aliases", "aliases has \"%.*s\"; %s", shown(item.size), item.text,
                                   why);
    }
    return OK;
}

enum status model_names_check(const struct settings *s, struct registry *known, struct error *err)
{
    const enum status st = check_defaults(s, known, err);
    return st == OK ? check_aliases(s, known, err) : st;
}
