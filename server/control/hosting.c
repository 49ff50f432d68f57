/* hosting.c - see hosting.h. */
#include "server/control/hosting.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "server/batch/batcher.h"
#include "server/control/check.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/core/service_manager.h"
#include "server/models/model_names.h"
#include "server/models/model_sources.h"
#include "server/models/registry.h"

#define MEGABYTE (UINT64_C(1) << 20)

enum { LOAD_MS_MAX = 300000 }; /* of the largest model from a slow disk: 8 GiB at 30 MB/s */

struct hosting {
    const struct settings *settings;
    struct batcher *batcher;
    struct registry *registry;
    uint64_t memory_max; /* bytes of all loaded models together; 0: no limit */
};

struct batcher *hosting_batcher(const struct hosting *h)
{
    return h->batcher;
}

struct registry *hosting_registry(const struct hosting *h)
{
    return h->registry;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static bool fits_beside(const struct hosting *h, const char *name, uint64_t bytes)
{
    return h->memory_max == 0 || registry_bytes(h->registry, name) + bytes <= h->memory_max;
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
    if (h->memory_max != 0 && bytes > h->memory_max)
        return refuse_size(h, ERR_NOMEM, name, bytes, "it cannot be loaded", err);
    while (!fits_beside(h, name, bytes)) {
        struct hosted_model *idle = registry_least_used(h->registry, name);
        if (idle == NULL)
            return refuse_size(h, ERR_UNAVAILABLE, name, bytes, "the other models are in use; try again later", err);
        log_info("model %s: unloaded, to make room for %s", idle->model->name, name);
        metrics_model_remove(idle->metrics_label);
        registry_drop(h->registry, idle->model->name, MODEL_IDLE);
        hosted_model_release(idle);
    }
    return OK;
}

/* ---- one model ------------------------------------------------------------------------------------------------- */

/* Takes `e`, even if it fails. */
static enum status install(struct hosting *h, const struct found_model *found, struct hosted_model *e,
                           struct error *err)
{
    enum status st = batcher_serve(h->batcher, e, err);
    if (st == OK) {
        hosted_model_publish(e, h->settings);
        st = registry_put(h->registry, found, MODEL_LOADED, e->model->config.task, e, err);
    }
    if (st != OK)
        hosted_model_release(e);
    else
        registry_note_size(h->registry, found, e->bytes);
    return st;
}

/* If it is known how much memory they take, room is made before the files are read, so that a model that there is no
 * room for is not read each time it is asked for. */
static enum status load(struct hosting *h, const struct found_model *found, struct error *err)
{
    struct hosted_model *e = NULL;
    enum status st = make_room(h, found->name, registry_size(h->registry, found), err);
    if (st == OK)
        st = hosted_model_load(&e, found, h->settings, err);
    if (st == OK) {
        st = make_room(h, found->name, e->bytes, err);
        if (st != OK)
            registry_note_size(h->registry, found, e->bytes);
        if (st == OK)
            st = install(h, found, e, err);
        else
            hosted_model_release(e);
    }
    (void)malloc_trim(0); /* return the files' bytes, which were needed once, and what was replaced */
    return st;
}

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

static bool is_same(const struct found_model *a, const struct found_model *b)
{
    return memcmp(a->print, b->print, sizeof a->print) == 0;
}

/* Is it worth trying again? There may be memory later, but never more than the setting allows. */
static bool may_pass(const struct error *why)
{
    return why->status == ERR_UNAVAILABLE || (why->status == ERR_NOMEM && why->param[0] == '\0');
}

/* A model that there is no room or no memory for now waits, as it is on the disk, until it is asked for; or, if it is
 * loaded, what is loaded of it stays. */
static void note_not_loaded(struct hosting *h, const struct found_model *found, const struct error *why)
{
    struct registry_model now;
    const bool known = registry_peek(h->registry, found->name, &now), loaded = known && now.hosted != NULL;
    const bool waits = known && now.state == MODEL_IDLE && is_same(&now.found, found);
    if (may_pass(why) && (loaded || waits || note_idle(h, found, NULL) == OK))
        registry_note_shortage(h->registry, found->name, why->message);
    else
        registry_note_failure(h->registry, found->name, why->message);
    log_warning("model %s: not loaded: %s", found->name, why->message);
}

enum status hosting_load(struct hosting *h, const char *name, bool again, struct error *err)
{
    struct found_model found;
    enum status st = OK;
    if (again) {
        struct hosted_model *e = registry_acquire(h->registry, name);
        if (e == NULL)
            st = error_set_param(err, ERR_NOT_FOUND, "model", "the model \"%.*s\" is not loaded", MODEL_NAME_MAX, name);
        hosted_model_release(e);
    }
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
    struct hosted_model *e = registry_acquire(h->registry, name);
    if (e == NULL)
        return error_set_param(err, ERR_NOT_FOUND, "model", "the model \"%.*s\" is not loaded", MODEL_NAME_MAX, name);
    metrics_model_remove(e->metrics_label);
    registry_drop(h->registry, name, MODEL_UNLOADED);
    hosted_model_release(e);
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

const char *hosting_outcome_word(enum hosting_outcome outcome)
{
#define X(constant, word) word,
    static const char *const words[] = {HOSTING_OUTCOMES(X)};
#undef X
    return words[outcome];
}

void hosting_report_clear(struct hosting_report *r)
{
    free(r->rows);
    *r = (struct hosting_report){.rows = NULL};
}

/* There is room for a row of each model. */
static void add_row(struct hosting_report *r, const char *name, enum hosting_outcome outcome, const char *message)
{
    struct hosting_row *row = &r->rows[r->count++];
    (void)snprintf(row->model, sizeof row->model, "%s", name);
    (void)snprintf(row->message, sizeof row->message, "%s", message);
    row->outcome = outcome;
}

/* Load a model, or only note it if loading waits for a request. */
static enum status take_found(struct hosting *h, const struct found_model *found, const struct registry_model *known,
                              struct error *err)
{
    const bool loaded = known != NULL && known->hosted != NULL;
    if (!loaded && h->settings->models_lazy)
        return note_idle(h, found, err);
    return load(h, found, err);
}

static void scan_one(struct hosting *h, const struct found_model *found, struct hosting_report *r)
{
    struct error err;
    struct registry_model now;
    const struct registry_model *known = registry_peek(h->registry, found->name, &now) ? &now : NULL;
    const bool same = known != NULL && is_same(&known->found, found);
    if (known != NULL && (known->state == MODEL_UNLOADED || (same && known->state != MODEL_FAILED))) {
        if (known->hosted != NULL)
            registry_note_failure(h->registry, found->name, ""); /* files that have been tried since are gone again */
        add_row(r, found->name, HOSTING_UNCHANGED, "");
        return;
    }
    if (take_found(h, found, known, &err) == OK) {
        add_row(r, found->name, known != NULL && known->hosted != NULL ? HOSTING_RELOADED : HOSTING_LOADED, "");
        return;
    }
    if (known == NULL) /* so that an administrator sees why it is missing */
        (void)registry_put(h->registry, found, MODEL_FAILED, TASK_IMAGE_CLASSIFICATION, NULL, NULL);
    note_not_loaded(h, found, &err);
    add_row(r, found->name, HOSTING_FAILED, err.message);
}

static void forget(struct hosting *h, const struct registry_model *known, struct hosting_report *r)
{
    if (known->hosted != NULL)
        metrics_model_remove(known->hosted->metrics_label);
    registry_remove(h->registry, known->found.name);
    log_info("model %s: unloaded, because its folder is gone", known->found.name);
    add_row(r, known->found.name, HOSTING_UNLOADED, "");
}

static const struct found_model *find_found(const struct found_model *found, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(found[i].name, name) == 0)
            return &found[i];
    return NULL;
}

enum status hosting_scan(struct hosting *h, struct hosting_report *ret, struct error *err)
{
    struct found_model *found = NULL;
    struct registry_model *known = NULL;
    struct hosting_report r = {.rows = NULL};
    size_t found_count = 0, known_count = 0;
    enum status st = model_sources_scan(&found, &found_count, h->settings, false, err);
    if (st != OK)
        return st;
    if (registry_models(h->registry, &known, &known_count) == OK)
        r.rows = calloc(found_count + known_count + 1, sizeof *r.rows);
    if (r.rows == NULL) {
        st = error_set(err, ERR_NOMEM, "no memory to list the models");
        goto done;
    }
    for (size_t i = 0; i < known_count; i++)
        if (find_found(found, found_count, known[i].found.name) == NULL)
            forget(h, &known[i], &r);
    registry_models_free(known, known_count); /* they would keep models in use that could make room */
    known = NULL;
    known_count = 0;
    for (size_t i = 0; i < found_count; i++)
        scan_one(h, &found[i], &r);
    *ret = r;
done:
    registry_models_free(known, known_count);
    free(found);
    return st;
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

/* A model that does not fit beside those loaded before it waits until it is asked for. */
static enum status load_at_start(struct hosting *h, const struct found_model *found, struct error *err)
{
    struct hosted_model *e = NULL;
    if (h->settings->models_lazy)
        return note_idle(h, found, err);
    const enum status st = hosted_model_load(&e, found, h->settings, err);
    if (st != OK)
        return st;
    if (fits_beside(h, found->name, e->bytes))
        return install(h, found, e, err);
    log_info("model %s: not loaded until it is asked for: all models together may take %llu MiB", found->name,
             (unsigned long long)(h->memory_max / MEGABYTE));
    hosted_model_release(e);
    return note_idle(h, found, err);
}

/* A model could not be taken at start. One broken folder need not keep the others from being served, and a sound model
 * for a newer build never does. False: the daemon is not to start. */
static bool go_on_without(struct hosting *h, const struct found_model *found, enum status st, const struct error *why)
{
    if (st == ERR_UNSUPPORTED) {
        log_warning("left out: %s", why->message);
        return true;
    }
    if (h->settings->models_broken == MODELS_BROKEN_REFUSE)
        return false;
    log_error("model %s: not served: %s", found->name, why->message);
    (void)registry_put(h->registry, found, MODEL_FAILED, TASK_IMAGE_CLASSIFICATION, NULL, NULL);
    if (may_pass(why) && note_idle(h, found, NULL) == OK)
        registry_note_shortage(h->registry, found->name, why->message);
    else
        registry_note_failure(h->registry, found->name, why->message);
    return true;
}

/* Also if it is yet to be loaded. */
static bool is_there(const void *arg, const char *name)
{
    const struct hosting *h = arg;
    struct registry_model known;
    struct found_model found;
    return registry_peek(h->registry, name, &known) || model_sources_find(&found, h->settings, name, NULL) == OK;
}

enum status hosting_check_names(const struct hosting *h, const struct settings *s, struct error *err)
{
    const enum status st = model_names_check_defaults(s->default_models, is_there, h, err);
    return st == OK ? model_names_check_aliases(s->aliases, is_there, h, err) : st;
}

void hosting_take_names(struct hosting *h, const struct settings *s)
{
    registry_set_names(h->registry, s->default_models, s->aliases);
}

/* With no model at all to serve, what was wrong with the first is the error. */
static enum status load_all(struct hosting *h, struct error *err)
{
    struct found_model *found = NULL;
    struct error why, first;
    enum status failed = OK;
    size_t count = 0, served = 0;
    char loading[MODEL_NAME_MAX + 64];
    enum status st = check_find_models(&found, &count, h->settings, err);
    for (size_t i = 0; i < count && st == OK; i++) {
        (void)snprintf(loading, sizeof loading, "loading %s, model %zu of %zu", found[i].name, i + 1, count);
        service_manager_starting(LOAD_MS_MAX, loading);
        const enum status taken = load_at_start(h, &found[i], &why);
        if (taken == OK) {
            served++;
            continue;
        }
        if (failed == OK) {
            failed = taken;
            first = why;
        }
        if (!go_on_without(h, &found[i], taken, &why)) {
            *err = why;
            st = taken;
        }
    }
    free(found);
    (void)malloc_trim(0);
    if (st == OK && served == 0) {
        *err = first;
        st = failed;
    }
    if (st == OK)
        hosting_take_names(h, h->settings);
    return st;
}

enum status hosting_start(struct hosting **ret, const struct settings *s, struct mailboxes *mailboxes,
                          struct error *err)
{
    struct error why;
    struct hosting *h = calloc(1, sizeof *h);
    if (h == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the list of models");
    h->settings = s;
    h->memory_max = s->models_memory_max_mb * MEGABYTE;
    enum status st = registry_create(&h->registry);
    if (st != OK)
        (void)error_set(&why, st, "no memory for the list of models");
    if (st == OK)
        st = batcher_start(&h->batcher, s, mailboxes, &why);
    if (st == OK)
        st = load_all(h, &why);
    if (st == OK) {
        *ret = h;
        return OK;
    }
    if (err != NULL)
        *err = why;
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
