/* template.c - see template.h. */
#include "deploy/template.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES_MAX = 1024 };

/* What the template's line asks for; NULL if it is a line as any other. */
static const char *asked_for(const char *line, const char *comment)
{
    static const char insert[] = " INSERT ";
    const size_t length = strlen(comment);
    if (strncmp(line, comment, length) != 0 || strncmp(line + length, insert, strlen(insert)) != 0)
        return NULL;
    return line + length + strlen(insert);
}

static bool put_line(const char *line, const char *comment, const struct template_insert *inserts)
{
    const char *what = asked_for(line, comment);
    if (what == NULL) {
        (void)puts(line);
        return true;
    }
    for (const struct template_insert *i = inserts; i->what != NULL; i++) {
        if (strcmp(what, i->what) == 0) {
            i->put();
            return true;
        }
    }
    return false;
}

int template_write(int argc, char **argv, const char *comment, const struct template_insert *inserts)
{
    char line[LINE_BYTES_MAX];
    int code = EXIT_FAILURE;
    bool noted = false;
    FILE *template = argc == 2 ? fopen(argv[1], "re") : NULL;
    if (template == NULL) {
        (void)fprintf(stderr, argc == 2 ? "%s: %s: %s\n" : "usage: %s TEMPLATE\n", argv[0], argv[1], strerror(errno));
        return code;
    }
    const char *name = strrchr(argv[1], '/') != NULL ? strrchr(argv[1], '/') + 1 : argv[1];
    while (fgets(line, sizeof line, template) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const bool tag = strncmp(line, "#compdef", strlen("#compdef")) == 0;
        if (tag)
            (void)puts(line);
        if (!noted)
            (void)printf("%s Made by \"make man\" from %s and the tables of the code: change those.\n", comment, name);
        noted = true;
        if (!tag && !put_line(line, comment, inserts)) {
            (void)fprintf(stderr, "%s: there is nothing to insert for \"%s\"\n", name, asked_for(line, comment));
            goto done;
        }
    }
    if (ferror(template) == 0 && fflush(stdout) == 0)
        code = EXIT_SUCCESS;
done:
    (void)fclose(template);
    return code;
}

void template_each_verb(cli_help *put)
{
    cli_set_help(put);
    for (size_t i = 0; i < cli_verb_count; i++) {
        char name[64], help[] = "--help";
        char *argv[] = {name, help, NULL};
        (void)snprintf(name, sizeof name, "%s", cli_verbs[i].name);
        cli_set_verb(name);
        (void)cli_verbs[i].run(2, argv);
    }
}
