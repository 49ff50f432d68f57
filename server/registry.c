/* registry.c - see registry.h. A broken model is an error at start rather than a gap that is found out by clients. */
#include "server/registry.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/log.h"
#include "server/metrics.h"
#include "server/precision.h"

enum { PATH_BYTES = SETTING_TEXT_MAX + 1 + 256 }; /* 256: NAME_MAX and the text's end */

struct registry {
    size_t count;
    struct entry *entries[REGISTRY_MODELS_MAX];
};

/* ---- entries --------------------------------------------------------------------------------------------------- */

void entry_reference(struct entry *e)
{
    (void)atomic_fetch_add_explicit(&e->references, 1, memory_order_relaxed);
}

void entry_release(struct entry *e)
{
    if (e == NULL || atomic_fetch_sub_explicit(&e->references, 1, memory_order_acq_rel) != 1)
        return;
    engine_close(e->engine); /* before the model, whose config it borrows */
    model_free(e->model);
    free(e);
}

static void warn_of_key(void *arg, const char *message)
{
    const char *path = arg;
    log_warning("%s: %s", path, message);
}

static void entry_publish(struct entry *e, const struct engine_options *o, const struct settings *s)
{
    const struct engine_info *info = engine_info(e->engine);
    const struct model_config *c = &e->model->config;
    const bool streams = model_config_causal(c);
    const uint64_t slots = streams ? o->streams_max : 0;
    const struct metrics_model labels = {
        .name = e->model->name,
        .task = model_task_name(c->task),
        .mixer = mixer_type_name(c->mixer.type),
        .precision = info->precision,
        .precision_by = precision_is_auto(s->precision, e->model->name) ? "auto" : "setting",
    };
    e->metrics_label = metrics_model_add(&labels);
    metrics_gauge_set(METRIC_MODEL_RESIDENT_BYTES, e->metrics_label,
                      info->weight_bytes + info->workspace_bytes + slots * info->stream_bytes);
    if (streams) {
        metrics_gauge_set(METRIC_STREAM_SLOTS, e->metrics_label, slots);
        metrics_gauge_set(METRIC_STREAM_STATE_BYTES, e->metrics_label, info->stream_bytes);
    }
    log_info("model %s: %s, %s, %s, %llu parameters, %llu bytes of packed weights, %llu of workspace, %llu a stream",
             e->model->name, model_task_name(c->task), mixer_type_name(c->mixer.type), info->precision,
             (unsigned long long)e->model->parameters, (unsigned long long)info->weight_bytes,
             (unsigned long long)info->workspace_bytes, (unsigned long long)info->stream_bytes);
}

/* Can a picture be drawn to its end? Every sub-pixel is fed but the last, which without a start embedding takes the
 * place of the start. */
static enum status check_pictures(const struct entry *e, const char *path, struct error *err)
{
    const struct model_config *c = &e->model->config;
    const struct engine_info *info = engine_info(e->engine);
    const uint64_t total = (uint64_t)3 * c->size[0] * c->size[1], fed = total - (info->starts ? 0 : 1);
    if (c->task != TASK_IMAGE_GENERATION || (total <= COMPLETE_TOTAL_MAX && fed <= info->context))
        return OK;
    return error_set_param(err, ERR_UNSUPPORTED, "input.size",
                           "%s: input.size is [%u, %u], %llu sub-pixels; this build serves what fits the context, here "
                           "%u, and at most %u",
                           path, c->size[0], c->size[1], (unsigned long long)total, info->context, COMPLETE_TOTAL_MAX);
}

static enum status entry_load(struct entry **ret, const char *path, uint32_t lane, const struct settings *s,
                              struct error *err)
{
    const uint32_t rows_left = ENGINE_ROWS_MAX - s->streams_max;
    struct engine_options options = {
        .isa = strcmp(s->isa, "auto") == 0 ? NULL : s->isa,
        .threads = s->threads,
        .images_max = s->batch_images_max,
        .tokens_max = s->picture_tokens_max,
        .streams_max = s->streams_max,
        .rows_max = s->streams_max + (s->pass_rows_max < rows_left ? s->pass_rows_max : rows_left),
    };
    char path_copy[PATH_BYTES];
    (void)snprintf(path_copy, sizeof path_copy, "%s", path);
    struct entry *e = calloc(1, sizeof *e);
    if (e == NULL)
        return error_set(err, ERR_NOMEM, "%s: no memory to load the model", path);
    atomic_init(&e->references, 1);
    e->lane = lane;
    e->created_s = (int64_t)time(NULL);
    enum status st = model_load(&e->model, path, warn_of_key, path_copy, err);
    if (st == OK)
        st = precision_choose(&options.precision, s->precision, e->model->name, path, options.isa, err);
    if (st == OK)
        st = engine_open(&e->engine, e->model, &options, err);
    if (st == ERR_ARGUMENT) /* all options are settings */
        st = ERR_CONFIG;
    if (st == OK)
        st = check_pictures(e, path, err);
    if (st != OK) {
        entry_release(e);
        return st;
    }
    model_drop_weights(e->model); /* the engine has packed its own */
    entry_publish(e, &options, s);
    *ret = e;
    return OK;
}

/* ---- the folder ------------------------------------------------------------------------------------------------ */

