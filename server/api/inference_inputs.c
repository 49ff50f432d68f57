/* inference_inputs.c - see inference_inputs.h. */
#include "server/api/inference_inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/limits.h"
#include "server/fields/request_bytes.h"

enum { PARAM_MAX = 64 };

/* ---- what is in a tensor ---------------------------------------------------------------------------------------- */

static enum status refuse_count(const struct inference_tensor *t, struct error *err)
{
    return error_set_param(
        err, ERR_ARGUMENT, "data",
        "the input \"%s\" does not have the %llu elements that its shape says; expected exactly as many",
        json_quote(t->name).text, (unsigned long long)t->elements);
}

/* BYTES in JSON: a flat list, or a list of one-element lists, as the shape [n, 1] is written. */
static const json_t *string_at(const json_t *data, size_t i)
{
    const json_t *value = json_array_get(data, i);
    if (json_array_size(value) == 1)
        value = json_array_get(value, 0);
    return json_is_string(value) ? value : NULL;
}

enum status inference_next_bytes(const struct inference_tensor *t, size_t *at, const uint8_t **bytes, size_t *size,
                                 struct error *err)
{
    if (t->data != NULL) {
        const json_t *value = string_at(t->data, *at);
        if (json_array_size(t->data) != t->elements)
            return refuse_count(t, err);
        if (value == NULL)
            return error_set_param(err, ERR_ARGUMENT, "data", "element %zu of the input \"%s\" is not a string", *at,
                                   json_quote(t->name).text);
        *bytes = (const uint8_t *)json_string_value(value);
        *size = json_string_length(value);
        *at += 1;
        return OK;
    }
    if (t->raw_size - *at < 4)
        return refuse_count(t, err);
    const uint8_t *length = t->raw + *at;
    const size_t wanted =
        (size_t)length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    if (wanted > t->raw_size - *at - 4)
        return error_set_param(
            err, ERR_ARGUMENT, "data",
            "an element of the input \"%s\" declares %zu bytes; expected at most the %zu that are left",
            json_quote(t->name).text, wanted, t->raw_size - *at - 4);
    *bytes = length + 4;
    *size = wanted;
    *at += 4 + wanted;
    return OK;
}

static enum status refuse_number(const struct inference_tensor *t, struct error *err)
{
    return error_set_param(err, ERR_ARGUMENT, "data",
                           "the input \"%s\" has a value that is not a number from 0 to 255; expected pixels",
                           json_quote(t->name).text);
}

/* Numbers as they are read. */
struct pixels {
    uint8_t *out; /* [room] */
    size_t used, room;
    double most;        /* of those so far */
    bool has_fractions; /* not all are whole */
};

/* False: it is not a number from 0 to 255, or one too many. */
static bool add_number(struct pixels *p, double number)
{
    if (!(number >= 0.0 && number <= 255.0) || p->used == p->room)
        return false;
    p->most = fmax(p->most, number);
    p->has_fractions |= number != floor(number);
    p->out[p->used++] = (uint8_t)lrint(number);
    return true;
}

/* Depth first; false for a value that is not such a number, or for one too many. */
static bool add_numbers(struct pixels *p, const json_t *value, unsigned depth)
{
    size_t i;
    json_t *inner;
    if (!json_is_array(value))
        return json_is_number(value) && add_number(p, json_number_value(value));
    if (depth == 0)
        return false;
    json_array_foreach(value, i, inner)
    {
        if (!add_numbers(p, inner, depth - 1))
            return false;
    }
    return true;
}

/* The numbers of a raw tensor of the right size; false: one is not from 0 to 255. */
static bool add_raw(struct pixels *p, const struct inference_tensor *t)
{
    for (size_t i = 0; i < p->room; i++) {
        float number; /* little-endian, like every machine that this runs on */
        memcpy(&number, t->raw + i * sizeof number, sizeof number);
        if (!add_number(p, (double)number))
            return false;
    }
    return true;
}

/* Pictures as most training code has them, from 0 to 1, would all be black. */
static enum status refuse_scaled(const struct inference_tensor *t, const struct pixels *p, struct error *err)
{
    if (!p->has_fractions || p->most > 1.0)
        return OK;
    return error_set_param(
        err, ERR_ARGUMENT, "data",
        "the values of the input \"%s\" lie between 0 and 1; expected pixels from 0 to 255: multiply "
        "them by 255",
        json_quote(t->name).text);
}

enum status inference_read_pixels(uint8_t *out, const struct inference_tensor *t, struct error *err)
{
    const size_t width = t->type == INFERENCE_FP32 ? sizeof(float) : 1;
    struct pixels p = {.out = out, .room = (size_t)t->elements};
    if (t->data != NULL) {
        if (!add_numbers(&p, t->data, INFERENCE_RANK_MAX))
            return p.used == p.room ? refuse_count(t, err) : refuse_number(t, err);
        return p.used == p.room ? refuse_scaled(t, &p, err) : refuse_count(t, err);
    }
    if (t->raw_size != p.room * width)
        return refuse_count(t, err);
    if (t->type != INFERENCE_FP32) {
        memcpy(out, t->raw, p.room);
        return OK;
    }
    return add_raw(&p, t) ? refuse_scaled(t, &p, err) : refuse_number(t, err);
}

/* ---- inputs ----------------------------------------------------------------------------------------------------- */

