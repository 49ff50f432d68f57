/* registry_request.c - which model a request means: by name and version, or by the task alone. See registry.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/list.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/model_names.h"
#include "server/models/registry_inner.h"

void registry_name_of(char ret[MODEL_NAME_MAX + 1], const char *wish)
{
    const size_t size = strcspn(wish, "@");
    (void)snprintf(ret, MODEL_NAME_MAX + 1, "%.*s", (int)(size < MODEL_NAME_MAX ? size : MODEL_NAME_MAX), wish);
}

/* The row of a name; *version is what follows its "@", which no name has, or NULL. */
static struct registry_model *find_ref_locked(struct registry *r, const char *wish, const char **version)
{
    char name[MODEL_NAME_MAX + 1];
    const char *at = strchr(wish, '@');
    *version = at != NULL ? at + 1 : NULL;
    if (strcspn(wish, "@") > MODEL_NAME_MAX)
        return NULL;
    registry_name_of(name, wish);
    return registry_find_locked(r, name);
}

/* The version that is served, or would be. */
static uint32_t version_of(const struct registry_model *row)
{
    const uint32_t version = row->hosted != NULL ? row->hosted->version : row->found.version;
    return version != 0 ? version : 1;
}

struct hosted_model *registry_acquire_ref(struct registry *r, const char *wish)
{
    const char *version;
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = find_ref_locked(r, wish, &version);
    const bool is_it = row != NULL && (version == NULL || models_dir_version(version) == version_of(row));
    struct hosted_model *e = is_it ? registry_use_locked(row) : NULL;
    (void)pthread_mutex_unlock(&r->lock);
    return e;
}

bool registry_list_one(struct registry *r, const char *wish, struct registry_listed *ret)
{
    const char *version;
    (void)pthread_mutex_lock(&r->lock);
    const struct registry_model *row = find_ref_locked(r, wish, &version);
    const bool is_it = row != NULL && (version == NULL || models_dir_version(version) == version_of(row)) &&
                       registry_list_locked(row, ret);
    (void)pthread_mutex_unlock(&r->lock);
    return is_it;
}

/* Is the model there, so that there is more to say of it than that it is gone? */
static bool can_serve(const struct registry_model *row)
{
    return row->state == MODEL_LOADED || row->state == MODEL_IDLE;
}

/* Is it for the task (REGISTRY_ANY_TASK: any), and one of these? */
static bool is_among(const struct registry_model *row, int task, const struct registry_choice *among)
{
    return (task < 0 || row->task == (enum model_task)task) &&
           (among == NULL || among->has(among->arg, row->found.name));
}

/* "a, b, c": the names of the models, as many as fit whole; "none" if there is none. */
static void list_names_locked(const struct registry *r, char *out, size_t size)
{
    size_t used = 0;
    (void)snprintf(out, size, "none");
    for (size_t i = 0; i < r->count; i++) {
        const struct registry_model *row = &r->rows[i];
        if (!can_serve(row))
            continue;
        const int n = snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", row->found.name);
        if (n < 0 || (size_t)n >= size - used) {
            out[used] = '\0';
            return;
        }
        used += (size_t)n;
    }
}

/* What was wrong is for administrators: it names paths. */
static enum status refuse_failed(const struct registry_model *row, struct error *err)
{
    return error_set_param(err, ERR_UNAVAILABLE, "model",
                           "the model \"%s\" cannot be loaded; the log and GET /admin/models say why", row->found.name);
}

static enum status find_named_locked(struct registry *r, const char *name, int task, struct registry_model **ret,
                                     struct error *err)
{
    char names[ERROR_MESSAGE_MAX / 2];
    const char *version;
    struct registry_model *row = find_ref_locked(r, name, &version);
    if (row != NULL && row->state == MODEL_FAILED)
        return refuse_failed(row, err);
    if (row == NULL || !can_serve(row)) {
        list_names_locked(r, names, sizeof names);
        return error_set_param(err, ERR_NOT_FOUND, "model", "no model is named \"%.*s\"; loaded models: %s",
                               MODEL_WISH_MAX, name, names);
    }
    if (version != NULL && models_dir_version(version) != version_of(row))
        return error_set_param(err, ERR_NOT_FOUND, "model",
                               "there is no version \"%.20s\" of the model \"%s\"; expected %s or %s@%u", version,
                               row->found.name, row->found.name, row->found.name, version_of(row));
    if (task >= 0 && row->task != (enum model_task)task)
        return error_set_param(err, ERR_ARGUMENT, "model", "the model \"%s\" is for %s; this request is for %s", name,
                               model_task_name(row->task), model_task_name((enum model_task)task));
    *ret = row;
    return OK;
}

