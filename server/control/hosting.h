/* hosting.h - which models are served: from models_dir and the setting model to the registry, where requests find them,
 * and to the batcher, which runs them; and the changes to that while requests run.
 *
 * A model's files are read and checked whole, and its engine is opened, before anything changes. Then it takes the
 * place of the one of its name: new requests find the new one, those under way finish on the old one, which is freed
 * after the last of them. Files that are not accepted change nothing.
 *
 * Changes are for one thread at a time: the main thread at start, then the loader's (loader.h). */
#ifndef SERVER_CONTROL_HOSTING_H
#define SERVER_CONTROL_HOSTING_H

#include <jansson.h>
#include <stdbool.h>

#include "config/status.h"

struct batcher;
struct mailboxes;
struct registry;
struct settings;

/* The batcher and the registry are for all threads that theirs are for, until hosting_free. */
struct hosting {
    const struct settings *settings;
    struct batcher *batcher;
    struct registry *registry;
    bool starts; /* hosting_start loads all, and makes no room for one by unloading another */
};

/* Start the batcher and load what is in models_dir and model; with models_lazy only look at it. What is too much for
 * models_memory_max_mb is loaded when it is asked for. `s` and `mailboxes` as for batcher_start. *ret is set only on
 * OK. A broken model is left out, as one that failed, unless models_broken is refuse or there is no other.
 * Errors: ERR_IO (a folder), ERR_CONFIG (no model there, or too many; a setting), ERR_NOMEM and those of
 * hosted_model_load. */
enum status hosting_start(struct hosting **ret, const struct settings *s, struct mailboxes *mailboxes,
                          struct error *err);
/* batcher_stop; then hosting_free, when nobody uses any of it any more. NULL is a no-op. */
void hosting_stop(struct hosting *h);
void hosting_free(struct hosting *h);

/* Could it start? All is checked, and each model is loaded as it would be served, and freed again. Errors: those of
 * hosting_start, and the first of hosted_model_load. */
enum status hosting_check(const struct settings *s, struct error *err);

/* ---- changes --------------------------------------------------------------------------------------------------- */

/* Load the model of that name as it is on the disk now, in place of what is loaded of it. `again`: it must be loaded
 * already. Errors: ERR_NOT_FOUND; those of hosted_model_load (its files are not accepted), batcher_serve; for
 * models_memory_max_mb ERR_NOMEM, and ERR_UNAVAILABLE while the others are in use: it is then tried again when it is
 * asked for. */
enum status hosting_load(struct hosting *h, const char *name, bool again, struct error *err);
/* Unload it. Errors: ERR_NOT_FOUND (it is not loaded). */
enum status hosting_unload(struct hosting *h, const char *name, struct error *err);
/* Load one model that requests have asked for. False: there is none. */
bool hosting_load_wanted(struct hosting *h);

/* Bring all models in line with models_dir and model: load what is new, reload what has changed, unload what has gone.
 * What an administrator has unloaded stays unloaded. *ret is set only on OK, for json_decref: {"loaded", "reloaded",
 * "unloaded", "unchanged": [names], "failed": [{"model", "message"}]}, to be printed by json_print, which gives NULL if
 * memory ran out for some of it; or NULL. Errors: those of model_sources_scan: nothing has changed. */
enum status hosting_scan(struct hosting *h, json_t **ret, struct error *err);

#endif
