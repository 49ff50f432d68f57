/* version.h - what aftd --version says. Main thread. */
#ifndef SERVER_API_VERSION_H
#define SERVER_API_VERSION_H

#include <stdio.h>

void version_print_daemon(const char *commit, FILE *to);

#endif
