/* pictures.h - the pictures that a command line names: files, and folders of them. Single threaded. */
#ifndef SERVER_CLI_PICTURES_H
#define SERVER_CLI_PICTURES_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed there are none. */
struct cli_pictures {
    char **paths; /* [count] */
    size_t count, room;
};

/* Add a file's path, or "-", as it is; of a folder the files that are named like pictures, sorted, without those of its
 * subfolders unless `deep`. Prints why not and returns CLI_FAILED: a folder that cannot be read or holds none, more
 * than CHECK_FILES_MAX in all, no memory. */
int cli_pictures_add(struct cli_pictures *p, const char *path, bool deep);
/* The same of files of any name, and subfolders are not named in their place. */
int cli_files_add(struct cli_pictures *p, const char *path, bool deep);
void cli_pictures_clear(struct cli_pictures *p);

/* Does the path name a folder? */
bool cli_is_folder(const char *path);

#endif
