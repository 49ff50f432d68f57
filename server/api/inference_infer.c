/* inference_infer.c - POST /v2/models/M/infer: tensors in, tensors out, with the same jobs as /classify and
 * /generate. Classifiers return logits and probabilities of each picture or text, generators a text for each prompt.
 * HTTP threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "engine/logits.h"
#include "server/api/generate_request.h"
#include "server/api/inference.h"
#include "server/api/inference_inputs.h"
#include "server/api/inference_request.h"
#include "server/api/route_table.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"
#include "server/operation/classify.h"
#include "server/operation/picture_inputs.h"
#include "server/operation/request_picture.h"
#include "server/operation/text_reader.h"
#include "server/request/authorise.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/service.h"

enum { NUMBERS_MAX = 64 }; /* bytes of "VALUE:INDEX:" of any float and class, with a NUL */

/* The request's state. */
struct inference {
    struct inference_request request; /* its inputs are freed once the job is made */
    struct text_reader *reader;       /* of a generator's job */
};

static void clear(void *state)
{
    struct inference *s = state;
    inference_request_clear(&s->request);
}

/* ---- a reply: a JSON head followed by the tensors that are wanted as binary ------------------------------------- */

struct inference_reply {
    json_t *outputs;
    FILE *binary; /* into bytes */
    char *bytes;
    size_t size;
    long told; /* bytes of the binary part that outputs have */
};

