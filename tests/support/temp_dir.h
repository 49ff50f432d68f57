/* temp_dir.h - a folder for one test's files. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_TEMP_DIR_H
#define TESTS_SUPPORT_TEMP_DIR_H

#include <limits.h>
#include <stddef.h>

/* A new folder under $TMPDIR or /tmp, into path. */
void temp_dir_create(char path[PATH_MAX]);
/* Remove the folder with all that is in it. */
void temp_dir_remove(const char *path);
/* A teardown: remove all that are still there. */
int temp_dirs_end(void **state);

/* path = dir/name. */
void temp_path(char path[PATH_MAX], const char *dir, const char *name);
/* Create or replace the file. */
void temp_write(const char *path, const void *bytes, size_t size);
/* The whole file, *size bytes with a NUL behind them; free it. */
char *temp_read(const char *path, size_t *size);

#endif
