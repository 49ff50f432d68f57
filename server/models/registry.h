/* registry.h - the models by name: those that are loaded, and those that could be.
 * Any thread looks up, under a short lock, and becomes a user of what it gets (hosted_model.h), so that the list may
 * change at any time. Only one thread changes it: the main thread at start, then the loader's (control/hosting.h). The
 * lock is a leaf except for the queue's.
 *
 * The states of a model, and what control/hosting.c does between them:
 *
 *     (a folder) -- is seen, models_lazy or no room ------> IDLE
 *     (a folder) -- is seen, load ------------------------> LOADED
 *     IDLE ------- a request wants it, load --------------> LOADED
 *     LOADED ----- its files change, load ----------------> LOADED, with these; while requests run, on those as well
 *     LOADED ----- make room for another -----------------> IDLE; in use, it yields for a while: no request begins
 *     LOADED ----- an administrator's unload -------------> UNLOADED -- an administrator's load --> LOADED
 *     (a folder, in a scan), IDLE, FAILED, UNLOADED, when load fails: its files are not accepted --> FAILED
 *                                                       there is no room or memory now ------> IDLE
 *     FAILED ----- a scan tries again, load --------------> LOADED
 *     any -------- its folder is gone --------------------> (forgotten)
 *
 * LOADED stays so when load fails. What was wrong when files were last tried is kept beside the state. */
#ifndef SERVER_MODELS_REGISTRY_H
#define SERVER_MODELS_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/models/hosted_model.h"
#include "server/models/models_dir.h"
#include "weights/model_config.h"

struct queue;
struct registry;

#define MODEL_STATES(X)           \
    X(MODEL_LOADED, "loaded")     \
    X(MODEL_IDLE, "idle")         \
    X(MODEL_UNLOADED, "unloaded") \
    X(MODEL_FAILED, "failed")
#define X(constant, word) constant,
/* In turn, what a request for it gets: an answer; 503 until it is loaded, which the request causes; 404, as an
 * administrator unloaded it; 503, as its files are not accepted. */
enum model_state { MODEL_STATES(X) };
#undef X
const char *model_state_word(enum model_state state);

/* What is known of one model. */
struct registry_model {
    struct found_model found;
    enum model_state state;
    bool wanted;                     /* idle, and a request has asked for it */
    enum model_task task;            /* of one that is loaded or idle */
    struct hosted_model *hosted;     /* if loaded: held by the registry, used by a copy of the row; else NULL */
    bool in_use;                     /* of a copy: it had users */
    char failure[ERROR_MESSAGE_MAX]; /* what was wrong with the files that were tried last; empty: nothing */
    uint64_t bytes;                  /* of memory that these files take, once they were loaded; 0: not known yet */
    uint64_t used_ns;                /* when a request last asked for it */
    uint64_t awaited_ns;             /* when it was loaded for a client that has yet to ask again; 0: not so */
    uint64_t yields_ns;              /* when it last began to give way to another; 0: never since it was loaded */
    int64_t noted_s;                 /* Unix time at which it was first seen */
};

/* ---- any thread ------------------------------------------------------------------------------------------------ */

/* All that is known, by name, [*count] copies of rows in `*ret`, malloc'd, which is a user of those that are loaded;
 * free with registry_models_free. Errors: ERR_NOMEM. */
enum status registry_models(struct registry *r, struct registry_model **ret, size_t *count);
void registry_models_free(struct registry_model *rows, size_t count);
/* The same of the one that is meant by NAME or NAME@VERSION, whose .hosted is to be released; false: there is none. */
bool registry_look(struct registry *r, const char *ref, struct registry_model *ret);

/* How many models are not served, or not as they are on the disk, because their files were not accepted. */
uint32_t registry_failed(struct registry *r);

/* Some of the models, such as those that a key may use. */
struct registry_choice {
    char (*names)[MODEL_NAME_MAX + 1];
    size_t count; /* 0: all models, as NULL is */
};
#define REGISTRY_ANY_TASK (-1)
/* The model that a request for a task (an enum model_task, or REGISTRY_ANY_TASK) means by `ref`. NAME@VERSION is the
 * model NAME as long as that version is the one that is served; a model without versions has version 1. NULL: of those
 * that are loaded or idle and in `among`, the first of the setting default_models, else the first by name. *ret is a
 * reference: hosted_model_release it.
 * Errors: ERR_NOT_FOUND (no such model, or version: says what there is), ERR_ARGUMENT (it is for another task, or none
 * is for this), ERR_LOADING: it is idle, and now wanted, or it gives way to one that is; ERR_UNAVAILABLE: its files, or
 * those of one that would do, are not accepted. */
