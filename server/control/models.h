/* models.h - which models are served: from models_dir to the registry, where requests find them, and to the batcher,
 * which runs them; and the changes to that while requests run.
 *
 * A model's files are read and checked whole, and its engine is opened, before anything changes. Then it takes the
 * place of the one of its name: requests that come find the new one, those under way end on the old one, which is freed
 * after the last of them. Files that are not accepted change nothing.
 *
 * Changes are for one thread at a time: the main thread at start, then the loader's (loader.h). */
#ifndef SERVER_CONTROL_MODELS_H
#define SERVER_CONTROL_MODELS_H

#include <jansson.h>
#include <stdbool.h>

#include "config/settings.h"
#include "config/status.h"

struct batcher;
struct models;
struct mailboxes;
struct registry;

/* Start the batcher and load what is in models_dir; with models_lazy only look at it. What is too much for
 * models_memory_max_mb is loaded when it is asked for. `s` and `mailboxes` as for batcher_start. *ret is set only on OK.
 * A broken model is an error here, rather than a gap that is found out by clients.
 * Errors: ERR_IO (the folder), ERR_CONFIG (no model in it, or too many; a setting), ERR_NOMEM and those of
 * hosted_model_load. */
enum status models_start(struct models **ret, const struct settings *s, struct mailboxes *mailboxes, struct error *err);
/* batcher_stop; then models_free, when nobody uses any of it any more. NULL is a no-op. */
void models_stop(struct models *m);
void models_free(struct models *m);

/* Valid until models_free. */
struct batcher *models_batcher(const struct models *m);
struct registry *models_registry(const struct models *m);

/* ---- changes --------------------------------------------------------------------------------------------------- */

/* Load the model of that name as it is on the disk now, in the place of what is loaded of it. `again`: it must be
 * loaded already. Errors: ERR_NOT_FOUND; those of hosted_model_load (its files are not accepted), batcher_serve; for
 * models_memory_max_mb ERR_NOMEM, and ERR_UNAVAILABLE where the others have requests: it is tried again then when it is
 * asked for. */
enum status models_load(struct models *m, const char *name, bool again, struct error *err);
/* Take it away. Errors: ERR_NOT_FOUND (it is not loaded). */
enum status models_unload(struct models *m, const char *name, struct error *err);
/* Make all as it is in models_dir: load what is new, reload what has changed, unload what has gone. What an
 * administrator has unloaded stays so. *ret, for json_decref: {"loaded", "reloaded", "unloaded", "unchanged": [names],
 * "failed": [{"model", "message"}]}.
 * Errors: those of models_dir_scan: nothing has changed. */
enum status models_scan(struct models *m, json_t **ret, struct error *err);
/* Load one model that requests have asked for. False: none was. */
bool models_load_wanted(struct models *m);

#endif
