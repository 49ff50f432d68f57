/* safetensors.h - check a .safetensors file and hand out typed views of its tensors.
 * All that is said of them is checked before a view exists: header length, JSON, names, dtypes, shapes, offsets without
 * gap or overlap up to the file's end. Their numbers are read from the open file, never mapped, as they are asked for;
 * that nobody has written to it meanwhile is to be asked in the end.
 * No global state; one struct safetensors may be read by many threads. */
#ifndef WEIGHTS_SAFETENSORS_H
#define WEIGHTS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

struct file;

enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_U8 };

/* A view into a file, valid until safetensors_close. `data` may be misaligned for its dtype: tensor_to_f32 copes,
 * direct access must not assume it. */
struct tensor {
    const char *name; /* NUL-terminated, unique in the file */
    enum dtype dtype;
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX];
    uint64_t elements; /* the product of shape; 1 for rank 0 */
    const struct file *file;
    uint64_t begin, bytes; /* of the data: where it begins in the file, and its size */
    const uint8_t *data;   /* NULL where it has not been read: safetensors_read */
};

struct safetensors;

/* Open and check `path`. *ret is set only on OK; free with safetensors_close.
 * Errors: ERR_IO (cannot be read), ERR_FORMAT (which rule is broken, and where), ERR_NOMEM. */
enum status safetensors_open(struct safetensors **ret, const char *path, struct error *err);
/* Read all tensors' data into memory. Errors: ERR_IO, ERR_NOMEM. */
enum status safetensors_read(struct safetensors *s, struct error *err);
/* ERR_IO when the file is no longer as it was opened: what was read may be a mixture. */
enum status safetensors_check_unchanged(const struct safetensors *st, struct error *err);
void safetensors_close(struct safetensors *st); /* NULL is a no-op */

size_t safetensors_count(const struct safetensors *st);
uint64_t safetensors_bytes(const struct safetensors *st); /* size of the file */
/* The i-th tensor, in order of offset. i < count. */
const struct tensor *safetensors_at(const struct safetensors *st, size_t i);
/* By name; NULL where there is none. */
const struct tensor *safetensors_find(const struct safetensors *st, const char *name);

const char *dtype_name(enum dtype dtype); /* "BF16" */
size_t dtype_bytes(enum dtype dtype);

/* Widen the elements [first, first + count) of an F32, F16 or BF16 tensor to out [count] (exact: each is a subset of
 * float32). Errors: ERR_FORMAT for another dtype, or a NaN or an infinity, naming the tensor and the element;
 * ERR_IO. */
enum status tensor_to_f32(const struct tensor *t, uint64_t first, uint64_t count, float *out, struct error *err);

#endif
