/* locate.h - the daemon of this machine: where it listens, found as the daemon finds out itself, from its configuration
 * file and the environment. Single threaded; messages as in cli.h. */
#ifndef SERVER_CLI_LOCATE_H
#define SERVER_CLI_LOCATE_H

#include "config/config.h"
#include "config/limits.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"

enum { LOCATE_ADDRESS_BYTES = 128 }; /* of a numeric address, with the name of an interface */

/* Zeroed before the options are read; it must stay where it is afterwards. */
struct locate {
    const char *config; /* --config */
    struct remote to;
    char url[LOCATE_ADDRESS_BYTES + 16], unix_path[SETTING_TEXT_MAX + 1]; /* what `to` names, if no option does */
};
/* Rows of a verb's options. */
#define LOCATE_OPTIONS(l)                                                                                 \
    {"config", CLI_TEXT, (void *)&(l)->config, 0, 0, "FILE", "aftd's own", "the daemon's configuration"}, \
        REMOTE_DAEMON_OPTIONS(&(l)->to)

/* cli_parse, then fill in `to`: from the options, or else from the configuration. Prints what is wrong and returns an
 * exit code. The daemon is asked where it serves everybody, without a key. An address that means every interface is
 * the loopback's, and the certificate at an address that the configuration names is not verified: it names what clients
 * call this machine. Without TCP the Unix socket is asked, or the admin listener, which serves the same.
 * `admin`: the admin listener, with the key and a time limit for each answer. */
int locate_parse(struct locate *l, bool admin, const struct cli_option *options, int argc, char **argv, int min,
                 int max, int *count);

#endif
