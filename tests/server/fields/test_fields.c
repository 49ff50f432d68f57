/* test_fields.c - fields of a JSON object by a table: what each kind takes at its bounds, what is refused and how the
 * refusal reads. */
#include "server/fields/fields.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "config/settings.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

struct request {
    const json_t *text, *name, *list, *object;
    int64_t whole, tokens, seed;
    double number, above;
    enum field_switch flag;
    int word;
    unsigned other;
};

static bool read_even(const json_t *value, void *to)
{
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number % 2 != 0)
        return false;
    *(unsigned *)to = (unsigned)number;
    return true;
}

static const struct field table[] = {
    {"text", FIELD_TEXT, .offset = offsetof(struct request, text), FIELD_RANGE(0, 4)},
    {"name", FIELD_NAME, .offset = offsetof(struct request, name), FIELD_RANGE(1, 4)},
    {"whole", FIELD_INTEGER, .offset = offsetof(struct request, whole), FIELD_RANGE(-3, 5)},
    {"tokens", FIELD_INTEGER, .offset = offsetof(struct request, tokens), .min = 1,
     .max_setting = offsetof(struct settings, max_tokens_max)},
    {"seed", FIELD_INTEGER, .offset = offsetof(struct request, seed), FIELD_RANGE(0, (double)SEED_MAX)},
    {"number", FIELD_NUMBER, .offset = offsetof(struct request, number), FIELD_RANGE(-0.5, 2)},
    {"above", FIELD_NUMBER, .exclusive = true, .offset = offsetof(struct request, above), FIELD_RANGE(0, 1)},
    {"flag", FIELD_SWITCH, .offset = offsetof(struct request, flag)},
    {"word", FIELD_WORD, .offset = offsetof(struct request, word), .words = {"no", "yes"}, .what = "no or yes"},
    {"list", FIELD_LIST, .offset = offsetof(struct request, list), FIELD_RANGE(1, 2), .what = "one or two"},
    {"object", FIELD_OBJECT, .offset = offsetof(struct request, object), .what = "an object"},
    {"other", FIELD_OTHER, .offset = offsetof(struct request, other), .read = read_even, .what = "an even number"},
    {"said", FIELD_INTEGER, .offset = offsetof(struct request, whole), FIELD_RANGE(0, 1), .what = "0 or 1, please"},
};

static const struct field_list list = FIELDS_OF(table), none = {NULL, 0};

static enum status read(const char *text, struct request *r, struct error *err)
{
    struct settings s;
    settings_init(&s);
    s.max_tokens_max = 1000;
    json_t *object = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(object);
    memset(r, 0, sizeof *r); /* the padding too: what was read is compared as bytes */
    r->whole = r->tokens = r->seed = 77;
    r->number = r->above = 77;
    r->other = 77;
    const enum status st = fields_read(&list, object, &s, r, err);
    json_decref(object);
    return st;
}

static void every_kind_is_stored_at_its_place(void **state)
{
    static const char text[] =
        "{\"text\":\"a\\u0000b\",\"name\":\"abcd\",\"whole\":-3,\"tokens\":5,\"seed\":9007199254740991,\"number\":1,"
        "\"above\":0.25,\"flag\":true,\"word\":\"yes\",\"list\":[1],\"object\":{\"a\":1},\"other\":4}";
    struct settings s;
    struct request r = {.flag = FIELD_ABSENT};
    (void)state;
    settings_init(&s);
    json_t *object = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_int_equal(fields_read(&list, object, &s, &r, NULL), OK);
    assert_int_equal(json_string_length(r.text), 3);
    assert_memory_equal(json_string_value(r.text), "a\0b", 3);
    assert_string_equal(json_string_value(r.name), "abcd");
    assert_true(r.whole == -3 && r.tokens == 5 && r.seed == (int64_t)SEED_MAX);
    assert_true(r.number == 1.0 && r.above == 0.25);
    assert_int_equal(r.flag, FIELD_TRUE);
    assert_int_equal(r.word, 1);
    assert_int_equal(json_array_size(r.list), 1);
    assert_int_equal(json_object_size(r.object), 1);
    assert_int_equal(r.other, 4);
    json_decref(object);
}

