/* test_keys_file.c - the file of keys: what is read from it, what is refused and in which words, and changes to what
 * was read. */
#include "server/access/keys_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* The file's path comes before `says`. */
static void expect_refusal(const char *name, const char *text, enum status want, const char *says)
{
    struct keys_file f = {0};
    struct error err = {.message = ""};
    char message[ERROR_MESSAGE_MAX];
    temp_write(path, text, strlen(text));
    const enum status st = keys_file_read(&f, path, &err);
    assert_true((size_t)snprintf(message, sizeof message, "%s: %s", path, says) < sizeof message);
    if (st != want || strcmp(err.message, message) != 0 || strcmp(err.param, "keys_file") != 0)
        fail_msg("%s: %s \"%s\" of \"%s\", expected %s \"%s\"", name, status_name(st), st != OK ? err.message : "",
                 err.param, status_name(want), message);
    assert_null(f.keys);
}

#define HASH "\"sha256\":\"c88d0e87ab281cdcdb05a895dfa8c83abb4058342bca952bfacc74b4f9948930\""
#define OTHER_HASH "\"sha256\":\"C88D0E87AB281CDCDB05A895DFA8C83ABB4058342BCA952BFACC74B4F9948931\""
#define MODELS "\"models\":[\"*\"]"
#define APIS_NATIVE "\"apis\":[\"native\"]"
#define KEYS(key) "{\"keys\":[{" key "}]}"
#define KEY(more) "\"name\":\"x\"," HASH "," more
#define KEY_OF(name) "\"name\":\"" name "\"," HASH "," MODELS "," APIS_NATIVE
#define OTHER_KEY_OF(name) "\"name\":\"" name "\"," OTHER_HASH "," MODELS "," APIS_NATIVE
#define SAME_KEY(a, b)                                                                                     \
    "the keys \"" a "\" and \"" b "\" have the same sha256, so they are one key; expected each key once: " \
    "remove one of them, and make another with aft key add"

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void all_that_is_said_of_a_key_is_read(void **state)
{
    static const char text[] =
        "{\"keys\":[{\"name\":\"A.b_c-9\"," HASH ",\"models\":[\"one\",\"two\"],"
        "\"apis\":[\"openai\",\"admin\",\"openai\"],\"requests_per_s\":0.5,\"bytes_per_s\":1000000000},"
        "{\"apis\":[]," MODELS "," OTHER_HASH ",\"name\":\"b\"}]}";
    struct keys_file f;
    struct error err;
    (void)state;
    temp_write(path, text, strlen(text));
    assert_int_equal(keys_file_read(&f, path, &err), OK);
    assert_int_equal(f.count, 2);
    const struct key *k = &f.keys[0];
    assert_string_equal(k->name, "A.b_c-9");
    assert_int_equal(k->hash[0], 0xc8);
    assert_int_equal(k->hash[KEY_HASH_BYTES - 1], 0x30);
    assert_int_equal(k->apis, API_BIT(API_OPENAI) | API_BIT(API_ADMIN));
    assert_int_equal(k->model_count, 2);
    assert_string_equal(k->models[0], "one");
    assert_string_equal(k->models[1], "two");
    assert_true(k->requests_per_s == 0.5 && k->bytes_per_s == 1e9);
    k = &f.keys[1]; /* the least that a key may say; in any order, and hexadecimal of any case */
    assert_string_equal(k->name, "b");
    assert_memory_equal(k->hash, f.keys[0].hash, KEY_HASH_BYTES - 1);
    assert_int_equal(k->hash[KEY_HASH_BYTES - 1], 0x31);
    assert_int_equal(k->apis, 0);
    assert_int_equal(k->model_count, 0);
    assert_true(k->requests_per_s == 0.0 && k->bytes_per_s == 0.0);
    keys_file_clear(&f);
    assert_int_equal(f.count, 0);
    keys_file_clear(&f);
}

static void a_file_may_hold_no_key(void **state)
{
    struct keys_file f;
    (void)state;
    temp_write(path, "{\"keys\":[]}", strlen("{\"keys\":[]}"));
    assert_int_equal(keys_file_read(&f, path, NULL), OK);
    assert_int_equal(f.count, 0);
    keys_file_clear(&f);
}

