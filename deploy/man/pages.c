/* pages.c - print a manual page: its template, with the tables of the code where the template asks for them.
 * It is in C because settings, flags, verbs and their options are tables of C, which it reads as they are. `make man`
 * runs it.
 *
 *     pages TEMPLATE >PAGE
 *
 * A template is mdoc(7). A line `.\" INSERT WHAT` stands for what `inserts` below makes of a table; all others are
 * copied. Lines of text are broken below 80 columns and after each sentence, as `mandoc -T lint` wants them.
 * Single threaded. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/settings.h"
#include "deploy/template.h"
#include "server/cli/cli.h"

enum { COLUMNS = 78, LINE_MAX_BYTES = 1024 };

/* ---- text ------------------------------------------------------------------------------------------------------- */

/* A word of running text: what roff would take for an escape or a request is protected, and the dashes of an option
 * stay dashes that can be copied. */
static void put_word(const char *word, size_t length)
{
    size_t i = 0;
    if (word[0] == '.' || word[0] == '\'')
        (void)printf("\\&");
    for (; i < length && word[i] == '-'; i++)
        (void)printf("\\-");
    for (; i < length; i++)
        (void)printf(word[i] == '\\' ? "\\e" : "%c", word[i]);
}

/* Does a sentence end with this word? */
static bool ends_sentence(const char *word, size_t length)
{
    return word[length - 1] == '.' && !(length > 2 && word[length - 2] == '.');
}

/* A help text as lines of text: with a capital, unless the first word is a name like f32, and a full stop. */
static void put_text(const char *text)
{
    char sentence[LINE_MAX_BYTES];
    const size_t size = strlen(text);
    (void)snprintf(sentence, sizeof sentence, "%s%s", text, size > 0 && text[size - 1] == '.' ? "" : ".");
    if (strcspn(sentence, "0123456789_") > strcspn(sentence, " "))
        sentence[0] = (char)toupper((unsigned char)sentence[0]);
    size_t column = 0;
    for (const char *word = sentence; *word != '\0';) {
        const size_t length = strcspn(word, " ");
        if (column > 0 && column + 1 + length > COLUMNS) {
            (void)putchar('\n');
            column = 0;
        }
        if (column > 0)
            (void)putchar(' ');
        put_word(word, length);
        column += length + (column > 0);
        if (ends_sentence(word, length)) {
            (void)putchar('\n');
            column = 0;
        }
        word += length + strspn(word + length, " ");
    }
    if (column > 0)
        (void)putchar('\n');
}

/* ---- settings --------------------------------------------------------------------------------------------------- */

/* What a setting accepts and its default, as a sentence. */
static void put_values(const struct setting *s)
{
    char expected[LINE_MAX_BYTES], text[2 * LINE_MAX_BYTES], number[32];
    const char *def = number;
    setting_describe(s, expected, sizeof expected);
    switch (s->kind) {
    case SETTING_NUMBER:
        (void)snprintf(number, sizeof number, "%" PRIu32, s->def);
        break;
    case SETTING_TEXT: /* of which the bound is told once */
        (void)snprintf(expected, sizeof expected, "a text");
        def = s->def_text;
        break;
    case SETTING_CHOICE:
        def = s->words[s->def];
        break;
    case SETTING_SWITCH:
        def = s->def != 0 ? "true" : "false";
        break;
    }
    (void)snprintf(text, sizeof text, "%s; default: %s", expected, def);
    put_text(text);
}

static void put_settings(void)
{
    (void)printf(".Bl -tag -width Ds\n");
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        (void)printf(".It Ic %s\n", s->name);
        put_text(s->help);
        (void)printf(".br\n");
        put_values(s);
        (void)printf(".br\n.Fl \\-");
        for (const char *c = s->name; *c != '\0'; c++)
            (void)putchar(*c == '_' ? '-' : *c);
        (void)printf(" ,\n.Ev " CONFIG_ENVIRONMENT_PREFIX);
        for (const char *c = s->name; *c != '\0'; c++)
            (void)putchar(toupper((unsigned char)*c));
        (void)putchar('\n');
    }
    (void)printf(".El\n");
}

