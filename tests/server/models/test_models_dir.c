/* test_models_dir.c - the folder of models: what in it is a model, which version counts, what is refused by name, and
 * when the print of a model's files changes. */
#include "server/models/models_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static char dir[PATH_MAX];

/* A disk that fails: instead of the C library's, where a path ends so. NULL: nothing fails. */
static const char *unreadable;

int access(const char *path, int mode)
{
    const size_t n = strlen(path), end = unreadable != NULL ? strlen(unreadable) : 0;
    if (unreadable == NULL || end > n || strcmp(path + n - end, unreadable) != 0)
        return faccessat(AT_FDCWD, path, mode, 0);
    errno = EIO;
    return -1;
}

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    return 0;
}

static void make_folder(const char *name)
{
    char path[PATH_MAX];
    temp_path(path, dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void make_file(const char *name, const char *text)
{
    char path[PATH_MAX];
    temp_path(path, dir, name);
    temp_write(path, text, strlen(text));
}

/* "a" or "a/3": a folder with a config.json, which is not looked into. */
static void make_model(const char *name)
{
    char file[PATH_MAX];
    make_folder(name);
    (void)snprintf(file, sizeof file, "%.1000s/config.json", name);
    make_file(file, "");
}

/* "a a/3 b": each model's folder, in the order of the list. */
static void expect_scan(const char *want)
{
    struct found_model all[REGISTRY_MODELS_MAX];
    struct error err = {.message = ""};
    size_t count = 0;
    char got[1024] = "";
    const enum status st = models_dir_scan(all, &count, dir, &err);
    for (size_t i = 0; st == OK && i < count; i++) {
        assert_int_equal(strncmp(all[i].path, dir, strlen(dir)), 0);
        const char *tail = all[i].path + strlen(dir) + 1, *slash = strchr(tail, '/');
        assert_int_equal(all[i].version, slash != NULL ? models_dir_version(slash + 1) : 0);
        assert_int_equal(strncmp(tail, all[i].name, strlen(all[i].name)), 0);
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i > 0 ? " " : "", tail);
    }
    if (st != OK || strcmp(got, want) != 0)
        fail_msg("%s %s: \"%s\", expected \"%s\"", status_name(st), err.message, got, want);
}

/* The message: the folder between these. */
static void expect_refusal(const char *where, enum status want, const char *before, const char *behind)
{
    struct found_model all[REGISTRY_MODELS_MAX];
    struct error err = {.message = ""};
    size_t count;
    char says[ERROR_MESSAGE_MAX];
    (void)snprintf(says, sizeof says, "%s%s%s", before, where, behind);
    const enum status st = models_dir_scan(all, &count, where, &err);
    if (st != want || strcmp(err.message, says) != 0)
        fail_msg("%s \"%s\", expected \"%s\"", status_name(st), err.message, says);
}

static void folders_with_a_configuration_are_models(void **state)
{
    (void)state;
    make_model("b");
    make_model("a.1_x-Y");
    make_folder("no-model");
    make_folder("what it is called"); /* nor is its name looked at */
    make_file("file", "");
    make_model(".begun"); /* one that is being filled */
    expect_scan("a.1_x-Y b");
}

static void the_highest_version_counts(void **state)
{
    (void)state;
    make_folder("a");
    make_model("a/2");
    make_model("a/10");
    make_folder("a/11"); /* without a configuration */
    make_model("a/012");
    make_model("a/0");
    make_model("a/13x");
    make_model("a/.99");
    make_model("a/1234567890");
    expect_scan("a/10");
    make_model("a/999999999");
    expect_scan("a/999999999");
    make_file("a/config.json", ""); /* both: it has no versions */
    expect_scan("a");
}

static void what_is_no_version_is_none(void **state)
{
    static const struct {
        const char *text;
        uint32_t want;
    } cases[] = {
        {"1", 1},          {"12", 12}, {"999999999", 999999999},
        {"1000000000", 0}, {"0", 0},   {"01", 0},
        {"", 0},           {"+1", 0},  {"-1", 0},
        {" 1", 0},         {"1 ", 0},  {"1x", 0},
        {"x", 0},          {"1.0", 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (models_dir_version(cases[i].text) != cases[i].want)
            fail_msg("\"%s\" is %u, expected %u", cases[i].text, models_dir_version(cases[i].text), cases[i].want);
}

static void a_folder_without_models_is_refused(void **state)
{
    static const char empty[] = ": no subfolder has a config.json of a model that this build runs";
    char nowhere[PATH_MAX];
    (void)state;
    expect_refusal(dir, ERR_CONFIG, "models_dir = ", empty);
    make_folder("no-model");
    expect_refusal(dir, ERR_CONFIG, "models_dir = ", empty);
    temp_path(nowhere, dir, "nowhere");
    expect_refusal(nowhere, ERR_IO, "models_dir = ", ": No such file or directory");
}

static void a_name_that_names_no_model_is_refused(void **state)
{
    struct found_model all[REGISTRY_MODELS_MAX];
    struct error err;
    size_t count;
    char want[PATH_MAX + 256], name[MODEL_NAME_MAX + 2];
    (void)state;
    make_model("a b");
    (void)snprintf(want, sizeof want,
                   "%s/a b: the folder's name holds the byte 0x20, expected only letters, digits, '.', '_' and '-': it "
                   "names the model",
                   dir);
    assert_int_equal(models_dir_scan(all, &count, dir, &err), ERR_FORMAT);
    assert_string_equal(err.message, want);
    temp_path(want, dir, "a b");
    char to[PATH_MAX];
    memset(name, 'a', sizeof name - 1);
    name[MODEL_NAME_MAX] = '\0';
    temp_path(to, dir, name);
    assert_int_equal(rename(want, to), 0);
    expect_scan(name); /* 64 bytes */
    name[MODEL_NAME_MAX] = 'a';
    name[MODEL_NAME_MAX + 1] = '\0';
    temp_path(want, dir, name);
    assert_int_equal(rename(to, want), 0);
    assert_int_equal(models_dir_scan(all, &count, dir, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "the folder's name has 65 bytes, expected 1..64"));
}

static void a_disk_that_fails_does_not_make_a_model_vanish(void **state)
{
    static const char *const places[] = {"/a/config.json", "/b/1/config.json", "/b/config.json"};
    (void)state;
    make_model("a");
    make_folder("b");
    make_model("b/1");
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct found_model all[REGISTRY_MODELS_MAX], one;
        size_t count = 0;
        char path[PATH_MAX];
        bool there = false;
        struct error err = {0};
        unreadable = places[i];
        assert_int_equal(models_dir_scan(all, &count, dir, &err), ERR_IO);
        assert_non_null(strstr(err.message, places[i]));
        temp_path(path, dir, i == 0 ? "a" : "b");
        assert_int_equal(models_dir_look(&one, &there, "m", path, &err), ERR_IO);
        unreadable = NULL;
        assert_int_equal(models_dir_scan(all, &count, dir, &err), OK);
        assert_int_equal(count, 2);
    }
}

static void as_many_are_found_as_can_be_served(void **state)
{
    struct found_model all[REGISTRY_MODELS_MAX];
    size_t count = 0;
    char name[16];
    (void)state;
    for (int i = 1; i <= REGISTRY_MODELS_MAX; i++) {
        (void)snprintf(name, sizeof name, "m%03d", i);
        make_model(name);
    }
    assert_int_equal(models_dir_scan(all, &count, dir, NULL), OK);
    assert_int_equal(count, REGISTRY_MODELS_MAX);
    assert_string_equal(all[count - 1].name, "m256");
    make_model("m257");
    expect_refusal(dir, ERR_CONFIG, "", ": more than 256 models");
}

/* ---- one model -------------------------------------------------------------------------------------------------- */

/* Did what was done change the print of the model "a", and that of all its times? */
struct prints {
    uint8_t files[MODELS_DIR_PRINT_BYTES], all[MODELS_DIR_PRINT_BYTES];
};

static struct prints take_prints(void)
{
    struct prints p;
    struct found_model m;
    char path[PATH_MAX];
    bool there = false;
    temp_path(path, dir, "a");
    assert_int_equal(models_dir_look(&m, &there, "a", path, NULL), OK);
    assert_true(there);
    memcpy(p.files, m.print, sizeof p.files);
    (void)models_dir_print(p.all, m.path, NULL);
    return p;
}

static void expect_change(const char *what, struct prints *before, bool changed)
{
    const struct prints now = take_prints();
    if ((memcmp(now.files, before->files, sizeof now.files) != 0) != changed)
        fail_msg("%s: the print of what is found was to %s", what, changed ? "change" : "stay");
    if ((memcmp(now.all, before->all, sizeof now.all) != 0) != changed)
        fail_msg("%s: the print of the folder was to %s", what, changed ? "change" : "stay");
    *before = now;
}

static void a_print_changes_with_the_models_files(void **state)
{
    char weights[PATH_MAX], other[PATH_MAX];
    struct stat times;
    (void)state;
    make_model("a");
    make_file("a/model.safetensors", "12345678");
    temp_path(weights, dir, "a/model.safetensors");
    temp_path(other, dir, "a/other.safetensors");
    struct prints p = take_prints();
    expect_change("nothing", &p, false);
    make_file("a/MODEL_CARD.md", "no part of it");
    expect_change("another file", &p, false);
    make_file("a/model-00002.safetensors", "");
    expect_change("a file more", &p, true);
    assert_int_equal(rename(weights, other), 0);
    expect_change("another name", &p, true);
    assert_int_equal(rename(other, weights), 0);
    expect_change("its name again", &p, true);
    assert_int_equal(stat(weights, &times), 0);
    const struct timespec set[2] = {times.st_atim, {.tv_sec = times.st_mtim.tv_sec - 7}};
    assert_int_equal(utimensat(AT_FDCWD, weights, set, 0), 0);
    expect_change("another time", &p, true);
    assert_int_equal(truncate(weights, 7), 0);
    assert_int_equal(utimensat(AT_FDCWD, weights, set, 0), 0);
    expect_change("another size", &p, true);
    temp_write(other, "1234567", 7); /* of the same size and time, in the place of it */
    assert_int_equal(utimensat(AT_FDCWD, other, set, 0), 0);
    assert_int_equal(rename(other, weights), 0);
    expect_change("another file of that size and time", &p, true);
    make_model("a/4"); /* the folder is the same model's still */
    expect_change("a version that does not count", &p, false);
    char config[PATH_MAX];
    temp_path(config, dir, "a/config.json");
    assert_int_equal(unlink(config), 0);
    expect_change("another folder", &p, true);
}

/* As a copy that keeps times: only when it was changed tells. */
static void a_file_that_was_written_again_is_noticed(void **state)
{
    char weights[PATH_MAX];
    struct stat before, after;
    (void)state;
    make_model("a");
    make_file("a/model.safetensors", "12345678");
    temp_path(weights, dir, "a/model.safetensors");
    assert_int_equal(stat(weights, &before), 0);
    struct prints p = take_prints();
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    do { /* until the kernel's clock of files has moved on: 4 ms at most */
        assert_int_equal(utimensat(AT_FDCWD, weights, times, 0), 0);
        assert_int_equal(stat(weights, &after), 0);
    } while (after.st_ctim.tv_sec == before.st_ctim.tv_sec && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    expect_change("its times were set", &p, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders_with_a_configuration_are_models, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(the_highest_version_counts, set_up, temp_dirs_end),
        cmocka_unit_test(what_is_no_version_is_none),
        cmocka_unit_test_setup_teardown(a_folder_without_models_is_refused, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_name_that_names_no_model_is_refused, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_disk_that_fails_does_not_make_a_model_vanish, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(as_many_are_found_as_can_be_served, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_print_changes_with_the_models_files, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_that_was_written_again_is_noticed, set_up, temp_dirs_end),
    };
    return cmocka_run_group_tests_name("models_dir", tests, NULL, NULL);
}
