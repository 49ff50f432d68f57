/* test_key.c - aft key: making, listing and taking back keys, and what of a file of keys is refused. */
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

#include "tests/support/keys.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static char aft[PATH_MAX], dir[PATH_MAX], file[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    temp_path(file, dir, "keys.json");
    return 0;
}

static void keys_are_made_listed_and_taken_back(void **state)
{
    char one[KEYS_TEXT_MAX], two[KEYS_TEXT_MAX];
    struct stat there;
    size_t size;
    (void)state;
    keys_add(file, "one", NULL, one);
    assert_int_equal(strlen(one), 69);
    assert_int_equal(strncmp(one, "aftd_", 5), 0);
    assert_int_equal(strspn(one + 5, "0123456789abcdef"), 64);
    assert_int_equal(stat(file, &there), 0);
    assert_int_equal(there.st_mode & 07777, 0600);
    keys_add(file, "two",
             (const char *const[]){"--models", "a,b", "--apis", "openai,admin", "--rate", "0.5/s", "--bytes-rate=1000",
                                   "--priority-max=high", NULL},
             two);
    assert_string_not_equal(one, two);
    char *text = temp_read(file, &size);
    assert_null(strstr(text, one + 5)); /* no key is kept */
    assert_null(strstr(text, two + 5));
    free(text);
    const struct program_case cases[] = {
        {"list",
         {"key", "list", "--file", file},
         NULL,
         0,
         "one  native,openai,inference  all models\ntwo  openai,admin  a,b  0.5 requests/s  1000 bytes/s  priority up "
         "to 100\n",
         ""},
        {"the same name",
         {"key", "add", "one", "--file", file},
         NULL,
         1,
         "",
         "keys.json: there is another key named \"one\""},
        {"remove", {"key", "remove", "one", "--file", file}, NULL, 0, "", ""},
        {"remove again", {"key", "remove", "one", "--file", file}, NULL, 1, "", "no key is named \"one\""},
        {"list again", {"key", "list", "--file", file}, NULL, 0, "two  openai,admin  a,b", ""},
    };
    program_expect(aft, cases, ARRAY_LEN(cases));
    assert_int_equal(stat(file, &there), 0);
    assert_int_equal(there.st_mode & 07777, 0600);
    char command[PATH_MAX + 64];
    (void)snprintf(command, sizeof command, "ls %s | wc -l | grep -qx 1", dir);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): nothing is left beside it */
}

/* As of a file of root's that the daemon's group may read, by a link where the settings look for it. */
static void a_file_keeps_its_group_and_its_place(void **state)
{
    const gid_t group = geteuid() == 0 ? 1 : getegid();
    char key[KEYS_TEXT_MAX], link[PATH_MAX];
    struct stat there;
    (void)state;
    keys_add(file, "one", NULL, key);
    assert_int_equal(chown(file, (uid_t)-1, group), 0);
    assert_int_equal(chmod(file, 0644), 0); /* others could, and shall not */
    temp_path(link, dir, "link.json");
    assert_int_equal(symlink(file, link), 0);
    keys_add(link, "two", NULL, key);
    assert_int_equal(lstat(link, &there), 0);
    assert_true(S_ISLNK(there.st_mode));
    assert_int_equal(lstat(file, &there), 0);
    assert_int_equal(there.st_mode & 07777, 0640);
    assert_int_equal(there.st_gid, group);
    const struct program_case list = {"list", {"key", "list", "--file", file}, NULL, 0, "one  ", ""};
    program_expect(aft, &list, 1);
}

