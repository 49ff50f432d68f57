/* model_variants.c - see model_variants.h. */
#include "tests/support/model_variants.h"

#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

void model_variants_link(const char *folder, const char *dir, const char *name)
{
    char source[PATH_MAX], target[PATH_MAX], link[PATH_MAX];
    temp_path(source, dir, name);
    temp_path(link, folder, name);
    assert_non_null(realpath(source, target));
    assert_int_equal(symlink(target, link), 0);
}

void model_variants_link_all(const char *folder, const char *const paths[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char dir[PATH_MAX];
        const char *slash = strrchr(paths[i], '/');
        assert_non_null(slash);
        (void)snprintf(dir, sizeof dir, "%.*s", (int)(slash - paths[i]), paths[i]);
        model_variants_link(folder, dir, slash + 1);
    }
}

void model_variants_put(struct model_copy *c, const char *folder, const char *name)
{
    char path[PATH_MAX];
    temp_path(path, folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
    model_copy_write(c, path);
    model_copy_clear(c);
}

void model_variants_write_starting(const char *folder)
{
    struct model_copy c;
    model_copy_read(&c, "tests/data/golden/pixels-local");
    assert_int_equal(json_object_set_new(c.config, "task", json_string("text-generation")), 0);
    assert_int_equal(json_object_set_new(c.config, "input", json_pack("{s:s, s:i}", "kind", "bytes", "context", 48)),
                     0);
    model_variants_put(&c, folder, "starting");
}

void model_variants_write_endless(const char *folder, const char *name, const char *source, int context)
{
    struct model_copy c;
    model_copy_read(&c, source);
    model_copy_drop(&c, "pos_embed");
    assert_int_equal(json_object_set_new(json_object_get(c.config, "input"), "context", json_integer(context)), 0);
    model_variants_put(&c, folder, name);
}

void model_variants_write_chat(const char *folder, const char *name, const char *source, const char *reply,
                               const char *stop)
{
    struct model_copy c;
    model_copy_read(&c, source);
    json_t *template =
        json_pack("{s:s, s:s, s:s, s:s, s:[s]}", "system", MODEL_VARIANTS_SYSTEM, "user", MODEL_VARIANTS_USER,
                  "assistant", MODEL_VARIANTS_ASSISTANT, "reply", reply, "stop", stop);
    assert_int_equal(json_object_set_new(c.config, "chat_template", template), 0);
    model_variants_put(&c, folder, name);
}

void model_variants_write(const char *folder)
{
    model_variants_write_starting(folder);
    model_variants_write_endless(folder, "endless", "tests/data/golden/lm-conv-heads4-k5", 6);
}
