/* models.c - aft models [DIR...], or a daemon's: which models can be named, where they are, and what they are. Single
 * threaded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/models/models_dir.h"
#include "server/models/precision.h"
#include "weights/tensor_set.h"

/* What is told of a model; its config is owned. */
struct listed {
    struct found_model found;
    struct model_config config;
    uint64_t parameters, file_bytes;
    struct precision_choice precision;
};

struct listing {
    struct listed *at; /* [count] */
    size_t count;
    const char *precision; /* as of cli_engine */
    bool failed;           /* of a model or a folder; why was printed */
};

static bool is_listed(const struct listing *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->at[i].found.name, name) == 0)
            return true;
    return false;
}

/* Everything but whether its tensors are those of a model, which loading it finds out. */
static enum status read_model(struct listed *ret, const struct found_model *found, const char *precision,
                              struct error *err)
{
    char path[MODELS_DIR_PATH_BYTES + 16];
    struct tensor_set *tensors = NULL;
    uint64_t narrow = 0;
    *ret = (struct listed){.found = *found};
    (void)snprintf(path, sizeof path, "%s/config.json", found->path);
    enum status st = model_config_read(&ret->config, path, NULL, NULL, err);
    if (st == OK)
        st = tensor_set_open(&tensors, found->path, err);
    for (size_t i = 0; st == OK && i < tensor_set_count(tensors); i++) {
        const struct tensor *t = tensor_set_at(tensors, i);
        ret->parameters += t->elements;
        narrow += t->dtype == DTYPE_BF16 ? t->elements : 0;
    }
    if (st == OK)
        ret->file_bytes = tensor_set_bytes(tensors);
    tensor_set_close(tensors);
    if (st == OK)
        st = precision_choose(&ret->precision, precision, found->name, found->path,
                              precision_stored_as(narrow, ret->parameters), getenv("AFTD_ISA"), err);
    if (st != OK)
        model_config_clear(&ret->config);
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
    struct listed *more = realloc(l->at, (l->count + count) * sizeof *more);
    if (more == NULL) {
        (void)cli_fail("out of memory");
        l->failed = true;
        count = 0;
    } else {
        l->at = more;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_listed(l, found[i].name))
            continue;
        cli_wait_begin("reading", found[i].path);
        const enum status st = read_model(&l->at[l->count], &found[i], l->precision, &err);
        cli_wait_end();
        if (st == OK) {
            l->count++;
        } else {
            (void)cli_fail_error(&err);
            l->failed = true;
        }
    }
}

/* ---- what is printed --------------------------------------------------------------------------------------------- */

static int print_json(const struct listed *m)
{
    const struct model_config *c = &m->config;
    json_t *version = m->found.version != 0 ? json_integer(m->found.version) : json_null();
    return cli_print_json(json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:s, s:s, s:o}", "model", m->found.name, "version",
                                    version, "task", model_task_name(c->task), "mixer", mixer_type_name(c->mixer.type),
                                    "file_bytes", (json_int_t)m->file_bytes, "parameters", (json_int_t)m->parameters,
                                    "precision", engine_precision_word(m->precision.precision), "precision_by",
                                    precision_reason_word(m->precision.by), "path",
                                    cli_json_text(m->found.path, strlen(m->found.path))));
}

/* "1.2 MB" */
static const char *say_size(uint64_t bytes, char out[32])
{
    const double mb = (double)bytes / 1e6;
    (void)snprintf(out, 32, mb >= 1000 ? "%.1f GB" : mb >= 10 ? "%.0f MB" : "%.1f MB", mb >= 1000 ? mb / 1000 : mb);
    return out;
}

