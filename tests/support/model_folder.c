/* model_folder.c - see model_folder.h. Files are written aside and renamed, as whoever changes them under a daemon
 * should. */
#include "tests/support/model_folder.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/temp_dir.h"

static void make_folder(char path[PATH_MAX], const char *folder, const char *name)
{
    temp_path(path, folder, name);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/* The first `size` bytes of a file, or all of it, as NAME of the folder. */
static void put_file(const char *to, const char *name, const char *from, size_t size)
{
    char source[PATH_MAX], aside[PATH_MAX], path[PATH_MAX];
    size_t whole;
    temp_path(source, from, name);
    char *bytes = temp_read(source, &whole);
    temp_path(aside, to, ".aside");
    temp_path(path, to, name);
    temp_write(aside, bytes, size < whole ? size : whole);
    assert_int_equal(rename(aside, path), 0);
    free(bytes);
}

void model_folder_put(const char *folder, const char *name, const char *source)
{
    char path[PATH_MAX];
    make_folder(path, folder, name);
    put_file(path, "model.safetensors", source, SIZE_MAX);
    put_file(path, "config.json", source, SIZE_MAX);
}

void model_folder_break(const char *folder, const char *name, const char *source, enum model_fault fault)
{
    char path[PATH_MAX];
    struct model_copy c;
    make_folder(path, folder, name);
    switch (fault) {
    case MODEL_TRUNCATED:
        put_file(path, "model.safetensors", source, 50000);
        return;
    case MODEL_BAD_JSON:
        put_file(path, "config.json", source, 60);
        return;
    default:
        break;
    }
    model_copy_read(&c, source);
    if (fault == MODEL_NO_TENSOR) {
        model_copy_drop(&c, "norm.weight");
    } else {
        const json_int_t dim = json_integer_value(json_object_get(c.config, "dim"));
        assert_int_equal(json_object_set_new(c.config, "dim", json_integer(2 * dim)), 0);
    }
    model_copy_write(&c, path);
    model_copy_clear(&c);
}

void model_folder_drop(const char *folder, const char *name)
{
    char path[PATH_MAX];
    temp_path(path, folder, name);
    temp_dir_remove(path);
}
