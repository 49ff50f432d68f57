/* session_answer.c - see session_answer.h. */
#include "server/api/session_answer.h"

#include <stdio.h>

#include "server/api/reply.h"

json_t *session_describe(const struct session_info *i)
{
    const struct session_head *h = &i->head;
    return json_pack("{s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "id", h->id, "model", h->model, "created",
                     (json_int_t)h->created_s, "expires_in_s", (json_int_t)i->expires_in_s, "busy", i->is_busy ? 1 : 0,
                     "position", (json_int_t)h->state.position + h->state.pending_count, "state_bytes",
                     (json_int_t)h->blob_bytes, "seed", (json_int_t)h->state.seed, "turn", (json_int_t)h->turn);
}

void session_refuse(struct exchange *x, const struct error *err, unsigned wait_s)
{
    char seconds[16];
    (void)snprintf(seconds, sizeof seconds, "%u", wait_s);
    if (wait_s > 0)
        http_add_header(x, "Retry-After", seconds);
    reply_send_error(x, err);
}