/* ---- what is wrong ---------------------------------------------------------------------------------------------- */

#define ALONE "expected {\"keys\": [...]} and nothing else"
#define NAMES "expected a name of 1 to 64 of A-Z a-z 0-9 . _ -"
#define SALTED                                                                                                      \
    "key \"x\" has a salt: it was made by aftd 0.1, whose keys no longer work; expected a new file: move this one " \
    "away, and make new keys with aft key add NAME --file FILE"
#define BAD_HASH "key \"x\", sha256: expected 32 bytes in hexadecimal"
#define BAD_APIS "key \"x\", apis: expected a list of native, openai, inference, admin"
#define BAD_MODELS "key \"x\", models: expected a list of 1 to 256 different names, or [\"*\"]"
#define BAD_REQUESTS "key \"x\", requests_per_s: expected 0, or 0.001 to 1e9"
#define BAD_BYTES "key \"x\", bytes_per_s: expected 0, or 0.001 to 1e9"
#define BAD_PRIORITY "key \"x\", priority_max: expected \"normal\", \"high\" or a whole number from 0 to 100"
#define NAME_65 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

struct refusal {
    const char *name, *text, *says;
};

static void expect_refusals(const struct refusal *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_refusal(cases[i].name, cases[i].text, ERR_CONFIG, cases[i].says);
}

static void a_file_is_one_list_of_keys(void **state)
{
    static const struct refusal cases[] = {
        {"nothing", "", "line 1, column 0: not JSON"},
        {"cut", "{\"keys\":[", "line 1, column 9: not JSON"},
        {"a list", "[]", ALONE},
        {"no list", "{\"keys\":{}}", ALONE},
        {"no keys", "{}", ALONE},
        {"something beside it", "{\"keys\":[],\"x\":1}", ALONE},
        {"two lists", "{\"keys\":[],\"keys\":[]}", "line 1, column 17: not JSON"},
    };
    (void)state;
    expect_refusals(cases, ARRAY_LEN(cases));
}

static void a_key_has_a_name_and_nothing_unknown(void **state)
{
    static const struct refusal cases[] = {
        {"a text for a key", "{\"keys\":[\"x\"]}", NAMES},
        {"no name", KEYS(HASH "," MODELS "," APIS_NATIVE), NAMES},
        {"a number for a name", KEYS("\"name\":1"), NAMES},
        {"an empty name", KEYS(KEY_OF("")), NAMES},
        {"a name of 65", KEYS(KEY_OF(NAME_65)), NAMES},
        {"a name with a space", KEYS(KEY_OF("a b")), NAMES},
        {"a name with a NUL", KEYS(KEY_OF("a\\u0000b")), "line 1, column 27: not JSON"},
        {"one name twice", "{\"keys\":[{" KEY_OF("x") "},{" OTHER_KEY_OF("y") "},{" KEY_OF("x") "}]}",
         "there is another key named \"x\"; expected each name once"},
        {"one key under two names", "{\"keys\":[{" OTHER_KEY_OF("z") "},{" KEY_OF("x") "},{" KEY_OF("y") "}]}",
         SAME_KEY("x", "y")},
        {"an unknown field", KEYS(KEY("\"rate\":1," MODELS "," APIS_NATIVE)),
         "key \"x\" has an unknown field \"rate\""},
    };
    (void)state;
    expect_refusals(cases, ARRAY_LEN(cases));
}

