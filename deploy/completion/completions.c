/* completions.c - print a completion for a shell: its template, with the tables of the code where the template asks for
 * them. `make man` runs it, as it runs man/pages.c, of which this is the twin.
 *
 *     completions TEMPLATE >SCRIPT
 *
 * In a template a line `# INSERT WHAT` stands for what `inserts` below makes of a table. To bash go words such as
 * --top-k=text: an option, with an equals sign and the kind of its value if it takes one. A kind is file, model, text
 * (which nothing completes), or the words to choose from, as true|false. To zsh go specifications of _arguments.
 * Single threaded. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/settings.h"
#include "deploy/template.h"
#include "server/cli/cli.h"

enum { KIND_BYTES_MAX = 256 };

/* ---- kinds ------------------------------------------------------------------------------------------------------ */

/* Of what help calls a value, "FILE" or "add|list|remove"; `name` has `length` bytes. */
static const char *kind_of(const char *name, size_t length, char words[KIND_BYTES_MAX])
{
    static const char *const files[] = {"FILE", "PICTURE", "PNG", "OUT", "DATA", "DIR", "SOCKET"};
    (void)snprintf(words, KIND_BYTES_MAX, "%.*s", (int)length, name);
    if (strcmp(words, "MODEL") == 0)
        return "model";
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(words, files[i]) == 0)
            return "file";
    }
    return strchr(words, '|') != NULL ? words : "text";
}

static const char *kind_of_setting(const struct setting *s, char words[KIND_BYTES_MAX])
{
    static const char *const paths[] = {"path ", "file ", "PEM file ", "folder "}; /* how the help of one begins */
    size_t used = 0;
    switch (s->kind) {
    case SETTING_NUMBER:
        return "text";
    case SETTING_TEXT:
        for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
            if (strncmp(s->help, paths[i], strlen(paths[i])) == 0)
                return "file";
        }
        return "text";
    case SETTING_CHOICE:
        for (size_t i = 0; i <= s->max && used < KIND_BYTES_MAX; i++)
            used += (size_t)snprintf(words + used, KIND_BYTES_MAX - used, i > 0 ? "|%s" : "%s", s->words[i]);
        return words;
    case SETTING_SWITCH:
        return "true|false";
    }
    return "text";
}

/* The next argument in a verb's, as "MODEL [PICTURE...] -o PNG", that is no option nor an option's value: its length,
 * *at moved to it, *many if there may be more of them. 0 if there is none. */
static size_t next_argument(const char **at, bool *many)
{
    for (bool of_option = false;; *at += strcspn(*at, " ")) {
        *at += strspn(*at, " [");
        const size_t length = strcspn(*at, " ].");
        *many = strncmp(*at + length, "...", strlen("...")) == 0;
        if (length == 0 || (**at != '-' && !of_option))
            return length;
        of_option = **at == '-';
    }
}

static void put_setting_name(const struct setting *s)
{
    (void)printf("--");
    for (const char *c = s->name; *c != '\0'; c++)
        (void)putchar(*c == '_' ? '-' : *c);
}

/* ---- bash ------------------------------------------------------------------------------------------------------- */

static void put_bash_verbs(void)
{
    for (size_t i = 0; i < cli_verb_count; i++)
        (void)printf("%s\n", cli_verbs[i].name);
}

static void put_bash_verb(const struct cli_verb *verb, const struct cli_option *options)
{
    char words[KIND_BYTES_MAX];
    bool many = false;
    (void)printf("    %s)\n        arguments='", verb->name);
    const char *at = verb->arguments, *separator = "";
    for (size_t length = 0; (length = next_argument(&at, &many)) > 0; at += strcspn(at, " "), separator = " ")
        (void)printf("%s%s%s", separator, kind_of(at, length, words), many ? "..." : "");
    (void)printf("'\n        options='-h --help");
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        const char *kind = o->argument != NULL ? kind_of(o->argument, strlen(o->argument), words) : "";
        const char *equals = o->argument != NULL ? "=" : "";
        (void)printf("\n            ");
        if (cli_letter(o->name) != 0)
            (void)printf("-%c%s%s ", cli_letter(o->name), equals, kind);
        (void)printf("--%s%s%s", o->name, equals, kind);
    }
    (void)printf("' ;;\n");
}

static void put_bash_each_verb(void)
{
    template_each_verb(put_bash_verb);
}

static void put_bash_settings(void)
{
    char words[KIND_BYTES_MAX];
    (void)printf("    --config=file\n");
#define X(name, action, help) (void)printf("    --" name "\n");
    CONFIG_ACTIONS(X)
#undef X
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        (void)printf("    ");
        put_setting_name(setting_at(id));
        (void)printf("=%s\n", kind_of_setting(setting_at(id), words));
    }
}

