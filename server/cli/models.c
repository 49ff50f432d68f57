/* models.c - aft models [DIR...], or a daemon's: which models can be named, where they are, and what they are. Single
 * threaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/cli/table.h"
#include "server/models/models_dir.h"
#include "server/models/precision.h"
#include "weights/tensor_set.h"

struct listing {
    json_t *rows;          /* an object for each model */
    const char *precision; /* as of cli_engine */
    bool failed;           /* of a model or a folder; why was printed */
};

static bool is_listed(const struct listing *l, const char *name)
{
    const json_t *row;
    size_t i;
    json_array_foreach(l->rows, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "model")), name) == 0)
            return true;
    }
    return false;
}

/* Everything but whether its tensors are those of a model, which loading it finds out: a row. */
static enum status read_model(json_t **ret, const struct found_model *found, const char *options, struct error *err)
{
    char path[MODELS_DIR_PATH_BYTES + 16];
    struct model_config config;
    struct tensor_set *tensors = NULL;
    struct precision_choice precision;
    uint64_t parameters = 0, narrow = 0;
    (void)snprintf(path, sizeof path, "%s/config.json", found->path);
    enum status st = model_config_read(&config, path, NULL, NULL, err);
    if (st != OK)
        return st;
    st = tensor_set_open(&tensors, found->path, err);
    for (size_t i = 0; st == OK && i < tensor_set_count(tensors); i++) {
        const struct tensor *t = tensor_set_at(tensors, i);
        parameters += t->elements;
        narrow += t->dtype == DTYPE_BF16 ? t->elements : 0;
    }
    if (st == OK)
        st = precision_choose(&precision, options, found->name, found->path, precision_stored_as(narrow, parameters),
                              getenv("AFTD_ISA"), err);
    if (st == OK)
        *ret = json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:s, s:s, s:o}", "model", found->name, "version",
                         found->version != 0 ? json_integer(found->version) : json_null(), "task",
                         model_task_name(config.task), "mixer", mixer_type_name(config.mixer.type), "file_bytes",
                         (json_int_t)tensor_set_bytes(tensors), "parameters", (json_int_t)parameters, "precision",
                         engine_precision_word(precision.precision), "precision_by",
                         precision_reason_word(precision.by), "path", cli_json_text(found->path, strlen(found->path)));
    tensor_set_close(tensors);
    model_config_clear(&config);
    return st;
}

/* Add a folder's models. One of a name that is listed would not be found by it, and one that is broken is told. */
static void add_dir(struct listing *l, const char *dir)
{
    struct found_model found[REGISTRY_MODELS_MAX];
    struct error err;
    size_t count = 0;
    if (models_dir_scan(found, &count, dir, &err) != OK) {
        (void)cli_fail_error(&err);
        l->failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        json_t *row = NULL;
        if (is_listed(l, found[i].name))
            continue;
        cli_wait_begin("reading", found[i].path);
        const enum status st = read_model(&row, &found[i], l->precision, &err);
        cli_wait_end();
        if (st == OK && json_array_append_new(l->rows, row) == 0)
            continue;
        (void)(st != OK ? cli_fail_error(&err) : cli_fail("out of memory"));
        l->failed = true;
    }
}

/* ---- what is printed -------------------------------------------------------------------------------------------- */

static int print_rows(const json_t *rows, bool as_json, const struct table_column *columns)
{
    json_t *row;
    size_t i;
    int code = CLI_OK;
    if (!as_json)
        table_print(stdout, columns, rows, SIZE_MAX);
    json_array_foreach(rows, i, row)
    {
        if (as_json && code == CLI_OK)
            code = cli_print_json(json_incref(row));
    }
    return code;
}

static int models_ask(const struct remote *r, bool as_json)
{
    static const struct table_column columns[] = {
        {"MODEL", "id", TABLE_TEXT, NULL},
        {"TASK", "task", TABLE_TEXT, NULL},
        {"MIXER", "mixer", TABLE_TEXT, NULL},
        {"PARAMETERS", "parameters", TABLE_COUNT, NULL},
        {"PRECISION", "precision", TABLE_TEXT, NULL},
        {"STATE", "state", TABLE_TEXT, NULL},
        {0},
    };
    json_t *answer = NULL;
    int code = remote_get_json(r, "/v1/models", &answer);
    if (code == CLI_OK)
        code = print_rows(json_object_get(answer, "data"), as_json, columns);
    json_decref(answer);
    return code;
}

/* ---- the verb --------------------------------------------------------------------------------------------------- */

/* Where models are found by name. A folder that is not there is none, unless it was set. */
static void add_usual_dirs(struct listing *l)
{
    const char *dir;
    for (size_t i = 0; (dir = cli_models_dir(i)) != NULL; i++)
        if (dir[0] != '\0' && (i == 0 || access(dir, F_OK) == 0))
            add_dir(l, dir);
}

static int list(struct listing *l, char **dirs, int count, bool as_json)
{
    static const struct table_column columns[] = {
        {"MODEL", "model", TABLE_TEXT, NULL},
        {"VERSION", "version", TABLE_COUNT, NULL},
        {"TASK", "task", TABLE_TEXT, NULL},
        {"MIXER", "mixer", TABLE_TEXT, NULL},
        {"SIZE", "file_bytes", TABLE_BYTES, NULL},
        {"PARAMETERS", "parameters", TABLE_COUNT, NULL},
        {"PRECISION", "precision", TABLE_TEXT, NULL},
        {"FOLDER", "path", TABLE_TEXT, NULL},
        {0},
    };
    for (int i = 0; i < count; i++)
        add_dir(l, dirs[i]);
    if (count == 0)
        add_usual_dirs(l);
    if (json_array_size(l->rows) > 0)
        return print_rows(l->rows, as_json, columns);
    return l->failed ? CLI_FAILED
                     : cli_fail("there are no models: expected some in $AFTD_MODELS_DIR, weights/models or %s, or DIR",
                                AFTD_DATADIR "/models");
}

int cli_models(int argc, char **argv)
{
    struct cli_engine with = {.precision = NULL};
    struct remote remote = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_JSON_OPTION(&json) CLI_PRECISION_OPTION(&with, "$AFTD_PRECISION, or auto")
                                             REMOTE_DAEMON_OPTIONS(&remote) REMOTE_KEY_OPTION(&remote){0}};
    int count;
    int code = cli_parse(options, argc, argv, 0, argc, &count);
    if (code == CLI_OK && count >= 0)
        code = remote_check(&remote);
    if (code != CLI_OK || count < 0)
        return code;
    if (remote.asks && count > 0)
        return cli_fail_usage("unexpected argument \"%s\": a daemon has its own folder of models", argv[1]);
    if (remote.asks)
        return cli_engine_refuse(&with) == CLI_OK ? models_ask(&remote, json) : CLI_USAGE;
    struct listing l = {.rows = json_array(), .precision = cli_precision_setting(&with)};
    code = list(&l, argv + 1, count, json);
    json_decref(l.rows);
    return l.failed ? CLI_FAILED : code;
}
