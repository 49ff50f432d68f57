/* registry_request.c - which model a request means: by name and version, or by the task alone. See registry.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/list.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/model_names.h"
#include "server/models/registry_inner.h"

void registry_name_of(char ret[MODEL_NAME_MAX + 1], const char *ref)
{
    const size_t size = strcspn(ref, "@");
    (void)snprintf(ret, MODEL_NAME_MAX + 1, "%.*s", (int)(size < MODEL_NAME_MAX ? size : MODEL_NAME_MAX), ref);
}

/* The row of what stands before the "@", which no name has. */
static struct registry_model *find_ref_locked(struct registry *r, const char *ref)
{
    return registry_find_locked(r, ref, strcspn(ref, "@"));
}

/* The version that is served, or would be. */
static uint32_t version_of(const struct registry_model *row)
{
    const uint32_t version = row->hosted != NULL ? row->hosted->version : row->found.version;
    return version != 0 ? version : 1;
}

/* Is that version meant by what stands behind the "@"? */
static bool is_version_of(const struct registry_model *row, const char *ref)
{
    const char *at = strchr(ref, '@');
    return at == NULL || models_dir_version(at + 1) == version_of(row);
}

bool registry_look(struct registry *r, const char *ref, struct registry_model *ret)
{
    (void)pthread_mutex_lock(&r->lock);
    const struct registry_model *row = find_ref_locked(r, ref);
    const bool is_it = row != NULL && is_version_of(row, ref);
    if (is_it)
        registry_copy_locked(ret, row);
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
    bool is_it = among == NULL || among->count == 0;
    for (size_t i = 0; !is_it && i < among->count; i++)
        is_it = strcmp(among->names[i], row->found.name) == 0;
    return is_it && (task < 0 || row->task == (enum model_task)task);
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
    struct registry_model *row = find_ref_locked(r, name);
    if (row != NULL && row->state == MODEL_FAILED)
        return refuse_failed(row, err);
    if (row == NULL || !can_serve(row)) {
        list_names_locked(r, names, sizeof names);
        return error_set_param(err, ERR_NOT_FOUND, "model", "no model is named \"%.*s\"; loaded models: %s",
                               MODEL_REF_MAX, name, names);
    }
    if (!is_version_of(row, name))
        return error_set_param(
            err, ERR_NOT_FOUND, "model", "there is no version \"%.20s\" of the model \"%s\"; expected %s or %s@%u",
            strchr(name, '@') + 1, row->found.name, row->found.name, row->found.name, version_of(row));
    if (task >= 0 && row->task != (enum model_task)task)
        return error_set_param(err, ERR_ARGUMENT, "model", "the model \"%s\" is for %s; this request is for %s", name,
                               model_task_name(row->task), model_task_name((enum model_task)task));
    *ret = row;
    return OK;
}

/* NULL: none. */
static struct registry_model *find_default_locked(struct registry *r, int task, const struct registry_choice *among)
{
    for (const char *name = r->defaults; *name != '\0'; name += strlen(name) + 1) {
        struct registry_model *row = registry_find_locked(r, name, strlen(name));
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
    row->used_ns = clock_now_ns();
    if (row->hosted != NULL) {
        row->awaited_ns = 0;
        hosted_model_reference(row->hosted);
        *ret = row->hosted;
        return OK;
    }
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

enum status registry_acquire(struct registry *r, const char *ref, int task, const struct registry_choice *among,
                             struct hosted_model **ret, struct error *err)
{
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = ref == NULL ? find_default_locked(r, task, among) : NULL;
    enum status st = OK;
    if (ref != NULL)
        st = find_named_locked(r, ref, task, &row, err);
    else if (row == NULL)
        st = refuse_task_locked(r, task, among, err);
    assert((st == OK) == (row != NULL));
    if (row != NULL)
        st = acquire_locked(r, row, ret, err);
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}

bool registry_is_default(struct registry *r, const char *name, const struct registry_choice *among)
{
    (void)pthread_mutex_lock(&r->lock);
    const struct registry_model *row = registry_row(r, name);
    const bool is_it = row != NULL && find_default_locked(r, (int)row->task, among) == row;
    (void)pthread_mutex_unlock(&r->lock);
    return is_it;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

void registry_set_names(struct registry *r, const char *defaults, const char *aliases)
{
    (void)pthread_mutex_lock(&r->lock);
    char *end = r->defaults; /* no longer than the setting, whose commas become NULs */
    struct list_item item;
    for (const char *at = list_begin(defaults); list_next(&at, &item); end += item.size > 0 ? item.size + 1 : 0)
        (void)snprintf(end, item.size + 1, "%.*s", (int)item.size, item.text);
    *end = '\0';
    (void)snprintf(r->aliases, sizeof r->aliases, "%s", aliases);
    (void)pthread_mutex_unlock(&r->lock);
}

void registry_aliases(struct registry *r, char ret[SETTING_TEXT_MAX + 1])
{
    (void)pthread_mutex_lock(&r->lock);
    memcpy(ret, r->aliases, sizeof r->aliases);
    (void)pthread_mutex_unlock(&r->lock);
}

/* A model that came later and has an alias's name goes before it. */
const char *registry_real_name(struct registry *r, const char *ref, char room[MODEL_REF_MAX + 1])
{
    const size_t size = strcspn(ref, "@");
    const char *ret = ref;
    struct model_alias a;
    (void)pthread_mutex_lock(&r->lock);
    const bool is_name = find_ref_locked(r, ref) != NULL;
    for (const char *at = list_begin(r->aliases); !is_name && ret == ref && model_names_next_alias(&at, &a);)
        if (strlen(a.alias) == size && memcmp(a.alias, ref, size) == 0) {
            (void)snprintf(room, MODEL_REF_MAX + 1, "%s%s", a.name, ref + size);
            ret = room;
        }
    (void)pthread_mutex_unlock(&r->lock);
    return ret;
}
