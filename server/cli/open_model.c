/* open_model.c - a model by its name or folder, and an engine for it; see cli.h. Single threaded; the state is the
 * folder of the latest model. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/cli/cli.h"
#include "server/models/models_dir.h"
#include "server/models/precision.h"

static char loaded_dir[PATH_MAX];

/* Is there a model in `dir`, itself or as versions? What cannot be looked at may be one: do not go on to another of
 * that name. */
static enum status look(struct found_model *ret, bool *there, const char *dir, struct error *err)
{
    char file[PATH_MAX], path[PATH_MAX], name[MODEL_NAME_MAX + 1];
    struct stat st;
    if (snprintf(file, sizeof file, "%s/config.json", dir) >= (int)sizeof file || strlen(dir) >= sizeof ret->path)
        return OK;
    if (stat(file, &st) != 0 && errno != ENOENT && errno != ENOTDIR)
        return error_set(err, status_of_errno(errno), "%s: %s", file, strerror(errno));
    (void)snprintf(path, sizeof path, "%s", dir); /* which basename changes */
    (void)snprintf(name, sizeof name, "%.*s", MODEL_NAME_MAX, basename(path));
    return models_dir_look(ret, there, name, dir, err);
}

const char *cli_models_dir(size_t i)
{
    const char *const dirs[] = {getenv("AFTD_MODELS_DIR"), "weights/models", AFTD_DATADIR "/models"};
    return i >= sizeof dirs / sizeof dirs[0] ? NULL : dirs[i] != NULL ? dirs[i] : "";
}

static enum status find_model(struct found_model *ret, const char *name, struct error *err)
{
    char dir[PATH_MAX];
    const char *parent;
    bool there = false;
    enum status st = name[0] != '\0' ? look(ret, &there, name, err) : OK;
    const bool plain = name[0] != '\0' && strchr(name, '/') == NULL;
    for (size_t i = 0; st == OK && !there && plain && (parent = cli_models_dir(i)) != NULL; i++)
        if (parent[0] != '\0' && snprintf(dir, sizeof dir, "%s/%s", parent, name) < (int)sizeof dir)
            st = look(ret, &there, dir, err);
    if (st != OK || there)
        return st;
    struct stat file;
    return error_set(err, ERR_NOT_FOUND,
                     "no model \"%.200s\"%s: expected a folder with a config.json, or the name of one under "
                     "weights/models, $AFTD_MODELS_DIR or %s",
                     name, stat(name, &file) == 0 && S_ISREG(file.st_mode) ? ", a file, which was taken as MODEL" : "",
                     AFTD_DATADIR "/models");
}

static void warn(void *arg, const char *message)
{
    (void)arg;
    cli_warn("%s", message);
}

enum status cli_try_model(struct model **ret, const char *name, struct error *err)
{
    struct found_model found = {.version = 0};
    enum status st = find_model(&found, name, err);
    if (st == OK && found.version != 0) /* whose folder is named by a number */
        st = model_check_name(found.name, strlen(found.name), found.path, err);
    if (st != OK)
        return st;
    cli_wait_begin("loading", name);
    st = model_load_as(ret, found.version != 0 ? found.name : NULL, found.path, warn, NULL, err);
    cli_wait_end();
    if (st == OK)
        (void)snprintf(loaded_dir, sizeof loaded_dir, "%s", found.path);
    return st;
}

struct model *cli_load_model(const char *name, const enum model_task *task)
{
    struct model *m = NULL;
    struct error err;
    if (cli_try_model(&m, name, &err) != OK) {
        (void)cli_fail_error(&err);
        return NULL;
    }
    if (task == NULL || m->config.task == *task)
        return m;
    (void)cli_fail("%s is a model for %s, expected one for %s", m->name, model_task_name(m->config.task),
                   model_task_name(*task));
    model_free(m);
    return NULL;
}

const char *cli_model_dir(void)
{
    return loaded_dir;
}

const char *cli_precision_setting(const struct cli_engine *with)
{
    return with->precision != NULL ? with->precision : getenv("AFTD_PRECISION");
}

int cli_engine_refuse(const struct cli_engine *with)
{
    if (with->tokens_max != 0)
        return cli_fail_usage("--tokens-max is not for a daemon, which has the setting picture_tokens_max instead");
    if (with->precision == NULL && with->threads == 0)
        return CLI_OK;
    const char *option = with->precision != NULL ? "precision" : "threads";
    return cli_fail_usage("--%s is not for a daemon, which has the setting %s instead", option, option);
}

enum status cli_try_engine(struct engine **ret, const struct model *m, const struct cli_engine *with,
                           struct engine_options *o, struct error *err)
{
    struct precision_choice chosen;
    o->isa = getenv("AFTD_ISA");
    o->threads = (uint32_t)with->threads;
    if (with->size != NULL)
        o->tokens_max = with->tokens_max != 0 ? (uint32_t)with->tokens_max : PICTURE_TOKENS_DEFAULT;
    enum status st =
        precision_choose(&chosen, cli_precision_setting(with), m->name, loaded_dir, precision_stored(m), o->isa, err);
    if (st != OK)
        return st;
    o->precision = chosen.precision;
    cli_wait_begin("packing the weights of", m->name);
    st = engine_open(ret, m, o, err);
    cli_wait_end();
    return st;
}

struct engine *cli_open_engine(const struct model *m, const struct cli_engine *with, struct engine_options *o)
{
    struct engine *e = NULL;
    struct error err;
    if (m != NULL && cli_try_engine(&e, m, with, o, &err) != OK)
        (void)cli_fail_error(&err);
    return e;
}
