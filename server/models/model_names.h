/* model_names.h - the settings that say which models requests mean: default_models. Any thread; no state. */
#ifndef SERVER_MODELS_MODEL_NAMES_H
#define SERVER_MODELS_MODEL_NAMES_H

#include <stdbool.h>

#include "config/status.h"

#define MODEL_NAMES_OFF "off" /* either setting's value where it says nothing */

/* Is there a model of that name? */
typedef bool model_names_known(const void *arg, const char *name);

/* Is the setting default_models "off" or a list of models that there are? Errors: ERR_CONFIG. */
enum status model_names_check_defaults(const char *list, model_names_known *is_there, const void *arg,
                                       struct error *err);

#endif