static bool is_loaded(const void *arg, const char *name)
{
    const struct registry *r = arg;
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->entries[i]->model->name, name) == 0)
            return true;
    return false;
}

static enum status load_folder(struct registry *r, const struct settings *s, struct dirent *const *names, size_t count,
                               struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        char path[PATH_BYTES], config[PATH_BYTES + sizeof "/config.json"];
        (void)snprintf(path, sizeof path, "%s/%s", s->models_dir, names[i]->d_name);
        (void)snprintf(config, sizeof config, "%s/config.json", path);
        if (names[i]->d_name[0] == '.' || access(config, F_OK) != 0)
            continue;
        if (strlen(names[i]->d_name) > MODEL_NAME_MAX)
            return error_set(err, ERR_CONFIG, "%s: the name of a model has at most %d bytes", path, MODEL_NAME_MAX);
        if (r->count == REGISTRY_MODELS_MAX)
            return error_set(err, ERR_CONFIG, "%s: more than %d models", s->models_dir, REGISTRY_MODELS_MAX);
        struct error why;
        const enum status st = entry_load(&r->entries[r->count], path, (uint32_t)r->count, s, &why);
        if (st == ERR_UNSUPPORTED) { /* a sound model for a newer build must not keep the others from being served */
            log_warning("left out: %s", why.message);
            continue;
        }
        if (st != OK && err != NULL)
            *err = why;
        if (st != OK)
            return st;
        r->count++;
    }
    if (r->count == 0)
        return error_set(err, ERR_CONFIG,
                         "models_dir = %s: no subfolder has a config.json of a model that this build runs",
                         s->models_dir);
    char name[MODEL_NAME_MAX + 1];
    if (precision_names_unknown(s->precision, is_loaded, r, name, sizeof name))
        return error_set_param(err, ERR_CONFIG, "precision", "precision names the model \"%s\", which is not in %s",
                               name, s->models_dir);
    return OK;
}

enum status registry_load(struct registry **ret, const struct settings *settings, struct error *err)
{
    struct dirent **names = NULL;
    enum status st;
    int count = 0;
    struct registry *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the list of models");
    count = scandir(settings->models_dir, &names, NULL, alphasort);
    if (count < 0) {
        st = error_set(err, ERR_IO, "models_dir = %s: %s", settings->models_dir, strerror(errno));
        goto done;
    }
    st = load_folder(r, settings, names, (size_t)count, err);
    if (st != OK)
        goto done;
    *ret = r;
    r = NULL; /* the caller's now */
done:
    for (int i = 0; i < count; i++)
        free(names[i]);
    free((void *)names);
    registry_free(r);
    return st;
}

void registry_free(struct registry *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->count; i++)
        entry_release(r->entries[i]);
    free(r);
}

size_t registry_count(const struct registry *r)
{
    return r->count;
}

struct entry *registry_at(const struct registry *r, size_t i)
{
    assert(i < r->count);
    return r->entries[i];
}

/* ---- what a request means -------------------------------------------------------------------------------------- */

/* "a, b, c": the names of the models, of one task or (task < 0) of all; "none" if there is none. */
static size_t list_names(const struct registry *r, int task, char *out, size_t size, const struct entry **only)
{
    size_t count = 0, used = 0;
    (void)snprintf(out, size, "none");
    for (size_t i = 0; i < r->count; i++) {
        const struct model *m = r->entries[i]->model;
        if (task >= 0 && m->config.task != (enum model_task)task)
            continue;
        const int n = snprintf(out + used, size - used, "%s%s", count > 0 ? ", " : "", m->name);
        used += n > 0 && (size_t)n < size - used ? (size_t)n : 0;
        count++;
        *only = r->entries[i];
    }
    return count;
}

static enum status pick_named(const struct registry *r, const char *name, enum model_task task, struct entry **ret,
                              struct error *err)
{
    char names[ERROR_MESSAGE_MAX / 2];
    const struct entry *last = NULL;
    for (size_t i = 0; i < r->count; i++) {
        const struct model *m = r->entries[i]->model;
        if (strcmp(m->name, name) != 0)
            continue;
        if (m->config.task != task)
            return error_set_param(err, ERR_ARGUMENT, "model", "the model \"%s\" is for %s; this request is for %s",
                                   name, model_task_name(m->config.task), model_task_name(task));
        *ret = r->entries[i];
        return OK;
    }
    (void)list_names(r, -1, names, sizeof names, &last);
    return error_set_param(err, ERR_NOT_FOUND, "model", "no model is named \"%.*s\"; loaded are: %s", MODEL_NAME_MAX,
                           name, names);
}

enum status registry_pick(const struct registry *r, const char *name, enum model_task task, struct entry **ret,
                          struct error *err)
{
    if (name != NULL)
        return pick_named(r, name, task, ret, err);
    char names[ERROR_MESSAGE_MAX / 2];
    const struct entry *only = NULL;
    const size_t count = list_names(r, (int)task, names, sizeof names, &only);
    if (count == 0)
        return error_set_param(err, ERR_ARGUMENT, "model", "no model for %s is loaded", model_task_name(task));
    if (count > 1)
        return error_set_param(err, ERR_ARGUMENT, "model", "\"model\" is missing and %zu models are for %s: %s", count,
                               model_task_name(task), names);
    *ret = r->entries[only->lane];
    return OK;
}
