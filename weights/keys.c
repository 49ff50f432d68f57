/* keys.c - the table-driven reading of JSON objects. Any thread; no state. */
#include "weights/keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"

/* One key of one object, for messages. */
struct key_node {
    const struct key_reader *reader;
    const struct key *key;
    char name[ERROR_PARAM_MAX]; /* "mixer.heads" */
};

/* ---- messages --------------------------------------------------------------------------------------------------- */

struct expectation {
    char text[256];
};

static struct expectation describe_expected(const struct key *k)
{
    struct expectation e = {""};
    size_t at = 0;

    switch (k->kind) {
    case KEY_WORD:
        for (size_t i = 0; i < k->word_count && at < sizeof e.text; i++)
            at += (size_t)snprintf(e.text + at, sizeof e.text - at, "%s\"%s\"",
                                   i == 0 ? "" : (i + 1 < k->word_count ? ", " : " or "), k->words[i]);
        break;
    case KEY_FLAG:
        (void)snprintf(e.text, sizeof e.text, "true or false");
        break;
    case KEY_INTEGER:
    case KEY_NUMBER: {
        const char *const one = k->kind == KEY_INTEGER ? "an integer" : "a number";
        const char *const many = k->kind == KEY_INTEGER ? "integers" : "numbers";
        if (k->length == 1)
            (void)snprintf(e.text, sizeof e.text, "%s %g..%g", one, k->min, k->max);
        else
            (void)snprintf(e.text, sizeof e.text, "%s%sa list of %u %s %g..%g", k->scalar ? one : "",
                           k->scalar ? " or " : "", k->length, many, k->min, k->max);
        break;
    }
    case KEY_TEXT:
        (void)snprintf(e.text, sizeof e.text, "a string of at most %u bytes", k->length);
        break;
    case KEY_TEXTS:
        (void)snprintf(e.text, sizeof e.text, "a list of %g..%g strings of at most %u bytes", k->min, k->max,
                       k->length);
        break;
    case KEY_OBJECT:
        (void)snprintf(e.text, sizeof e.text, "an object");
        break;
    case KEY_IGNORED:
        break;
    }
    return e;
}

static enum status keys_refuse(const struct key_node *p, const json_t *value, struct error *err)
{
    return error_set_param(err, ERR_FORMAT, p->name, "%s: %s is %s, expected %s", p->reader->path, p->name,
                           json_describe(value).text, describe_expected(p->key).text);
}

static enum status refuse_element(const struct key_node *p, size_t i, const json_t *element, struct error *err)
{
    return error_set_param(err, ERR_FORMAT, p->name, "%s: %s[%zu] is %s, expected %s", p->reader->path, p->name, i,
                           json_describe(element).text, describe_expected(p->key).text);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static void *field_of(const struct key_node *p)
{
    return (char *)p->reader->base + p->key->offset;
}

static enum status read_word(const struct key_node *p, const json_t *value, struct error *err)
{
    for (size_t i = 0; json_is_string(value) && i < p->key->word_count; i++) {
        if (strcmp(json_string_value(value), p->key->words[i]) == 0) {
            const unsigned number = (unsigned)i;
            memcpy(field_of(p), &number, sizeof number);
            return OK;
        }
    }
    return keys_refuse(p, value, err);
}

/* One integer or number into element i of the field. False: it is not what was expected. */
static bool store_number(const struct key_node *p, size_t i, const json_t *value)
{
    const struct key *k = p->key;

    if (k->kind == KEY_INTEGER ? !json_is_integer(value) : !json_is_number(value))
        return false;
    const double x = json_number_value(value);
    if (!(x >= k->min && x <= k->max))
        return false;
    if (k->kind == KEY_INTEGER)
        ((uint32_t *)field_of(p))[i] = (uint32_t)x;
    else
        ((float *)field_of(p))[i] = (float)x;
    return true;
}

static enum status read_numbers(const struct key_node *p, const json_t *value, struct error *err)
{
    const uint32_t length = p->key->length;

