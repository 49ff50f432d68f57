/* config_print.c - what a user reads about settings: the configuration in force, who set it, the help. Main thread, at
 * start; no state. Errors of the stream are reported where the output is meant for a machine, not for help texts. */
#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "config/config.h"

enum { HELP_COLUMN = 48 }; /* where the explanation of a flag starts */

/* NULL if out of memory. */
static json_t *value_to_json(const struct setting *s, const struct settings *from)
{
    switch (s->kind) {
    case SETTING_NUMBER:
        return json_integer(setting_number(s, from));
    case SETTING_TEXT:
        return json_string(setting_text(s, from));
    case SETTING_CHOICE:
        return json_string(s->words[setting_number(s, from)]);
    case SETTING_SWITCH:
        return json_boolean(setting_number(s, from) != 0);
    }
    return NULL;
}

enum status config_print(const struct config *c, FILE *to, struct error *err)
{
    enum status st = OK;
    json_t *object = json_object();
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        if (json_object_set_new(object, s->name, value_to_json(s, &c->settings)) != 0) {
            st = error_set(err, ERR_NOMEM, "out of memory while printing the configuration");
            goto done;
        }
    }
    if (json_dumpf(object, to, JSON_INDENT(4)) != 0 || fputc('\n', to) == EOF || fflush(to) != 0)
        st = error_set(err, ERR_IO, "the configuration cannot be printed: %s", strerror(errno));
done:
    json_decref(object);
    return st;
}

void config_describe_source(const struct config *c, enum setting_id id, char *out, size_t size)
{
    char flag[64], variable[64];
    size_t i = 0;
    for (const char *from = setting_at(id)->name; *from != '\0' && i + 1 < sizeof flag; from++, i++) {
        flag[i] = (char)(*from == '_' ? '-' : *from);
        variable[i] = (char)(*from >= 'a' && *from <= 'z' ? *from - 'a' + 'A' : *from);
    }
    flag[i] = variable[i] = '\0';
    switch (c->sources[id]) {
    case CONFIG_FROM_DEFAULT:
        (void)snprintf(out, size, "default");
        break;
    case CONFIG_FROM_SHARE:
        (void)snprintf(out, size, "share of the memory");
        break;
    case CONFIG_FROM_FILE:
        (void)snprintf(out, size, "file %s", c->path);
        break;
    case CONFIG_FROM_ENVIRONMENT:
        (void)snprintf(out, size, "environment " CONFIG_ENVIRONMENT_PREFIX "%s", variable);
        break;
    case CONFIG_FROM_FLAG:
        (void)snprintf(out, size, "flag --%s", flag);
        break;
    }
}

json_t *config_describe(const struct config *c)
{
    json_t *all = json_object();
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        char source[SETTING_TEXT_MAX + 64];
        config_describe_source(c, (enum setting_id)id, source, sizeof source);
        json_t *one = json_pack("{s:o, s:s}", "value", value_to_json(s, &c->settings), "source", source);
        if (json_object_set_new(all, s->name, one) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* As a user writes it: without the quotes of JSON. */
static void print_value(const struct setting *s, const struct settings *from, FILE *to)
{
    json_t *value = value_to_json(s, from);
    if (json_is_string(value))
        (void)fputs(json_string_value(value), to);
    else
        (void)json_dumpf(value, to, JSON_ENCODE_ANY);
    json_decref(value);
}

void config_print_check(const struct config *c, FILE *to)
{
    (void)fprintf(to, "configuration is fine\n");
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        char source[SETTING_TEXT_MAX + 64];
        if (c->sources[id] == CONFIG_FROM_DEFAULT)
            continue;
        config_describe_source(c, (enum setting_id)id, source, sizeof source);
        (void)fprintf(to, "  %s = ", setting_at(id)->name);
        print_value(setting_at(id), &c->settings, to);
        (void)fprintf(to, " (from %s)\n", source);
    }
}

/* Print what a user writes after the flag; returns the number of bytes. */
static int print_values(const struct setting *s, FILE *to)
{
    int used = 0;
    switch (s->kind) {
    case SETTING_NUMBER:
        used = fprintf(to, " %u..%u", s->min, s->max);
        break;
    case SETTING_TEXT:
        used = fprintf(to, " TEXT");
        break;
    case SETTING_CHOICE:
        for (uint32_t i = 0; i <= s->max; i++)
            used += fprintf(to, "%c%s", i == 0 ? ' ' : '|', s->words[i]);
        break;
    case SETTING_SWITCH:
        used = fprintf(to, " true|false");
        break;
    }
    return used;
}

static void print_help_line(const char *left, const char *help, FILE *to)
{
    (void)fprintf(to, "  %-*s%s\n", HELP_COLUMN - 2, left, help);
}

void config_print_help(const char *program, FILE *to)
{
    struct settings defaults;
    settings_init(&defaults);
    (void)fprintf(to,
                  "Usage: %s [--SETTING VALUE]...\n\n"
                  "A setting is taken from the flag, else from the environment (" CONFIG_ENVIRONMENT_PREFIX
                  "LISTEN_PORT for --listen-port),\n"
                  "else from the configuration file (\"listen_port\"), else it has the default in parentheses.\n\n",
                  program);
    print_help_line("--config FILE", CONFIG_FILE_HELP, to);
#define X(name, action, help) print_help_line("--" name, help, to);
    CONFIG_ACTIONS(X)
#undef X
    (void)fprintf(to, "\nSettings:\n");
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        int used = fprintf(to, "  --");
        for (const char *c = s->name; *c != '\0'; c++, used++)
            (void)fputc(*c == '_' ? '-' : *c, to);
        used += print_values(s, to);
        (void)fprintf(to, "%*s%s (", used < HELP_COLUMN ? HELP_COLUMN - used : 1, "", s->help);
        print_value(s, &defaults, to);
        (void)fprintf(to, ")\n");
    }
}