static void print_table(const struct listing *l)
{
    int widths[3] = {5, 4, 5};
    char size[32], version[16];
    for (size_t i = 0; i < l->count; i++) {
        const struct listed *m = &l->at[i];
        const char *const cells[3] = {m->found.name, model_task_name(m->config.task),
                                      mixer_type_name(m->config.mixer.type)};
        for (size_t c = 0; c < 3; c++)
            widths[c] = (int)strlen(cells[c]) > widths[c] ? (int)strlen(cells[c]) : widths[c];
    }
    (void)printf("%-*s  %7s  %-*s  %-*s  %9s  %12s  %-9s  %s\n", widths[0], "MODEL", "VERSION", widths[1], "TASK",
                 widths[2], "MIXER", "SIZE", "PARAMETERS", "PRECISION", "FOLDER");
    for (size_t i = 0; i < l->count; i++) {
        const struct listed *m = &l->at[i];
        (void)snprintf(version, sizeof version, "%u", m->found.version);
        (void)printf("%-*s  %7s  %-*s  %-*s  %9s  %12" PRIu64 "  %-9s  ", widths[0], m->found.name,
                     m->found.version != 0 ? version : "-", widths[1], model_task_name(m->config.task), widths[2],
                     mixer_type_name(m->config.mixer.type), say_size(m->file_bytes, size), m->parameters,
                     engine_precision_word(m->precision.precision));
        cli_print_field(m->found.path);
        (void)printf("\n");
    }
}

/* ---- by a daemon ------------------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *model, const char *field)
{
    const char *text = json_string_value(json_object_get(model, field));
    return text != NULL ? text : "-"; /* as of one that is not loaded */
}

static int ask(const struct remote *r, bool as_json)
{
    json_t *answer = NULL, *model;
    size_t i;
    int code = remote_get_json(r, "/v1/models", &answer);
    const json_t *list = json_object_get(answer, "data");
    int width = (int)strlen("MODEL");
    json_array_foreach(list, i, model) width =
        (int)strlen(text_of(model, "id")) > width ? (int)strlen(text_of(model, "id")) : width;
    if (code == CLI_OK && !as_json)
        (void)printf("%-*s  %-20s  %-10s  %12s  %-9s  %s\n", width, "MODEL", "TASK", "MIXER", "PARAMETERS", "PRECISION",
                     "STATE");
    json_array_foreach(list, i, model)
    {
        if (as_json && code == CLI_OK)
            code = cli_print_json(json_incref(model));
        else if (!as_json)
            (void)printf("%-*s  %-20s  %-10s  %12" JSON_INTEGER_FORMAT "  %-9s  %s\n", width, text_of(model, "id"),
                         text_of(model, "task"), text_of(model, "mixer"),
                         json_integer_value(json_object_get(model, "parameters")), text_of(model, "precision"),
                         text_of(model, "state"));
    }
    json_decref(answer);
    return code;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* Where models are found by name. A folder that is not there is none, unless it was set. */
static void add_usual_dirs(struct listing *l)
{
    const char *dir;
    for (size_t i = 0; (dir = cli_models_dir(i)) != NULL; i++)
        if (dir[0] != '\0' && (i == 0 || access(dir, F_OK) == 0))
            add_dir(l, dir);
}

int cli_models(int argc, char **argv)
{
    struct listing l = {.at = NULL};
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
        return cli_engine_refuse(&with) == CLI_OK ? ask(&remote, json) : CLI_USAGE;
    l.precision = cli_precision_wish(&with);
    for (int i = 1; i <= count; i++)
        add_dir(&l, argv[i]);
    if (count == 0)
        add_usual_dirs(&l);
    if (!json && l.count > 0)
        print_table(&l);
    for (size_t i = 0; i < l.count; i++) {
        if (json && code == CLI_OK)
            code = print_json(&l.at[i]);
        model_config_clear(&l.at[i].config);
    }
    if (l.count == 0 && !l.failed)
        code = cli_fail("there are no models: expected some in $AFTD_MODELS_DIR, weights/models or %s, or DIR",
                        AFTD_DATADIR "/models");
    free(l.at);
    return l.failed ? CLI_FAILED : code;
}
