/* chat_template.c - see chat_template.h. A placeholder is a word of letters, digits and _ in braces; any other brace is
 * a character like all others. */
#include "weights/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "config/json.h"

static const char content_word[] = "{content}";
static const char word_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

bool chat_template_exists(const struct chat_template *t)
{
    return t->roles[CHAT_USER] != NULL;
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

/* The first placeholder from `at` on, and its size; NULL: there is none. */
static const char *find_placeholder(const char *at, size_t *size)
{
    while ((at = strchr(at, '{')) != NULL) {
        const size_t letters = strspn(at + 1, word_letters);
        if (letters > 0 && at[1 + letters] == '}') {
            *size = letters + 2;
            return at;
        }
        at++;
    }
    return NULL;
}

static bool is_content(const char *placeholder, size_t size)
{
    return size == sizeof content_word - 1 && memcmp(placeholder, content_word, size) == 0;
}

static enum status refuse_placeholder(const char *path, const char *key, const char *found, size_t size,
                                      const char *expected, struct error *err)
{
    char word[MODEL_CHAT_TEXT_MAX + 1];
    memcpy(word, found, size);
    word[size] = '\0';
    return error_set_param(err, ERR_FORMAT, key, "%s: %s has the placeholder \"%s\", expected %s", path, key,
                           json_quote(word).text, expected);
}

/* A text of a role: {content} once, and no other placeholder. */
static enum status check_role(const char *text, const char *path, const char *key, struct error *err)
{
    size_t size = 0;
    unsigned contents = 0;
    for (const char *at = text; (at = find_placeholder(at, &size)) != NULL; at += size) {
        if (!is_content(at, size))
            return refuse_placeholder(path, key, at, size, "\"{content}\" and no other", err);
        contents++;
    }
    if (contents == 1)
        return OK;
    return error_set_param(err, ERR_FORMAT, key, "%s: %s has \"{content}\" %u times, expected once", path, key,
                           contents);
}

static enum status check_plain(const char *text, const char *path, const char *key, struct error *err)
{
    size_t size;
    const char *found = find_placeholder(text, &size);
    return found == NULL ? OK : refuse_placeholder(path, key, found, size, "none: it is always the same", err);
}

enum status chat_template_check(const struct chat_template *t, const char *path, struct error *err)
{
    static const char *const keys[CHAT_ROLES] = {
        [CHAT_SYSTEM] = "chat_template.system",
        [CHAT_USER] = "chat_template.user",
        [CHAT_ASSISTANT] = "chat_template.assistant",
    };
    enum status st = check_plain(t->reply, path, "chat_template.reply", err);
    for (int role = 0; role < CHAT_ROLES && st == OK; role++)
        st = check_role(t->roles[role], path, keys[role], err);
    for (uint32_t i = 0; i < t->stop_count && st == OK; i++) {
        if (t->stops[i][0] == '\0')
            return error_set_param(err, ERR_FORMAT, "chat_template.stop",
                                   "%s: chat_template.stop[%u] is empty, expected 1..%d bytes", path, i,
                                   GENERATE_STOP_BYTES_MAX);
        st = check_plain(t->stops[i], path, "chat_template.stop", err);
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
        const char *text = t->roles[messages[i].role], *place = strstr(text, content_word);
        const char *after = place + sizeof content_word - 1;
        append(out, &used, text, (size_t)(place - text));
        append(out, &used, messages[i].content, messages[i].size);
        append(out, &used, after, strlen(after));
    }
    append(out, &used, t->reply, strlen(t->reply));
    return used;
}