static void hashes_are_hexadecimal(void **state)
{
    static const struct refusal cases[] = {
        {"a hash of 31 bytes",
         KEYS("\"name\":\"x\",\"sha256\":\"c88d0e87ab281cdcdb05a895dfa8c83abb4058342bca952bfacc74b4f99489\"," MODELS
              "," APIS_NATIVE),
         BAD_HASH},
        {"a hash of 33 bytes",
         KEYS("\"name\":\"x\",\"sha256\":\"c88d0e87ab281cdcdb05a895dfa8c83abb4058342bca952bfacc74b4f994893000\"," MODELS
              "," APIS_NATIVE),
         BAD_HASH},
        {"a hash with a g",
         KEYS("\"name\":\"x\",\"sha256\":\"c88d0e87ab281cdcdb05a895dfa8c83abb4058342bca952bfacc74b4f994893g\"," MODELS
              "," APIS_NATIVE),
         BAD_HASH},
        {"spaces in a hash",
         KEYS("\"name\":\"x\",\"sha256\":\"c88d0e87ab281cdcdb05 895dfa8c83abb4058342bca952bfacc74b4f9948930\"," MODELS
              "," APIS_NATIVE),
         BAD_HASH},
        {"a number for a hash", KEYS("\"name\":\"x\",\"sha256\":1," MODELS "," APIS_NATIVE), BAD_HASH},
        {"no hash", KEYS("\"name\":\"x\"," MODELS "," APIS_NATIVE), BAD_HASH},
    };
    (void)state;
    expect_refusals(cases, ARRAY_LEN(cases));
}

static void keys_with_salts_are_refused_and_the_way_to_new_ones_is_told(void **state)
{
#define SALT "\"salt\":\"000102030405060708090a0b0c0d0e0f\""
    static const struct refusal cases[] = {
        {"as 0.1 made them", KEYS(KEY(SALT "," MODELS "," APIS_NATIVE)), SALTED},
        {"one of them", "{\"keys\":[{" OTHER_KEY_OF("y") "},{" KEY(SALT "," MODELS "," APIS_NATIVE) "}]}", SALTED},
        {"a salt of another kind", KEYS(KEY("\"salt\":1," MODELS "," APIS_NATIVE)), SALTED},
    };
    (void)state;
    expect_refusals(cases, ARRAY_LEN(cases));
}

static void a_key_says_what_it_may_use(void **state)
{
    static const struct refusal cases[] = {
        {"no APIs", KEYS(KEY(MODELS)), BAD_APIS},
        {"a text for APIs", KEYS(KEY(MODELS ",\"apis\":\"native\"")), BAD_APIS},
        {"a number for an API", KEYS(KEY(MODELS ",\"apis\":[1]")), BAD_APIS},
        {"an API that there is not", KEYS(KEY(MODELS ",\"apis\":[\"native\",\"Admin\"]")), BAD_APIS},
        {"an API with a space", KEYS(KEY(MODELS ",\"apis\":[\" openai\"]")), BAD_APIS},
        {"a part of an API", KEYS(KEY(MODELS ",\"apis\":[\"nativ\"]")), BAD_APIS},
        {"no word", KEYS(KEY(MODELS ",\"apis\":[\"\"]")), BAD_APIS},
        {"the API for everybody", KEYS(KEY(MODELS ",\"apis\":[\"open\"]")), BAD_APIS},
        {"no models", KEYS(KEY(APIS_NATIVE)), BAD_MODELS},
        {"none of the models", KEYS(KEY("\"models\":[]," APIS_NATIVE)), BAD_MODELS},
        {"an empty model", KEYS(KEY("\"models\":[\"\"]," APIS_NATIVE)), BAD_MODELS},
        {"a model twice", KEYS(KEY("\"models\":[\"a\",\"b\",\"a\"]," APIS_NATIVE)), BAD_MODELS},
        {"a model's name of 65", KEYS(KEY("\"models\":[\"" NAME_65 "\"]," APIS_NATIVE)), BAD_MODELS},
        {"a number for a model", KEYS(KEY("\"models\":[\"a\",1]," APIS_NATIVE)), BAD_MODELS},
        {"a text for models", KEYS(KEY("\"models\":\"*\"," APIS_NATIVE)), BAD_MODELS},
    };
    (void)state;
    expect_refusals(cases, ARRAY_LEN(cases));
}