/* NULL: none. */
static struct registry_model *find_default_locked(struct registry *r, int task, const struct registry_choice *among)
{
    struct list_item item;
    for (const char *at = r->defaults; list_next(&at, &item);) {
        char name[MODEL_NAME_MAX + 1];
        (void)snprintf(name, sizeof name, "%.*s", (int)item.size, item.text);
        struct registry_model *row = registry_find_locked(r, name);
        if (row != NULL && can_serve(row) && is_among(row, task, among))
            return row;
    }
    for (size_t i = 0; i < r->count; i++)
        if (can_serve(&r->rows[i]) && is_among(&r->rows[i], task, among))
            return &r->rows[i];
    return NULL;
}

/* No model can answer: because one could not be loaded, or because there is none. */
static enum status refuse_task_locked(const struct registry *r, int task, const struct registry_choice *among,
                                      struct error *err)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->rows[i].state == MODEL_FAILED && is_among(&r->rows[i], task, among))
            return refuse_failed(&r->rows[i], err);
    return error_set_param(err, ERR_ARGUMENT, "model", "no model for %s is loaded",
                           task >= 0 ? model_task_name((enum model_task)task) : "any task");
}

/* Use what the row has loaded, or have it loaded. */
static enum status acquire_locked(struct registry *r, struct registry_model *row, struct hosted_model **ret,
                                  struct error *err)
{
    if (row->hosted != NULL && registry_is_within(row->yields_ns, MODEL_YIELDS_NS))
        return error_set_param(err, ERR_LOADING, "model",
                               "the model \"%s\" gives way to another, for which there is no room beside it",
                               row->found.name);
    struct hosted_model *e = registry_use_locked(row);
    if (e != NULL) {
        *ret = e;
        return OK;
    }
    row->used_ns = clock_now_ns();
    row->wanted = true;
    if (r->wake != NULL)
        queue_wake(r->wake);
    if (row->failure[0] == '\0')
        return error_set_param(err, ERR_LOADING, "model", "the model \"%s\" is being loaded", row->found.name);
    return error_set_param(err, ERR_LOADING, "model",
                           "the model \"%s\" is being loaded; the last attempt failed: the log and GET /admin/models "
                           "say why",
                           row->found.name);
}

enum status registry_acquire_for(struct registry *r, const char *name, int task, struct hosted_model **ret,
                                 struct error *err)
{
    struct registry_model *row = NULL;
    (void)pthread_mutex_lock(&r->lock);
    enum status st = find_named_locked(r, name, task, &row, err);
    assert((st == OK) == (row != NULL));
    if (row != NULL)
        st = acquire_locked(r, row, ret, err);
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}

enum status registry_acquire_default(struct registry *r, int task, const struct registry_choice *among,
                                     struct hosted_model **ret, struct error *err)
{
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = find_default_locked(r, task, among);
    const enum status st = row != NULL ? acquire_locked(r, row, ret, err) : refuse_task_locked(r, task, among, err);
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}

bool registry_is_default(struct registry *r, const char *name, const struct registry_choice *among)
{
    (void)pthread_mutex_lock(&r->lock);
    const struct registry_model *row = registry_find_locked(r, name);
    const bool is_it = row != NULL && find_default_locked(r, (int)row->task, among) == row;
    (void)pthread_mutex_unlock(&r->lock);
    return is_it;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const char *unless_off(const char *list)
{
    return strcmp(list, MODEL_NAMES_OFF) != 0 ? list : "";
}

void registry_set_names(struct registry *r, const char *defaults, const char *aliases)
{
    (void)pthread_mutex_lock(&r->lock);
    (void)snprintf(r->defaults, sizeof r->defaults, "%s", unless_off(defaults));
    (void)snprintf(r->aliases, sizeof r->aliases, "%s", unless_off(aliases));
    (void)pthread_mutex_unlock(&r->lock);
}

void registry_aliases(struct registry *r, char ret[SETTING_TEXT_MAX + 1])
{
    (void)pthread_mutex_lock(&r->lock);
    memcpy(ret, r->aliases, sizeof r->aliases);
    (void)pthread_mutex_unlock(&r->lock);
}

/* A model that came later and has an alias's name goes before it. */
const char *registry_real_name(struct registry *r, const char *wish, char room[MODEL_WISH_MAX + 1])
{
    const size_t size = strcspn(wish, "@");
    const char *ret = wish;
    char name[MODEL_NAME_MAX + 1];
    struct model_alias a;
    if (size > MODEL_NAME_MAX)
        return wish;
    registry_name_of(name, wish);
    (void)pthread_mutex_lock(&r->lock);
    for (const char *at = r->aliases; ret == wish && model_names_next_alias(&at, &a);)
        if (strcmp(a.alias, name) == 0 && registry_find_locked(r, name) == NULL) {
            (void)snprintf(room, MODEL_WISH_MAX + 1, "%s%s", a.name, wish + size);
            ret = room;
        }
    (void)pthread_mutex_unlock(&r->lock);
    return ret;
}
