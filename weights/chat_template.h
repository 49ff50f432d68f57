/* chat_template.h - how the text is laid out that a model of conversations was trained on: the strings of config.json's
 * chat_template, and a conversation written by them. Any thread; no state. */
#ifndef WEIGHTS_CHAT_TEMPLATE_H
#define WEIGHTS_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLES };

/* All of it is owned, NUL-terminated UTF-8 of at most MODEL_CHAT_TEXT_MAX bytes. */
struct chat_template {
    char *roles[CHAT_ROLES]; /* each has {content} in it once; NULL: the model has no template */
    char *reply;             /* ends the prompt, behind all messages: the answer goes on from there */
    char **stops;            /* [stop_count], 1 .. GENERATE_STOP_BYTES_MAX bytes each: the answer ends before them */
    uint32_t stop_count;     /* 1 .. MODEL_CHAT_STOPS_MAX */
};

struct chat_message {
    enum chat_role role;
    const uint8_t *content; /* [size], any bytes */
    size_t size;
};

bool chat_template_exists(const struct chat_template *t);
/* Has one that exists {content} where it belongs, and is no stop string empty? `path` is config.json's, for
 * the message. Errors: ERR_FORMAT naming the key. */
enum status chat_template_check(const struct chat_template *t, const char *path, struct error *err);
void chat_template_clear(struct chat_template *t); /* zeroed is fine */

/* The prompt that a conversation becomes: each message by its role's string, then `reply`. Writes it to `out`, which
 * may be NULL, and returns its size. */
size_t chat_template_write(const struct chat_template *t, const struct chat_message messages[], size_t count,
                           uint8_t *out);

#endif
