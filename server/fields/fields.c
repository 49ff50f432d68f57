/* fields.c - see fields.h. */
#include "server/fields/fields.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "config/json.h"
#include "config/nearest.h"
#include "config/settings.h"

double fields_max(const struct field *f, const struct settings *s)
{
    return f->max_setting != 0 ? *(const uint32_t *)(const void *)((const char *)s + f->max_setting) : f->max;
}

const struct field *fields_find(const struct field_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->table[i].name, name) == 0)
            return &list->table[i];
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

void fields_describe(const struct field *f, const struct settings *s, char *out, size_t size)
{
    const double max = fields_max(f, s);
    if (f->what != NULL) {
        (void)snprintf(out, size, "%s", f->what);
        return;
    }
    switch (f->kind) {
    case FIELD_TEXT:
        (void)snprintf(out, size, "a string of %.0f to %.0f bytes", f->min, max);
        break;
    case FIELD_NAME:
        (void)snprintf(out, size, "a string of %.0f to %.0f bytes without a NUL", f->min, max);
        break;
    case FIELD_INTEGER:
        (void)snprintf(out, size, "a whole number from %.0f to %.0f", f->min, max);
        break;
    case FIELD_NUMBER:
        (void)snprintf(out, size, f->exclusive ? "a number above %g and at most %g" : "a number from %g to %g", f->min,
                       max);
        break;
    case FIELD_SWITCH:
        (void)snprintf(out, size, "true or false");
        break;
    case FIELD_WORD: /* has said it, like what follows */
    case FIELD_LIST:
    case FIELD_OBJECT:
    case FIELD_OTHER:
        out[0] = '\0';
        break;
    }
}

/* A value of the field's kind, with so many bytes or elements. */
static bool read_sized(const struct field *f, const json_t *value, size_t size, double max, const json_t **to)
{
    *to = value;
    return (double)size >= f->min && (double)size <= max;
}

static bool read_integer(const struct field *f, const json_t *value, double max, int64_t *to)
{
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || (double)number < f->min || (double)number > max)
        return false;
    *to = number;
    return true;
}

static bool read_number(const struct field *f, const json_t *value, double max, double *to)
{
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= f->min && number <= max) || (f->exclusive && number == f->min))
        return false;
    *to = number;
    return true;
}

static bool read_switch(const json_t *value, enum field_switch *to)
{
    *to = json_is_true(value) ? FIELD_TRUE : FIELD_FALSE;
    return json_is_boolean(value);
}

static bool read_word(const struct field *f, const json_t *value, int *to)
{
    const char *word = json_is_string(value) ? json_string_value(value) : "";
    for (*to = 0; *to < FIELD_WORDS_MAX && f->words[*to] != NULL; ++*to)
        if (strcmp(word, f->words[*to]) == 0)
            return true;
    return false;
}

static bool read_field(const struct field *f, const struct settings *s, const json_t *value, void *to)
{
    void *at = (char *)to + f->offset;
    const double max = fields_max(f, s);
    switch (f->kind) {
    case FIELD_NAME:
        if (json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value))
            return false;
        /* fall through */
    case FIELD_TEXT:
        return json_is_string(value) && read_sized(f, value, json_string_length(value), max, at);
    case FIELD_INTEGER:
        return read_integer(f, value, max, at);
    case FIELD_NUMBER:
        return read_number(f, value, max, at);
    case FIELD_SWITCH:
        return read_switch(value, at);
    case FIELD_WORD:
        return read_word(f, value, at);
    case FIELD_LIST:
        return json_is_array(value) && read_sized(f, value, json_array_size(value), max, at);
    case FIELD_OBJECT:
        return json_is_object(value) && read_sized(f, value, 0, max, at);
    case FIELD_OTHER:
        return f->read(value, at);
    }
    return false;
}

/* ---- objects --------------------------------------------------------------------------------------------------- */