/* [n] or [n, 1]. */
static enum status check_list(const struct inference_tensor *t, struct error *err)
{
    if (t->type == INFERENCE_BYTES && (t->rank == 1 || (t->rank == 2 && t->shape[1] == 1)) && t->elements >= 1)
        return OK;
    return error_set_param(
        err, ERR_ARGUMENT, "shape",
        "the input \"%s\" has the wrong datatype or shape; expected BYTES of [n] or [n, 1], n at least 1",
        json_quote(t->name).text);
}

/* In JSON a picture is base64: its bytes are put at *room, of the body, whose text is the JSON's by now, and which was
 * longer. */
static enum status add_image(struct picture_inputs *r, const struct inference_tensor *t, const uint8_t *bytes,
                             size_t size, uint8_t **room, const char *param, struct error *err)
{
    if (t->data == NULL)
        return picture_inputs_add_file(r, bytes, size, NULL, param, err);
    uint8_t *file = *room;
    if (!request_base64_decode((const char *)bytes, size, file, &size))
        return error_set_param(err, ERR_ARGUMENT, param,
                               "%s is not base64; expected RFC 4648's, padded, or the picture itself as binary data",
                               param);
    *room += size;
    return picture_inputs_add_file(r, file, size, NULL, param, err);
}

enum status inference_add_elements(struct picture_inputs *r, const struct inference_tensor *t, bool is_text,
                                   uint8_t *room, struct error *err)
{
    enum status st = check_list(t, err);
    size_t at = 0;
    for (uint64_t i = 0; i < t->elements && st == OK; i++) {
        char param[PARAM_MAX];
        const uint8_t *bytes;
        size_t size;
        (void)snprintf(param, sizeof param, "%.16s[%llu]", t->name, (unsigned long long)i);
        st = inference_next_bytes(t, &at, &bytes, &size, err);
        if (st == OK)
            st = is_text ? picture_inputs_add_text(r, (const char *)bytes, size, param, err)
                         : add_image(r, t, bytes, size, &room, param, err);
    }
    if (st == OK && t->data == NULL && at != t->raw_size)
        st = error_set_param(err, ERR_ARGUMENT, "data",
                             "the input \"%s\" has bytes after its last element; expected none",
                             json_quote(t->name).text);
    return st;
}

/* [3, height, width] -> [height, width, 3] */
static void interleave(uint8_t *to, const uint8_t *from, size_t area)
{
    for (size_t i = 0; i < area; i++)
        for (size_t c = 0; c < 3; c++)
            to[3 * i + c] = from[c * area + i];
}

enum status inference_add_pixels(struct picture_inputs *r, uint32_t height, uint32_t width,
                                 const struct inference_tensor *t, struct error *err)
{
    const bool sized =
        t->type != INFERENCE_BYTES && t->rank == 4 && t->shape[0] >= 1 && t->shape[0] <= CLASSIFY_INPUTS_MAX;
    const bool last = sized && t->shape[1] == height && t->shape[2] == width && t->shape[3] == 3,
               first = sized && !last && t->shape[1] == 3 && t->shape[2] == height && t->shape[3] == width;
    if (!last && !first)
        return error_set_param(err, ERR_ARGUMENT, "shape",
                               "the input \"%s\" has the wrong datatype or shape; expected FP32 or UINT8 of "
                               "[n, %u, %u, 3] or [n, 3, %u, %u], n from 1 to %d",
                               json_quote(t->name).text, height, width, height, width, CLASSIFY_INPUTS_MAX);
    const size_t area = (size_t)height * width;
    uint8_t *all = malloc(t->elements);
    if (all == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    enum status st = inference_read_pixels(all, t, err);
    for (uint64_t i = 0; i < t->shape[0] && st == OK; i++) {
        uint8_t *pixels = malloc(area * 3);
        if (pixels == NULL) {
            st = error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
            break;
        }
        if (last)
            memcpy(pixels, all + i * area * 3, area * 3);
        else
            interleave(pixels, all + i * area * 3, area);
        st = picture_inputs_add_pixels(r, pixels, width, height, t->name, err);
        if (st != OK)
            free(pixels);
    }
    free(all);
    return st;
}

enum status inference_read_prompts(struct generate_input *in, const struct inference_tensor *t, struct error *err)
{
    enum status st = check_list(t, err);
    size_t at = 0, total = 0;
    if (st == OK && t->elements > GENERATE_PROMPTS_MAX)
        st = error_set_param(err, ERR_ARGUMENT, "shape", "there are %llu prompts; expected at most %d",
                             (unsigned long long)t->elements, GENERATE_PROMPTS_MAX);
    for (uint64_t i = 0; i < t->elements && st == OK; i++) {
        const uint8_t *bytes;
        size_t size = 0;
        st = inference_next_bytes(t, &at, &bytes, &size, err);
        if (st == OK && size > GENERATE_PROMPT_MAX - total)
            st = error_set_param(err, ERR_ARGUMENT, "data",
                                 "the prompts have more than %d bytes; expected at most that", GENERATE_PROMPT_MAX);
        uint8_t *more = st == OK && size > 0 ? realloc(in->prompt, total + size) : NULL;
        if (st == OK && size > 0 && more == NULL)
            st = error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
        if (more != NULL) {
            in->prompt = more;
            memcpy(in->prompt + total, bytes, size);
            total += size;
        }
        in->ends[i] = total;
    }
    if (st == OK && t->data == NULL && at != t->raw_size)
        st = error_set_param(err, ERR_ARGUMENT, "data",
                             "the input \"%s\" has bytes after its last element; expected none", t->name);
    in->prompt_bytes = total;
    in->prompt_count = (uint32_t)t->elements;
    return st;
}
