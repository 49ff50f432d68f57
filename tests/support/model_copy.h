/* model_copy.h - a model directory read to be changed and written elsewhere. One thread. A failing step ends the
 * test. */
#ifndef TESTS_SUPPORT_MODEL_COPY_H
#define TESTS_SUPPORT_MODEL_COPY_H

#include <jansson.h>
#include <stddef.h>

#include "weights/safetensors.h"

#define MODEL_COPY_TENSORS_MAX 256

struct model_copy {
    json_t *config;                                /* change it at will */
    struct tensor tensors[MODEL_COPY_TENSORS_MAX]; /* likewise; a data pointer may lead anywhere */
    size_t count;
    struct safetensors *file; /* owns names and data of the original's tensors */
};

/* Read DIR/config.json and DIR/model.safetensors. End with model_copy_clear. */
void model_copy_read(struct model_copy *c, const char *dir);
void model_copy_clear(struct model_copy *c);

/* The tensor of that name; the test fails if there is none. */
struct tensor *model_copy_tensor(struct model_copy *c, const char *name);
void model_copy_drop(struct model_copy *c, const char *name);
/* Set or add a tensor as F32: [rows] or, with columns > 0, [rows, columns]. `data` is borrowed until the writing. */
void model_copy_set(struct model_copy *c, const char *name, const float *data, uint64_t rows, uint64_t columns);

/* Write it into DIR, which exists. */
void model_copy_write(const struct model_copy *c, const char *dir);

#endif
