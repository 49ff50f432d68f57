/* model_names.h - settings that name models: those that say which models requests mean, default_models and aliases, and
 * precision. Any thread but where noted; no state. */
#ifndef SERVER_MODELS_MODEL_NAMES_H
#define SERVER_MODELS_MODEL_NAMES_H

#include <stdbool.h>

#include "config/limits.h"
#include "config/settings.h"
#include "config/status.h"

struct registry;

/* Is the setting default_models "off" or a list of models that there are, and aliases "off" or a list of ALIAS=NAME,
 * each alias once, of names that could be a model's and are none for models that there are? There are those that
 * `known` has, if it is not NULL, and those on the disk (model_sources.h). On the thread that changes the registry.
 * Errors: ERR_CONFIG. */
enum status model_names_check(const struct settings *s, struct registry *known, struct error *err);
/* Are all models that the setting precision names on the disk? Errors: ERR_CONFIG. */
enum status model_names_check_precision(const struct settings *s, struct error *err);

/* An item of the setting aliases, once it is checked. */
struct model_alias {
    char alias[MODEL_NAME_MAX + 1], name[MODEL_NAME_MAX + 1];
};
/* The next item at *at, which goes on from there. False: there is none. */
bool model_names_next_alias(const char **at, struct model_alias *ret);

#endif
