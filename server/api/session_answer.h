/* session_answer.h - what answers about sessions have in common. HTTP threads; no state. */
#ifndef SERVER_API_SESSION_ANSWER_H
#define SERVER_API_SESSION_ANSWER_H

#include <jansson.h>

#include "config/status.h"
#include "server/http/http.h"
#include "server/session/sessions.h"

/* NULL for want of memory. */
json_t *session_describe(const struct session_info *i);

/* Refuse a new one: wait_s is when there may be room for it; 0: that is not what is wrong. */
void session_refuse(struct exchange *x, const struct error *err, unsigned wait_s);

#endif
