/* hosting.c - see hosting.h. */
#include "server/control/hosting.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json_memory.h"
#include "config/settings.h"
#include "server/core/log.h"
#include "server/core/service_manager.h"
#include "server/models/model_names.h"
#include "server/models/model_sources.h"
#include "server/models/registry.h"
#include "server/operation/batcher.h"

#define MEGABYTE (UINT64_C(1) << 20)

enum { LOAD_MS_MAX = 300000 }; /* of the largest model from a slow disk: 8 GiB at 30 MB/s */

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static bool fits_beside(const struct hosting *h, const char *name, uint64_t bytes)
{
    const uint64_t most = h->settings->models_memory_max_mb * MEGABYTE;
    return most == 0 || registry_bytes(h->registry, name) + bytes <= most;
}

static enum status refuse_size(const struct hosting *h, enum status st, const char *name, uint64_t bytes,
                               const char *why, struct error *err)
{
    return error_set_param(
        err, st, "models_memory_max_mb",
        "the model \"%s\" takes %llu MiB of memory, and all models together may take %u (models_memory_max_mb): %s",
        name, (unsigned long long)((bytes + MEGABYTE - 1) / MEGABYTE), h->settings->models_memory_max_mb, why);
}

/* Unload the least recently used models until there is room for `bytes` of the model of that name. Errors: ERR_NOMEM
 * (there can never be room), ERR_UNAVAILABLE (not now). */
static enum status make_room(struct hosting *h, const char *name, uint64_t bytes, struct error *err)
{
    while (!fits_beside(h, name, bytes)) {
        if (bytes > h->settings->models_memory_max_mb * MEGABYTE)
            return refuse_size(h, ERR_NOMEM, name, bytes, "it cannot be loaded", err);
        const struct registry_model *idle = registry_least_used(h->registry, name);
        if (idle == NULL)
            return refuse_size(h, ERR_UNAVAILABLE, name, bytes, "the other models are in use; try again later", err);
        log_info("model %s: unloaded, to make room for %s", idle->found.name, name);
        registry_drop(h->registry, idle->found.name, MODEL_IDLE);
    }
    return OK;
}

/* ---- one model ------------------------------------------------------------------------------------------------- */

/* Note a model without reading its weights: its files are checked when it is loaded. */
static enum status note_idle(struct hosting *h, const struct found_model *found, struct error *err)
{
    char path[MODELS_DIR_PATH_BYTES + sizeof "/config.json"];
    struct model_config c = {0};
    (void)snprintf(path, sizeof path, "%s/config.json", found->path);
    enum status st = model_config_read(&c, path, NULL, NULL, err);
    if (st == OK)
        st = registry_put(h->registry, found, MODEL_IDLE, c.task, NULL, err);
    model_config_clear(&c);
    return st;
}

/* Have requests find a model whose files were read, once there is room for it. Takes `e`, even if it fails. */
static enum status serve(struct hosting *h, const struct found_model *found, struct hosted_model *e, struct error *err)
{
    registry_note_size(h->registry, found, e->bytes);
    enum status st = make_room(h, found->name, e->bytes, err);
    if (st == OK)
        st = batcher_serve(h->batcher, e, err);
    if (st == OK) {
        hosted_model_publish(e, h->settings);
        st = registry_put(h->registry, found, MODEL_LOADED, e->model->config.task, e, err);
    }
    if (st != OK)
        hosted_model_release(e);
    return st;
}

/* If it is known how much memory they take, room is made before the files are read, so that a model that there is no
 * room for is not read each time it is asked for. One that does not fit at start beside those loaded before it waits
 * until it is asked for. */
static enum status load(struct hosting *h, const struct found_model *found, struct error *err)
{
    struct hosted_model *e = NULL;
    enum status st = make_room(h, found->name, registry_size(h->registry, found), err);
    if (st == OK)
        st = hosted_model_load(&e, found, h->settings, err);
    if (st == OK && h->starts && !fits_beside(h, found->name, e->bytes)) {
        log_info("model %s: not loaded until it is asked for: all models together may take %u MiB", found->name,
                 h->settings->models_memory_max_mb);
        hosted_model_release(e);
        st = note_idle(h, found, err);
    } else if (st == OK) {
        st = serve(h, found, e, err);
    }
    (void)malloc_trim(0); /* return what loading needed once, and what was replaced */
    return st;
}