/* As many of the names as fit, whole. */
static void print_names(const struct field_list *list, char *out, size_t size)
{
    static const char more[] = ", ...";
    size_t used = 0;
    for (size_t i = 0; i < list->count; i++) {
        const bool fits = used + strlen(", ") + strlen(list->table[i].name) + sizeof more <= size;
        used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 && fits ? ", " : "",
                                 fits ? list->table[i].name : more);
        if (!fits)
            return;
    }
}

enum status fields_refuse(const struct field_list *list, const char *kind, const char *others, const char *name,
                          struct error *err)
{
    char names[ERROR_MESSAGE_MAX / 2] = "";
    struct nearest near = nearest_to(name, strlen(name));
    for (size_t i = 0; i < list->count; i++)
        nearest_offer(&near, list->table[i].name);
    print_names(list, names, sizeof names);
    if (near.name != NULL)
        return error_set_param(err, ERR_ARGUMENT, json_quote(name).text,
                               "there is no %s \"%s\" here; did you mean \"%s\"? Expected%s %s", kind,
                               json_quote(name).text, near.name, others, names);
    return error_set_param(err, ERR_ARGUMENT, json_quote(name).text, "there is no %s \"%s\" here; expected%s %s", kind,
                           json_quote(name).text, others, list->count > 0 ? names : "none");
}

/* Frees the value; NULL, for which memory ran out, is not at fault. */
static bool takes(const struct field *f, const struct settings *s, json_t *value, void *to)
{
    const bool is_fine = value == NULL || read_field(f, s, value, to);
    json_decref(value);
    return is_fine;
}

/* Where objects are taken the member at fault is named, if one is by itself. */
static enum status refuse_value(const struct field *f, const struct settings *s, json_t *value, void *to,
                                struct error *err)
{
    char expected[ERROR_MESSAGE_MAX / 2];
    const bool empty = json_is_string(value) && json_string_length(value) == 0;
    const char *key;
    json_t *member;
    fields_describe(f, s, expected, sizeof expected);
    json_t *members = takes(f, s, json_object(), to) ? value : NULL;
    json_object_foreach(members, key, member)
    {
        if (!takes(f, s, json_pack("{s:O}", key, member), to))
            return error_set_param(err, ERR_ARGUMENT, f->name, "\"%s\" has \"%s\": %s; expected %s", f->name,
                                   json_quote(key).text, json_describe(member).text, expected);
    }
    return error_set_param(err, ERR_ARGUMENT, f->name, "\"%s\" is %s; expected %s", f->name,
                           empty ? "empty" : json_describe(value).text, expected);
}

static enum status refuse_absence(const struct field *f, const struct settings *s, struct error *err)
{
    char expected[ERROR_MESSAGE_MAX / 2];
    fields_describe(f, s, expected, sizeof expected);
    return error_set_param(err, ERR_ARGUMENT, f->name, "\"%s\" is missing; expected %s", f->name, expected);
}

enum status fields_read(const struct field_list *list, json_t *object, const struct settings *s, void *to,
                        struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const struct field *f = fields_find(list, name);
        if (json_is_null(value)) /* clients send it for "not given", of whatever they know */
            continue;
        if (f == NULL)
            return fields_refuse(list, "field", ":", name, err);
        if (!read_field(f, s, value, to))
            return refuse_value(f, s, value, to, err);
    }
    for (const struct field *f = list->table; f < list->table + list->count; f++) {
        value = json_object_get(object, f->name);
        if (f->required && (value == NULL || json_is_null(value)))
            return refuse_absence(f, s, err);
    }
    return OK;
}

/* ---- values of several requests --------------------------------------------------------------------------------- */

uint64_t request_draw_seed(void)
{
    uint64_t seed = 0;
    (void)!getrandom(&seed, sizeof seed, 0); /* cannot fail once the kernel has started; 0 is a seed too */
    return seed & SEED_MAX;
}