enum status registry_acquire(struct registry *r, const char *ref, int task, const struct registry_choice *among,
                             struct hosted_model **ret, struct error *err);
/* Is that model the one that a request for its task means if it names none? */
bool registry_is_default(struct registry *r, const char *name, const struct registry_choice *among);
/* What a request calls a model, by the model's own name: ALIAS or ALIAS@VERSION becomes NAME or NAME@VERSION in `room`,
 * anything else stays as it is. The other functions know no aliases. */
const char *registry_real_name(struct registry *r, const char *ref, char room[MODEL_REF_MAX + 1]);
/* The setting aliases as it is now. */
void registry_aliases(struct registry *r, char ret[SETTING_TEXT_MAX + 1]);
/* The name in NAME@VERSION; anything else as a whole, cut to the length that a name may have. */
void registry_name_of(char ret[MODEL_NAME_MAX + 1], const char *ref);

/* ---- one thread ------------------------------------------------------------------------------------------------- */

/* *ret is set only on OK; free with registry_free, when nobody looks up any more. Errors: ERR_NOMEM. */
enum status registry_create(struct registry **ret);
void registry_free(struct registry *r); /* NULL is a no-op */
/* The settings default_models and aliases, which have been checked (model_names.h). */
void registry_set_names(struct registry *r, const char *defaults, const char *aliases);
/* Queue to wake when a model is wanted; before the first request. */
void registry_wake_for_wanted(struct registry *r, struct queue *q);

/* The row of that name; NULL: there is none. Valid until rows come or go; what requests change of it is under the
 * lock: wanted and the times. */
const struct registry_model *registry_row(struct registry *r, const char *name);
/* Row i by name; NULL: there are no more. */
const struct registry_model *registry_row_at(struct registry *r, size_t i);

/* Add a model, or replace the one of that name and let go of that. Takes `e`, whose user the caller is, and which is
 * NULL unless the state is MODEL_LOADED. Errors: ERR_CONFIG (REGISTRY_MODELS_MAX are known): nothing is taken. */
enum status registry_put(struct registry *r, const struct found_model *found, enum model_state state,
                         enum model_task task, struct hosted_model *e, struct error *err);
/* Have a loaded model no longer found, nor in the metrics; what is known of it stays. Unknown names are no-ops, here
 * and below. */
void registry_drop(struct registry *r, const char *name, enum model_state state);
/* The same, and forget it. */
void registry_remove(struct registry *r, const char *name);
/* Note what was wrong when loading was tried; "": nothing. A model that is not loaded is in that state from now on:
 * MODEL_FAILED, or MODEL_IDLE to be tried again when it is asked for. */
void registry_note(struct registry *r, const char *name, enum model_state otherwise, const char *message);
/* How much memory the files of `found` take, if that is known for exactly these; else 0. */
uint64_t registry_size(struct registry *r, const struct found_model *found);
/* Note that; of others than are known it is a no-op. */
void registry_note_size(struct registry *r, const struct found_model *found, uint64_t bytes);

/* A model that is wanted; false: none. */
bool registry_next_wanted(struct registry *r, struct found_model *ret);
/* The loaded model that was asked for longest ago, of those that no request holds, that nobody waited for who is to
 * come back (for at most MODEL_AWAITED_NS), and except `but`; NULL: there is none. */
const struct registry_model *registry_least_used(struct registry *r, const char *but);
/* There is no such model: have the one of those in use that was asked for longest ago answer no further requests, so
 * that it comes to be such a one; for MODEL_YIELDS_NS at most, and not again until MODEL_YIELDS_AGAIN_NS after that
 * began. */
void registry_have_one_yield(struct registry *r, const char *but);
/* Memory of all models that are loaded, except `but`. */
uint64_t registry_bytes(struct registry *r, const char *but);

#endif
