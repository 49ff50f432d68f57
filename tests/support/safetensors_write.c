/* safetensors_write.c - see safetensors_write.h. */
#include "tests/support/safetensors_write.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/temp_dir.h"

static json_t *entry_of(const struct tensor *t, uint64_t begin)
{
    const json_int_t ends[2] = {(json_int_t)begin, (json_int_t)begin + (json_int_t)t->bytes};
    json_t *shape = json_array();

    for (uint32_t i = 0; i < t->rank; i++)
        assert_int_equal(json_array_append_new(shape, json_integer((json_int_t)t->shape[i])), 0);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_name(t->dtype), "shape", shape, "data_offsets", ends[0],
                     ends[1]);
}

void safetensors_write(const char *path, const struct tensor *tensors, size_t count)
{
    uint64_t bytes = 0;
    json_t *header = json_object();

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(json_object_set_new(header, tensors[i].name, entry_of(&tensors[i], bytes)), 0);
        bytes += tensors[i].bytes;
    }
    uint8_t *data = malloc(bytes + 1);
    assert_non_null(data);
    for (size_t i = 0, at = 0; i < count; i++) {
        memcpy(data + at, tensors[i].data, tensors[i].bytes);
        at += tensors[i].bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    assert_non_null(text);
    safetensors_write_raw(path, strlen(text), text, strlen(text), data, bytes);
    free(text);
    free(data);
    json_decref(header);
}

void safetensors_write_raw(const char *path, uint64_t length, const char *header, size_t header_bytes, const void *data,
                           size_t data_bytes)
{
    const uint64_t little = htole64(length);
    const size_t size = sizeof little + header_bytes + data_bytes;
    uint8_t *file = malloc(size);

    assert_non_null(file);
    memcpy(file, &little, sizeof little);
    memcpy(file + sizeof little, header, header_bytes);
    if (data_bytes > 0)
        memcpy(file + sizeof little + header_bytes, data, data_bytes);
    temp_write(path, file, size);
    free(file);
}
