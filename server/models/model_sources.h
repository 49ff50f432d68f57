/* model_sources.h - all models that there are on the disk: the subfolders of models_dir, and the folders that the
 * setting model names. Any thread; no state. */
#ifndef SERVER_MODELS_MODEL_SOURCES_H
#define SERVER_MODELS_MODEL_SOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"
#include "server/models/models_dir.h"

struct settings;

/* Is the setting model "off", if models_dir is not, or a list of NAME=PATH or PATH, which is then named by its last
 * component, each name once? Errors: ERR_CONFIG. */
enum status model_sources_check(const struct settings *s, struct error *err);

/* All models, by name, in *ret, malloc'd, which is set only on OK. A folder that the setting model names and that is
 * not there (any more) is left out or, with `must`, an error. Errors: those of models_dir_scan; ERR_CONFIG, ERR_IO
 * (such a folder); ERR_CONFIG (a name in both places, or none at all). */
enum status model_sources_scan(struct found_model **ret, size_t *count, const struct settings *s, bool must,
                               struct error *err);
/* One by name. Errors: ERR_NOT_FOUND; ERR_NOMEM, ERR_IO (also if descriptors ran out). */
enum status model_sources_find(struct found_model *ret, const struct settings *s, const char *name, struct error *err);

#endif