    if (length > 1 && json_is_array(value)) {
        if (json_array_size(value) != length)
            return keys_refuse(p, value, err);
        for (size_t i = 0; i < length; i++) {
            if (!store_number(p, i, json_array_get(value, i)))
                return refuse_element(p, i, json_array_get(value, i), err);
        }
        return OK;
    }
    if (length > 1 && !p->key->scalar)
        return keys_refuse(p, value, err);
    for (size_t i = 0; i < length; i++) {
        if (!store_number(p, i, value))
            return keys_refuse(p, value, err);
    }
    return OK;
}

static enum status read_text(const struct key_node *p, const json_t *value, struct error *err)
{
    if (!json_is_string(value) || json_string_length(value) > p->key->length)
        return keys_refuse(p, value, err);
    char *text = strdup(json_string_value(value));
    if (text == NULL)
        return error_set_param(err, ERR_NOMEM, p->name, "%s: not enough memory for %s", p->reader->path, p->name);
    *(char **)field_of(p) = text;
    return OK;
}

static enum status read_texts(const struct key_node *p, const json_t *value, struct error *err)
{
    const struct key *k = p->key;
    const size_t n = json_array_size(value);
    char **texts;

    if (!json_is_array(value) || (double)n < k->min || (double)n > k->max)
        return keys_refuse(p, value, err);
    texts = calloc(n, sizeof(char *));
    if (texts == NULL)
        return error_set_param(err, ERR_NOMEM, p->name, "%s: not enough memory for %zu %s", p->reader->path, n,
                               p->name);
    *(char ***)field_of(p) = texts;
    *(uint32_t *)(void *)((char *)p->reader->base + k->count_offset) = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *element = json_array_get(value, i);
        if (!json_is_string(element) || json_string_length(element) > k->length)
            return refuse_element(p, i, element, err);
        texts[i] = strdup(json_string_value(element));
        if (texts[i] == NULL)
            return error_set_param(err, ERR_NOMEM, p->name, "%s: not enough memory for %zu %s", p->reader->path, n,
                                   p->name);
    }
    return OK;
}

static enum status read_value(const struct key_node *p, json_t *value, struct error *err)
{
    switch (p->key->kind) {
    case KEY_WORD:
        return read_word(p, value, err);
    case KEY_FLAG:
        if (!json_is_boolean(value))
            return keys_refuse(p, value, err);
        *(bool *)field_of(p) = json_is_true(value);
        return OK;
    case KEY_INTEGER:
    case KEY_NUMBER:
        return read_numbers(p, value, err);
    case KEY_TEXT:
        return read_text(p, value, err);
    case KEY_TEXTS:
        return read_texts(p, value, err);
    case KEY_OBJECT: {
        char prefix[ERROR_PARAM_MAX];
        if (!json_is_object(value))
            return keys_refuse(p, value, err);
        (void)snprintf(prefix, sizeof prefix, "%s.", p->key->name);
        return keys_read(p->reader, value, prefix, p->key->keys, p->key->key_count, err);
    }
    case KEY_IGNORED:
        break;
    }
    return OK;
}

/* ---- objects ---------------------------------------------------------------------------------------------------- */

static bool key_applies(const struct key_reader *r, const struct key *k)
{
    return r->applies == NULL || r->applies(k, r->base);
}

static void warn_of_unused(const struct key_reader *r, json_t *object, const char *prefix, const struct key *keys,
                           size_t count)
{
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        bool known = false, used = false;
        char message[ERROR_MESSAGE_MAX];
        for (size_t i = 0; i < count && !used; i++) {
            if (strcmp(keys[i].name, name) == 0) {
                known = true;
                used = key_applies(r, &keys[i]);
            }
        }
        if (used)
            continue;
        (void)snprintf(message, sizeof message,
                       known ? "%s: key \"%s%s\" has no meaning for this model and is ignored"
                             : "%s: unknown key \"%s%s\" is ignored",
                       r->path, prefix, json_quote(name).text);
        r->warn(r->arg, message);
    }
}

enum status keys_read(const struct key_reader *r, json_t *object, const char *prefix, const struct key *keys,
                      size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        enum status st = OK;
        struct key_node p = {.reader = r, .key = &keys[i]};
        json_t *value = json_object_get(object, keys[i].name);
        if (!key_applies(r, &keys[i]))
            continue;
        (void)snprintf(p.name, sizeof p.name, "%s%s", prefix, keys[i].name);
        if (value != NULL)
            st = read_value(&p, value, err);
        else if (keys[i].required)
            st = error_set_param(err, ERR_FORMAT, p.name, "%s: %s is missing, expected %s", r->path, p.name,
                                 describe_expected(&keys[i]).text);
        if (st != OK)
            return st;
    }
    if (r->warn != NULL)
        warn_of_unused(r, object, prefix, keys, count);
    return OK;
}
