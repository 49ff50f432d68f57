/* registry.h - the loaded models by name.
 * An entry is counted: the registry holds one reference, and each job that runs on the model another, so that an entry
 * may leave the registry while requests still run on it. The list is filled before requests are taken and constant
 * from then on: looking up takes no lock. */
#ifndef SERVER_REGISTRY_H
#define SERVER_REGISTRY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "config/settings.h"
#include "config/status.h"
#include "engine/engine.h"
#include "weights/model.h"

struct registry;

/* Constant but for the references. The engine is the engine thread's; engine_info is anyone's. */
struct entry {
    atomic_uint references;
    struct model *model;
    struct engine *engine;
    uint32_t lane;          /* of the queue: the entry's index */
    unsigned metrics_label; /* of {model} */
    int64_t created_s;      /* Unix time of loading */
};

void entry_reference(struct entry *e);
void entry_release(struct entry *e); /* NULL is a no-op */

/* Load every subfolder of settings->models_dir that has a config.json, in the order of their names, and open an engine
 * for each. On the engine thread, which alone may enter the engine. *ret is set only on OK; free with registry_free.
 * Errors: ERR_IO (the folder), ERR_CONFIG (no model in it, or too many), ERR_NOMEM, and
 * those of model_load and engine_open, naming the model. */
enum status registry_load(struct registry **ret, const struct settings *settings, struct error *err);
/* Drops the registry's references. When no thread looks up any more. NULL is a no-op. */
void registry_free(struct registry *r);

size_t registry_count(const struct registry *r);
/* Borrowed. i < registry_count. */
struct entry *registry_at(const struct registry *r, size_t i);

/* The model that a request means: the one named, or, where `name` is NULL, the only one of the task. Borrowed.
 * Errors: ERR_NOT_FOUND (no such model), ERR_ARGUMENT (another task; none named and there is not exactly one): both
 * list what there is. */
enum status registry_pick(const struct registry *r, const char *name, enum model_task task, struct entry **ret,
                          struct error *err);

#endif
