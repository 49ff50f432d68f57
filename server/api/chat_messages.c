/* chat_messages.c - see chat_messages.h. */
#include "server/api/chat_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/limits.h"

/* A message that is being read. */
struct reading {
    struct chat_messages *to;
    size_t size; /* of all contents so far */
    size_t index;
};

static const struct {
    const char *word;
    enum chat_role role;
} roles[] = {
    {"system", CHAT_SYSTEM},
    {"developer", CHAT_SYSTEM},
    {"user", CHAT_USER},
    {"assistant", CHAT_ASSISTANT},
};

/* ---- contents --------------------------------------------------------------------------------------------------- */

/* `param`: where the value is, as messages[1].content. value NULL: it is missing. */
static enum status chat_messages_refuse(const char *param, const json_t *value, const char *expected, struct error *err)
{
    return error_set_param(err, ERR_ARGUMENT, param, "\"%s\" is %s; expected %s", param,
                           value != NULL ? json_describe(value).text : "missing", expected);
}

static enum status add_text(struct reading *r, const json_t *text, struct error *err)
{
    const size_t size = json_string_length(text);
    if (size > GENERATE_PROMPT_MAX - r->size)
        return error_set_param(err, ERR_ARGUMENT, "messages",
                               "the contents of \"messages\" have more than %d bytes; expected at most that",
                               GENERATE_PROMPT_MAX);
    memcpy(r->to->text + r->size, json_string_value(text), size);
    r->size += size;
    return OK;
}

static enum status add_part(struct reading *r, const char *param, const json_t *part, struct error *err)
{
    static const char expected[] = "{\"type\": \"text\", \"text\": \"...\"}";
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    if (json_is_string(type) && strcmp(json_string_value(type), "text") != 0)
        return error_set_param(err, ERR_ARGUMENT, param,
                               "\"%s\" is of the type \"%s\"; expected %s: nothing but text is read here", param,
                               json_quote(json_string_value(type)).text, expected);
    if (!json_is_string(type) || !json_is_string(text) || json_object_size(part) != 2)
        return chat_messages_refuse(param, part, expected, err);
    return add_text(r, text, err);
}

static enum status add_content(struct reading *r, const json_t *content, struct error *err)
{
    char param[ERROR_PARAM_MAX];
    const json_t *part;
    size_t i;
    (void)snprintf(param, sizeof param, "messages[%zu].content", r->index);
    if (json_is_string(content))
        return add_text(r, content, err);
    if (json_array_size(content) == 0)
        return chat_messages_refuse(param, content, "a string, or a list of at least one part of text", err);
    json_array_foreach((json_t *)content, i, part)
    {
        (void)snprintf(param, sizeof param, "messages[%zu].content[%zu]", r->index, i);
        const enum status st = add_part(r, param, part, err);
        if (st != OK)
            return st;
    }
    return OK;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static enum status read_role(const struct reading *r, const json_t *role, enum chat_role *ret, struct error *err)
{
    char param[ERROR_PARAM_MAX];
    for (size_t i = 0; json_is_string(role) && i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(json_string_value(role), roles[i].word) == 0) {
            *ret = roles[i].role;
            return OK;
        }
    (void)snprintf(param, sizeof param, "messages[%zu].role", r->index);
    return chat_messages_refuse(param, role, "\"system\", \"developer\", \"user\" or \"assistant\"", err);
}

/* Clients send answers back with all that they had no use for: null and empty lists are the same as left out, and a
 * name is heard and not used, since no template has a place for it. */
static bool says_nothing(const char *key, const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (strcmp(key, "name") == 0 && json_is_string(value) && json_string_length(value) <= OPENAI_USER_MAX);
}

static enum status check_rest(const struct reading *r, json_t *message, struct error *err)
{
    char param[ERROR_PARAM_MAX];
    const char *key;
    json_t *value;
    json_object_foreach(message, key, value)
    {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 || says_nothing(key, value))
            continue;
        (void)snprintf(param, sizeof param, "messages[%zu].%s", r->index, json_quote(key).text);
        return chat_messages_refuse(
            param, value,
            "nothing but \"role\", \"content\" and \"name\" in a message: tools and sounds are not done here", err);
    }
    return OK;
}

static enum status read_message(struct reading *r, json_t *message, struct error *err)
{
    char param[ERROR_PARAM_MAX];
    struct chat_message *to = &r->to->list[r->index];
    const size_t begin = r->size;
    (void)snprintf(param, sizeof param, "messages[%zu]", r->index);
    if (!json_is_object(message))
        return chat_messages_refuse(param, message, "an object with \"role\" and \"content\"", err);
    enum status st = read_role(r, json_object_get(message, "role"), &to->role, err);
    if (st == OK)
        st = check_rest(r, message, err);
    if (st == OK)
        st = add_content(r, json_object_get(message, "content"), err);
    to->content = r->to->text + begin;
    to->size = r->size - begin;
    return st;
}

enum status chat_messages_read(struct chat_messages *ret, const json_t *list, struct error *err)
{
    struct chat_messages m = {.list = calloc(json_array_size(list), sizeof *m.list),
                              .count = json_array_size(list),
                              .text = malloc(GENERATE_PROMPT_MAX)};
    struct reading r = {.to = &m};
    enum status st = OK;
    if (m.list == NULL || m.text == NULL)
        st = error_set(err, ERR_NOMEM, "out of memory for the messages; try again later");
    for (; r.index < m.count && st == OK; r.index++)
        st = read_message(&r, json_array_get(list, r.index), err);
    if (st == OK)
        *ret = m;
    else
        chat_messages_clear(&m);
    return st;
}

void chat_messages_clear(struct chat_messages *m)
{
    free(m->list);
    free(m->text);
    *m = (struct chat_messages){0};
}
