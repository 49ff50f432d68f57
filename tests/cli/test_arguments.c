/* test_arguments.c - aft's command line: verbs, options, where models are looked for, what is said about
 * mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/cli/cli.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char text_model[] = "tests/data/golden/lm-local-8";
static const char picture_model[] = "tests/data/golden/conv-heads8-k5";
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(setenv("AFTD_MODELS_DIR", "", 1), 0); /* counts as not set */
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
    temp_dir_create(dir);
    return 0;
}

static void verbs_are_found_and_explained(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"no verb shows the verbs as an error", {0}, NULL, 2, "", "usage: aft COMMAND"},
        {"unknown verb names it and the known ones",
         {"clasify"},
         NULL,
         2,
         "",
         "aft: unknown command \"clasify\" (did you mean classify?); see aft --help\n"},
        {"a verb's beginning is no verb", {"gen"}, NULL, 2, "", "unknown command \"gen\" (did you mean generate?)"},
        {"an empty verb", {""}, NULL, 2, "", "unknown command \"\""},
        {"help is no error", {"--help"}, NULL, 0, "aft classify        MODEL FILE...", ""},
        {"help of a verb in other words", {"help", "score"}, NULL, 0, "usage: aft score MODEL FILE [OPTIONS]\n", ""},
        {"help of no verb", {"help", "scores"}, NULL, 2, "", "unknown command \"scores\" (did you mean score?)"},
        {"a verb that is like none", {"fly"}, NULL, 2, "", "unknown command \"fly\"; see aft --help\n"},
        {"-V is the version", {"-V"}, NULL, 0, "aft 0.", ""},
        {"-h is help", {"-h"}, NULL, 0, "usage: aft COMMAND", ""},
        {"help is a word too", {"help"}, NULL, 0, "usage: aft COMMAND", ""},
        {"version", {"--version"}, NULL, 0, "aft 0.", ""},
        {"help of classify", {"classify", "--help"}, NULL, 0, "--top-k N", ""},
        {"help of generate", {"generate", "--help"}, NULL, 0, "--max-tokens N", ""},
        {"help of score", {"score", "-h"}, NULL, 0, "usage: aft score MODEL FILE [OPTIONS]\n", ""},
        {"help of inspect", {"inspect", "-h"}, NULL, 0, "usage: aft inspect MODEL [OPTIONS]\n", ""},
        {"help of verify", {"verify", "--help"}, NULL, 0, "--tolerance X", ""},
        {"help of bench", {"bench", "--help"}, NULL, 0, "--json  ", ""},
        {"help of load", {"load", "--help"}, NULL, 0, "usage: aft load URL [PICTURE...] [OPTIONS]\n", ""},
        {"help after other arguments", {"generate", "no-such-model", "--seed", "1", "--help"}, NULL, 0, "--seed N", ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_wrong_command_line_is_refused_before_work_begins(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"classify without a picture",
         {"classify", picture_model},
         NULL,
         2,
         "",
         "aft classify: too few arguments, expected MODEL FILE... (\"tests/data/golden/conv-heads8-k5\" was taken "
         "as "
         "MODEL); see aft classify --help"},
        {"a picture in the model's place",
         {"classify", "README.md", "LICENSE"},
         NULL,
         1,
         "",
         "no model \"README.md\", a file, which was taken as MODEL: expected"},
        {"generate without a model", {"generate"}, NULL, 2, "", "too few arguments"},
        {"score without a file", {"score", text_model}, NULL, 2, "", "too few arguments, expected MODEL FILE (\"tests"},
        {"verify without a folder", {"verify"}, NULL, 2, "", "too few arguments"},
        {"generate with two texts", {"generate", text_model, "a", "b"}, NULL, 2, "", "unexpected argument \"b\";"},
        {"load without a URL", {"load"}, NULL, 2, "", "aft load: too few arguments"},
        {"inspect with two models", {"inspect", text_model, "b"}, NULL, 2, "", "unexpected argument \"b\";"},
        {"unknown long option",
         {"generate", text_model, "--sed", "1"},
         NULL,
         2,
         "",
         "unknown option \"--sed\" (did you mean --seed?); see aft generate --help"},
        {"unknown long option with a value",
         {"generate", text_model, "--sed=1"},
         NULL,
         2,
         "",
         "unknown option \"--sed=1\" (did you mean --seed?);"},
        {"llama-cli's option", {"generate", text_model, "--n-predict", "1"}, NULL, 2, "", "did you mean --max-tokens?"},
        {"its beginning", {"generate", text_model, "--temp", "1"}, NULL, 2, "", "did you mean --temperature?"},
        {"an option like none", {"generate", text_model, "--quux"}, NULL, 2, "", "unknown option \"--quux\"; see aft"},
        {"another verb's option", {"score", text_model, "-", "--seed", "1"}, NULL, 2, "", "unknown option \"--seed\""},
        {"unknown short option", {"generate", text_model, "-z"}, NULL, 2, "", "unknown option \"-z\""},
        {"a long name with one dash", {"generate", text_model, "-utf8"}, NULL, 2, "", "unknown option \"-utf8\""},
        {"a value is missing", {"generate", text_model, "--seed"}, NULL, 2, "", "--seed needs a value"},
        {"a short option's value is missing", {"generate", text_model, "-s"}, NULL, 2, "", ": -s needs a value"},
        {"a wrong value behind a letter", {"generate", text_model, "-nx"}, NULL, 2, "", "--max-tokens is \"x\""},
        {"no such word",
         {"generate", text_model, "--context-overflow", "wrap"},
         NULL,
         2,
         "",
         "--context-overflow is \"wrap\", expected shift|stop"},
        {"a flag takes no value", {"bench", text_model, "--json=1"}, NULL, 2, "", "--json takes no value"},
        {"a name with a dash must follow --", {"inspect", "-zeal"}, NULL, 2, "", "unknown option \"-zeal\""},
        {"behind -- it is a name", {"inspect", "--", "-model"}, NULL, 1, "", "no model \"-model\""},
        {"behind -- nothing is an option", {"inspect", "--", "--help"}, NULL, 1, "", "no model \"--help\""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

#define NUMBER(what, option, value, piece)                                \
    {                                                                     \
        what, {"generate", text_model, option, value}, NULL, 2, "", piece \
    }

static void numbers_are_decimal_and_in_range(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        NUMBER("not a number", "--max-tokens", "many",
               "--max-tokens is \"many\", expected a whole number from 1 to 1048576"),
        NUMBER("empty", "--max-tokens", "", "--max-tokens is \"\""),
        NUMBER("too small", "--max-tokens", "0", "--max-tokens is \"0\""),
        NUMBER("too large", "--max-tokens", "1048577", "--max-tokens is \"1048577\""),
        NUMBER("beyond 64 bits", "--max-tokens", "18446744073709551617", "--max-tokens is \"18446744073709551617\""),
        NUMBER("negative", "--max-tokens", "-1", "--max-tokens is \"-1\""),
        NUMBER("a sign", "--max-tokens", "+5", "--max-tokens is \"+5\""),
        NUMBER("a blank in front", "--max-tokens", " 5", "--max-tokens is \" 5\""),
        NUMBER("a unit behind", "--max-tokens", "5k", "--max-tokens is \"5k\""),
        NUMBER("hexadecimal", "--max-tokens", "0x10", "--max-tokens is \"0x10\""),
        NUMBER("a fraction", "--max-tokens", "5.0", "--max-tokens is \"5.0\""),
        NUMBER("seed beyond 53 bits", "--seed", "9007199254740992", "from 0 to 9007199254740991"),
        NUMBER("temperature is no number", "--temperature", "warm",
               "--temperature is \"warm\", expected a number from 0 to 100"),
        NUMBER("temperature is NaN", "--temperature", "nan", "--temperature is \"nan\""),
        NUMBER("temperature is infinite", "--temperature", "inf", "--temperature is \"inf\""),
        NUMBER("temperature overflows", "--temperature", "1e999", "--temperature is \"1e999\""),
        NUMBER("temperature is negative", "--temperature", "-0.5", "--temperature is \"-0.5\""),
        NUMBER("temperature is hexadecimal", "--temperature", "0x1p0", "--temperature is \"0x1p0\""),
        NUMBER("temperature with a blank", "--temperature", "1 ", "--temperature is \"1 \""),
        NUMBER("temperature is a point", "--temperature", ".", "--temperature is \".\""),
        NUMBER("top-p is zero", "--top-p", "0", "--top-p is \"0\""),
        NUMBER("top-k beyond the bytes", "--top-k", "257", "from 0 to 256"),
        {"top-k of classify", {"classify", picture_model, "--top-k", "0", "-"}, NULL, 2, "", "from 1 to 1000"},
        {"tolerance is negative", {"verify", text_model, "--tolerance", "-1"}, NULL, 2, "", "--tolerance is \"-1\""},
        {"too many threads", {"bench", text_model, "--threads", "257"}, NULL, 2, "", "from 0 to 256"},
        {"too few runs", {"bench", text_model, "--runs", "2"}, NULL, 2, "", "from 3 to 1001"},
        {"positions are two",
         {"bench", text_model, "--positions", "1"},
         NULL,
         2,
         "",
         "--positions is \"1\", expected two"},
        {"positions are not three",
         {"bench", text_model, "--positions", "1,2,3"},
         NULL,
         2,
         "",
         "--positions is \"1,2,3\""},
        {"positions lie in the context",
         {"bench", text_model, "--positions", "1,48"},
         NULL,
         2,
         "",
         "below the context of 48"},
        {"positions do not wrap", {"bench", text_model, "--positions", "4294967297,2"}, NULL, 2, "", "--positions is"},
        {"pictures have no positions",
         {"bench", picture_model, "--positions", "1,2"},
         NULL,
         2,
         "",
         "models that generate text"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void options_stand_anywhere_and_the_last_one_counts(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"before the model", {"generate", "--max-tokens", "1", "--temperature", "0", text_model}, NULL, 0, NULL, ""},
        {"with an equals sign", {"generate", "--max-tokens=1", "--temperature=0", text_model}, NULL, 0, NULL, ""},
        {"twice", {"generate", text_model, "--max-tokens", "7", "--max-tokens", "1"}, NULL, 0, NULL, ""},
        {"an option's value may begin with a dash",
         {"generate", text_model, "--prompt", "--seed", "--max-tokens", "1"},
         NULL,
         0,
         NULL,
         ""},
        {"and may be --", {"generate", text_model, "--prompt", "--", "--max-tokens", "1"}, NULL, 0, NULL, ""},
        {"by letters", {"generate", "-n", "1", "-s", "1", "-p", "a", text_model}, NULL, 0, NULL, ""},
        {"letters with their values", {"generate", "-n1", "-s1", "-pa", text_model}, NULL, 0, NULL, ""},
        {"-- alone is no argument", {"generate", "--max-tokens", "1", "--", text_model}, NULL, 0, NULL, ""},
        {"the largest seed",
         {"generate", text_model, "--seed", "9007199254740991", "--max-tokens", "1"},
         NULL,
         0,
         NULL,
         ""},
        {"numbers below float32's range",
         {"generate", text_model, "--temperature", "1e-310", "--max-tokens", "1"},
         NULL,
         0,
         NULL,
         ""},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct program_run p = {.argv = {aft}};
        for (size_t a = 0; cases[i].args[a] != NULL; a++)
            p.argv[a + 1] = cases[i].args[a];
        program_run(&p);
        if (p.exit_code != 0 || p.out_size != 1 || p.err_size != 0)
            fail_msg("\"%s\": exit code %d, %zu bytes, \"%s\", expected 0, 1 and no message", cases[i].name,
                     p.exit_code, p.out_size, p.err);
        program_run_clear(&p);
    }
}

static void models_that_cannot_be_had_are_explained(void **state)
{
    (void)state;
    char broken[PATH_MAX], config[PATH_MAX];
    temp_path(broken, dir, "broken");
    assert_int_equal(mkdir(broken, 0700), 0);
    temp_path(config, broken, "config.json");
    temp_write(config, "{", 1);
    const struct program_case cases[] = {
        {"no such name",
         {"inspect", "no-such-model"},
         NULL,
         1,
         "",
         "no model \"no-such-model\": expected a folder with a config.json"},
        {"no such path", {"inspect", "/no/such/model"}, NULL, 1, "", "no model \"/no/such/model\""},
        {"an empty name", {"inspect", ""}, NULL, 1, "", "no model \"\""},
        {"a folder that is no model", {"inspect", "tests/data"}, NULL, 1, "", "no model \"tests/data\""},
        {"a file", {"inspect", "Makefile"}, NULL, 1, "", "no model \"Makefile\""},
        {"a path's last name is not looked up elsewhere",
         {"inspect", "x/enwik8-aft-conv"},
         NULL,
         1,
         "",
         "no model \"x/"},
        {"a broken config", {"inspect", broken}, NULL, 1, "", "config.json"},
        {"classify wants pictures",
         {"classify", text_model, "-"},
         NULL,
         1,
         "",
         "is a model for text-generation, expected one that classifies pictures or texts"},
        {"generate wants text",
         {"generate", picture_model},
         NULL,
         1,
         "",
         "is a model for image-classification, expected one for text-generation"},
        {"score wants text", {"score", picture_model, "-"}, NULL, 1, "", "expected one for text-generation"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* ---- help ------------------------------------------------------------------------------------------------------- */

enum { COLUMNS_MAX = 120 };

static void check_width(const char *text)
{
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > COLUMNS_MAX)
            fail_msg("more than %d columns: %.*s", COLUMNS_MAX, (int)strcspn(line, "\n"), line);
}

/* All of one kind: a line for each option, none wider than a wide terminal, -h at the end, and an example whose options
 * there are. */
static void check_help(const struct cli_verb *verb)
{
    char usage[128], example[128];
    struct program_run p = {.argv = {aft, verb->name, "--help"}};
    program_run(&p);
    (void)snprintf(usage, sizeof usage, "usage: aft %s ", verb->name);
    (void)snprintf(example, sizeof example, "\n  -h, --help");
    const char *last = strstr(p.out, example), *shown = strstr(p.out, "\n\nexample:\n  aft ");
    if (p.exit_code != 0 || strncmp(p.out, usage, strlen(usage)) != 0 || last == NULL || shown == NULL || shown < last)
        fail_msg("aft %s --help: \"%s\"", verb->name, p.out);
    const size_t own = strlen("\n\nexample:\n  aft ");
    if (strncmp(shown + own, verb->name, strlen(verb->name)) != 0)
        fail_msg("the example of aft %s is one of another verb: %s", verb->name, shown);
    check_width(p.out);
    for (const char *at = strstr(shown, " -"); at != NULL; at = strstr(at + 1, " -")) {
        const bool is_long = at[2] == '-';
        (void)snprintf(example, sizeof example, is_long ? " %.*s" : "\n  %.*s,", (int)strcspn(at + 1, " \n"), at + 1);
        const char *told = strstr(p.out, example);
        if (told == NULL || told >= shown)
            fail_msg("the example of aft %s has an option that is not in its help: %s", verb->name, example);
    }
    program_run_clear(&p);
}

static void help_of_all_verbs_is_of_one_kind(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft, "--help"}};
    for (size_t i = 0; i < cli_verb_count; i++)
        check_help(&cli_verbs[i]);
    program_run(&p);
    check_width(p.out);
    program_run_clear(&p);
}

/* A name is looked for in the folder itself, $AFTD_MODELS_DIR and weights/models, in this order. */
static void a_models_name_is_found_where_models_are(void **state)
{
    (void)state;
    static const struct program_case shipped[] = {
        {"shipped", {"inspect", "enwik8-aft-conv"}, NULL, 0, "model                          enwik8-aft-conv\n", ""},
        {"not in the folder of models", {"inspect", "lm-local-8"}, NULL, 1, "", "no model \"lm-local-8\""},
        {"by path, with slashes behind",
         {"inspect", "tests/data/golden/lm-local-8//"},
         NULL,
         0,
         "model                          lm-local-8\n",
         ""},
    };
    static const struct program_case named[] = {
        {"in $AFTD_MODELS_DIR", {"inspect", "lm-local-8"}, NULL, 0, "model                          lm-local-8\n", ""},
        {"the shipped ones are still found", {"inspect", "enwik8-aft-conv"}, NULL, 0, "enwik8-aft-conv", ""},
    };
    static const struct program_case unset[] = {
        {"shipped", {"-u", "AFTD_MODELS_DIR", aft, "inspect", "enwik8-aft-conv"}, NULL, 0, "enwik8-aft-conv", ""},
    };
    program_expect(aft, shipped, LENGTH(shipped));
    program_expect("/usr/bin/env", unset, LENGTH(unset));
    assert_int_equal(setenv("AFTD_MODELS_DIR", "tests/data/golden", 1), 0);
    program_expect(aft, named, LENGTH(named));
    assert_int_equal(setenv("AFTD_MODELS_DIR", "", 1), 0);
}

static void an_instruction_set_can_be_asked_for(void **state)
{
    (void)state;
    static const struct program_case baseline[] = {{"every machine has the baseline",
                                                    {"inspect", text_model},
                                                    NULL,
                                                    0,
                                                    "\nisa                            baseline\n",
                                                    ""}};
    static const struct program_case unknown[] = {
        {"inspect names it", {"inspect", text_model}, NULL, 1, "", "instruction set \"z80\" is unknown"},
        {"generate names it", {"generate", text_model}, NULL, 1, "", "instruction set \"z80\" is unknown"},
        {"verify names it", {"verify", text_model}, NULL, 1, "instruction set \"z80\" is unknown", ""},
    };
    assert_int_equal(setenv("AFTD_ISA", "baseline", 1), 0);
    program_expect(aft, baseline, LENGTH(baseline));
    assert_int_equal(setenv("AFTD_ISA", "z80", 1), 0);
    program_expect(aft, unknown, LENGTH(unknown));
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verbs_are_found_and_explained),
        cmocka_unit_test(a_wrong_command_line_is_refused_before_work_begins),
        cmocka_unit_test(numbers_are_decimal_and_in_range),
        cmocka_unit_test(options_stand_anywhere_and_the_last_one_counts),
        cmocka_unit_test(help_of_all_verbs_is_of_one_kind),
        cmocka_unit_test(models_that_cannot_be_had_are_explained),
        cmocka_unit_test(a_models_name_is_found_where_models_are),
        cmocka_unit_test(an_instruction_set_can_be_asked_for),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
