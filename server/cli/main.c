/* main.c - the aft program: find the verb, run it. */
#include <stdio.h>
#include <string.h>

#include "config/nearest.h"
#include "config/version.h"
#include "server/cli/cli.h"
#include "server/core/address_space.h"
#include "server/core/short_spin.h"

ADDRESS_SPACE_CHECK;

static void print_usage(FILE *to)
{
    (void)fprintf(to, "usage: aft COMMAND ...\n\n");
    for (size_t i = 0; i < cli_verb_count; i++)
        (void)fprintf(to, "  aft %-15s %-31s  %s\n", cli_verbs[i].name, cli_verbs[i].arguments, cli_verbs[i].help);
    (void)fprintf(
        to,
        "\nMODEL is a model's folder, or the name of one in $AFTD_MODELS_DIR, weights/models or %s.\n"
        "With --url URL or --unix SOCKET, commands ask a running daemon instead; its model is --model NAME, not "
        "MODEL.\n"
        "$AFTD_ISA and $AFTD_PRECISION choose the instruction set and the precision, as the daemon's "
        "settings do.\n"
        "See aft COMMAND --help, or aft help COMMAND, for a command's options; aft --version for the version.\n",
        AFTD_DATADIR "/models");
}

/* aft without a verb of its own: help and version are asked for, the rest is a mistake. */
static int run_without_verb(const char *what)
{
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0 || strcmp(what, "help") == 0) {
        print_usage(stdout);
        return CLI_OK;
    }
    if (strcmp(what, "--version") == 0 || strcmp(what, "-V") == 0) {
        cli_print_version(AFTD_COMMIT);
        return CLI_OK;
    }
    struct nearest near = nearest_to(what, strlen(what));
    for (size_t i = 0; i < cli_verb_count; i++)
        nearest_offer(&near, cli_verbs[i].name);
    (void)fprintf(stderr, "aft: unknown command \"%s\"", what);
    if (near.name != NULL)
        (void)fprintf(stderr, " (did you mean %s?)", near.name);
    (void)fprintf(stderr, "; see aft --help\n");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    short_spin_reexec(argv);
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    char help[] = "--help", *helped[] = {argv[0], argv[2], help, NULL};
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        argv = helped; /* aft help VERB is aft VERB --help */
        argc = 3;
    }
    const struct cli_verb *verb = cli_find_verb(argv[1]);
    if (verb != NULL)
        cli_set_verb(verb->name);
    const int code = verb != NULL ? verb->run(argc - 1, argv + 1) : run_without_verb(argv[1]);
    const int written = cli_flush(); /* what did not reach its reader was not done */
    return code != CLI_OK ? code : written;
}