/* Is it worth trying again? There may be memory later, but never more than the setting allows. */
static bool may_pass(const struct error *why)
{
    return why->status == ERR_UNAVAILABLE || (why->status == ERR_NOMEM && why->param[0] == '\0');
}

/* Does a model that cannot be loaded end the start? A sound one for a newer build never does. */
static bool ends_start(const struct hosting *h, enum status st)
{
    return h->starts && h->settings->models_broken == MODELS_BROKEN_REFUSE && st != OK && st != ERR_UNSUPPORTED;
}

/* A model that there is no room or no memory for now waits, as it is on the disk, until it is asked for; or, if it is
 * loaded, what is loaded of it stays. */
static void note_not_loaded(struct hosting *h, const struct found_model *found, const struct error *why)
{
    const struct registry_model *row = registry_row(h->registry, found->name);
    const bool waits =
        row != NULL && (row->hosted != NULL || (row->state == MODEL_IDLE && found_model_is_same(&row->found, found)));
    const bool is_idle = may_pass(why) && (waits || note_idle(h, found, NULL) == OK);
    registry_note(h->registry, found->name, is_idle ? MODEL_IDLE : MODEL_FAILED, why->message);
    if (ends_start(h, why->status))
        return; /* which says it */
    if (h->starts)
        log_error("model %s: not served: %s", found->name, why->message);
    else
        log_warning("model %s: not loaded: %s", found->name, why->message);
}

/* Errors: ERR_NOT_FOUND. */
static enum status check_loaded(const struct hosting *h, const char *name, struct error *err)
{
    const struct registry_model *row = registry_row(h->registry, name);
    if (row != NULL && row->hosted != NULL)
        return OK;
    return error_set_param(err, ERR_NOT_FOUND, "model", "the model \"%.*s\" is not loaded", MODEL_NAME_MAX, name);
}

enum status hosting_load(struct hosting *h, const char *name, bool again, struct error *err)
{
    struct found_model found;
    enum status st = again ? check_loaded(h, name, err) : OK;
    if (st == OK)
        st = model_sources_find(&found, h->settings, name, err);
    if (st != OK)
        return st;
    st = load(h, &found, err);
    if (st != OK)
        note_not_loaded(h, &found, err);
    return st;
}

enum status hosting_unload(struct hosting *h, const char *name, struct error *err)
{
    const enum status st = check_loaded(h, name, err);
    if (st != OK)
        return st;
    registry_drop(h->registry, name, MODEL_UNLOADED);
    log_info("model %s: unloaded", name);
    return OK;
}

