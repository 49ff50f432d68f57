/* inspect.c - aft inspect MODEL: what a model directory holds and what it costs to serve, or what a daemon says of its
 * model. Single threaded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/cli/table.h"

/* 1234567 -> "1,234,567" */
static const char *grouped(uint64_t n, char out[32])
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static void print_architecture(const struct model_config *c)
{
    const struct mixer_config *x = &c->mixer;
    (void)printf("mixer              %s", mixer_type_name(x->type));
    if (mixer_has(x->type, OPTION_WINDOW))
        (void)printf(", window %u", x->window);
    if (x->heads != 0)
        (void)printf(", %u heads", x->heads);
    if (mixer_has(x->type, OPTION_KERNEL))
        (void)printf(", kernel %u x %u", x->kernel[0], x->kernel[1]);
    (void)printf("%s%s\n", x->query_gate ? "" : ", no query gate", x->global ? "" : ", window only");
    (void)printf("size               %u blocks, dim %u, hidden %u\n", c->depth, c->dim, c->hidden);
    if (c->input == INPUT_IMAGE)
        (void)printf("input              pictures %u x %u (height x width), patches %u x %u\n", c->size[0], c->size[1],
                     c->patch[0], c->patch[1]);
    else if (c->input == INPUT_PIXELS)
        (void)printf("input              pictures %u x %u (height x width), one sub-pixel after another\n", c->size[0],
                     c->size[1]);
    else
        (void)printf("input              bytes, context %u\n", c->context);
    if (chat_template_exists(&c->chat))
        (void)printf("chat template      yes\n");
    if (c->classes != 0)
        (void)printf("classes            %u\n", c->classes);
}

static void print_costs(const struct model *m, const struct engine_info *info)
{
    char n[32];
    const char *unit = m->config.input == INPUT_IMAGE    ? "picture"
                       : m->config.input == INPUT_PIXELS ? "sub-pixel"
                       : m->config.classes != 0          ? "text of the whole context"
                                                         : "byte";
    (void)printf("parameters         %s\n", grouped(m->parameters, n));
    (void)printf("weights file       %s bytes\n", grouped(m->file_bytes, n));
    (void)printf("weights in memory  %s bytes\n", grouped(info->weight_bytes, n));
    (void)printf("multiply-adds      %s a %s in linear layers\n", grouped(info->macs, n), unit);
    (void)printf("                   %s a %s in mixing%s\n", grouped(info->mixer_macs, n), unit,
                 model_config_causal(&m->config) ? ", after a full context" : "");
    if (info->stream_bytes > 0)
        (void)printf("state per stream   %s bytes, at any position\n", grouped(info->stream_bytes, n));
    (void)printf("runs on            %s kernels, %u thread%s, products in %s, %s\n", info->isa, info->threads,
                 info->threads == 1 ? "" : "s", info->precision, info->blas);
}

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

static void print_tensors(const struct model *m)
{
    static const struct table_column columns[] = {
        {"tensor", "name", TABLE_TEXT, NULL},
        {"dtype", "dtype", TABLE_TEXT, NULL},
        {"shape", "shape", TABLE_TEXT, NULL},
        {"bytes", "bytes", TABLE_COUNT, NULL},
        {0},
    };
    json_t *tensors = describe_tensors(m);
    (void)printf("\n");
    table_print(stdout, columns, tensors, SIZE_MAX);
    json_decref(tensors);
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

static int print_json(const struct model *m, const struct engine_info *info)
{
    const struct model_config *c = &m->config;
    json_t *size = c->input == INPUT_BYTES ? json_null() : json_pack("[i, i]", (int)c->size[0], (int)c->size[1]);
    return cli_print_json(json_pack(
        "{s:s, s:s, s:o, s:i, s:i, s:i, s:o, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:s, s:o}", "model",
        m->name, "task", model_task_name(c->task), "mixer", describe_mixer(&c->mixer), "blocks", (int)c->depth, "dim",
        (int)c->dim, "hidden", (int)c->hidden, "size", size, "context", (int)c->context, "classes", (int)c->classes,
        "parameters", (json_int_t)m->parameters, "file_bytes", (json_int_t)m->file_bytes, "weight_bytes",
        (json_int_t)info->weight_bytes, "linear_macs", (json_int_t)info->macs, "mixing_macs",
        (json_int_t)info->mixer_macs, "stream_bytes", (json_int_t)info->stream_bytes, "isa", info->isa, "threads",
        (int)info->threads, "precision", info->precision, "tensors", describe_tensors(m)));
}

/* What the daemon tells of its model, a field a line. */
static int ask(const struct remote *r, bool as_json)
{
    json_t *answer = NULL, *value;
    const char *field;
    if (r->model == NULL)
        return cli_fail_usage("--model is missing: which of the daemon's models");
    int code = remote_named_json(r, "GET", "/v1/models/", r->model, &answer);
    if (code == CLI_OK && as_json)
        return cli_print_json(answer);
    json_object_foreach(answer, field, value)
    {
        char *text = json_print(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        (void)printf("%-30s %s\n", field, json_is_string(value) ? json_string_value(value) : text != NULL ? text : "");
        free(text);
    }
    json_decref(answer);
    return code;
}

int cli_inspect(int argc, char **argv)
{
    struct cli_engine with = {.precision = NULL};
    struct remote remote = {0};
    bool json = false;
    const struct cli_option options[] = {CLI_JSON_OPTION(&json) CLI_ENGINE_OPTIONS(&with) REMOTE_OPTIONS(&remote){0}};
    int count;
    int code = remote_parse(&remote, &with, options, argc, argv, 0, 0, &count);
    if (code != CLI_OK || count < 0)
        return code;
    if (remote.asks)
        return ask(&remote, json);
    struct model *m = cli_load_model(remote.model, NULL);
    if (m == NULL)
        return CLI_FAILED;
    struct engine_options o = {.images_max = 1, .streams_max = 1, .rows_max = 1};
    struct engine *e = cli_open_engine(m, &with, &o);
    code = e == NULL ? CLI_FAILED : CLI_OK;
    if (e != NULL && json) {
        code = print_json(m, engine_info(e));
    } else if (e != NULL) {
        (void)printf("model              %s\ntask               %s\n", m->name, model_task_name(m->config.task));
        print_architecture(&m->config);
        print_costs(m, engine_info(e));
        print_tensors(m);
    }
    engine_close(e);
    model_free(m);
    return code;
}