static void what_is_not_said_stays_as_it_is(void **state)
{
    struct request r;
    (void)state;
    assert_int_equal(read("{\"flag\":false}", &r, NULL), OK);
    assert_int_equal(r.flag, FIELD_FALSE);
    assert_true(r.text == NULL && r.name == NULL && r.whole == 77 && r.number == 77.0 && r.other == 77);
    assert_int_equal(read("{}", &r, NULL), OK);
    assert_int_equal(r.flag, FIELD_ABSENT);
}

static void bounds_are_taken(void **state)
{
    static const char *const cases[] = {
        "{\"text\":\"\"}",    "{\"text\":\"abcd\"}", "{\"text\":\"\xc3\xa4\xc3\xa4\"}",
        "{\"name\":\"a\"}",   "{\"name\":\"abcd\"}", "{\"whole\":-3}",
        "{\"whole\":5}",      "{\"tokens\":1}",      "{\"tokens\":1000}",
        "{\"seed\":0}",       "{\"number\":-0.5}",   "{\"number\":2}",
        "{\"number\":2.0}",   "{\"number\":-0.0}",   "{\"above\":1}",
        "{\"above\":5e-324}", "{\"list\":[[]]}",     "{\"list\":[1,2]}",
        "{\"object\":{}}",    "{\"word\":\"no\"}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct request r;
        struct error err;
        if (read(cases[i], &r, &err) != OK)
            fail_msg("%s: %s", cases[i], err.message);
    }
}

