/* options.c - the command line, see cli.h: the verbs, their options, what --help prints. Single threaded; the state is
 * who answers --help. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/digits.h"
#include "config/nearest.h"
#include "server/cli/cli.h"

const struct cli_verb cli_verbs[] = {
#define X(verb, name, arguments, help, example) {name, arguments, help, example, cli_##verb},
    CLI_VERBS(X)
#undef X
};
const size_t cli_verb_count = sizeof cli_verbs / sizeof cli_verbs[0];

const struct cli_verb *cli_find_verb(const char *name)
{
    for (size_t i = 0; i < cli_verb_count; i++)
        if (strcmp(name, cli_verbs[i].name) == 0)
            return &cli_verbs[i];
    return NULL;
}

char cli_letter(const char *name)
{
    static const struct {
        char letter;
        const char *name;
    } letters[] = {{'0', "null"},  {'c', "config"}, {'d', "duration"},   {'f', "file"},   {'h', "help"},
                   {'k', "top-k"}, {'m', "model"},  {'n', "max-tokens"}, {'o', "output"}, {'p', "prompt"},
                   {'r', "rate"},  {'s', "seed"},   {'t', "threads"}};
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        if (strcmp(name, letters[i].name) == 0)
            return letters[i].letter;
    return 0;
}

/* ---- help ------------------------------------------------------------------------------------------------------- */

/* "  -k, --top-k N"; returns how many columns it takes. */
static int print_names(char *out, size_t size, const struct cli_option *o)
{
    const char letter[] = {'-', cli_letter(o->name), ',', '\0'};
    return snprintf(out, size, "  %3s --%s%s%s", letter[1] != 0 ? letter : "", o->name, o->argument != NULL ? " " : "",
                    o->argument != NULL ? o->argument : "");
}

static void print_option(const struct cli_option *o, int column)
{
    char names[128];
    (void)print_names(names, sizeof names, o);
    (void)printf("%-*s  %s", column, names, o->help);
    if (o->def != NULL)
        (void)printf(" [default: %s]", o->def);
    (void)printf("\n");
}

static void print_help(const struct cli_verb *verb, const struct cli_option *options)
{
    static const struct cli_option help = {"help", CLI_FLAG, NULL, 0, 0, NULL, NULL, "print this"};
    char names[128];
    int column = print_names(names, sizeof names, &help);
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        const int used = print_names(names, sizeof names, o);
        column = used > column ? used : column;
    }
    (void)printf("usage: aft %s %s%s[OPTIONS]\n%s\n\noptions:\n", verb->name, verb->arguments,
                 verb->arguments[0] != '\0' ? " " : "", verb->help);
    for (const struct cli_option *o = options; o->name != NULL; o++)
        print_option(o, column);
    print_option(&help, column);
    (void)printf("\nexample:\n  %s\n", verb->example);
}

static cli_help *answer_help = print_help;

void cli_set_help(cli_help *help)
{
    answer_help = help;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static int set_unsigned(const struct cli_option *o, const char *value)
{
    const uint64_t min = (uint64_t)o->min, max = (uint64_t)o->max;
    const char *end = value;
    uint64_t number = 0;
    if (!digits_read(&number, &end) || *end != '\0' || number < min || number > max)
        return cli_fail_usage("--%s is \"%s\", expected a whole number from %" PRIu64 " to %" PRIu64, o->name, value,
                              min, max);
    *(uint64_t *)o->value = number;
    return CLI_OK;
}

static int set_number(const struct cli_option *o, const char *value)
{
    const bool decimal = value[0] != '\0' && value[strspn(value, "0123456789+-.eE")] == '\0'; /* no inf, nan, 0x */
    char *end = NULL;
    const double number = strtod(value, &end);
    if (!decimal || *end != '\0' || !(number >= o->min && number <= o->max))
        return cli_fail_usage("--%s is \"%s\", expected a number from %g to %g", o->name, value, o->min, o->max);
    *(double *)o->value = number;
    return CLI_OK;
}

static int add_text(const struct cli_option *o, const char *value)
{
    struct cli_texts *texts = o->value;
    if (texts->count == CLI_TEXTS_MAX)
        return cli_fail_usage("--%s is given more than %d times", o->name, CLI_TEXTS_MAX);
    texts->at[texts->count++] = value;
    return CLI_OK;
}

static int set_choice(const struct cli_option *o, const char *value)
{
    assert(o->argument != NULL);
    for (const char *at = o->argument; value[0] != '\0' && at != NULL; at = strchr(at, '|')) {
        at += *at == '|' ? 1 : 0;
        if (strcspn(at, "|") == strlen(value) && strncmp(at, value, strlen(value)) == 0) {
            *(const char **)o->value = value;
            return CLI_OK;
        }
    }
    return cli_fail_usage("--%s is \"%s\", expected %s", o->name, value, o->argument);
}

static int set_option(const struct cli_option *o, const char *value)
{
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->value = true;
        return CLI_OK;
    case CLI_TEXT:
        *(const char **)o->value = value;
        return CLI_OK;
    case CLI_TEXTS:
        return add_text(o, value);
    case CLI_CHOICE:
        return set_choice(o, value);
    case CLI_UNSIGNED:
        return set_unsigned(o, value);
    case CLI_NUMBER:
        return set_number(o, value);
    }
    return CLI_USAGE;
}