/* ---- zsh -------------------------------------------------------------------------------------------------------- */

/* A text between single quotes, inside the brackets of a specification. */
static void put_zsh_help(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            (void)printf("'\\''");
        else
            (void)printf(strchr("[]\\", *text) != NULL ? "\\%c" : "%c", *text);
    }
}

/* What comes behind "NAME:" in a specification. */
static void put_zsh_action(const char *kind)
{
    if (strcmp(kind, "file") == 0) {
        (void)printf("_files");
    } else if (strcmp(kind, "model") == 0) {
        (void)printf("_aft_models");
    } else if (strchr(kind, '|') != NULL) {
        (void)putchar('(');
        for (; *kind != '\0'; kind++)
            (void)putchar(*kind == '|' ? ' ' : *kind);
        (void)putchar(')');
    } else {
        (void)putchar(' ');
    }
}

static void put_zsh_verbs(void)
{
    for (size_t i = 0; i < cli_verb_count; i++) {
        (void)printf("        '%s:", cli_verbs[i].name);
        put_zsh_help(cli_verbs[i].help);
        (void)printf("'\n");
    }
}

static void put_zsh_option(const struct cli_option *o)
{
    char words[KIND_BYTES_MAX];
    const bool valued = o->argument != NULL, many = o->kind == CLI_TEXTS;
    const char letter = cli_letter(o->name);
    (void)printf("            '");
    if (many)
        (void)putchar('*');
    else if (letter != 0)
        (void)printf("(-%c --%s)", letter, o->name);
    if (letter != 0) /* both names, for the shell to make two specifications of */
        (void)printf("'{-%c%s,--%s%s}'[", letter, valued ? "+" : "", o->name, valued ? "=" : "");
    else
        (void)printf("--%s%s[", o->name, valued ? "=" : "");
    put_zsh_help(o->help);
    (void)putchar(']');
    if (o->argument != NULL) {
        (void)printf(":%s:", o->argument);
        put_zsh_action(kind_of(o->argument, strlen(o->argument), words));
    }
    (void)printf("'\n");
}

static void put_zsh_verb(const struct cli_verb *verb, const struct cli_option *options)
{
    char words[KIND_BYTES_MAX];
    bool many = false;
    (void)printf("    %s)\n        specifications=(\n", verb->name);
    (void)printf("            '(-h --help)'{-h,--help}'[print the options of this verb]'\n");
    for (const struct cli_option *o = options; o->name != NULL; o++)
        put_zsh_option(o);
    const char *at = verb->arguments;
    for (size_t length = 0, count = 1; (length = next_argument(&at, &many)) > 0; at += strcspn(at, " "), count++) {
        const char *kind = kind_of(at, length, words);
        if (many)
            (void)printf("            '*:%.*s:", (int)length, at);
        else
            (void)printf("            '%zu:%.*s:", count, strchr(kind, '|') != NULL ? 6 : (int)length,
                         strchr(kind, '|') != NULL ? "action" : at);
        put_zsh_action(kind);
        (void)printf("'\n");
    }
    (void)printf("        ) ;;\n");
}

static void put_zsh_each_verb(void)
{
    template_each_verb(put_zsh_verb);
}

static void put_zsh_settings(void)
{
    char words[KIND_BYTES_MAX];
    (void)printf("    '--config=[");
    put_zsh_help(CONFIG_FILE_HELP);
    (void)printf("]:FILE:_files'\n");
#define X(name, action, help)         \
    (void)printf("    '--" name "["); \
    put_zsh_help(help);               \
    (void)printf("]'\n");
    CONFIG_ACTIONS(X)
#undef X
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        (void)printf("    '");
        put_setting_name(setting_at(id));
        (void)printf("=[");
        put_zsh_help(setting_at(id)->help);
        (void)printf("]:value:");
        put_zsh_action(kind_of_setting(setting_at(id), words));
        (void)printf("'\n");
    }
}

/* ---- the script ------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct template_insert inserts[] = {{"verbs for bash", put_bash_verbs},
                                                     {"each verb for bash", put_bash_each_verb},
                                                     {"settings for bash", put_bash_settings},
                                                     {"verbs for zsh", put_zsh_verbs},
                                                     {"each verb for zsh", put_zsh_each_verb},
                                                     {"settings for zsh", put_zsh_settings},
                                                     {0}};
    return template_write(argc, argv, "#", inserts);
}
