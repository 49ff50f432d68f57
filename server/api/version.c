/* version.c - see version.h. Each library's line comes from the room that may see its headers. */
#include "server/api/version.h"

#include <nettle/version.h>

#include "config/version.h"
#include "engine/engine.h"
#include "server/media/picture.h"
#include "server/request/request.h"

void version_print_daemon(const char *commit, FILE *to)
{
    char nettle[32];
    (void)snprintf(nettle, sizeof nettle, "%d.%d", nettle_version_major(), nettle_version_minor());
    version_print("aftd", commit, to);
    version_print_library("nettle", nettle, to);
    engine_print_versions(to);
    picture_print_versions(to);
    http_print_versions(to);
}
