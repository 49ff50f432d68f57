/* model_copy.c - see model_copy.h. */
#include "tests/support/model_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/safetensors_write.h"
#include "tests/support/temp_dir.h"

void model_copy_read(struct model_copy *c, const char *dir)
{
    char path[PATH_MAX];
    struct error err = {.message = ""};

    *c = (struct model_copy){.count = 0};
    temp_path(path, dir, "config.json");
    c->config = json_load_file(path, 0, NULL);
    assert_non_null(c->config);
    temp_path(path, dir, "model.safetensors");
    if (safetensors_open(&c->file, path, &err) != OK || safetensors_read(c->file, &err) != OK)
        fail_msg("%s", err.message);
    assert_true(safetensors_count(c->file) <= MODEL_COPY_TENSORS_MAX);
    for (size_t i = 0; i < safetensors_count(c->file); i++)
        c->tensors[c->count++] = *safetensors_at(c->file, i);
}

void model_copy_clear(struct model_copy *c)
{
    json_decref(c->config);
    safetensors_close(c->file);
}

static struct tensor *find(struct model_copy *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->tensors[i].name, name) == 0)
            return &c->tensors[i];
    }
    return NULL;
}

struct tensor *model_copy_tensor(struct model_copy *c, const char *name)
{
    struct tensor *t = find(c, name);

    assert_non_null(t);
    return t;
}

void model_copy_drop(struct model_copy *c, const char *name)
{
    struct tensor *t = model_copy_tensor(c, name);

    c->count--;
    memmove(t, t + 1, (size_t)(c->tensors + c->count - t) * sizeof *t);
}

void model_copy_set(struct model_copy *c, const char *name, const float *data, uint64_t rows, uint64_t columns)
{
    struct tensor *t = find(c, name);

    if (t == NULL) {
        assert_true(c->count < MODEL_COPY_TENSORS_MAX);
        t = &c->tensors[c->count++];
    }
    *t = (struct tensor){.name = name, .dtype = DTYPE_F32, .rank = columns > 0 ? 2 : 1, .shape = {rows, columns}};
    t->elements = columns > 0 ? rows * columns : rows;
    t->bytes = t->elements * sizeof(float);
    t->data = (const uint8_t *)data;
}

void model_copy_write(const struct model_copy *c, const char *dir)
{
    char path[PATH_MAX];

    temp_path(path, dir, "config.json");
    assert_int_equal(json_dump_file(c->config, path, JSON_INDENT(1)), 0);
    temp_path(path, dir, "model.safetensors");
    safetensors_write(path, c->tensors, c->count);
}
