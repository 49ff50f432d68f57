/* fuzz_keys_file.c - a file of keys of any bytes is refused with a reason, or holds keys that are within their
 * bounds, each with a name of its own, and that are the same once they were written and read again. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/access/keys_file.h"

static char folder[] = "/tmp/aftd-fuzz-XXXXXX";

static void remove_folder(void)
{
    (void)rmdir(folder);
}

static void check_keys(const struct keys_file *f)
{
    fuzz_check(f->count <= AUTH_KEYS_MAX, "there are no more keys than may be");
    for (size_t i = 0; i < f->count; i++) {
        const struct key *k = &f->keys[i];
        fuzz_check(memchr(k->name, '\0', sizeof k->name) != NULL && key_name_is_fine(k->name), "a key's name is fine");
        fuzz_check(k->model_count == 0 || k->models != NULL, "models that are counted are there");
        fuzz_check(k->requests_per_s >= 0 && k->bytes_per_s >= 0, "rates are not negative");
        for (size_t j = 0; j < i; j++)
            fuzz_check(strcmp(k->name, f->keys[j].name) != 0, "each key has a name of its own");
    }
}

static void check_written(const struct keys_file *f)
{
    char path[sizeof folder + 16];
    struct keys_file again = {0};
    struct error err;
    (void)snprintf(path, sizeof path, "%s/keys", folder);
    fuzz_check(keys_file_write(f, path, &err) == OK, "the keys are written");
    fuzz_check(keys_file_read(&again, path, &err) == OK, "what was written is read");
    fuzz_check(again.count == f->count, "as many keys are read as were written");
    for (size_t i = 0; i < f->count; i++) {
        const struct key *a = &f->keys[i], *b = &again.keys[i];
        fuzz_check(strcmp(a->name, b->name) == 0 && memcmp(a->hash, b->hash, sizeof a->hash) == 0 &&
                       a->apis == b->apis && a->model_count == b->model_count &&
                       a->requests_per_s == b->requests_per_s && a->bytes_per_s == b->bytes_per_s,
                   "a key is read as it was written");
        for (size_t m = 0; m < a->model_count; m++)
            fuzz_check(strcmp(a->models[m], b->models[m]) == 0, "so are its models");
    }
    keys_file_clear(&again);
    (void)unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_CONFIG};
    static bool has_folder;
    struct keys_file f = {0};
    struct error err = {.message = ""};
    if (!has_folder) {
        fuzz_check(mkdtemp(folder) != NULL, "the system makes a folder");
        fuzz_check(atexit(remove_folder) == 0, "the folder will be removed");
        has_folder = true;
    }
    const enum status st = keys_file_read(&f, fuzz_file(data, size), &err);
    if (st != OK) {
        fuzz_check_error(st, &err, allowed, 1);
    } else {
        check_keys(&f);
        check_written(&f);
    }
    keys_file_clear(&f);
    return 0;
}