static void rates_and_priorities_have_bounds(void **state)
{
    static const struct refusal cases[] = {
        {"a negative rate", KEYS(KEY(MODELS "," APIS_NATIVE ",\"requests_per_s\":-1")), BAD_REQUESTS},
        {"too slow a rate", KEYS(KEY(MODELS "," APIS_NATIVE ",\"requests_per_s\":0.00099")), BAD_REQUESTS},
        {"null for a rate", KEYS(KEY(MODELS "," APIS_NATIVE ",\"requests_per_s\":null")), BAD_REQUESTS},
        {"too fast a rate", KEYS(KEY(MODELS "," APIS_NATIVE ",\"bytes_per_s\":1000000001")), BAD_BYTES},
        {"a text for a rate", KEYS(KEY(MODELS "," APIS_NATIVE ",\"bytes_per_s\":\"1\"")), BAD_BYTES},
        {"too low a priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":-1")), BAD_PRIORITY},
        {"a word in capitals", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":\"High\"")), BAD_PRIORITY},
        {"an empty word", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":\"\"")), BAD_PRIORITY},
        {"a low priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":\"low\"")), BAD_PRIORITY},
        {"too high a priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":101")), BAD_PRIORITY},
        {"a large priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":4294967297")), BAD_PRIORITY},
        {"half a priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":0.5")), BAD_PRIORITY},
        {"a text with a priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":\"1\"")), BAD_PRIORITY},
        {"true for a priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":true")), BAD_PRIORITY},
        {"null for a priority", KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":null")), BAD_PRIORITY},
    };
    (void)state;
    expect_refusals(cases, ARRAY_LEN(cases));
}

/* ---- bounds ----------------------------------------------------------------------------------------------------- */

static void rates_at_their_bounds_are_taken(void **state)
{
    static const struct {
        const char *text;
        double want;
    } cases[] = {{"0", 0.0}, {"0.0", 0.0}, {"0.001", 0.001}, {"1e9", 1e9}, {"1000000000", 1e9}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct keys_file f;
        struct error err;
        char text[1024];
        (void)snprintf(text, sizeof text, KEYS(KEY(MODELS "," APIS_NATIVE ",\"requests_per_s\":%s,\"bytes_per_s\":%s")),
                       cases[i].text, cases[i].text);
        temp_write(path, text, strlen(text));
        if (keys_file_read(&f, path, &err) != OK)
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_true(f.keys[0].requests_per_s == cases[i].want && f.keys[0].bytes_per_s == cases[i].want);
        keys_file_clear(&f);
    }
}

static void a_priority_is_a_word_or_a_number(void **state)
{
    static const struct {
        const char *text;
        int32_t want;
    } cases[] = {{"0", 0}, {"1", 1}, {"100", 100}, {"\"normal\"", 0}, {"\"high\"", 100}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct keys_file f;
        struct error err;
        char text[1024];
        (void)snprintf(text, sizeof text, KEYS(KEY(MODELS "," APIS_NATIVE ",\"priority_max\":%s")), cases[i].text);
        temp_write(path, text, strlen(text));
        if (keys_file_read(&f, path, &err) != OK)
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_int_equal(f.keys[0].priority_max, cases[i].want);
        keys_file_clear(&f);
    }
}

/* A key with so many models, named 0, 1 and so on. */
static char *with_models(unsigned count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    (void)fprintf(to, "{\"keys\":[{" KEY(APIS_NATIVE ",\"models\":["));
    for (unsigned i = 0; i < count; i++)
        (void)fprintf(to, "%s\"%u\"", i > 0 ? "," : "", i);
    (void)fprintf(to, "]}]}");
    assert_int_equal(fclose(to), 0);
    return text;
}

static void as_many_models_are_taken_as_are_served(void **state)
{
    struct keys_file f;
    (void)state;
    char *text = with_models(REGISTRY_MODELS_MAX);
    temp_write(path, text, strlen(text));
    assert_int_equal(keys_file_read(&f, path, NULL), OK);
    assert_int_equal(f.keys[0].model_count, REGISTRY_MODELS_MAX);
    assert_string_equal(f.keys[0].models[REGISTRY_MODELS_MAX - 1], "255");
    keys_file_clear(&f);
    free(text);
    text = with_models(REGISTRY_MODELS_MAX + 1);
    expect_refusal("one model more", text, ERR_CONFIG, BAD_MODELS);
    free(text);
}

