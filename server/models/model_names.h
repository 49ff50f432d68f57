/* model_names.h - the settings that say which models requests mean: default_models and aliases. Any thread; no
 * state. */
#ifndef SERVER_MODELS_MODEL_NAMES_H
#define SERVER_MODELS_MODEL_NAMES_H

#include <stdbool.h>

#include "config/limits.h"
#include "config/status.h"

#define MODEL_NAMES_OFF "off" /* either setting's value where it says nothing */

/* Is there a model of that name? */
typedef bool model_names_known(const void *arg, const char *name);

/* Is the setting default_models "off" or a list of models that there are? Errors: ERR_CONFIG. */
enum status model_names_check_defaults(const char *list, model_names_known *is_there, const void *arg,
                                       struct error *err);

/* Is the setting aliases "off" or a list of ALIAS=NAME, each alias once, of names that could be a model's and are none
 * for models that there are? Errors: ERR_CONFIG. */
enum status model_names_check_aliases(const char *list, model_names_known *is_there, const void *arg,
                                      struct error *err);

/* An item of that setting, once it is checked. */
struct model_alias {
    char alias[MODEL_NAME_MAX + 1], name[MODEL_NAME_MAX + 1];
};
/* The next item at *at, which goes on from there. False: there is none. */
bool model_names_next_alias(const char **at, struct model_alias *ret);

#endif
