/* tensor_set.h - all tensors of a model directory: those of model.safetensors, or of the shards that
 * model.safetensors.index.json lists. Holds the files open. No global state; many threads may read one set. */
#ifndef WEIGHTS_TENSOR_SET_H
#define WEIGHTS_TENSOR_SET_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "weights/safetensors.h"

struct tensor_set;

/* Open and check the files of `dir`. *ret is set only on OK; free with tensor_set_close.
 * Errors: ERR_IO, ERR_NOMEM, ERR_FORMAT naming the file and the rule that it breaks. */
enum status tensor_set_open(struct tensor_set **ret, const char *dir, struct error *err);
/* Call `each` with the name of every file in `dir` that tensor_set_open would read tensors from, in the order of names,
 * until it returns an error, which is returned. Reads the index alone. Errors: as above. */
typedef enum status tensor_set_file(void *arg, const char *name, struct error *err);
enum status tensor_set_files(const char *dir, tensor_set_file *each, void *arg, struct error *err);
/* ERR_IO when a file is no longer as it was opened. */
enum status tensor_set_check_unchanged(const struct tensor_set *s, struct error *err);
void tensor_set_close(struct tensor_set *s); /* NULL is a no-op */

size_t tensor_set_count(const struct tensor_set *s);
uint64_t tensor_set_bytes(const struct tensor_set *s); /* of the files */
/* The i-th tensor: files in the index's order, then by offset. i < count. */
const struct tensor *tensor_set_at(const struct tensor_set *s, size_t i);
/* The index of a tensor by name; tensor_set_count if there is none. */
size_t tensor_set_find(const struct tensor_set *s, const char *name);

#endif
