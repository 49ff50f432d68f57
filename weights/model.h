/* model.h - a model directory as checked tensors, bound to the fields that the engine reads.
 * The maths that depends on weights alone is folded here: the re-parameterised convolution kernel (DAFT eq. 8) and
 * the factorised position biases (AFT eq. 7), of which causal AFT-local keeps the band. Immutable once loaded. Matrices
 * are read, and their numbers checked, when the engine asks for them. */
#ifndef WEIGHTS_MODEL_H
#define WEIGHTS_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "weights/model_types.h"

/* Can the `n` bytes at `name` name a model, in paths, JSON and lists alike? `dir` is the folder that has that name, for
 * the message. Errors: ERR_FORMAT. */
enum status model_check_name(const char *name, size_t n, const char *dir, struct error *err);
/* Load DIR/config.json and DIR/model.safetensors. *ret is set only on OK; free with model_free.
 * Errors: ERR_IO, ERR_NOMEM, ERR_FORMAT naming the file, the key or the tensor and what was expected.
 * `warn` (may be NULL) is told of unknown keys. */
enum status model_load(struct model **ret, const char *dir, model_warning *warn, void *arg, struct error *err);
/* The same for a folder whose name is not the model's, which is `name` [1 .. MODEL_NAME_MAX bytes]. */
enum status model_load_as(struct model **ret, const char *name, const char *dir, model_warning *warn, void *arg,
                          struct error *err);
/* The most bytes that a text has at once: the context, of which a class token takes one. Before model_drop_weights. */
uint32_t model_text_max(const struct model *m);
/* Rows [first, first + count) of a matrix -> out [count, in]. Any number of threads at once. Errors: ERR_IO; ERR_FORMAT
 * for a number that is none, naming the tensor and the element. */
enum status linear_rows(const struct linear *l, uint32_t first, uint32_t count, float *out, struct error *err);
/* ERR_IO when a file is no longer as it was opened: ask it once all matrices are read. */
enum status model_check_unchanged(const struct model *m, struct error *err);
/* Free the tensors' memory, and close their files, once an engine has packed them; config, name and the list of tensors
 * stay. */
void model_drop_weights(struct model *m);
void model_free(struct model *m); /* NULL is a no-op */

#endif
