/* safetensors_write.h - write .safetensors files, good and bad ones. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_SAFETENSORS_WRITE_H
#define TESTS_SUPPORT_SAFETENSORS_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "weights/safetensors.h"

/* A valid file of the tensors' names, dtypes, ranks, shapes and data [bytes], in this order. */
void safetensors_write(const char *path, const struct tensor *tensors, size_t count);

/* A file of exactly these parts: `length` in front, whatever the header's size is. */
void safetensors_write_raw(const char *path, uint64_t length, const char *header, size_t header_bytes, const void *data,
                           size_t data_bytes);

#endif