bool hosting_load_wanted(struct hosting *h)
{
    struct found_model found;
    struct error err;
    if (!registry_next_wanted(h->registry, &found))
        return false;
    const enum status st = load(h, &found, &err);
    if (st == ERR_UNAVAILABLE)
        registry_have_one_yield(h->registry, found.name);
    if (st != OK)
        note_not_loaded(h, &found, &err);
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

/* What became of a model goes into the list of that name; why it failed, too. NULL: nobody is told. */
static void report(json_t *whole, const char *list, const char *name, const struct error *why)
{
    if (whole == NULL)
        return;
    json_t *item = why != NULL ? json_pack("{s:s, s:s}", "model", name, "message", why->message) : json_string(name);
    json_append(json_object_get(whole, list), item);
}

/* Take a model as it was found: load it, or only note it if loading waits for a request. */
static enum status take_found(struct hosting *h, const struct found_model *found, json_t *whole, struct error *err)
{
    const struct registry_model *row = registry_row(h->registry, found->name);
    const bool is_known = row != NULL, is_loaded = is_known && row->hosted != NULL;
    if (is_known &&
        (row->state == MODEL_UNLOADED || (row->state != MODEL_FAILED && found_model_is_same(&row->found, found)))) {
        if (is_loaded)
            registry_note(h->registry, found->name, MODEL_LOADED, ""); /* files tried since are gone again */
        report(whole, "unchanged", found->name, NULL);
        return OK;
    }
    const enum status st = !is_loaded && h->settings->models_lazy ? note_idle(h, found, err) : load(h, found, err);
    if (st == OK) {
        report(whole, is_loaded ? "reloaded" : "loaded", found->name, NULL);
        return OK;
    }
    if (!is_known && note_idle(h, found, NULL) != OK) /* so that an administrator sees why it is missing */
        (void)registry_put(h->registry, found, MODEL_FAILED, TASK_IMAGE_CLASSIFICATION, NULL, NULL);
    note_not_loaded(h, found, err);
    report(whole, "failed", found->name, err);
    return st;
}

static bool is_found(const struct found_model *found, size_t count, const char *name)
{
    size_t i = 0;
    while (i < count && strcmp(found[i].name, name) != 0)
        i++;
    return i < count;
}

enum status hosting_scan(struct hosting *h, json_t **ret, struct error *err)
{
    struct found_model *found = NULL;
    const struct registry_model *row;
    struct error why;
    size_t count = 0;
    const enum status st = model_sources_scan(&found, &count, h->settings, false, err);
    if (st != OK)
        return st;
    *ret = json_pack("{s:[], s:[], s:[], s:[], s:[]}", "loaded", "reloaded", "unloaded", "unchanged", "failed");
    for (size_t i = 0; (row = registry_row_at(h->registry, i)) != NULL;) {
        if (is_found(found, count, row->found.name)) {
            i++;
            continue;
        }
        log_info("model %s: unloaded, because its folder is gone", row->found.name);
        report(*ret, "unloaded", row->found.name, NULL);
        registry_remove(h->registry, row->found.name);
    }
    for (size_t i = 0; i < count; i++)
        (void)take_found(h, &found[i], *ret, &why);
    free(found);
    return OK;
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

/* All models that there are on the disk, as model_sources_scan, with the settings that go with them: the folders are
 * there, `precision` can be read, and what it, default_models and aliases name is among the models. No weights are
 * read. *ret is malloc'd, and the caller's only on OK. */
static enum status find_all(struct found_model **ret, size_t *count, const struct settings *s, struct error *err)
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

/* One broken folder need not keep the others from being served. With no model at all to serve, what was wrong with the
 * first is the error. */
static enum status load_all(struct hosting *h, struct error *err)
{
    struct found_model *found = NULL;
    size_t count = 0, served = 0;
    char loading[MODEL_NAME_MAX + 64];
    enum status st = find_all(&found, &count, h->settings, err);
    if (st != OK)
        return st;
    bool goes_on = true;
    for (size_t i = 0; i < count && goes_on; i++) {
        struct error why;
        (void)snprintf(loading, sizeof loading, "loading %s, model %zu of %zu", found[i].name, i + 1, count);
        service_manager_starting(LOAD_MS_MAX, loading);
        const enum status taken = take_found(h, &found[i], NULL, &why);
        served += taken == OK;
        goes_on = !ends_start(h, taken);
        if (!goes_on || (taken != OK && st == OK)) {
            st = taken;
            if (err != NULL)
                *err = why;
        }
    }
    free(found);
    registry_set_names(h->registry, h->settings->default_models, h->settings->aliases);
    return goes_on && served > 0 ? OK : st;
}

enum status hosting_start(struct hosting **ret, const struct settings *s, struct mailboxes *mailboxes,
                          struct error *err)
{
    struct hosting *h = calloc(1, sizeof *h);
    if (h == NULL || registry_create(&h->registry) != OK) {
        hosting_free(h);
        return error_set(err, ERR_NOMEM, "no memory for the list of models");
    }
    h->settings = s;
    h->starts = true;
    enum status st = batcher_start(&h->batcher, s, mailboxes, err);
    if (st == OK)
        st = load_all(h, err);
    if (st == OK) {
        h->starts = false;
        *ret = h;
        return OK;
    }
    hosting_stop(h);
    hosting_free(h);
    return st;
}

void hosting_stop(struct hosting *h)
{
    if (h != NULL && h->batcher != NULL)
        batcher_stop(h->batcher);
}

void hosting_free(struct hosting *h)
{
    if (h == NULL)
        return;
    registry_free(h->registry); /* before the queue: whoever lets go of a model last but one wakes that */
    batcher_free(h->batcher);
    free(h);
}

/* ---- without serving ------------------------------------------------------------------------------------------- */

enum status hosting_check(const struct settings *s, struct error *err)
{
    struct found_model *all = NULL;
    struct error why;
    enum status left_out = OK;
    size_t count = 0, served = 0;
    enum status st = find_all(&all, &count, s, err);
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
