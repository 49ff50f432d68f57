/* synthetic.h - models of the papers' sizes with random weights, made in memory: speed can be measured without a file.
 * What they predict means nothing, but all values stay ordinary. The same name gives the same weights everywhere. */
#ifndef WEIGHTS_SYNTHETIC_H
#define WEIGHTS_SYNTHETIC_H

#include <stdbool.h>

#include "weights/model.h"

bool synthetic_has(const char *name);
/* "aft-conv-small-224, aft-local-24x256, ..." */
const char *synthetic_names(void);

/* Make one; free with model_free. It has no file: no list of tensors, file_bytes 0.
 * Errors: ERR_ARGUMENT listing the names, ERR_NOMEM. */
enum status synthetic_model(struct model **ret, const char *name, struct error *err);

#endif
