/* check.h - what can be wrong with the models that the settings name, found before any of them is served. One thread at
 * a time; no state. */
#ifndef SERVER_CONTROL_CHECK_H
#define SERVER_CONTROL_CHECK_H

#include <stddef.h>

#include "config/status.h"
#include "server/models/models_dir.h"

struct settings;

/* All models that there are on the disk, as model_sources_scan, with the settings that go with them: the folders are
 * there, `precision` can be read, and what it, default_models and aliases name is among the models. No weights are
 * read. *ret is malloc'd, and the caller's only on OK. Errors: ERR_CONFIG, ERR_IO, ERR_FORMAT, ERR_NOMEM, naming the setting. */
enum status check_find_models(struct found_model **ret, size_t *count, const struct settings *s, struct error *err);

/* The same, and then each model is loaded as it would be served, and freed again. Errors: those, and the first of
 * hosted_model_load. */
enum status check_models(const struct settings *s, struct error *err);

#endif
