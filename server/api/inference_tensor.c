/* inference_tensor.c - see inference_tensor.h. */
#include "server/api/inference_tensor.h"

#include <math.h>
#include <string.h>

#include "config/json.h"

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
