/* manifest.h - which tensors a model of a given config must have: tables of names and shapes, for each
 * task and for all mixers, bound to the fields that hold them once loaded. Any thread; no state. */
#ifndef WEIGHTS_MANIFEST_H
#define WEIGHTS_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"
#include "weights/fold.h"
#include "weights/model_types.h"
#include "weights/tensor_set.h"

/* One tensor of the files, and the pointer that will lead to its floats. Those of a struct linear's weight stay in the
 * files, and are in no manifest. */
struct binding {
    const struct tensor *tensor;
    const float **field;
    bool folded; /* into a struct fold_source: needed while loading only */
};

struct manifest {
    struct binding *bindings; /* [count]; owned */
    size_t count;
};

/* Blocks that have tensors of their own: depth, or 1 with share_layers. */
uint32_t manifest_blocks(const struct model_config *c);

/* Match the tensors of `set` with what m->config asks for: sets out and in of m's linear layers, and `factors` and
 * `block` of folds [manifest_blocks]; *ret lists which field each other tensor is for, in the order of the tables. The
 * config is supported, m->blocks has manifest_blocks elements. *ret is set only on OK: manifest_clear. It borrows from
 * `set`. Errors: ERR_NOMEM; ERR_FORMAT naming a tensor that is missing, of the wrong shape, left over or not
 * supported. */
enum status manifest_bind(struct manifest *ret, struct model *m, struct fold_source *folds,
                          const struct tensor_set *set, struct error *err);
void manifest_clear(struct manifest *b); /* zeroed is fine */

#endif
