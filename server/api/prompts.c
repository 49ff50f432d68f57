/* prompts.c - see prompts.h. */
#include "server/api/prompts.h"

#include <stdlib.h>

static bool is_list_of(const json_t *list, bool (*is)(const json_t *value))
{
    const json_t *value;
    size_t i;
    json_array_foreach((json_t *)list, i, value)
    {
        if (!is(value))
            return false;
    }
    return json_array_size(list) > 0;
}

static bool is_byte(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < BYTE_VALUES;
}

static bool is_bytes(const json_t *value)
{
    return json_is_array(value) && is_list_of(value, is_byte);
}

static bool is_text(const json_t *value)
{
    return json_is_string(value);
}

/* A string, or a list of bytes; p->bytes NULL: it is only counted. False if there are too many prompts, or they are too
 * long. */
static bool add_prompt(struct prompts *p, const json_t *value)
{
    const bool text = json_is_string(value);
    const size_t size = text ? json_string_length(value) : json_array_size(value);
    if (p->count == GENERATE_PROMPTS_MAX || size > GENERATE_PROMPT_MAX - p->size)
        return false;
    for (size_t i = 0; p->bytes != NULL && i < size; i++)
        p->bytes[p->size + i] =
            (uint8_t)(text ? json_string_value(value)[i] : json_integer_value(json_array_get(value, i)));
    p->size += size;
    p->ends[p->count++] = p->size;
    return true;
}

static bool add_prompts(struct prompts *p, const json_t *value)
{
    const json_t *one;
    size_t i;
    if (json_is_string(value) || is_bytes(value))
        return add_prompt(p, value);
    if (!json_is_array(value) || !(is_list_of(value, is_text) || is_list_of(value, is_bytes)))
        return false;
    json_array_foreach((json_t *)value, i, one)
    {
        if (!add_prompt(p, one))
            return false;
    }
    return true;
}

bool prompts_read(const json_t *value, void *to)
{
    struct prompts p = {0};
    *(const json_t **)to = value;
    return add_prompts(&p, value);
}

enum status prompts_copy(struct prompts *ret, const json_t *value, struct error *err)
{
    struct prompts counted = {0}, p = {0};
    (void)add_prompts(&counted, value); /* prompts_read has checked that it fits */
    p.bytes = malloc(counted.size > 0 ? counted.size : 1);
    if (p.bytes == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the prompt; try again later");
    (void)add_prompts(&p, value);
    *ret = p;
    return OK;
}
