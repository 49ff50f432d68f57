/* version.c - see version.h. */
#include "config/version.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

void version_print_library(const char *name, const char *version, FILE *to)
{
    (void)fprintf(to, "%-17s %s\n", name, version);
}

void version_print_file(const char *name, void (*function)(void), FILE *to)
{
    Dl_info info;
    void *address;
    memcpy(&address, &function, sizeof address); /* ISO C cannot convert it */
    char *path = dladdr(address, &info) != 0 && info.dli_fname != NULL ? realpath(info.dli_fname, NULL) : NULL;
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    version_print_library(name, slash != NULL ? slash + 1 : "unknown", to);
    free(path);
}

void version_print(const char *program, const char *commit, FILE *to)
{
    (void)fprintf(to, "%s %s\n", program, AFTD_VERSION);
    version_print_library("commit", commit, to);
    version_print_library("jansson", jansson_version_str(), to);
}
