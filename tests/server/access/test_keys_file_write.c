/* test_keys_file_write.c - how the file of keys is replaced and locked, and what keys are made of. */
#include "server/access/keys_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static char dir[PATH_MAX], path[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "keys.json");
    return 0;
}

static void add(struct keys_file *f, const char *name)
{
    struct key k = {.model_count = 1, .models = calloc(1, sizeof k.models[0])};
    assert_non_null(k.models);
    (void)snprintf(k.name, sizeof k.name, "%s", name);
    (void)snprintf((char *)k.hash, sizeof k.hash, "%s", name);
    (void)snprintf(k.models[0], sizeof k.models[0], "of-%s", name);
    assert_int_equal(keys_file_add(f, &k, NULL), OK);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static mode_t mode_of(const char *file)
{
    struct stat there;
    assert_int_equal(lstat(file, &there), 0);
    return there.st_mode & 07777;
}

/* Entries of the folder, without "." and "..". */
static unsigned count_entries(void)
{
    unsigned count = 0;
    DIR *from = opendir(dir);
    assert_non_null(from);
    for (const struct dirent *d; (d = readdir(from)) != NULL;)
        count += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
    (void)closedir(from);
    return count;
}

static void what_is_written_is_read_back(void **state)
{
    struct keys_file f = {0}, read = {0};
    struct error err;
    char text[KEY_TEXT_BYTES + 1];
    (void)state;
    add(&f, "all-of-it");
    add(&f, "least");
    f.keys[0].apis = APIS_USUAL;
    f.keys[0].requests_per_s = 0.1;
    f.keys[0].priority_max = 100;
    f.keys[0].bytes_per_s = 123456789.25;
    free(f.keys[1].models);
    f.keys[1].models = NULL;
    f.keys[1].model_count = 0;
    for (size_t i = 0; i < f.count; i++)
        assert_int_equal(key_make(&f.keys[i], text, NULL), OK);
    assert_int_equal(keys_file_write(&f, path, &err), OK);
    assert_int_equal(keys_file_read(&read, path, &err), OK);
    assert_int_equal(read.count, f.count);
    for (size_t i = 0; i < f.count; i++) {
        const struct key *a = &f.keys[i], *b = &read.keys[i];
        assert_string_equal(a->name, b->name);
        assert_memory_equal(a->hash, b->hash, sizeof a->hash);
        assert_int_equal(a->apis, b->apis);
        assert_true(a->requests_per_s == b->requests_per_s && a->bytes_per_s == b->bytes_per_s);
        assert_int_equal(a->priority_max, b->priority_max);
        assert_int_equal(a->model_count, b->model_count);
    }
    assert_string_equal(read.keys[0].models[0], "of-all-of-it");
    assert_int_equal(count_entries(), 1);
    keys_file_clear(&read);
    keys_file_clear(&f);
}

static void who_could_not_read_the_file_cannot_afterwards(void **state)
{
    static const struct {
        mode_t before, after;
    } cases[] = {{0600, 0600}, {0640, 0640}, {0660, 0640}, {0644, 0640}, {0604, 0600}, {0620, 0600}, {0400, 0600}};
    const struct keys_file none = {0};
    (void)state;
    const mode_t mask = umask(0);
    assert_int_equal(keys_file_write(&none, path, NULL), OK); /* a new one */
    assert_int_equal(mode_of(path), 0600);
    (void)umask(mask);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(chmod(path, cases[i].before), 0);
        assert_int_equal(keys_file_write(&none, path, NULL), OK);
        if (mode_of(path) != cases[i].after)
            fail_msg("%04o became %04o, expected %04o", cases[i].before, mode_of(path), cases[i].after);
    }
}

static void the_old_file_stays_whole_for_who_reads_it(void **state)
{
    struct keys_file f = {0};
    char before[64] = "";
    (void)state;
    temp_write(path, "the old one", strlen("the old one"));
    FILE *old = fopen(path, "re");
    assert_non_null(old);
    add(&f, "new");
    assert_int_equal(keys_file_write(&f, path, NULL), OK);
    assert_non_null(fgets(before, sizeof before, old));
    assert_string_equal(before, "the old one");
    (void)fclose(old);
    keys_file_clear(&f);
}

static void a_link_stays_one(void **state)
{
    char link[PATH_MAX];
    struct keys_file f = {0}, read;
    struct stat there;
    (void)state;
    temp_path(link, dir, "link.json");
    temp_write(path, "", 0);
    assert_int_equal(symlink("keys.json", link), 0);
    add(&f, "new");
    assert_int_equal(keys_file_write(&f, link, NULL), OK);
    assert_int_equal(lstat(link, &there), 0);
    assert_true(S_ISLNK(there.st_mode));
    assert_int_equal(keys_file_read(&read, path, NULL), OK);
    assert_string_equal(read.keys[0].name, "new");
    keys_file_clear(&read);
    keys_file_clear(&f);
}

static void what_cannot_be_written_leaves_no_trace(void **state)
{
    const struct keys_file none = {0};
    struct error err;
    char want[PATH_MAX + 64];
    (void)state;
    assert_int_equal(mkdir(path, 0700), 0); /* no file can take the name of a folder */
    (void)snprintf(want, sizeof want, "%s: cannot be written: Is a directory", path);
    assert_int_equal(keys_file_write(&none, path, &err), ERR_IO);
    assert_string_equal(err.message, want);
    assert_int_equal(count_entries(), 1);
    assert_int_equal(keys_file_write(&none, "/no/such/folder/keys", &err), ERR_IO);
    assert_string_equal(err.message, "/no/such/folder/keys: cannot be written: No such file or directory");
}