static void wrong_command_lines_are_named(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"nothing", {"key"}, NULL, 2, "", "too few arguments"},
        {"no such action",
         {"key", "make", "x", "--file", file},
         NULL,
         2,
         "",
         "unknown action \"make\", expected add, list or remove"},
        {"no name", {"key", "add", "--file", file}, NULL, 2, "", "add takes one name"},
        {"a name to list", {"key", "list", "x", "--file", file}, NULL, 2, "", "list takes no name"},
        {"no file", {"key", "add", "x"}, NULL, 2, "", "--file is missing"},
        {"a bad name", {"key", "add", "a b", "--file", file}, NULL, 2, "", "expected a name of 1 to 64 of A-Z"},
        {"an empty name", {"key", "add", "", "--file", file}, NULL, 2, "", "expected a name of 1 to 64 of"},
        {"an API",
         {"key", "add", "x", "--file", file, "--apis", "native,open"},
         NULL,
         2,
         "",
         "key \"x\", apis: expected a list of native, openai, inference, admin"},
        {"no API", {"key", "add", "x", "--file", file, "--apis", ""}, NULL, 2, "", "apis: expected a list of native,"},
        {"a rate",
         {"key", "add", "x", "--file", file, "--rate", "10/m"},
         NULL,
         2,
         "",
         "--rate is \"10/m\", expected a number"},
        {"nan", {"key", "add", "x", "--file", file, "--rate", "nan"}, NULL, 2, "", "--rate is \"nan\""},
        {"zero", {"key", "add", "x", "--file", file, "--bytes-rate", "0"}, NULL, 2, "", "--bytes-rate is \"0\""},
        {"large", {"key", "add", "x", "--file", file, "--rate", "1e10"}, NULL, 2, "", "--rate is \"1e10\""},
        {"a priority",
         {"key", "add", "x", "--file", file, "--priority-max", "low"},
         NULL,
         2,
         "",
         "priority_max: expected \"normal\", \"high\" or a whole number from 0 to 100"},
        {"no priority",
         {"key", "add", "x", "--file", file, "--priority-max", ""},
         NULL,
         2,
         "",
         "priority_max: expected"},
        {"a priority to list",
         {"key", "list", "--file", file, "--priority-max", "high"},
         NULL,
         2,
         "",
         "takes no option except --file"},
        {"no model",
         {"key", "add", "x", "--file", file, "--models", "a,,b"},
         NULL,
         2,
         "",
         "key \"x\", models: expected a list of 1 to 256 different names"},
        {"twice", {"key", "add", "x", "--file", file, "--models", "a,a"}, NULL, 2, "", "256 different names"},
        {"an option of add",
         {"key", "list", "--file", file, "--rate", "1"},
         NULL,
         2,
         "",
         "takes no option except --file"},
        {"no folder", {"key", "add", "x", "--file", "/no/such/folder/keys"}, NULL, 1, "", "/no/such/folder"},
        {"nothing there", {"key", "list", "--file", file}, NULL, 1, "", "cannot be opened"},
    };
    program_expect(aft, cases, ARRAY_LEN(cases));
    assert_int_not_equal(access(file, F_OK), 0);
}

static void a_priority_is_a_word_or_a_number_alone(void **state)
{
    static const char *const wrong[] = {"High", "101", "-1", "+1", " 1", "1 ", "0x1", "99999999999999999999", "\xff"};
    char key[KEYS_TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const struct program_case c = {
            wrong[i], {"key", "add", "x", "--file", file, "--priority-max", wrong[i]}, NULL, 2, "", "priority_max"};
        program_expect(aft, &c, 1);
    }
    keys_add(file, "most", (const char *const[]){"--priority-max", "100", NULL}, key);
    keys_add(file, "least", (const char *const[]){"--priority-max=0", NULL}, key);
    keys_add(file, "some", (const char *const[]){"--priority-max=33", NULL}, key);
    const struct program_case list = {
        "list",
        {"key", "list", "--file", file},
        NULL,
        0,
        "most  native,openai,inference  all models  priority up to 100\nleast  native,openai,inference  all models\n"
        "some  native,openai,inference  all models  priority up to 33\n",
        ""};
    program_expect(aft, &list, 1);
}

static void a_name_that_is_no_text_is_refused(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"of a key", {"key", "add", "\xff", "--file", file}, NULL, 2, "", "expected a name"},
        {"of a model", {"key", "add", "x", "--file", file, "--models", "a,\xff"}, NULL, 2, "", "models: expected"},
        {"of an API", {"key", "add", "x", "--file", file, "--apis", "native,\xff"}, NULL, 2, "", "apis: expected"},
    };
    program_expect(aft, cases, ARRAY_LEN(cases));
    assert_int_not_equal(access(file, F_OK), 0);
}

#define HASH "\"sha256\": \"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\""
#define KEY(more) "{\"keys\": [{\"name\": \"x\", " HASH more "}]}"
#define RIGHTS ", \"models\": [\"*\"], \"apis\": [\"native\"]"

