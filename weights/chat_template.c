/* chat_template.c - see chat_template.h. {content} is the one placeholder; any other brace is a character like all
 * others. */
#include "weights/chat_template.h"

#include <stdlib.h>
#include <string.h>

static const char content_word[] = "{content}";

bool chat_template_exists(const struct chat_template *t)
{
    return t->roles[CHAT_USER] != NULL;
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

static enum status check_contents(const char *text, unsigned expected, const char *path, const char *key,
                                  struct error *err)
{
    unsigned contents = 0;
    for (const char *at = text; (at = strstr(at, content_word)) != NULL; at += sizeof content_word - 1)
        contents++;
    if (contents == expected)
        return OK;
    return error_set_param(err, ERR_FORMAT, key, "%s: %s has \"{content}\" %u times, expected %u", path, key, contents,
                           expected);
}

enum status chat_template_check(const struct chat_template *t, const char *path, struct error *err)
{
    static const char *const keys[CHAT_ROLES] = {
        [CHAT_SYSTEM] = "chat_template.system",
        [CHAT_USER] = "chat_template.user",
        [CHAT_ASSISTANT] = "chat_template.assistant",
    };
    enum status st = check_contents(t->reply, 0, path, "chat_template.reply", err);
    for (int role = 0; role < CHAT_ROLES && st == OK; role++)
        st = check_contents(t->roles[role], 1, path, keys[role], err);
    for (uint32_t i = 0; i < t->stop_count && st == OK; i++) {
        if (t->stops[i][0] == '\0')
            return error_set_param(err, ERR_FORMAT, "chat_template.stop",
                                   "%s: chat_template.stop[%u] is empty, expected 1..%d bytes", path, i,
                                   GENERATE_STOP_BYTES_MAX);
        st = check_contents(t->stops[i], 0, path, "chat_template.stop", err);
    }
    return st;
}

void chat_template_clear(struct chat_template *t)
{
    for (int role = 0; role < CHAT_ROLES; role++)
        free(t->roles[role]);
    free(t->reply);
    for (uint32_t i = 0; t->stops != NULL && i < t->stop_count; i++)
        free(t->stops[i]);
    free(t->stops);
    *t = (struct chat_template){.reply = NULL};
}

/* ---- the prompt ------------------------------------------------------------------------------------------------- */

static void append(uint8_t *out, size_t *used, const void *bytes, size_t size)
{
    if (out != NULL && size > 0)
        memcpy(out + *used, bytes, size);
    *used += size;
}

size_t chat_template_write(const struct chat_template *t, const struct chat_message messages[], size_t count,
                           uint8_t *out)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const char *text = t->roles[messages[i].role], *content = strstr(text, content_word);
        const char *after = content + sizeof content_word - 1;
        append(out, &used, text, (size_t)(content - text));
        append(out, &used, messages[i].content, messages[i].size);
        append(out, &used, after, strlen(after));
    }
    append(out, &used, t->reply, strlen(t->reply));
    return used;
}
