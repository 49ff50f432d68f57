/* keys.c - see keys.h. */
#include "tests/support/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/program.h"

static void run(const char *action, const char *file, const char *name, const char *const more[],
                char key[KEYS_TEXT_MAX])
{
    char program[PATH_MAX];
    program_find(program, "aft", "AFTD_TEST_CLI");
    struct program_run p = {.argv = {program, "key", action, name, "--file", file}};
    for (size_t i = 0; more != NULL && more[i] != NULL; i++) {
        assert_true(i + 7 < PROGRAM_ARGUMENTS_MAX);
        p.argv[6 + i] = more[i];
    }
    program_run(&p);
    if (p.exit_code != 0)
        fail_msg("aft key %s: %s", action, p.err);
    if (key != NULL) {
        assert_true(p.out_size > 1 && p.out_size <= KEYS_TEXT_MAX);
        memcpy(key, p.out, p.out_size - 1); /* less the newline */
        key[p.out_size - 1] = '\0';
    }
    program_run_clear(&p);
}

void keys_add(const char *file, const char *name, const char *const more[], char key[KEYS_TEXT_MAX])
{
    run("add", file, name, more, key);
}

void keys_remove(const char *file, const char *name)
{
    run("remove", file, name, NULL, NULL);
}

/* The file, which is for json_decref, and the entry of that name in it. */
static json_t *load(const char *file, const char *name, json_t **entry)
{
    json_t *root = json_load_file(file, 0, NULL), *one;
    size_t i;
    *entry = NULL;
    json_array_foreach(json_object_get(root, "keys"), i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
            *entry = one;
    }
    assert_non_null(*entry);
    return root;
}

static void save(json_t *root, const char *file)
{
    assert_int_equal(json_dump_file(root, file, 0), 0);
    json_decref(root);
}

void keys_copy(const char *file, const char *name, const char *as)
{
    json_t *entry, *root = load(file, name, &entry), *copy = json_deep_copy(entry);
    assert_int_equal(json_object_set_new(copy, "name", json_string(as)), 0);
    assert_int_equal(json_array_append_new(json_object_get(root, "keys"), copy), 0);
    save(root, file);
}

void keys_set(const char *file, const char *name, const char *field, json_t *value)
{
    json_t *entry, *root = load(file, name, &entry);
    assert_int_equal(json_object_set_new(entry, field, value), 0);
    save(root, file);
}