static char *with_keys(unsigned count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    (void)fprintf(to, "{\"keys\":[");
    for (unsigned i = 0; i < count; i++)
        (void)fprintf(to, "%s{\"name\":\"%u\",\"sha256\":\"%064x\"," MODELS "," APIS_NATIVE "}", i > 0 ? "," : "", i,
                      i);
    (void)fprintf(to, "]}");
    assert_int_equal(fclose(to), 0);
    return text;
}

static void a_thousand_keys_are_taken(void **state)
{
    struct keys_file f;
    struct key one_more = {.name = "one_more", .hash = {0xff}};
    struct error err;
    (void)state;
    char *text = with_keys(AUTH_KEYS_MAX);
    temp_write(path, text, strlen(text));
    assert_int_equal(keys_file_read(&f, path, NULL), OK);
    assert_int_equal(f.count, AUTH_KEYS_MAX);
    assert_int_equal(keys_file_add(&f, &one_more, &err), ERR_CONFIG);
    assert_string_equal(err.message, "expected at most 1000 keys");
    assert_string_equal(err.param, "keys");
    assert_int_equal(f.count, AUTH_KEYS_MAX);
    keys_file_clear(&f);
    free(text);
    text = with_keys(AUTH_KEYS_MAX + 1);
    expect_refusal("one key more", text, ERR_CONFIG, "expected at most 1000 keys");
    free(text);
}

static void a_message_quotes_nothing_that_could_be_a_key(void **state)
{
#define A_KEY KEY_PREFIX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const char *const texts[] = {
        A_KEY,
        "{\"keys\":[" A_KEY "]}",
        "{\"keys\":[\"" A_KEY "\"]}",
        "{\"" A_KEY "\":1}",
        "{\"keys\":[{\"name\":\"" A_KEY "\"}]}",
        KEYS("\"name\":\"x\",\"salt\":\"" A_KEY "\""),
        KEYS("\"name\":\"x\","
             "\"sha256\":\"" A_KEY "\""),
        KEYS(KEY(MODELS ",\"apis\":[\"" A_KEY "\"]")),
        KEYS(KEY(APIS_NATIVE ",\"models\":[\"" A_KEY "\"]")),
        KEYS(KEY(MODELS "," APIS_NATIVE ",\"bytes_per_s\":\"" A_KEY "\"")),
        KEYS(KEY("\"" A_KEY "\":1," MODELS "," APIS_NATIVE)),
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct keys_file f;
        struct error err;
        temp_write(path, texts[i], strlen(texts[i]));
        assert_int_equal(keys_file_read(&f, path, &err), ERR_CONFIG);
        if (strstr(err.message, KEY_PREFIX) != NULL || strstr(err.param, KEY_PREFIX) != NULL)
            fail_msg("%s: %s", texts[i], err.message);
    }
}