/* ---- the command line ------------------------------------------------------------------------------------------- */

/* Of that letter, if it is not 0, or else of that name [length]. */
static const struct cli_option *options_find(const struct cli_option *options, char letter, const char *name,
                                             size_t length)
{
    for (const struct cli_option *o = options; o->name != NULL; o++)
        if (letter != 0 ? cli_letter(o->name) == letter
                        : strlen(o->name) == length && strncmp(o->name, name, length) == 0)
            return o;
    return NULL;
}

static int refuse_option(const struct cli_option *options, const char *given)
{
    const char *name = given + strspn(given, "-");
    struct nearest near = nearest_to(name, strcspn(name, "="));
    for (const struct cli_option *o = options; o->name != NULL; o++)
        nearest_offer(&near, o->name);
    if (near.name == NULL || given[1] != '-')
        return cli_fail_usage("unknown option \"%s\"", given);
    return cli_fail_usage("unknown option \"%s\" (did you mean --%s?)", given, near.name);
}

/* argv[*at] begins with "-": find its option and set it, moving *at over a value of its own. */
static int take_option(const struct cli_option *options, int argc, char **argv, int *at)
{
    const char *given = argv[*at], *value = NULL;
    const struct cli_option *o;
    if (given[1] != '-') {
        o = options_find(options, given[1], NULL, 0);
        value = given[2] != '\0' ? given + 2 : NULL;
        if (o != NULL && o->kind == CLI_FLAG && value != NULL)
            o = NULL; /* letters are not put together */
    } else {
        const char *equals = strchr(given, '=');
        o = options_find(options, 0, given + 2, strcspn(given + 2, "="));
        value = equals != NULL ? equals + 1 : NULL;
    }
    if (o == NULL)
        return refuse_option(options, given);
    if (o->kind == CLI_FLAG && value != NULL)
        return cli_fail_usage("--%s takes no value", o->name);
    if (o->kind == CLI_FLAG || value != NULL)
        return set_option(o, value);
    if (*at + 1 >= argc)
        return cli_fail_usage("%.*s needs a value", given[1] != '-' ? 2 : (int)strlen(given), given);
    return set_option(o, argv[++*at]);
}

int cli_fail_few(const char *model)
{
    const char *expected = cli_find_verb(cli_verb_name())->arguments;
    if (model == NULL)
        return cli_fail_usage("too few arguments, expected %s", expected);
    return cli_fail_usage("too few arguments, expected %s (\"%s\" was taken as MODEL)", expected, model);
}

int cli_parse(const struct cli_option *options, int argc, char **argv, int min, int max, int *count)
{
    int others = 0;
    bool only_others = false;
    for (int i = 1; i < argc; i++) {
        if (!only_others && strcmp(argv[i], "--") == 0) {
            only_others = true;
        } else if (!only_others && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            answer_help(cli_find_verb(cli_verb_name()), options);
            *count = -1;
            return CLI_OK;
        } else if (!only_others && argv[i][0] == '-' && argv[i][1] != '\0') {
            const int code = take_option(options, argc, argv, &i);
            if (code != CLI_OK)
                return code;
        } else {
            argv[1 + others++] = argv[i];
        }
    }
    if (others < min)
        return cli_fail_few(others == 1 ? argv[1] : NULL);
    if (others > max)
        return cli_fail_usage("unexpected argument \"%s\"", argv[1 + max]);
    *count = others;
    return CLI_OK;
}
