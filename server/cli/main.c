/* main.c - the aft program: find the verb, run it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "server/cli/cli.h"

static void print_usage(FILE *to)
{
    (void)fprintf(to, "usage: aft VERB ...\n\n");
    for (size_t i = 0; i < cli_verb_count; i++)
        (void)fprintf(to, "  aft %-8s %-18s  %s\n", cli_verbs[i].name, cli_verbs[i].arguments, cli_verbs[i].help);
    (void)fprintf(to, "\nMODEL is a model directory, or the name of one under weights/models/.\n"
                      "aft VERB --help lists a verb's options.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("aft %s\n", AFTD_VERSION);
        return CLI_OK;
    }
    for (size_t i = 0; i < cli_verb_count; i++)
        if (strcmp(argv[1], cli_verbs[i].name) == 0) {
            cli_set_verb(cli_verbs[i].name);
            const int code = cli_verbs[i].run(argc - 1, argv + 1);
            if (fflush(stdout) != 0 || ferror(stdout))
                return code == CLI_OK ? cli_fail("cannot write to standard output") : code;
            return code;
        }
    (void)fprintf(stderr, "aft: there is no verb \"%s\"; expected one of", argv[1]);
    for (size_t i = 0; i < cli_verb_count; i++)
        (void)fprintf(stderr, " %s", cli_verbs[i].name);
    (void)fprintf(stderr, "\n");
    return CLI_USAGE;
}
