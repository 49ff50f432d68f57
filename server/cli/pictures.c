/* pictures.c - see pictures.h. */
#include "server/cli/pictures.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/cli/cli.h"
#include "server/media/picture.h"

static int add(struct cli_pictures *p, const char *path)
{
    if (p->count == CHECK_FILES_MAX)
        return cli_fail("more than %d pictures; give fewer", CHECK_FILES_MAX);
    if (p->count == p->room) {
        const size_t room = p->room == 0 ? 64 : 2 * p->room;
        char **more = (char **)realloc((void *)p->paths, room * sizeof *more);
        if (more == NULL)
            return cli_fail("out of memory");
        p->paths = more;
        p->room = room;
    }
    p->paths[p->count] = strdup(path);
    if (p->paths[p->count] == NULL)
        return cli_fail("out of memory");
    p->count++;
    return CLI_OK;
}

static int is_picture_name(const struct dirent *e)
{
    return picture_has_name(e->d_name);
}

static int add_folder(struct cli_pictures *p, const char *path)
{
    struct dirent **entries = NULL;
    char file[PATH_MAX];
    int code = CLI_OK;
    const int count = scandir(path, &entries, is_picture_name, alphasort);
    const char *slash = path[strlen(path) - 1] == '/' ? "" : "/";
    if (count < 0)
        return cli_fail("%s: %s", path, strerror(errno));
    if (count == 0)
        code = cli_fail("%s holds no picture: expected files named *.jpg, *.jpeg, *.png or *.webp", path);
    for (int i = 0; i < count; i++) {
        if (code == CLI_OK &&
            snprintf(file, sizeof file, "%s%s%s", path, slash, entries[i]->d_name) >= (int)sizeof file)
            code = cli_fail("%s: the path of %s is too long", path, entries[i]->d_name);
        if (code == CLI_OK)
            code = add(p, file);
        free(entries[i]);
    }
    free((void *)entries);
    return code;
}

bool cli_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int cli_pictures_add(struct cli_pictures *p, const char *path)
{
    return cli_is_folder(path) ? add_folder(p, path) : add(p, path);
}

void cli_pictures_clear(struct cli_pictures *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->paths[i]);
    free((void *)p->paths);
    *p = (struct cli_pictures){.count = 0};
}
