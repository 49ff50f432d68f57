/* pictures.c - see pictures.h. */
#include "server/cli/pictures.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/cli/cli.h"
#include "server/media/picture.h"

static int add(struct cli_pictures *p, const char *path)
{
    if (p->count == CHECK_FILES_MAX)
        return cli_fail("more than %d files; give fewer", CHECK_FILES_MAX);
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

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int add_folder(struct cli_pictures *p, const char *path, bool deep, bool any_name)
{
    char *const roots[] = {(char *)path, NULL};
    const size_t before = p->count;
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    int code = walk != NULL ? CLI_OK : cli_fail("%s: %s", path, strerror(errno));
    errno = 0;
    for (FTSENT *e; code == CLI_OK && (e = fts_read(walk)) != NULL;) {
        const bool below = e->fts_info == FTS_D && e->fts_level > 0 && !deep;
        if (below)
            (void)fts_set(walk, e, FTS_SKIP);
        if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || (deep && e->fts_info == FTS_NS))
            code = cli_fail("%s: %s", e->fts_path, strerror(e->fts_errno));
        else if (((below && !any_name) || (e->fts_info != FTS_D && e->fts_info != FTS_DP)) &&
                 (any_name || picture_has_name(e->fts_name)))
            code = add(p, e->fts_path);
        errno = 0;
    }
    if (code == CLI_OK && errno != 0)
        code = cli_fail("%s: %s", path, strerror(errno));
    if (walk != NULL)
        (void)fts_close(walk);
    if (code == CLI_OK && p->count == before)
        code = any_name ? cli_fail("%s holds no file", path)
                        : cli_fail("%s holds no picture: expected files named *.jpg, *.jpeg, *.png or *.webp", path);
    return code;
}

bool cli_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int cli_pictures_add(struct cli_pictures *p, const char *path, bool deep)
{
    return cli_is_folder(path) ? add_folder(p, path, deep, false) : add(p, path);
}

int cli_files_add(struct cli_pictures *p, const char *path, bool deep)
{
    return cli_is_folder(path) ? add_folder(p, path, deep, true) : add(p, path);
}

void cli_pictures_clear(struct cli_pictures *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->paths[i]);
    free((void *)p->paths);
    *p = (struct cli_pictures){.count = 0};
}
