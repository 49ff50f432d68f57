/* inference_request.c - see inference_request.h. */
#include "server/api/inference_request.h"

#include <string.h>

#include "config/digits.h"
#include "config/json.h"
#include "config/limits.h"
#include "config/settings.h"
#include "server/fields/fields.h"
#include "server/fields/request_json.h"

static const char *const type_words[] = {
#define X(constant, word) word,
    INFERENCE_TYPES(X)
#undef X
};
enum { TYPE_COUNT = sizeof type_words / sizeof type_words[0] };

/* ---- fields ----------------------------------------------------------------------------------------------------- */

/* What clients send of their own accord and means nothing here. */
static bool read_anything(const json_t *value, void *to)
{
    (void)value;
    (void)to;
    return true;
}

struct head {
    const json_t *id, *parameters, *inputs, *outputs;
};

struct input {
    const json_t *name, *datatype, *shape, *data, *parameters;
};

struct output {
    const json_t *name, *parameters;
};

struct parameters {
    int64_t binary_data_size, classification;
    enum field_switch binary_data;
};

/* The parameters of a request that are the protocol's own. */
struct protocol {
    enum field_switch binary_outputs;
    int64_t us, priority; /* 0: not given */
};

#define OBJECT(kind, member)                                                                \
    {                                                                                       \
#member, FIELD_OBJECT, .offset = offsetof(struct kind, member), .what = "an object" \
    }
#define TENSORS(member, is_required)                                                                  \
    {                                                                                                 \
#member, FIELD_LIST, .required = (is_required), .offset = offsetof(struct head, member),      \
                             FIELD_RANGE(1, INFERENCE_TENSORS_MAX),                                   \
                             .what = "a list of 1 to " FIELD_DIGITS(INFERENCE_TENSORS_MAX) " objects" \
    }
#define LIST(member)                                                                                                   \
    {                                                                                                                  \
#member, FIELD_LIST, .offset = offsetof(struct input, member), FIELD_RANGE(0, HTTP_BODY_MAX), .what = "a list" \
    }
#define NAME(kind, member)                                                                         \
    {                                                                                              \
#member, FIELD_NAME, .offset = offsetof(struct kind, member), FIELD_RANGE(1, HTTP_URL_MAX) \
    }
#define IGNORED(name)                                                \
    {                                                                \
        name, FIELD_OTHER, .read = read_anything, .what = "anything" \
    }
static const struct field head_rows[] = {
    {"id", FIELD_NAME, .offset = offsetof(struct head, id), FIELD_RANGE(0, HTTP_URL_MAX)},
    OBJECT(head, parameters),
    TENSORS(inputs, true),
    TENSORS(outputs, false),
    IGNORED("model_name"), /* the path says it, as of gRPC's message the body does */
    IGNORED("model_version"),
};
static const struct field input_rows[] = {
    NAME(input, name), NAME(input, datatype), LIST(shape), LIST(data), OBJECT(input, parameters),
};
static const struct field output_rows[] = {NAME(output, name), OBJECT(output, parameters)};
static const struct field input_parameter_rows[] = {
    {"binary_data_size", FIELD_INTEGER, .offset = offsetof(struct parameters, binary_data_size),
     FIELD_RANGE(0, HTTP_BODY_MAX)},
    IGNORED("content_type"), /* MLServer's clients say how a tensor was made */
};
static const struct field output_parameter_rows[] = {
    {"binary_data", FIELD_SWITCH, .offset = offsetof(struct parameters, binary_data), FIELD_RANGE(0, 0)},
    {"classification", FIELD_INTEGER, .offset = offsetof(struct parameters, classification),
     FIELD_RANGE(0, CLASSIFY_TOP_K_MAX)},
    IGNORED("content_type"),
};
static const struct field protocol_rows[] = {
    {"binary_data_output", FIELD_SWITCH, .offset = offsetof(struct protocol, binary_outputs), FIELD_RANGE(0, 0)},
    {"timeout", FIELD_INTEGER, .offset = offsetof(struct protocol, us), FIELD_RANGE(1, (double)INT64_MAX),
     .what = "a whole number of microseconds, 1 or more"},
    {"priority", FIELD_INTEGER, .offset = offsetof(struct protocol, priority), FIELD_RANGE(0, (double)INT64_MAX),
     .what = "a whole number: 0, the default, or 1, the most urgent, or more"},
};
#undef IGNORED
#undef OBJECT
#undef TENSORS
#undef LIST
#undef NAME
static const struct field_list head_fields = FIELDS_OF(head_rows), input_fields = FIELDS_OF(input_rows),
                               protocol_fields = FIELDS_OF(protocol_rows), output_fields = FIELDS_OF(output_rows),
                               input_parameters = FIELDS_OF(input_parameter_rows),
                               output_parameters = FIELDS_OF(output_parameter_rows);

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

