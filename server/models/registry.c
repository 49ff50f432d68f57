/* registry.c - see registry.h. Rows are sorted by name, so that all lists have the same order. The lock guards rows,
 * count and names. Models are let go of after unlocking, because the last holder frees an engine. */
#include "server/models/registry.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/models/registry_inner.h"

const char *model_state_word(enum model_state state)
{
#define X(constant, word) word,
    static const char *const words[] = {MODEL_STATES(X)};
#undef X
    return words[state];
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

enum status registry_create(struct registry **ret)
{
    struct registry *r = calloc(1, sizeof *r);
    if (r == NULL)
        return ERR_NOMEM;
    r->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    *ret = r;
    return OK;
}

void registry_free(struct registry *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->count; i++)
        hosted_model_let_go(r->rows[i].hosted, HOSTED_BY_REGISTRY);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

void registry_wake_for_wanted(struct registry *r, struct queue *q)
{
    r->wake = q;
}

/* ---- looking up ------------------------------------------------------------------------------------------------ */

struct registry_model *registry_find_locked(struct registry *r, const char *name, size_t size)
{
    for (size_t i = 0; i < r->count; i++)
        if (strlen(r->rows[i].found.name) == size && memcmp(r->rows[i].found.name, name, size) == 0)
            return &r->rows[i];
    return NULL;
}

const struct registry_model *registry_row(struct registry *r, const char *name)
{
    return registry_find_locked(r, name, strlen(name));
}

const struct registry_model *registry_row_at(struct registry *r, size_t i)
{
    return i < r->count ? &r->rows[i] : NULL;
}

void registry_copy_locked(struct registry_model *ret, const struct registry_model *row)
{
    *ret = *row;
    if (row->hosted == NULL)
        return;
    ret->in_use = hosted_model_users(row->hosted) > 0;
    hosted_model_reference(row->hosted);
}

enum status registry_models(struct registry *r, struct registry_model **ret, size_t *count)
{
    struct registry_model *rows = malloc(sizeof r->rows);
    if (rows == NULL)
        return ERR_NOMEM;
    (void)pthread_mutex_lock(&r->lock);
    *count = r->count;
    for (size_t i = 0; i < r->count; i++)
        registry_copy_locked(&rows[i], &r->rows[i]);
    (void)pthread_mutex_unlock(&r->lock);
    *ret = rows;
    return OK;
}

void registry_models_free(struct registry_model *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hosted_model_release(rows[i].hosted);
    free(rows);
}

uint32_t registry_failed(struct registry *r)
{
    uint32_t count = 0;
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count; i++) {
        const struct registry_model *row = &r->rows[i];
        count += row->state == MODEL_FAILED || (row->state == MODEL_LOADED && row->failure[0] != '\0');
    }
    (void)pthread_mutex_unlock(&r->lock);
    return count;
}

/* ---- changing -------------------------------------------------------------------------------------------------- */

/* The row of a name, made if there is none; NULL: there is no room. */
static struct registry_model *row_locked(struct registry *r, const char *name)
{
    size_t at = 0;
    while (at < r->count && strcmp(r->rows[at].found.name, name) < 0)
        at++;
    struct registry_model *row = &r->rows[at];
    if (at < r->count && strcmp(row->found.name, name) == 0)
        return row;
    if (r->count == REGISTRY_MODELS_MAX)
        return NULL;
    memmove(row + 1, row, (r->count - at) * sizeof *row);
    memset(row, 0, sizeof *row);
    row->noted_s = (int64_t)time(NULL);
    r->count++;
    return row;
}

