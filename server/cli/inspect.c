/* inspect.c - aft inspect MODEL: what a model directory holds and what it costs to serve, or what a daemon says of its
 * model. Single threaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/cli/table.h"

static json_t *describe_tensors(const struct model *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct tensor_info *t = &m->tensors[i];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->rank; d++)
            json_append(shape, json_integer((json_int_t)t->shape[d]));
        json_append(list, json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "dtype", dtype_name(t->dtype), "shape",
                                    shape, "bytes", (json_int_t)t->bytes));
    }
    return list;
}

/* What the mixer has of these is there, as in config.json. */
static json_t *describe_mixer(const struct mixer_config *x)
{
    json_t *mixer = json_pack("{s:s, s:b, s:b}", "type", mixer_type_name(x->type), "query_gate", (int)x->query_gate,
                              "global", (int)x->global);
    if (mixer_has(x->type, OPTION_WINDOW))
        json_put(mixer, "window", json_integer(x->window));
    if (x->heads != 0)
        json_put(mixer, "heads", json_integer(x->heads));
    if (mixer_has(x->type, OPTION_KERNEL))
        json_put(mixer, "kernel", json_pack("[i, i]", (int)x->kernel[0], (int)x->kernel[1]));
    return mixer;
}

/* A picture's height and width, or those of a patch. */
static json_t *describe_size(const uint32_t size[2])
{
    return size[0] != 0 ? json_pack("[i, i]", (int)size[0], (int)size[1]) : json_null();
}

/* Multiply-adds are those of an element that is generated, after a full context, of a picture, or of a text that fills
 * the context; a stream's bytes are its state, at any position. */
static json_t *inspect_describe(const struct model *m, const struct engine_info *info)
{
    const struct model_config *c = &m->config;
    return json_pack(
        "{s:s, s:s, s:o, s:i, s:i, s:i, s:o, s:o, s:i, s:i, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:s, s:s, "
        "s:o}",
        "model", m->name, "task", model_task_name(c->task), "mixer", describe_mixer(&c->mixer), "blocks", (int)c->depth,
        "dim", (int)c->dim, "hidden", (int)c->hidden, "size", describe_size(c->size), "patch", describe_size(c->patch),
        "context", (int)c->context, "classes", (int)c->classes, "chat_template", (int)chat_template_exists(&c->chat),
        "parameters", (json_int_t)m->parameters, "file_bytes", (json_int_t)m->file_bytes, "weight_bytes",
        (json_int_t)info->weight_bytes, "linear_macs", (json_int_t)info->macs, "mixing_macs",
        (json_int_t)info->mixer_macs, "stream_bytes", (json_int_t)info->stream_bytes, "isa", info->isa, "threads",
        (int)info->threads, "precision", info->precision, "blas", info->blas, "tensors", describe_tensors(m));
}

/* A field that is there a line, then the tensors. */
static int print(const json_t *told)
{
    static const struct table_column columns[] = {
        {"tensor", "name", TABLE_TEXT, NULL},
        {"dtype", "dtype", TABLE_TEXT, NULL},
        {"shape", "shape", TABLE_TEXT, NULL},
        {"bytes", "bytes", TABLE_COUNT, NULL},
        {0},
    };
    const json_t *tensors = json_object_get(told, "tensors");
    const char *field;
    json_t *value;
    char *whole = json_print(told, 0); /* nothing of it is told unless all of it is there */
    if (whole == NULL)
        return cli_fail("out of memory");
    free(whole);
    json_object_foreach((json_t *)told, field, value)
    {
        if (value == tensors || json_is_null(value))
            continue;
        char *text = json_print(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        (void)printf("%-30s %s\n", field, json_is_string(value) ? json_string_value(value) : text != NULL ? text : "");
        free(text);
    }
    if (tensors != NULL) {
        (void)printf("\n");
        table_print(stdout, columns, tensors, SIZE_MAX);
    }
    return CLI_OK;
}

/* What the daemon tells of its model. */
static int inspect_ask(const struct remote *r, json_t **ret)
{
    return r->model != NULL ? remote_named_json(r, "GET", "/v1/models/", r->model, ret)
                            : cli_fail_usage("--model is missing: which of the daemon's models");
}

static int look(const char *model, const struct cli_engine *with, json_t **ret)
{
    struct model *m = cli_load_model(model, NULL);
    struct engine_options o = {.pictures_max = 1, .streams_max = 1, .rows_max = 1};
    struct engine *e = cli_open_engine(m, with, &o);
    if (e != NULL)
        *ret = inspect_describe(m, engine_info(e));
    engine_close(e);
    model_free(m);
    return e != NULL ? CLI_OK : CLI_FAILED;
}

int cli_inspect(int argc, char **argv)
{
    struct cli_engine with = {.precision = NULL};
    struct remote remote = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_JSON_OPTION(&json) CLI_ENGINE_OPTIONS(&with) REMOTE_OPTIONS(&remote){0}};
    int count;
    json_t *told = NULL;
    int code = remote_parse(&remote, &with, options, argc, argv, 0, 0, &count);
    if (code != CLI_OK || count < 0)
        return code;
    code = remote.asks ? inspect_ask(&remote, &told) : look(remote.model, &with, &told);
    if (code == CLI_OK && (json || told == NULL))
        return cli_print_json(told);
    if (code == CLI_OK)
        code = print(told);
    json_decref(told);
    return code;
}