static enum status read_shape(struct inference_tensor *t, const json_t *shape, struct error *err)
{
    size_t i;
    json_t *side;
    t->rank = (uint32_t)json_array_size(shape);
    t->elements = 1;
    bool fine = shape != NULL && t->rank >= 1 && t->rank <= INFERENCE_RANK_MAX;
    json_array_foreach(shape, i, side)
    {
        const json_int_t number = json_integer_value(side);
        fine = fine && json_is_integer(side) && number >= 0 && number <= HTTP_BODY_MAX;
        if (!fine)
            break;
        t->shape[i] = (uint64_t)number;
        t->elements *= t->shape[i];
        fine = t->elements <= HTTP_BODY_MAX; /* no overflow: both factors are below 2^32 */
    }
    if (fine)
        return OK;
    return error_set_param(err, ERR_ARGUMENT, "shape",
                           "\"shape\" of the input \"%s\" is %s; expected a list of 1 to %d whole numbers, 0 or more, "
                           "whose product is at most %u",
                           json_quote(t->name).text, shape != NULL ? "something else" : "missing", INFERENCE_RANK_MAX,
                           HTTP_BODY_MAX);
}

static enum status read_type(struct inference_tensor *t, const json_t *datatype, struct error *err)
{
    for (int i = 0; datatype != NULL && i < TYPE_COUNT; i++)
        if (strcmp(json_string_value(datatype), type_words[i]) == 0) {
            t->type = (enum inference_type)i;
            return OK;
        }
    return error_set_param(
        err, ERR_ARGUMENT, "datatype", "\"datatype\" of the input \"%s\" is \"%s\"; expected BYTES, FP32 or UINT8",
        json_quote(t->name).text, datatype != NULL ? json_quote(json_string_value(datatype)).text : "missing");
}

/* If the input has a binary size, its bytes are the next ones of the binary part. */
static enum status read_input(struct inference_tensor *t, json_t *object, const uint8_t **binary, size_t *left,
                              const struct settings *s, struct error *err)
{
    struct input f = {0};
    struct parameters p = {.binary_data_size = -1};
    if (!json_is_object(object))
        return error_set_param(err, ERR_ARGUMENT, "inputs", "an input is %s; expected an object",
                               json_describe(object).text);
    enum status st = fields_read(&input_fields, object, s, &f, err);
    if (st == OK && f.parameters != NULL)
        st = fields_read(&input_parameters, (json_t *)f.parameters, s, &p, err);
    if (st == OK && f.name == NULL)
        st = error_set_param(err, ERR_ARGUMENT, "name", "\"name\" of an input is missing; expected a string");
    if (st != OK)
        return st;
    t->name = json_string_value(f.name);
    t->data = f.data;
    st = read_type(t, f.datatype, err);
    if (st == OK)
        st = read_shape(t, f.shape, err);
    if (st != OK)
        return st;
    if ((f.data != NULL) == (p.binary_data_size >= 0))
        return error_set_param(
            err, ERR_ARGUMENT, "data",
            "the input \"%s\" has %s; expected either \"data\" or the parameter \"binary_data_size\"",
            json_quote(t->name).text, f.data != NULL ? "both" : "neither");
    if (f.data != NULL)
        return OK;
    if ((uint64_t)p.binary_data_size > *left)
        return error_set_param(
            err, ERR_ARGUMENT, "binary_data_size",
            "\"binary_data_size\" of the input \"%s\" is %lld; expected at most %zu, the bytes that are "
            "left after the JSON",
            json_quote(t->name).text, (long long)p.binary_data_size, *left);
    t->raw = *binary;
    t->raw_size = (size_t)p.binary_data_size;
    if (t->raw_size == 0) /* of a body without anything after the JSON there is no address */
        return OK;
    *binary += t->raw_size;
    *left -= t->raw_size;
    return OK;
}

static enum status read_output(struct inference_output *w, json_t *object, bool binary, const struct settings *s,
                               struct error *err)
{
    struct output f = {0};
    struct parameters p = {.binary_data = FIELD_ABSENT};
    if (!json_is_object(object))
        return error_set_param(err, ERR_ARGUMENT, "outputs", "an output is %s; expected an object",
                               json_describe(object).text);
    enum status st = fields_read(&output_fields, object, s, &f, err);
    if (st == OK && f.parameters != NULL)
        st = fields_read(&output_parameters, (json_t *)f.parameters, s, &p, err);
    if (st == OK && f.name == NULL)
        st = error_set_param(err, ERR_ARGUMENT, "name", "\"name\" of an output is missing; expected a string");
    if (st != OK)
        return st;
    w->name = json_string_value(f.name);
    w->binary = p.binary_data == FIELD_ABSENT ? binary : p.binary_data == FIELD_TRUE;
    w->classification = (uint32_t)p.classification;
    return OK;
}