static void only_a_file_of_some_size_is_read(void **state)
{
    struct keys_file f;
    struct error err;
    char want[PATH_MAX + 100];
    (void)state;
    (void)snprintf(want, sizeof want, "%s: cannot be opened: No such file or directory; aft key add NAME makes it",
                   path);
    assert_int_equal(keys_file_read(&f, path, &err), ERR_IO);
    assert_string_equal(err.message, want);
    assert_string_equal(err.param, "keys_file");
    (void)snprintf(want, sizeof want, "%s: is a folder, expected a regular file", dir);
    assert_int_equal(keys_file_read(&f, dir, &err), ERR_CONFIG);
    assert_string_equal(err.message, want);
    assert_int_equal(mkfifo(path, 0600), 0); /* that nobody writes to */
    (void)snprintf(want, sizeof want, "%s: is a FIFO, expected a regular file", path);
    assert_int_equal(keys_file_read(&f, path, &err), ERR_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_string_equal(err.message, want);

    temp_write(path, "{\"keys\":[]}", strlen("{\"keys\":[]}"));
    assert_int_equal(truncate(path, KEYS_FILE_MAX + 1), 0);
    (void)snprintf(want, sizeof want, "%s: has 8388609 bytes, expected at most 8388608", path);
    assert_int_equal(keys_file_read(&f, path, &err), ERR_CONFIG);
    assert_string_equal(err.message, want);
    assert_int_equal(truncate(path, KEYS_FILE_MAX), 0); /* NULs to the end */
    assert_int_equal(keys_file_read(&f, path, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "not JSON"));
}

/* ---- changing --------------------------------------------------------------------------------------------------- */

static void add(struct keys_file *f, const char *name)
{
    struct key k = {.model_count = 1, .models = calloc(1, sizeof k.models[0])};
    assert_non_null(k.models);
    (void)snprintf(k.name, sizeof k.name, "%s", name);
    (void)snprintf((char *)k.hash, sizeof k.hash, "%s", name);
    (void)snprintf(k.models[0], sizeof k.models[0], "of-%s", name);
    assert_int_equal(keys_file_add(f, &k, NULL), OK);
}

static void a_copied_entry_is_not_added(void **state)
{
    struct keys_file f = {0};
    struct error err;
    char text[KEY_TEXT_BYTES + 1];
    struct key one = {.name = "one"}, copy = {.name = ""};
    (void)state;
    assert_int_equal(key_make(&one, text, NULL), OK);
    assert_int_equal(keys_file_add(&f, &one, NULL), OK);
    copy = one;
    (void)snprintf(copy.name, sizeof copy.name, "copy");
    assert_int_equal(keys_file_add(&f, &copy, &err), ERR_CONFIG);
    assert_string_equal(err.message, SAME_KEY("one", "copy"));
    assert_int_equal(f.count, 1);
    copy.hash[KEY_HASH_BYTES - 1] ^= 1;
    assert_int_equal(keys_file_add(&f, &copy, &err), OK);
    keys_file_clear(&f);
}

static void a_key_is_added_and_removed_by_name(void **state)
{
    struct keys_file f = {0};
    struct error err;
    const struct key again = {.name = "b"};
    (void)state;
    add(&f, "a");
    add(&f, "b");
    add(&f, "c");
    assert_int_equal(keys_file_add(&f, &again, &err), ERR_CONFIG);
    assert_string_equal(err.message, "there is another key named \"b\"; expected each name once");
    assert_string_equal(err.param, "name");
    assert_int_equal(f.count, 3);
    assert_int_equal(keys_file_remove(&f, "b", &err), OK);
    assert_int_equal(keys_file_remove(&f, "b", &err), ERR_NOT_FOUND);
    assert_string_equal(err.message, "no key is named \"b\"");
    assert_int_equal(f.count, 2);
    assert_string_equal(f.keys[0].models[0], "of-a");
    assert_string_equal(f.keys[1].name, "c");
    assert_string_equal(f.keys[1].models[0], "of-c");
    assert_int_equal(keys_file_remove(&f, "c", NULL), OK);
    assert_int_equal(keys_file_remove(&f, "a", NULL), OK);
    assert_int_equal(f.count, 0);
    keys_file_clear(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_that_is_said_of_a_key_is_read, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_may_hold_no_key, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_is_one_list_of_keys, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_key_has_a_name_and_nothing_unknown, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(hashes_are_hexadecimal, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(keys_with_salts_are_refused_and_the_way_to_new_ones_is_told, set_up,
                                        temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_key_says_what_it_may_use, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(rates_and_priorities_have_bounds, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(rates_at_their_bounds_are_taken, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_priority_is_a_word_or_a_number, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(as_many_models_are_taken_as_are_served, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_thousand_keys_are_taken, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_message_quotes_nothing_that_could_be_a_key, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(only_a_file_of_some_size_is_read, set_up, temp_dirs_end),
        cmocka_unit_test(a_copied_entry_is_not_added),
        cmocka_unit_test(a_key_is_added_and_removed_by_name),
    };
    return cmocka_run_group_tests_name("keys_file", tests, NULL, NULL);
}