static enum status reply_begin(struct inference_reply *r, struct error *err)
{
    *r = (struct inference_reply){.outputs = NULL};
    r->binary = open_memstream(&r->bytes, &r->size);
    if (r->binary == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the answer; try again later");
    r->outputs = json_array();
    return OK;
}

/* What the binary part has got since the last output belongs to this one. Takes `data`, NULL for binary output. */
static void add_output(struct inference_reply *r, const char *name, const char *type, bool binary, json_t *data,
                       size_t rows, size_t columns)
{
    json_t *output = json_pack("{s:s, s:s, s:[I]}", "name", name, "datatype", type, "shape", (json_int_t)rows);
    const long before = r->told;
    r->told = ftell(r->binary);
    if (columns > 0)
        json_append(json_object_get(output, "shape"), json_integer((json_int_t)columns));
    if (binary)
        json_put(output, "parameters", json_pack("{s:I}", "binary_data_size", (json_int_t)(r->told - before)));
    else
        json_put(output, "data", data);
    json_append(r->outputs, output);
}

/* Add an output: numbers [rows, columns]. */
static void add_numbers(struct inference_reply *r, const struct inference_output *how, const float *values, size_t rows,
                        size_t columns)
{
    const size_t count = rows * columns;
    json_t *data = how->binary ? NULL : json_array();
    if (how->binary)
        (void)fwrite(values, sizeof *values, count, r->binary); /* what fails, the stream remembers */
    for (size_t i = 0; i < count && !how->binary; i++)
        json_append(data, json_real((double)values[i]));
    add_output(r, how->name, "FP32", how->binary, data, rows, columns);
}

/* Add a text to an output: valid UTF-8 to its data or, where that is NULL, the exact bytes to the binary part. */
static void add_text(struct inference_reply *r, json_t *data, const char *text, size_t text_size, const char *bytes,
                     size_t size)
{
    const uint32_t length = (uint32_t)size; /* little-endian, like every machine that this runs on */
    if (data != NULL) {
        json_append(data, json_stringn(text, text_size));
        return;
    }
    (void)fwrite(&length, sizeof length, 1, r->binary);
    (void)fwrite(bytes, 1, size, r->binary);
}

/* Answer and clear. id may be NULL. Returns OK. */
static enum status reply_finish(struct inference_reply *r, struct request *x, const char *model, const char *version,
                                const char *id)
{
    json_t *head = json_pack("{s:s, s:s, s:O}", "model_name", model, "model_version", version, "outputs", r->outputs);
    if (id != NULL)
        json_put(head, "id", json_string(id));
    head = json_unless(fflush(r->binary) != 0 || ferror(r->binary) != 0, head);
    char *text = head != NULL && r->size > 0 ? json_print(head, REPLY_JSON_FLAGS) : NULL;
    const size_t head_size = text != NULL ? strlen(text) : 0;
    char *whole = text != NULL ? realloc(text, head_size + r->size) : NULL;
    if (whole != NULL) {
        char length[32];
        memcpy(whole + head_size, r->bytes, r->size);
        (void)snprintf(length, sizeof length, "%zu", head_size);
        request_add_header(x, "Inference-Header-Content-Length", length);
        (void)request_reply(x, 200, "application/octet-stream", whole, head_size + r->size);
        json_decref(head);
    } else {
        free(text);
        (void)reply_send_json(x, 200, json_unless(r->size > 0, head)); /* with bytes there is no memory for the whole */
    }
    (void)fclose(r->binary);
    free(r->bytes);
    json_decref(r->outputs);
    return OK;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* Is the output wanted, and in what form? A request that names none wants all. */
static bool wants(const struct inference_request *r, const char *name, struct inference_output *how)
{
    *how = (struct inference_output){.name = name, .binary = r->binary_outputs};
    for (uint32_t i = 0; i < r->output_count; i++)
        if (strcmp(r->outputs[i].name, name) == 0) {
            *how = r->outputs[i];
            return true;
        }
    return r->output_count == 0;
}

/* "VALUE:INDEX:LABEL" of the most probable classes, as in the classification extension. values, logits [rows, classes].
 * */
static void add_classification(struct inference_reply *reply, const struct inference_output *how,
                               const struct model_config *c, const float *values, const float *logits, size_t rows)
{
    const size_t k = how->classification < c->classes ? how->classification : c->classes;
    struct prediction best[CLASSIFY_TOP_K_MAX];
    char text[NUMBERS_MAX + MODEL_LABEL_MAX];
    json_t *data = how->binary ? NULL : json_array();
    for (size_t row = 0; row < rows; row++) {
        logits_top(best, k, logits + row * c->classes, c->classes);
        for (size_t i = 0; i < k; i++) {
            const uint32_t index = best[i].index;
            const size_t size = (size_t)snprintf(text, sizeof text, "%f:%u:%s",
                                                 (double)values[row * c->classes + index], index, c->labels[index]);
            add_text(reply, data, text, size, text, size);
        }
    }
    add_output(reply, how->name, "BYTES", how->binary, data, rows, k);
}

static enum status send_reply(struct request *x, struct inference_reply *reply)
{
    const struct inference *s = x->state;
    char version[INFERENCE_VERSION_MAX];
    inference_version(version, x->job.model->version);
    return reply_finish(reply, x, x->job.model->model->name, version, s->request.id);
}

static enum status answer_classes(struct request *x, struct error *err)
{
    struct job *j = &x->job;
    const struct model_config *c = &j->model->model->config;
    const struct inference *s = x->state;
    classify_drop_pixels(j);
    const struct classify_job *classified = classify_job_of(j);
    const size_t rows = classified->in.count;
    const char *const *names = inference_output_names(c->task);
    struct inference_reply reply;
    float *probabilities = malloc(rows * c->classes * sizeof *probabilities); /* not while the client reads */
    const enum status st = probabilities != NULL
                               ? reply_begin(&reply, err)
                               : error_set(err, ERR_NOMEM, "out of memory for the answer; try again later");
    if (st != OK) {
        free(probabilities);
        return st;
    }
    for (size_t i = 0; i < rows; i++)
        logits_probabilities(probabilities + i * c->classes, classified->logits + i * c->classes, c->classes);
    for (size_t i = 0; i < INFERENCE_OUTPUTS; i++) {
        struct inference_output how;
        const float *values = strcmp(names[i], INFERENCE_LOGITS) == 0 ? classified->logits : probabilities;
        if (!wants(&s->request, names[i], &how))
            continue;
        if (how.classification > 0)
            add_classification(&reply, &how, c, values, classified->logits, rows);
        else
            add_numbers(&reply, &how, values, rows, c->classes);
    }
    free(probabilities);
    return send_reply(x, &reply);
}

static enum status answer_texts(struct request *x, struct error *err)
{
    const struct inference *s = x->state;
    const size_t count = generate_job_of(&x->job)->sample_count;
    struct inference_output how;
    struct inference_reply reply;
    const struct whole_text *texts = text_reader_read_all(s->reader, true, NULL, NULL);
    if (texts == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the answer; try again later");
    const enum status st = reply_begin(&reply, err);
    if (st != OK)
        return st;
    if (wants(&s->request, INFERENCE_TEXT, &how)) {
        json_t *data = how.binary ? NULL : json_array();
        for (size_t i = 0; i < count; i++)
            add_text(&reply, data, texts[i].text, texts[i].text_bytes, texts[i].bytes, texts[i].size);
        add_output(&reply, how.name, "BYTES", how.binary, data, count, 0);
    }
    if (wants(&s->request, INFERENCE_FINISH_REASON, &how)) {
        json_t *data = how.binary ? NULL : json_array();
        for (size_t i = 0; i < count; i++) {
            const char *word = job_finish_words[texts[i].finish];
            add_text(&reply, data, word, strlen(word), word, strlen(word));
        }
        add_output(&reply, how.name, "BYTES", how.binary, data, count, 0);
    }
    text_reader_free_texts(s->reader); /* of which the answer has copies */
    return send_reply(x, &reply);
}

/* ---- the request: what all models have in common ---------------------------------------------------------------- */

/* Names alone: inference_request.c has read the protocol's own, generate_request.c reads those that are fields of
 * /generate. */
#define PROTOCOLS                              \
    {.name = "timeout"}, {.name = "priority"}, \
    {                                          \
        .name = "binary_data_output"           \
    }
static const struct field classifier_names[] = {PROTOCOLS};
static const struct field generator_names[] = {{.name = "max_tokens"},
                                               {.name = "temperature"},
                                               {.name = "top_k"},
                                               {.name = "top_p"},
                                               {.name = "min_p"},
                                               {.name = "repetition_penalty"},
                                               {.name = "presence_penalty"},
                                               {.name = "frequency_penalty"},
                                               {.name = "allowed_bytes"},
                                               {.name = "utf8"},
                                               {.name = "seed"},
                                               {.name = "stop"},
                                               {.name = "context_overflow"},
                                               PROTOCOLS};
#undef PROTOCOLS
static const struct field_list classifier_parameters = FIELDS_OF(classifier_names),
                               generator_parameters = FIELDS_OF(generator_names);

static enum status check_parameters(json_t *parameters, const struct field_list *list, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(parameters, name, value)
    {
        if (fields_find(list, name) == NULL)
            return fields_refuse(list, "parameter", ":", name, err);
    }
    return OK;
}

/* Level 1 is the most urgent that the request may ask for, so that clients which know nothing of keys are not refused.
 * */
static int32_t priority_of(const struct request *x, const struct inference_request *q)
{
    enum { LEVELS = (QUEUE_PRIORITY_MAX - QUEUE_PRIORITY_MIN) / INFERENCE_PRIORITY_STEP };
    const int64_t below = q->priority - 1 < LEVELS ? q->priority - 1 : LEVELS,
                  priority = authorise_priority_max(x) - below * INFERENCE_PRIORITY_STEP;
    if (q->priority == 0)
        return QUEUE_PRIORITY_NORMAL;
    return priority > QUEUE_PRIORITY_MIN ? (int32_t)priority : QUEUE_PRIORITY_MIN;
}

/* ---- the request: classifiers ----------------------------------------------------------------------------------- */

static enum status refuse_inputs(const struct inference_request *q, const char *expected, struct error *err)
{
    if (q->input_count == 1)
        return error_set_param(err, ERR_ARGUMENT, "inputs", "the input is named \"%s\"; expected one: %s",
                               json_quote(q->inputs[0].name).text, expected);
    return error_set_param(err, ERR_ARGUMENT, "inputs", "there are %u inputs; expected one: %s", q->input_count,
                           expected);
}

static enum status classify(struct request *x, const struct inference_request *q, struct error *err)
{
    const struct model_config *c = &x->job.model->model->config;
    const bool is_text = c->task == TASK_TEXT_CLASSIFICATION;
    const struct inference_tensor *t = &q->inputs[0];
    enum status st = check_parameters(q->parameters, &classifier_parameters, err);
    if (st != OK)
        return st;
    const bool files = !is_text && strcmp(t->name, INFERENCE_IMAGE) == 0,
               pixels = !is_text && strcmp(t->name, INFERENCE_PIXELS) == 0,
               text = is_text && strcmp(t->name, INFERENCE_TEXT) == 0;
    if (q->input_count != 1 || (!files && !pixels && !text))
        return refuse_inputs(q, is_text ? INFERENCE_TEXT : INFERENCE_IMAGE " or " INFERENCE_PIXELS, err);
    st = classify_begin(&x->job, err);
    if (st != OK)
        return st;
    struct picture_inputs *r = &classify_job_of(&x->job)->in;
    st = picture_inputs_init(r, x, classify_note_input, NULL, err);
    if (st == OK)
        st = pixels ? inference_add_pixels(r, c->size[0], c->size[1], t, err)
                    : inference_add_elements(r, t, is_text, x->body.bytes, err);
    if (st == OK)
        st = classify_make_outputs(&x->job, false, err);
    if (st == OK)
        x->job.item.priority = priority_of(x, q);
    return st;
}

/* ---- the request: generators ------------------------------------------------------------------------------------ */

static enum status generate(struct request *x, const struct inference_request *q, struct error *err)
{
    struct inference *s = x->state;
    struct generate_request r = {0};
    const struct inference_tensor *t = &q->inputs[0];
    if (q->input_count != 1 || strcmp(t->name, INFERENCE_PROMPT) != 0)
        return refuse_inputs(q, INFERENCE_PROMPT, err);
    enum status st = check_parameters(q->parameters, &generator_parameters, err);
    if (st == OK)
        st = generate_request_read(&r, &generate_fields, q->parameters, x->service->settings, err);
    r.in.priority = priority_of(x, q);
    if (st == OK)
        st = inference_read_prompts(&r.in, t, err);
    if (st == OK)
        st = generate_request_check(&r.in, err);
    if (st == OK)
        st = text_reader_begin(&s->reader, &x->job, &r.in, r.in.max_tokens, false, err);
    generate_request_clear(&r);
    return st;
}

/* ---- the request ------------------------------------------------------------------------------------------------ */

static enum status check_outputs(const struct inference_request *q, enum model_task task, struct error *err)
{
    const char *const *names = inference_output_names(task);
    for (uint32_t i = 0; i < q->output_count; i++) {
        const struct inference_output *w = &q->outputs[i];
        if (strcmp(w->name, names[0]) != 0 && strcmp(w->name, names[1]) != 0)
            return error_set_param(err, ERR_ARGUMENT, "outputs", "there is no output \"%s\"; expected %s or %s",
                                   json_quote(w->name).text, names[0], names[1]);
        if (w->classification > 0 && task == TASK_TEXT_GENERATION)
            return error_set_param(
                err, ERR_ARGUMENT, "classification",
                "\"classification\" is given for the output \"%s\"; expected none: the output is a text", w->name);
    }
    return OK;
}

static enum status begin_job(struct request *x, struct hosted_model *e, struct error *err)
{
    struct inference *s = x->state;
    const enum model_task task = e->model->config.task;
    if (inference_output_names(task) == NULL)
        return error_set(err, ERR_ARGUMENT, "%s draws pictures, which this protocol does not serve; expected /complete",
                         e->model->name);
    enum status st =
        inference_request_parse(&s->request, x->body.bytes, x->body.size,
                                request_header(x, "Inference-Header-Content-Length"), x->service->settings, err);
    x->timeout_ms = s->request.timeout_ms;
    if (st == OK)
        st = check_outputs(&s->request, task, err);
    if (st == OK)
        st = task == TASK_TEXT_GENERATION ? generate(x, &s->request, err) : classify(x, &s->request, err);
    if (s->request.head != NULL) { /* numbers as JSON take many times the job's memory */
        (void)json_object_del(s->request.head, "inputs");
        s->request.input_count = 0;
    }
    return st;
}

enum status api_inference_infer(struct request *x, struct error *err)
{
    struct hosted_model *e;
    struct inference *s = x->state = job_alloc(&x->job, sizeof *s, err);
    if (s == NULL || job_defer(&x->job, clear, s, err) != OK)
        return ERR_NOMEM;
    enum status st = inference_model(&e, x, err);
    if (st == OK)
        st = begin_job(x, e, err);
    return st == OK ? request_job_made(x, s->reader != NULL ? answer_texts : answer_classes) : st;
}
