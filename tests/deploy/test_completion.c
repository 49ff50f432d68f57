/* test_completion.c - what bash and zsh complete with the scripts in deploy/completion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/program.h"

/* The words behind the first are what readline gives a completion: an equals sign is a word of its own. The candidates
 * are printed one to a line, sorted. */
static const char bash_script[] =
    ". deploy/completion/$1.bash && COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) && _$1 && printf '%s\\n' "
    "\"${COMPREPLY[@]}\" | sort";

struct completion_case {
    const char *name;
    const char *words[8];
    const char *expected; /* all candidates */
};

static const struct completion_case cases[] = {
    {"a flag of aftd", {"aftd", "--lis"}, "--listen-address\n--listen-port\n--listen-unix\n--listen-unix-mode\n"},
    {"a flag that is no setting", {"aftd", "--check"}, "--check-config\n"},
    {"the words of a setting", {"aftd", "--log-level", ""}, "debug\nerror\ninfo\nwarning\n"},
    {"a word behind an equals sign", {"aftd", "--log-format", "=", "j"}, "json\n"},
    {"right behind the equals sign", {"aftd", "--log-format", "="}, "json\ntext\n"},
    {"a switch", {"aftd", "--page", "f"}, "false\n"},
    {"a number is nobody's to guess", {"aftd", "--listen-port", ""}, "\n"},
    {"the file of a setting", {"aftd", "--config", "config/aftd.j"}, "config/aftd.json\n"},
    {"a verb", {"aft", "gen"}, "generate\n"},
    {"an option of a verb", {"aft", "generate", "--ma"}, "--max-tokens\n"},
    {"a word to choose", {"aft", "generate", "--context-overflow", ""}, "shift\nstop\n"},
    {"a word to choose behind an equals sign", {"aft", "verify", "--precision", "=", "b"}, "bf16\n"},
    {"a folder of models", {"aft", "models", "deploy/syst"}, "deploy/systemd\n"},
    {"the value of a letter", {"aft", "compress", "-o", "READ"}, "README.md\n"},
    {"an option of another verb", {"aft", "inspect", "--ma"}, "\n"},
    {"a model by name", {"aft", "generate", "enwik8-aft-c"}, "enwik8-aft-conv\n"},
    {"a model behind options", {"aft", "classify", "--top-k", "2", "cifar10-si"}, "cifar10-sima\n"},
    {"a model behind an option with an equals sign",
     {"aft", "generate", "--seed", "=", "1", "enwik8-aft-c"},
     "enwik8-aft-conv\n"},
    {"a model's folder", {"aft", "inspect", "weights/models/cifar10-si"}, "weights/models/cifar10-sima\n"},
    {"a picture behind the model", {"aft", "classify", "cifar10-sima", "LIC"}, "LICENSE\n"},
    {"the second of many pictures", {"aft", "classify", "cifar10-sima", "LICENSE", "READ"}, "README.md\n"},
    {"nothing behind the last argument", {"aft", "inspect", "cifar10-sima", "READ"}, "\n"},
    {"a picture first where a daemon is asked", {"aft", "classify", "--url", "http", "READ"}, "README.md\n"},
    {"an option's file", {"aft", "compress", "enwik8-aft-conv", "-o", "READ"}, "README.md\n"},
    {"what a verb does", {"aft", "key", "re"}, "remove\n"},
    {"an unknown verb", {"aft", "nothing", "--"}, "\n"},
};

static void bash_completes(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct program_run p = {.argv = {"/bin/bash", "-c", bash_script, "bash"}};
        for (size_t word = 0; cases[i].words[word] != NULL; word++)
            p.argv[4 + word] = cases[i].words[word];
        program_run(&p);
        if (strcmp(p.out, cases[i].expected) != 0 || p.err_size > 0) {
            print_error("%s: expected \"%s\", got \"%s\", \"%s\"\n", cases[i].name, cases[i].expected, p.out, p.err);
            wrong++;
        }
        program_run_clear(&p);
    }
    assert_int_equal(wrong, 0);
}

/* zsh completes at a terminal only, which complete.zsh makes for it; candidates come one to a line, sorted. */
static void zsh_completes(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *expected;
    } typed[] = {
        {"aftd --lis", "--listen-address\n--listen-port\n--listen-unix\n--listen-unix-mode\n"},
        {"aftd --log-format=j", "json\n"},
        {"aftd --page f", "false\n"},
        {"aft gen", "generate\n"},
        {"aft generate --ma", "--max-tokens\n"},
        {"aft generate --context-overflow ", "shift\nstop\n"},
        {"aft verify --precision=b", "bf16\n"},
        {"aft compress -o READ", "README.md\n"},
        {"aft generate -n 2 --max", ""},
        {"aft generate enwik8-aft-c", "enwik8-aft-conv\n"},
        {"aft classify --top-k 2 cifar10-si", "cifar10-sima\n"},
        {"aft key re", "remove\n"},
    };
    struct program_run found = {.argv = {"/bin/sh", "-c", "command -v zsh || exit 1"}};
    program_run(&found);
    const bool none = found.exit_code != 0;
    program_run_clear(&found);
    if (none) {
        print_message("skipped: zsh is not installed\n");
        skip();
    }
    program_need_terminal();
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++) {
        struct program_run p = {
            .argv = {"/bin/sh", "-c", "zsh -f tests/deploy/complete.zsh \"$1\" | sort -u", "sh", typed[i].typed}};
        program_run(&p);
        if (strcmp(p.out, typed[i].expected) != 0) {
            print_error("%s: expected \"%s\", got \"%s\", \"%s\"\n", typed[i].typed, typed[i].expected, p.out, p.err);
            wrong++;
        }
        program_run_clear(&p);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(zsh_completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
