/* chat_messages.h - the messages of OpenAI's chat -> roles and contents. HTTP threads; no state. */
#ifndef SERVER_API_CHAT_MESSAGES_H
#define SERVER_API_CHAT_MESSAGES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/fields/fields.h"
#include "weights/chat_template.h"

struct chat_messages {
    struct chat_message *list; /* [count]; their contents lie in `text` */
    size_t count;
    uint8_t *text; /* [GENERATE_PROMPT_MAX], of which a part is used: all contents, one after another */
};

/* A list of 1 to CHAT_MESSAGES_MAX. What is in it, chat_messages_read reads. */
#define CHAT_MESSAGES_EXPECTED \
    "a list of 1 to " FIELD_DIGITS(CHAT_MESSAGES_MAX) " messages, each with \"role\" and \"content\""

/* Each is {"role", "content"}: the roles system, developer, which is system's newer name, user and assistant; a content
 * is a string or a list of {"type": "text", "text"}, which are joined. All contents have at most GENERATE_PROMPT_MAX
 * bytes. *ret is set only on OK; clear it. Errors: ERR_ARGUMENT naming which part of which message; ERR_NOMEM. */
enum status chat_messages_read(struct chat_messages *ret, const json_t *list, struct error *err);
void chat_messages_clear(struct chat_messages *m); /* zeroed is fine */

#endif
