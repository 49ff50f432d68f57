/* template.h - a text made of a template and the tables of the code, on standard output: what the writers of manual
 * pages and of completions share. Single threaded. */
#ifndef DEPLOY_TEMPLATE_H
#define DEPLOY_TEMPLATE_H

#include <stddef.h>

#include "server/cli/cli.h"

/* A line `COMMENT INSERT WHAT` of the template stands for what `put` prints. */
struct template_insert {
    const char *what;
    void (*put)(void);
};

/* For the main of such a program: print the file that argv[1] names, with the inserts (a row without a name ends them)
 * in their places, behind a line that says of what it was made. A template that begins with "#compdef" keeps that line
 * first. Says what is wrong; returns the exit code. */
int template_write(int argc, char **argv, const char *comment, const struct template_insert *inserts);

/* Call `put` with the options of each verb of aft. */
void template_each_verb(cli_help *put);

#endif
