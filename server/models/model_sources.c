/* model_sources.c - see model_sources.h. */
#include "server/models/model_sources.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/config.h"
#include "config/list.h"
#include "config/settings.h"
#include "weights/model.h"

enum { SHOWN_MAX = 200 }; /* bytes of a wrong item in a message */

/* An item of the setting model. */
struct given {
    char name[MODEL_NAME_MAX + 1], path[SETTING_TEXT_MAX + 1];
};

/* False: it is not of the form. A name has no slash, so what follows one is a path with a '=' in it. */
static bool read_given(struct given *ret, const struct list_item *item)
{
    const char *equals = memchr(item->text, '=', item->size), *slash = memchr(item->text, '/', item->size);
    const char *path = equals != NULL && (slash == NULL || equals < slash) ? equals + 1 : item->text;
    const char *name = item->text;
    size_t path_size = (size_t)(item->text + item->size - path), name_size = (size_t)(path - name);
    while (path_size > 1 && path[path_size - 1] == '/')
        path_size--;
    if (name_size > 0) {
        name_size--; /* the '=' */
    } else {
        for (name = path + path_size; name > path && name[-1] != '/';)
            name--;
        name_size = (size_t)(path + path_size - name);
    }
    if (path_size == 0 || path_size > SETTING_TEXT_MAX || name_size == 0 || name[0] == '.' ||
        model_check_name(name, name_size, "", NULL) != OK)
        return false;
    (void)snprintf(ret->name, sizeof ret->name, "%.*s", (int)name_size, name);
    (void)snprintf(ret->path, sizeof ret->path, "%.*s", (int)path_size, path);
    return true;
}

/* The next item that is of the form; the list has been checked. */
static bool next_given(const char **at, struct given *ret)
{
    struct list_item item;
    while (list_next(at, &item))
        if (read_given(ret, &item))
            return true;
    return false;
}

/* The item of that name, of those before `end`; false: there is none. */
static bool find_given(struct given *ret, const char *list, const char *end, const char *name)
{
    for (const char *at = list; at != end && next_given(&at, ret);)
        if (strcmp(ret->name, name) == 0)
            return true;
    return false;
}

enum status model_sources_check(const struct settings *s, struct error *err)
{
    struct list_item item;
    struct given g, other;
    if (list_begin(s->model) == NULL && !config_is_on(s->models_dir))
        return error_set_param(err, ERR_CONFIG, "models_dir",
                               "models_dir and model are both " CONFIG_OFF ": expected at least one");
    for (const char *at = list_begin(s->model), *begin = at; list_next(&at, &item); begin = at) {
        if (!read_given(&g, &item))
            return error_set_param(err, ERR_CONFIG, "model",
                                   "model has \"%.*s\"; expected NAME=PATH, or PATH whose last part is the name: 1 to "
                                   "%d letters, digits, '.', '_' and '-', the first not a '.'; or " CONFIG_OFF,
                                   (int)(item.size < SHOWN_MAX ? item.size : SHOWN_MAX), item.text, MODEL_NAME_MAX);
        if (find_given(&other, s->model, begin, g.name))
            return error_set_param(err, ERR_CONFIG, "model", "model names \"%s\" twice; expected each name once",
                                   g.name);
    }
    return OK;
}

/* At start all of them must be there. */
static enum status refuse_given(const struct given *g, struct error *err)
{
    struct stat s;
    if (stat(g->path, &s) != 0)
        return error_set_param(err, status_of_errno(errno), "model", "model %s = %s: %s", g->name, g->path,
                               strerror(errno));
    return error_set_param(err, ERR_CONFIG, "model",
                           "model %s = %s: expected a folder with a config.json, or with versions (1, 2, ...) that "
                           "have one",
                           g->name, g->path);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct found_model *)a)->name, ((const struct found_model *)b)->name);
}

/* Add those that the setting model names; `all` has room for REGISTRY_MODELS_MAX. */
static enum status add_given(struct found_model *all, size_t *count, const struct settings *s, bool must,
                             struct error *err)
{
    struct given g;
    for (const char *at = list_begin(s->model); next_given(&at, &g);) {
        struct found_model m;
        bool there = false;
        const enum status st = models_dir_look(&m, &there, g.name, g.path, err);
        if (st != OK)
            return st;
        if (!there && must)
            return refuse_given(&g, err);
        if (!there)
            continue;
        for (size_t i = 0; i < *count; i++)
            if (strcmp(all[i].name, m.name) == 0)
                return error_set_param(err, ERR_CONFIG, "model",
                                       "\"%s\" is the name of two models: %s, from the setting model, and %s; expected "
                                       "another name before the '=' in the setting",
                                       m.name, m.path, all[i].path);
        if (*count == REGISTRY_MODELS_MAX)
            return error_set_param(err, ERR_CONFIG, "model", "%s: more than %d models", m.path, REGISTRY_MODELS_MAX);
        all[(*count)++] = m;
    }
    return OK;
}

enum status model_sources_scan(struct found_model **ret, size_t *count, const struct settings *s, bool must,
                               struct error *err)
{
    struct found_model *all = calloc(REGISTRY_MODELS_MAX, sizeof *all);
    size_t found = 0;
    if (all == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the list of models");
    enum status st = OK;
    if (config_is_on(s->models_dir))
        st = models_dir_scan(all, &found, s->models_dir, err);
    if (st == OK)
        st = add_given(all, &found, s, must, err);
    if (st == OK && found == 0) /* rather than unload all because something is not mounted */
        st = error_set_param(err, ERR_CONFIG, "model", "model = %s: there is no model in any of these folders",
                             s->model);
    if (st != OK) {
        free(all);
        return st;
    }
    qsort(all, found, sizeof *all, compare);
    *ret = all;
    *count = found;
    return OK;
}

enum status model_sources_find(struct found_model *ret, const struct settings *s, const char *name, struct error *err)
{
    struct given g;
    char path[MODELS_DIR_PATH_BYTES];
    const char *at = NULL;
    bool there = false;
    enum status st = OK;
    (void)snprintf(path, sizeof path, "%s/%s", s->models_dir, name);
    if (find_given(&g, list_begin(s->model), NULL, name))
        at = g.path;
    else if (config_is_on(s->models_dir) && name[0] != '.' && model_check_name(name, strlen(name), "", NULL) == OK)
        at = path;
    if (at != NULL)
        st = models_dir_look(ret, &there, name, at, err);
    if (st != OK || there)
        return st;
    return error_set_param(err, ERR_NOT_FOUND, "model", "there is no model \"%.*s\" in models_dir or model",
                           MODEL_NAME_MAX, name);
}
