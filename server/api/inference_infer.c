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

/* `failed`: memory lacked for what does not go into the JSON, which json_print finds out by itself. */
struct inference_reply {
    json_t *outputs;
    FILE *binary; /* into bytes */
    char *bytes;
    size_t size;
    bool failed;
};

struct inference_text {
    const char *text; /* valid UTF-8, for JSON */
    size_t text_size;
    const void *bytes; /* the exact bytes, for binary */
    size_t size;
};
static void reply_begin(struct inference_reply *r)
{
    *r = (struct inference_reply){.outputs = json_array()};
    r->binary = open_memstream(&r->bytes, &r->size);
    r->failed = r->binary == NULL;
}

/* The binary part's bytes from `before` on belong to this output. Takes `data`, which is NULL for binary output. */
static void add_output(struct inference_reply *r, const char *name, const char *type, bool binary, json_t *data,
                       long before, size_t rows, size_t columns)
{
    json_t *output = json_pack("{s:s, s:s, s:[I]}", "name", name, "datatype", type, "shape", (json_int_t)rows);
    if (columns > 0)
        json_append(json_object_get(output, "shape"), json_integer((json_int_t)columns));
    if (binary)
        json_put(output, "parameters", json_pack("{s:I}", "binary_data_size", (json_int_t)(ftell(r->binary) - before)));
    else
        json_put(output, "data", data);
    json_append(r->outputs, output);
}

/* Add an output: numbers [rows, columns]. */
static void reply_add_numbers(struct inference_reply *r, const char *name, bool binary, const float *values,
                              size_t rows, size_t columns)
{
    if (r->failed)
        return;
    const size_t count = rows * columns;
    const long before = ftell(r->binary);
    json_t *data = binary ? NULL : json_array();
    if (binary)
        (void)fwrite(values, sizeof *values, count, r->binary); /* what fails, the stream remembers */
    for (size_t i = 0; i < count && !binary; i++)
        json_append(data, json_real((double)values[i]));
    add_output(r, name, "FP32", binary, data, before, rows, columns);
}

/* Add an output: texts, [rows] or, with columns > 0, [rows, columns]. */
static void reply_add_texts(struct inference_reply *r, const char *name, bool binary,
                            const struct inference_text *texts, size_t rows, size_t columns)
{
    if (r->failed)
        return;
    const size_t count = columns > 0 ? rows * columns : rows;
    const long before = ftell(r->binary);
    json_t *data = binary ? NULL : json_array();
    for (size_t i = 0; i < count; i++) {
        const struct inference_text *t = &texts[i];
        const uint32_t size = (uint32_t)t->size; /* little-endian, like every machine that this runs on */
        if (binary) {
            (void)fwrite(&size, sizeof size, 1, r->binary);
            (void)fwrite(t->bytes, 1, t->size, r->binary);
        } else {
            json_append(data, json_stringn(t->text, t->text_size));
        }
    }
    add_output(r, name, "BYTES", binary, data, before, rows, columns);
}

/* The head followed by the bytes, malloc'd; NULL for want of memory. */
static char *join(const char *head, size_t head_size, const char *bytes, size_t size)
{
    char *whole = malloc(head_size + size);
    if (whole == NULL)
        return NULL;
    memcpy(whole, head, head_size);
    memcpy(whole + head_size, bytes, size);
    return whole;
}