/* By aft and by the daemon alike. */
static void wrong_files_are_refused_by_name(void **state)
{
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"empty", "", "not JSON"},
        {"no JSON", "aftd_0123", "not JSON"},
        {"a list", "[]", "expected {\"keys\": [...]} and nothing else"},
        {"another field", "{\"keys\": [], \"x\": 1}", "and nothing else"},
        {"no name", "{\"keys\": [{}]}", "expected a name"},
        {"a bad name", "{\"keys\": [{\"name\": \"a b\"}]}", "expected a name"},
        {"a salt", KEY(RIGHTS ", \"salt\": \"00112233445566778899aabbccddeeff\""), "aft key add NAME --file FILE"},
        {"no hash", "{\"keys\": [{\"name\": \"x\"" RIGHTS "}]}", "sha256: expected 32 bytes"},
        {"a short hash", "{\"keys\": [{\"name\": \"x\", \"sha256\": \"00\"" RIGHTS "}]}", "sha256: expected"},
        {"no hex",
         "{\"keys\": [{\"name\": \"x\", \"sha256\": "
         "\"zz00000000000000000000000000000000000000000000000000000000000000\"" RIGHTS "}]}",
         "sha256: expected"},
        {"no APIs", KEY(", \"models\": [\"*\"]"), "apis: expected a list"},
        {"an API", KEY(", \"models\": [\"*\"], \"apis\": [\"x\"]"), "apis: expected a list"},
        {"no models", KEY(", \"apis\": []"), "models: expected a list"},
        {"none of the models", KEY(", \"apis\": [], \"models\": []"), "models: expected a list"},
        {"a number", KEY(", \"apis\": [], \"models\": [1]"), "models: expected a list"},
        {"a negative rate", KEY(RIGHTS ", \"requests_per_s\": -1"), "requests_per_s: expected"},
        {"a rate of text", KEY(RIGHTS ", \"bytes_per_s\": \"1\""), "bytes_per_s: expected"},
        {"a field", KEY(RIGHTS ", \"rate\": 1"), "an unknown field \"rate\""},
        {"a field twice", KEY(RIGHTS ", \"apis\": []"), "not JSON"},
    };
    char aftd[PATH_MAX];
    (void)state;
    program_find(aftd, "aftd", "AFTD_TEST_DAEMON");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        temp_write(file, cases[i].text, strlen(cases[i].text));
        const struct program_case c = {cases[i].name, {"key", "list", "--file", file}, NULL, 1, "", cases[i].says};
        program_expect(aft, &c, 1);
    }
    const struct program_case starts[] = {
        {"the daemon",
         {"--keys-file", file, "--models-dir=tests/data/models", "--listen-port=0"},
         NULL,
         2,
         "",
         "not JSON"},
        {"no file",
         {"--keys-file", dir, "--models-dir=tests/data/models", "--listen-port=0"},
         NULL,
         2,
         "",
         "expected a regular file"},
        {"none",
         {"--keys-file=/no/such", "--models-dir=tests/data/models", "--listen-port=0"},
         NULL,
         1,
         "",
         "cannot be opened"},
    };
    program_expect(aftd, starts, ARRAY_LEN(starts));
}

/* Which of the two sets of rights is right, only who copied the entry knows. */
static void one_key_under_two_names_is_not_touched(void **state)
{
    char key[KEYS_TEXT_MAX];
    size_t before, after;
    (void)state;
    keys_add(file, "one", NULL, key);
    keys_add(file, "two", NULL, key);
    keys_copy(file, "one", "copy");
    char *was = temp_read(file, &before);
    static const char says[] = "the keys \"one\" and \"copy\" have the same sha256";
    const struct program_case cases[] = {
        {"list", {"key", "list", "--file", file}, NULL, 1, "", says},
        {"add", {"key", "add", "three", "--file", file}, NULL, 1, "", says},
        {"remove", {"key", "remove", "two", "--file", file}, NULL, 1, "", says},
    };
    program_expect(aft, cases, ARRAY_LEN(cases));
    char *is = temp_read(file, &after);
    assert_int_equal(before, after);
    assert_memory_equal(was, is, after);
    free(was);
    free(is);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_are_made_listed_and_taken_back, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_keeps_its_group_and_its_place, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(one_key_under_two_names_is_not_touched, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(wrong_command_lines_are_named, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_priority_is_a_word_or_a_number_alone, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_name_that_is_no_text_is_refused, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(wrong_files_are_refused_by_name, set_up, temp_dirs_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