/* As on a full disk: a first piece is still written, and the next one tells. */
static void why_a_file_ends_early_is_said(void **state)
{
    const struct keys_file none = {0};
    struct error err;
    char want[PATH_MAX + 64];
    struct rlimit before;
    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 10, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    errno = 0;
    const enum status st = keys_file_write(&none, path, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(st, ERR_IO);
    (void)snprintf(want, sizeof want, "%s: cannot be written: File too large", path);
    assert_string_equal(err.message, want);
    assert_int_equal(count_entries(), 0);
}

/* ---- locking ---------------------------------------------------------------------------------------------------- */

static bool is_locked(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    const bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0;
    assert_true(!locked || errno == EWOULDBLOCK);
    (void)close(fd);
    return locked;
}

static void a_lock_keeps_others_out_though_the_file_is_replaced(void **state)
{
    const struct keys_file none = {0};
    int lock = -1;
    (void)state;
    assert_int_equal(keys_file_lock(&lock, path, NULL), OK); /* the file need not be there yet */
    assert_true(is_locked(dir));
    assert_int_equal(keys_file_write(&none, path, NULL), OK);
    assert_true(is_locked(dir));
    keys_file_unlock(lock);
    assert_false(is_locked(dir));
}

static void the_folder_of_a_path_is_what_is_locked(void **state)
{
    struct error err;
    char before[PATH_MAX];
    int lock = -1;
    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(dir), 0);
    assert_int_equal(keys_file_lock(&lock, "keys.json", NULL), OK);
    assert_int_equal(chdir(before), 0);
    assert_true(is_locked(dir));
    keys_file_unlock(lock);
    assert_int_equal(keys_file_lock(&lock, "/keys.json", NULL), OK);
    keys_file_unlock(lock);
    assert_int_equal(keys_file_lock(&lock, "/no/such/folder/keys.json", &err), ERR_IO);
    assert_string_equal(err.message, "/no/such/folder: cannot be locked: No such file or directory");
}

/* ---- what keys are made of -------------------------------------------------------------------------------------- */

static void a_key_is_random_and_known_by_its_hash(void **state)
{
    struct key a = {.name = "a"}, b = {.name = "b"};
    char text_a[KEY_TEXT_BYTES + 1], text_b[KEY_TEXT_BYTES + 1];
    uint8_t hash[KEY_HASH_BYTES];
    (void)state;
    assert_int_equal(key_make(&a, text_a, NULL), OK);
    assert_int_equal(key_make(&b, text_b, NULL), OK);
    assert_int_equal(strlen(text_a), KEY_TEXT_BYTES);
    assert_int_equal(strncmp(text_a, "aftd_", 5), 0);
    assert_int_equal(strspn(text_a + 5, "0123456789abcdef"), 64);
    assert_string_not_equal(text_a, text_b);
    assert_memory_not_equal(a.hash, b.hash, sizeof a.hash);
    key_hash(hash, text_a, strlen(text_a));
    assert_memory_equal(a.hash, hash, sizeof hash);
}

/* As `printf aftd_x | sha256sum` says. */
static void the_hash_is_of_the_text(void **state)
{
    static const uint8_t want[KEY_HASH_BYTES] = {0x0e, 0x56, 0x85, 0x7f, 0xf3, 0x3c, 0x66, 0x97, 0x6b, 0x42, 0xc5,
                                                 0x09, 0x68, 0x83, 0x89, 0xa2, 0x2a, 0x91, 0x5e, 0x95, 0xa0, 0x1a,
                                                 0x5f, 0x06, 0x5e, 0x4b, 0xb0, 0x7e, 0xc9, 0x91, 0x40, 0xf6};
    uint8_t got[KEY_HASH_BYTES];
    (void)state;
    key_hash(got, "aftd_x and more", strlen("aftd_x"));
    assert_memory_equal(got, want, sizeof want);
}

#define NAME_65 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void names_have_few_characters(void **state)
{
    static const struct {
        const char *name;
        bool fine;
    } cases[] = {
        {"a", true},   {"Z09._-", true}, {".", true},    {"-", true},      {&NAME_65[1], true}, {NAME_65, false},
        {"", false},   {"a b", false},   {"a/b", false}, {"a\"b", false},  {"a\n", false},      {"\xc3\xa4", false},
        {"a,", false}, {"a:b", false},   {"*", false},   {"a\x7f", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (key_name_is_fine(cases[i].name) != cases[i].fine)
            fail_msg("\"%s\": expected %s", cases[i].name, cases[i].fine ? "a name" : "none");
}

static void apis_are_lists_of_words(void **state)
{
    (void)state;
    json_t *list = key_apis_to_json(API_BIT(API_ADMIN) | API_BIT(API_INFERENCE));
    json_t *want = json_pack("[s, s]", "inference", "admin");
    assert_true(json_equal(list, want));
    json_decref(list);
    json_decref(want);
    list = key_apis_to_json(0);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    assert_string_equal(key_api_word(API_INFERENCE), "inference");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_back, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(who_could_not_read_the_file_cannot_afterwards, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(the_old_file_stays_whole_for_who_reads_it, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_link_stays_one, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_leaves_no_trace, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(why_a_file_ends_early_is_said, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_lock_keeps_others_out_though_the_file_is_replaced, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(the_folder_of_a_path_is_what_is_locked, set_up, temp_dirs_end),
        cmocka_unit_test(a_key_is_random_and_known_by_its_hash),
        cmocka_unit_test(the_hash_is_of_the_text),
        cmocka_unit_test(names_have_few_characters),
        cmocka_unit_test(apis_are_lists_of_words),
    };
    return cmocka_run_group_tests_name("keys_file_write", tests, NULL, NULL);
}
