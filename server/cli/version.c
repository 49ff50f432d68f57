/* version.c - aft --version. Each library's line comes from the room that may see its headers. Single threaded. */
#include <nettle/version.h>
#include <stdio.h>

#include "config/version.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/media/picture.h"

void cli_print_version(const char *commit)
{
    char nettle[32];
    (void)snprintf(nettle, sizeof nettle, "%d.%d", nettle_version_major(), nettle_version_minor());
    version_print("aft", commit, stdout);
    version_print_library("nettle", nettle, stdout);
    engine_print_versions(stdout);
    picture_print_versions(stdout);
    remote_print_versions();
}
