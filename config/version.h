/* version.h - what --version says: which build this is, and which libraries the program runs with. Those are printed by
 * the files that include their headers, as far as libraries tell. Main thread; no state. */
#ifndef CONFIG_VERSION_H
#define CONFIG_VERSION_H

#include <stdio.h>

/* The commit this was built from; "+changes" behind it: not that alone. The Makefile gives it to the two main files and
 * to no other, so that a new commit compiles only those anew. */
#ifndef AFTD_COMMIT
#define AFTD_COMMIT "unknown"
#endif

/* Name, version and commit of the program, and the libraries of config/. The first line is "aftd 0.2.0". */
void version_print(const char *program, const char *commit, FILE *to);
/* A line. */
void version_print_library(const char *name, const char *version, FILE *to);
/* The line of a library that does not tell its version: the name of the file that `function` was loaded from, such as
 * libexif.so.12.3.4. */
void version_print_file(const char *name, void (*function)(void), FILE *to);

#endif