/* ---- the request ------------------------------------------------------------------------------------------------ */

/* Does the parameter belong to an extension of the protocol that means nothing here? There are no sequences of
 * requests, and headers are read where HTTP has them. */
static bool is_ignored(const char *name)
{
    static const char *const names[] = {"sequence_id", "sequence_start", "sequence_end", "headers", "content_type"};
    static const char reserved[] = "triton_"; /* by Triton's parameters extension, for its own */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, reserved, strlen(reserved)) == 0;
}

/* Sort them: the protocol's own into `own`, and for the model what is left. False: out of memory. */
static bool sort_parameters(json_t *parameters, json_t *own, json_t *for_model)
{
    const char *name;
    json_t *value;
    bool fine = own != NULL && for_model != NULL;
    json_object_foreach(parameters, name, value)
    {
        if (!is_ignored(name))
            fine = json_object_set(fields_find(&protocol_fields, name) != NULL ? own : for_model, name, value) == 0 &&
                   fine;
    }
    return fine;
}

static enum status read_parameters(struct inference_request *r, const json_t *parameters, const struct settings *s,
                                   struct error *err)
{
    struct protocol p = {.us = 0};
    json_t *own = json_object();
    r->parameters = json_object();
    enum status st = sort_parameters((json_t *)parameters, own, r->parameters)
                         ? fields_read(&protocol_fields, own, s, &p, err)
                         : error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    json_decref(own);
    if (st == OK && p.us / 1000 > (int64_t)s->timeout_ms_max)
        st = error_set_param(err, ERR_ARGUMENT, "timeout",
                             "\"timeout\" is %lld; expected a whole number of microseconds from 1 to %llu",
                             (long long)p.us, (unsigned long long)s->timeout_ms_max * 1000);
    r->binary_outputs = p.binary_outputs == FIELD_TRUE;
    r->timeout_ms = (uint32_t)(p.us / 1000 + (p.us % 1000 != 0));
    r->priority = p.priority;
    return st;
}

static enum status read_head(struct inference_request *r, const uint8_t *binary, size_t left, const struct settings *s,
                             struct error *err)
{
    struct head f = {0};
    enum status st = fields_read(&head_fields, r->head, s, &f, err);
    if (st == OK)
        st = read_parameters(r, f.parameters, s, err);
    r->id = f.id != NULL ? json_string_value(f.id) : NULL;
    r->input_count = (uint32_t)json_array_size(f.inputs);
    r->output_count = (uint32_t)json_array_size(f.outputs);
    for (uint32_t i = 0; i < r->input_count && st == OK; i++)
        st = read_input(&r->inputs[i], json_array_get(f.inputs, i), &binary, &left, s, err);
    for (uint32_t i = 0; i < r->output_count && st == OK; i++) {
        st = read_output(&r->outputs[i], json_array_get(f.outputs, i), r->binary_outputs, s, err);
        for (uint32_t k = 0; k < i && st == OK; k++)
            if (strcmp(r->outputs[i].name, r->outputs[k].name) == 0)
                st = error_set_param(err, ERR_ARGUMENT, "outputs",
                                     "the output \"%s\" is asked for twice; expected each once",
                                     json_quote(r->outputs[i].name).text);
    }
    if (st == OK && left > 0)
        st = error_set_param(
            err, ERR_ARGUMENT, "inputs",
            "%zu bytes after the JSON belong to no input; expected the sum of all \"binary_data_size\"", left);
    return st;
}

enum status inference_request_parse(struct inference_request *ret, const uint8_t *body, size_t size,
                                    const char *head_length, const struct settings *s, struct error *err)
{
    struct inference_request r = {.head = NULL};
    size_t head = size;
    if (head_length != NULL) {
        const char *end = head_length;
        uint64_t number = 0;
        if (!digits_read(&number, &end) || *end != '\0' || number > size)
            return error_set_param(
                err, ERR_ARGUMENT, "Inference-Header-Content-Length",
                "Inference-Header-Content-Length is \"%s\"; expected a whole number up to the body's "
                "%zu bytes",
                json_quote(head_length).text, size);
        head = (size_t)number;
    }
    enum status st = request_json_parse_bytes(&r.head, body, head, err);
    if (st == OK)
        st = read_head(&r, size > head ? body + head : NULL, size - head, s, err);
    if (st != OK) {
        inference_request_clear(&r);
        return st;
    }
    *ret = r;
    return OK;
}

void inference_request_clear(struct inference_request *r)
{
    json_decref(r->parameters);
    json_decref(r->head);
    *r = (struct inference_request){.head = NULL};
}