static void what_is_refused_is_described(void **state)
{
#define TEXT "expected a string of 0 to 4 bytes"
#define NAME "expected a string of 1 to 4 bytes without a NUL"
#define WHOLE "expected a whole number from -3 to 5"
#define TOKENS "expected a whole number from 1 to 1000"
#define SEED "expected a whole number from 0 to 9007199254740991"
#define NUMBER "expected a number from -0.5 to 2"
#define ABOVE "expected a number above 0 and at most 1"
    static const struct {
        const char *text, *param, *says;
    } cases[] = {
        {"{\"text\":\"abcde\"}", "text", "\"text\" is a string (\"abcde\"); " TEXT},
        {"{\"text\":\"\xc3\xa4\xc3\xa4z\"}", "text", "\"text\" is a string (\"\xc3\xa4\xc3\xa4z\"); " TEXT},
        {"{\"text\":[]}", "text", "\"text\" is a list of 0; " TEXT},
        {"{\"name\":\"\"}", "name", "\"name\" is empty; " NAME},
        {"{\"name\":\"abcde\"}", "name", "\"name\" is a string (\"abcde\"); " NAME},
        {"{\"name\":\"a\\u0000\"}", "name", "\"name\" is a string (\"a\"); " NAME},
        {"{\"name\":1}", "name", "\"name\" is 1; " NAME},
        {"{\"whole\":-4}", "whole", "\"whole\" is -4; " WHOLE},
        {"{\"whole\":6}", "whole", "\"whole\" is 6; " WHOLE},
        {"{\"whole\":1.0}", "whole", "\"whole\" is 1.0; " WHOLE},
        {"{\"whole\":\"1\"}", "whole", "\"whole\" is a string (\"1\"); " WHOLE},
        {"{\"whole\":true}", "whole", "\"whole\" is true; " WHOLE},
        {"{\"whole\":{}}", "whole", "\"whole\" is an object; " WHOLE},
        {"{\"whole\":{\"from\":1}}", "whole", "\"whole\" is an object; " WHOLE},
        {"{\"tokens\":0}", "tokens", "\"tokens\" is 0; " TOKENS},
        {"{\"tokens\":1001}", "tokens", "\"tokens\" is 1001; " TOKENS},
        {"{\"seed\":9007199254740992}", "seed", "\"seed\" is 9007199254740992; " SEED},
        {"{\"seed\":9223372036854775807}", "seed", "\"seed\" is 9223372036854775807; " SEED},
        {"{\"seed\":-1}", "seed", "\"seed\" is -1; " SEED},
        {"{\"number\":-0.50001}", "number", "\"number\" is -0.50001; " NUMBER},
        {"{\"number\":2.00001}", "number", "\"number\" is 2.00001; " NUMBER},
        {"{\"number\":3}", "number", "\"number\" is 3; " NUMBER},
        {"{\"number\":\"x\"}", "number", "\"number\" is a string (\"x\"); " NUMBER},
        {"{\"number\":false}", "number", "\"number\" is false; " NUMBER},
        {"{\"above\":0}", "above", "\"above\" is 0; " ABOVE},
        {"{\"above\":-0.0}", "above", "\"above\" is -0.0; " ABOVE},
        {"{\"above\":1.5}", "above", "\"above\" is 1.5; " ABOVE},
        {"{\"flag\":1}", "flag", "\"flag\" is 1; expected true or false"},
        {"{\"flag\":\"true\"}", "flag", "\"flag\" is a string (\"true\"); expected true or false"},
        {"{\"word\":\"maybe\"}", "word", "\"word\" is a string (\"maybe\"); expected no or yes"},
        {"{\"word\":\"\"}", "word", "\"word\" is empty; expected no or yes"},
        {"{\"word\":1}", "word", "\"word\" is 1; expected no or yes"},
        {"{\"list\":[]}", "list", "\"list\" is a list of 0; expected one or two"},
        {"{\"list\":[1,2,3]}", "list", "\"list\" is a list of 3; expected one or two"},
        {"{\"list\":{}}", "list", "\"list\" is an object; expected one or two"},
        {"{\"object\":[]}", "object", "\"object\" is a list of 0; expected an object"},
        {"{\"other\":3}", "other", "\"other\" is 3; expected an even number"},
        {"{\"other\":\"\"}", "other", "\"other\" is empty; expected an even number"},
        {"{\"other\":{\"from\":2}}", "other", "\"other\" is an object; expected an even number"},
        {"{\"said\":2}", "said", "\"said\" is 2; expected 0 or 1, please"},
        {"{\"whole\":1,\"flag\":1}", "flag", "\"flag\" is 1; expected true or false"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct request r;
        struct error err = {.message = ""};
        const enum status st = read(cases[i].text, &r, &err);
        if (st != ERR_ARGUMENT || strcmp(err.message, cases[i].says) != 0 || strcmp(err.param, cases[i].param) != 0)
            fail_msg("%s: %s \"%s\" of \"%s\", expected \"%s\"", cases[i].text, status_name(st), err.message, err.param,
                     cases[i].says);
    }
}

static void what_is_refused_is_not_stored(void **state)
{
    static const char *const cases[] = {"{\"whole\":6}", "{\"number\":3}", "{\"above\":0}", "{\"other\":3}"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct request r;
        assert_int_equal(read(cases[i], &r, NULL), ERR_ARGUMENT);
        assert_true(r.whole == 77 && r.number == 77.0 && r.above == 77.0 && r.other == 77);
    }
}

#define ALL "text, name, whole, tokens, seed, number, above, flag, word, list, object, other, said"

static void unknown_names_are_refused_with_those_that_there_are(void **state)
{
    static const struct {
        const char *text, *param, *near; /* NULL: no other is meant */
    } cases[] = {
        {"{\"Whole\":1}", "Whole", "whole"},
        {"{\"whole \":1}", "whole ", "whole"},
        {"{\"whol\":1}", "whol", "whole"},
        {"{\"wohle\":1}", "wohle", NULL},
        {"{\"numbre\":1}", "numbre", "number"},
        {"{\"prompt\":1}", "prompt", "text"}, /* elsewhere */
        {"{\"\":1}", "", NULL},
        {"{\"flag\":true,\"x\":1}", "x", NULL},
        {"{\"a\\u0001b\":1}", "a?b", NULL},
        {"{\"numbernumbernumbernumbernumbernumber\":1}", "numbernumbernumbernumbernumbernumber", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct request r;
        struct error err = {.message = ""};
        char want[ERROR_MESSAGE_MAX];
        if (cases[i].near != NULL)
            (void)snprintf(want, sizeof want, "there is no field \"%s\" here; did you mean \"%s\"? Expected: " ALL,
                           cases[i].param, cases[i].near);
        else
            (void)snprintf(want, sizeof want, "there is no field \"%s\" here; expected: " ALL, cases[i].param);
        assert_int_equal(read(cases[i].text, &r, &err), ERR_ARGUMENT);
        assert_string_equal(err.message, want);
        assert_string_equal(err.param, cases[i].param);
    }
}

static void null_is_the_same_as_leaving_out(void **state)
{
    struct request r, empty;
    struct error err;
    (void)state;
    assert_int_equal(read("{}", &empty, &err), OK);
    assert_int_equal(read("{\"whole\":null,\"flag\":null,\"nobody-knows\":null}", &r, &err), OK);
    assert_memory_equal(&r, &empty, sizeof r);
}

static void a_refusal_may_be_of_other_things_and_of_any_size(void **state)
{
    static struct field many[100];
    static const struct field_list all = FIELDS_OF(many);
    static char names[ARRAY_LEN(many)][12], name[1000];
    struct error err;
    (void)state;
    assert_int_equal(fields_refuse(&none, "parameter", ":", "x", &err), ERR_ARGUMENT);
    assert_string_equal(err.message, "there is no parameter \"x\" here; expected: none");
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        (void)snprintf(names[i], sizeof names[i], "field-%zu", i);
        many[i].name = names[i];
    }
    memset(name, 'n', sizeof name - 1);
    assert_int_equal(fields_refuse(&all, "field", ":", name, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "nnn...\" here; expected: field-0, field-1, ")); /* both are cut */
    assert_true(strlen(err.message) < ERROR_MESSAGE_MAX);
    const char *last = strrchr(err.message, '-');
    assert_true(last != NULL && strcmp(last + 1 + strspn(last + 1, "0123456789"), ", ...") == 0); /* between names */
    assert_int_equal(fields_refuse(&all, "field", ":", name, NULL), ERR_ARGUMENT);
}

static void fields_are_found_by_their_whole_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_ptr_equal(fields_find(&list, table[i].name), &table[i]);
    assert_null(fields_find(&list, "tex"));
    assert_null(fields_find(&list, "texts"));
    assert_null(fields_find(&none, "text"));
}

