/* inference_reply.c - see inference_reply.h. */
#include "server/api/inference_reply.h"

#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/request/reply.h"

void inference_reply_begin(struct inference_reply *r)
{
    *r = (struct inference_reply){.outputs = json_array()};
    r->binary = open_memstream(&r->bytes, &r->size);
    r->failed = r->binary == NULL;
}

/* The binary part's bytes from `before` on belong to this output. Takes `data`, which is NULL for binary output. */
static void add(struct inference_reply *r, const char *name, const char *type, bool binary, json_t *data, long before,
                size_t rows, size_t columns)
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

void inference_reply_add_numbers(struct inference_reply *r, const char *name, bool binary, const float *values,
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
    add(r, name, "FP32", binary, data, before, rows, columns);
}

void inference_reply_add_texts(struct inference_reply *r, const char *name, bool binary,
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
    add(r, name, "BYTES", binary, data, before, rows, columns);
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

enum status inference_reply_send(struct inference_reply *r, struct request *x, const char *model, const char *version,
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