/* Answer and clear. id may be NULL. Returns OK. */
static enum status reply_finish(struct inference_reply *r, struct request *x, const char *model, const char *version,
                                const char *id)
{
    json_t *head = json_pack("{s:s, s:s, s:O}", "model_name", model, "model_version", version, "outputs", r->outputs);
    if (id != NULL)
        json_put(head, "id", json_string(id));
    r->failed = r->failed || fflush(r->binary) != 0 || ferror(r->binary) != 0;
    head = json_unless(r->failed, head);
    char *text = head != NULL && r->size > 0 ? json_print(head, REPLY_JSON_FLAGS) : NULL,
         *whole = text != NULL ? join(text, strlen(text), r->bytes, r->size) : NULL;
    if (whole != NULL) {
        char length[32];
        (void)snprintf(length, sizeof length, "%zu", strlen(text));
        request_add_header(x, "Inference-Header-Content-Length", length);
        (void)request_reply(x, 200, "application/octet-stream", whole, strlen(text) + r->size);
        json_decref(head);
    } else {
        (void)reply_send_json(x, 200, json_unless(r->size > 0, head)); /* with bytes there is no memory for the whole */
    }
    free(text);
    if (r->binary != NULL)
        (void)fclose(r->binary);
    free(r->bytes);
    json_decref(r->outputs);
    *r = (struct inference_reply){.outputs = NULL};
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
    struct inference_text *texts = calloc(rows * k, sizeof *texts);
    struct prediction best[CLASSIFY_TOP_K_MAX];
    bool failed = texts == NULL;
    for (size_t i = 0; i < rows * k && !failed; i++) {
        char *text = NULL;
        if (i % k == 0)
            logits_top(best, k, logits + i / k * c->classes, c->classes);
        const uint32_t index = best[i % k].index;
        const int size =
            asprintf(&text, "%f:%u:%s", (double)values[i / k * c->classes + index], index, c->labels[index]);
        failed = size < 0;
        if (!failed)
            texts[i] = (struct inference_text){text, (size_t)size, text, (size_t)size};
    }
    if (!failed)
        reply_add_texts(reply, how->name, how->binary, texts, rows, k);
    reply->failed |= failed;
    for (size_t i = 0; i < rows * k && texts != NULL; i++)
        free((void *)texts[i].bytes);
    free(texts);
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
    const enum status st = request_job_check(x, err);
    if (st != OK)
        return st;
    struct inference_reply reply;
    reply_begin(&reply);
    const struct classify_job *classified = classify_job_of(j);
    const size_t rows = classified->in.count;
    const char *const *names = inference_output_names(c->task);
    float *probabilities = malloc(rows * c->classes * sizeof *probabilities);
    for (size_t i = 0; i < rows && probabilities != NULL; i++)
        logits_probabilities(probabilities + i * c->classes, classified->logits + i * c->classes, c->classes);
    for (size_t i = 0; i < INFERENCE_OUTPUTS && probabilities != NULL; i++) {
        struct inference_output how;
        const float *values = strcmp(names[i], INFERENCE_LOGITS) == 0 ? classified->logits : probabilities;
        if (!wants(&s->request, names[i], &how))
            continue;
        if (how.classification > 0)
            add_classification(&reply, &how, c, values, classified->logits, rows);
        else
            reply_add_numbers(&reply, names[i], how.binary, values, rows, c->classes);
    }
    reply.failed |= probabilities == NULL;
    free(probabilities);
    return send_reply(x, &reply);
}

static enum status answer_texts(struct request *x, struct error *err)
{
    const struct job *j = &x->job;
    struct inference *s = x->state;
    struct inference_text out[GENERATE_SAMPLES_MAX], finishes[GENERATE_SAMPLES_MAX];
    const size_t count = generate_job_of(j)->sample_count;
    struct inference_output how;
    const enum status st = request_job_check(x, err);
    if (st != OK)
        return st;
    struct inference_reply reply;
    reply_begin(&reply);
    const struct whole_text *texts = text_reader_read_all(s->reader, true, NULL, NULL);
    reply.failed |= texts == NULL;
    for (size_t i = 0; i < count && texts != NULL; i++) {
        const char *word = job_finish_words[texts[i].finish];
        out[i] = (struct inference_text){texts[i].text, texts[i].text_bytes, texts[i].bytes, texts[i].size};
        finishes[i] = (struct inference_text){word, strlen(word), word, strlen(word)};
    }
    if (wants(&s->request, INFERENCE_TEXT, &how))
        reply_add_texts(&reply, how.name, how.binary, out, count, 0);
    if (wants(&s->request, INFERENCE_FINISH_REASON, &how))
        reply_add_texts(&reply, how.name, how.binary, finishes, count, 0);
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
            return fields_refuse(list, "parameter", name, err);
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
    st = picture_inputs_init(r, x, classify_fill, NULL, err);
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
    struct inference *s = x->state = request_alloc(x, sizeof *s, err);
    if (s == NULL || job_defer(&x->job, clear, s, err) != OK)
        return ERR_NOMEM;
    enum status st = inference_model(&e, x, err);
    if (st == OK)
        st = begin_job(x, e, err);
    return st == OK ? request_run_job(x, s->reader != NULL ? answer_texts : answer_classes) : st;
}