static void upper_ends_may_be_settings(void **state)
{
    struct settings s;
    char text[64];
    (void)state;
    settings_init(&s);
    s.max_tokens_max = 12;
    assert_true(fields_max(&table[2], &s) == 5.0);
    assert_true(fields_max(&table[3], &s) == 12.0);
    fields_describe(&table[3], &s, text, sizeof text);
    assert_string_equal(text, "a whole number from 1 to 12");
}

/* ---- values of several requests --------------------------------------------------------------------------------- */

static void seeds_are_numbers_that_json_carries_and_differ(void **state)
{
    uint64_t all = 0, before = UINT64_MAX;
    (void)state;
    for (int i = 0; i < 200; i++) {
        const uint64_t seed = request_draw_seed();
        assert_true(seed <= SEED_MAX && seed != before);
        all |= seed;
        before = seed;
    }
    assert_true(all == SEED_MAX); /* every bit is drawn; 2^-200 that one of them is not */
}

static void what_is_positive_stays_so(void **state)
{
    (void)state;
    assert_true(request_positive(1.5) == 1.5f);
    assert_true(request_positive(5e-324) == FLT_MIN);
    assert_true(request_positive(1e-40) == FLT_MIN); /* no subnormal: they are slow, and some processors take 0 */
    assert_true(request_positive(FLT_MIN) == FLT_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_stored_at_its_place),
        cmocka_unit_test(what_is_not_said_stays_as_it_is),
        cmocka_unit_test(bounds_are_taken),
        cmocka_unit_test(what_is_refused_is_described),
        cmocka_unit_test(what_is_refused_is_not_stored),
        cmocka_unit_test(unknown_names_are_refused_with_those_that_there_are),
        cmocka_unit_test(null_is_the_same_as_leaving_out),
        cmocka_unit_test(a_refusal_may_be_of_other_things_and_of_any_size),
        cmocka_unit_test(fields_are_found_by_their_whole_name),
        cmocka_unit_test(upper_ends_may_be_settings),
        cmocka_unit_test(seeds_are_numbers_that_json_carries_and_differ),
        cmocka_unit_test(what_is_positive_stays_so),
    };
    return cmocka_run_group_tests_name("fields", tests, NULL, NULL);
}