/* What a text may be, which is the same for every setting that is one. */
static void put_text_bounds(void)
{
    char text[LINE_MAX_BYTES];
    int used = snprintf(text, sizeof text, "a text has ");
    setting_describe(setting_at(SETTING_models_dir), text + used, sizeof text - (size_t)used);
    put_text(text);
}

/* The flags of aftd that are no settings. */
static void put_flags(void)
{
    (void)printf(".Bl -tag -width Ds\n.It Fl \\-config Ar FILE\n");
    put_text(CONFIG_FILE_HELP);
#define X(name, action, help)             \
    (void)printf(".It Fl \\-" name "\n"); \
    put_text(help);
    CONFIG_ACTIONS(X)
#undef X
    (void)printf(".El\n");
}

/* ---- verbs ------------------------------------------------------------------------------------------------------ */

/* One argument, as PICTURE..., -o or add|list, with its macro; returns what comes behind it. */
static const char *put_argument(const char *at)
{
    const size_t dashes = strspn(at, "-");
    (void)printf("%s %s", dashes > 0 ? "Fl" : isupper((unsigned char)*at) ? "Ar" : "Cm", dashes == 2 ? "\\-" : "");
    for (at += dashes; *at != '\0' && *at != ' ' && *at != ']'; at++) {
        if (strncmp(at, "...", 3) == 0)
            (void)putchar(' ');
        (void)printf(*at == '|' ? " %c " : "%c", *at);
        if (strncmp(at, "...", 3) == 0)
            at += printf("..");
    }
    return at;
}

/* The arguments of a verb, as "MODEL [FILE] -o PNG": a line for each, or for each bracket. */
static void put_arguments(const char *at)
{
    while (*at != '\0') {
        const bool optional = *at == '[';
        (void)printf(optional ? ".Op " : ".");
        at = put_argument(at + optional);
        while (optional && *at == ' ') {
            (void)putchar(' ');
            at = put_argument(at + 1);
        }
        (void)putchar('\n');
        at += *at == ']';
        at += strspn(at, " ");
    }
}

static void put_verb_line(const struct cli_verb *verb)
{
    (void)printf(".Nm\n.Cm %s\n", verb->name);
    put_arguments(verb->arguments);
}

static void put_option(const struct cli_option *o)
{
    char range[128] = "", text[LINE_MAX_BYTES];
    (void)printf(".It ");
    if (cli_letter(o->name) != 0)
        (void)printf("Fl %c , ", cli_letter(o->name));
    (void)printf("Fl \\-%s", o->name);
    if (o->argument != NULL)
        (void)printf(" Ar %s", o->argument);
    (void)putchar('\n');
    put_text(o->help);
    if (o->def != NULL) {
        (void)snprintf(text, sizeof text, "default: %s", o->def);
        put_text(text);
    }
    if (o->kind == CLI_UNSIGNED || o->kind == CLI_NUMBER)
        (void)snprintf(range, sizeof range, "%s from %.16g to %.16g",
                       o->kind == CLI_UNSIGNED ? "a whole number" : "a number", o->min, o->max);
    if (range[0] != '\0')
        put_text(range);
}

/* What cli_parse calls for --help. */
static void put_verb(const struct cli_verb *verb, const struct cli_option *options)
{
    (void)printf(".Ss %s\n", verb->name);
    put_verb_line(verb);
    (void)printf(".Op Ar OPTIONS\n.Pp\n");
    put_text(verb->help);
    if (options->name == NULL)
        return;
    (void)printf(".Bl -tag -width Ds\n");
    for (const struct cli_option *o = options; o->name != NULL; o++)
        put_option(o);
    (void)printf(".El\n");
}

static void put_verb_lines(void)
{
    for (size_t i = 0; i < cli_verb_count; i++)
        put_verb_line(&cli_verbs[i]);
}

static void put_examples(void)
{
    for (size_t i = 0; i < cli_verb_count; i++)
        (void)printf("$ %s\n", cli_verbs[i].example);
}

static void put_verbs(void)
{
    template_each_verb(put_verb);
}

/* ---- the page --------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct template_insert inserts[] = {{"settings", put_settings},
                                                     {"bounds of a text", put_text_bounds},
                                                     {"flags", put_flags},
                                                     {"verb lines", put_verb_lines},
                                                     {"verbs", put_verbs},
                                                     {"examples", put_examples},
                                                     {0}};
    return template_write(argc, argv, ".\\\"", inserts);
}