enum status registry_put(struct registry *r, const struct found_model *found, enum model_state state,
                         enum model_task task, struct hosted_model *e, struct error *err)
{
    assert((e != NULL) == (state == MODEL_LOADED));
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = row_locked(r, found->name);
    struct hosted_model *old = row != NULL ? row->hosted : NULL;
    if (row != NULL) {
        row->bytes = e != NULL ? e->bytes : found_model_is_same(&row->found, found) ? row->bytes : 0;
        row->found = *found;
        row->state = state;
        row->task = task;
        row->hosted = e;
        row->awaited_ns = row->wanted && e != NULL ? clock_now_ns() : 0;
        row->yields_ns = 0;
        row->wanted = false;
        row->failure[0] = '\0';
        if (e != NULL)
            hosted_model_hold(e, HOSTED_BY_REGISTRY);
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (row == NULL)
        return error_set(err, ERR_CONFIG, "%s: more than %d models", found->path, REGISTRY_MODELS_MAX);
    hosted_model_release(e);
    hosted_model_let_go(old, HOSTED_BY_REGISTRY);
    return OK;
}

void registry_drop(struct registry *r, const char *name, enum model_state state)
{
    struct hosted_model *old = NULL;
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = registry_find_locked(r, name, strlen(name));
    if (row != NULL) {
        old = row->hosted;
        row->hosted = NULL;
        row->state = state;
        row->wanted = false;
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (old != NULL)
        metrics_model_remove(old->metrics_label);
    hosted_model_let_go(old, HOSTED_BY_REGISTRY);
}

void registry_remove(struct registry *r, const char *name)
{
    registry_drop(r, name, MODEL_UNLOADED);
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = registry_find_locked(r, name, strlen(name));
    if (row != NULL) {
        r->count--;
        memmove(row, row + 1, (size_t)(r->rows + r->count - row) * sizeof *row);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

void registry_note(struct registry *r, const char *name, enum model_state otherwise, const char *message)
{
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = registry_find_locked(r, name, strlen(name));
    if (row != NULL) {
        row->wanted = false;
        row->state = row->hosted != NULL ? MODEL_LOADED : otherwise;
        (void)snprintf(row->failure, sizeof row->failure, "%s", message);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

uint64_t registry_size(struct registry *r, const struct found_model *found)
{
    const struct registry_model *row = registry_row(r, found->name);
    return row != NULL && found_model_is_same(&row->found, found) ? row->bytes : 0;
}

void registry_note_size(struct registry *r, const struct found_model *found, uint64_t bytes)
{
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *row = registry_find_locked(r, found->name, strlen(found->name));
    if (row != NULL && found_model_is_same(&row->found, found))
        row->bytes = bytes;
    (void)pthread_mutex_unlock(&r->lock);
}

bool registry_next_wanted(struct registry *r, struct found_model *ret)
{
    bool found = false;
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count && !found; i++)
        if (r->rows[i].wanted && r->rows[i].state == MODEL_IDLE) {
            *ret = r->rows[i].found;
            found = true;
        }
    (void)pthread_mutex_unlock(&r->lock);
    return found;
}

/* Not long ago, and in vain: its requests run longer. Another may come to its end sooner. */
static bool has_given_way(const struct registry_model *row)
{
    return registry_is_within(row->yields_ns, MODEL_YIELDS_AGAIN_NS) &&
           !registry_is_within(row->yields_ns, MODEL_YIELDS_NS);
}

/* Of the loaded models that have no users, or of those that have and can give way; NULL: there is none. */
static struct registry_model *least_used_locked(struct registry *r, const char *but, bool has_users)
{
    struct registry_model *least = NULL;
    for (size_t i = 0; i < r->count; i++) {
        struct registry_model *row = &r->rows[i];
        if (row->hosted == NULL || strcmp(row->found.name, but) == 0 ||
            registry_is_within(row->awaited_ns, MODEL_AWAITED_NS) ||
            (hosted_model_users(row->hosted) > 0) != has_users || (has_users && has_given_way(row)))
            continue;
        if (least == NULL || row->used_ns < least->used_ns)
            least = row;
    }
    return least;
}

const struct registry_model *registry_least_used(struct registry *r, const char *but)
{
    (void)pthread_mutex_lock(&r->lock);
    const struct registry_model *least = least_used_locked(r, but, false);
    (void)pthread_mutex_unlock(&r->lock);
    return least;
}

void registry_have_one_yield(struct registry *r, const char *but)
{
    (void)pthread_mutex_lock(&r->lock);
    struct registry_model *least = least_used_locked(r, but, true);
    if (least != NULL && !registry_is_within(least->yields_ns, MODEL_YIELDS_NS))
        least->yields_ns = clock_now_ns();
    (void)pthread_mutex_unlock(&r->lock);
}

uint64_t registry_bytes(struct registry *r, const char *but)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->rows[i].hosted != NULL && strcmp(r->rows[i].found.name, but) != 0)
            bytes += r->rows[i].hosted->bytes;
    return bytes;
}
