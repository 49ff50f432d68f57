/* events.c - see events.h. */
#include "server/request/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"

enum request_piece event_say(const char *id, json_t *event, char **piece, size_t *bytes)
{
    char *text = json_print(event, REPLY_JSON_FLAGS);
    json_decref(event);
    int n = -1;
    if (text != NULL && id != NULL)
        n = asprintf(piece, "id: %s\ndata: %s\n\n", id, text);
    else if (text != NULL)
        n = asprintf(piece, "data: %s\n\n", text);
    free(text);
    if (n < 0) {
        *piece = NULL; /* asprintf leaves it undefined */
        return REQUEST_BROKEN;
    }
    *bytes = (size_t)n;
    return REQUEST_PIECE;
}

json_t *event_describe_error(struct request *x)
{
    const struct error *err = &job_result(&x->job)->error;
    x->error = err->status;
    return reply_describe_error(err);
}

enum request_piece event_say_ping(char **piece, size_t *bytes)
{
    static const char ping[] = ": ping\n\n";
    *bytes = sizeof ping - 1;
    *piece = strdup(ping);
    return *piece != NULL ? REQUEST_PIECE : REQUEST_BROKEN;
}

/* Does the header name the type, without the weight 0 (RFC 9110, 12.4.2)? */
static bool accepts(const char *accept, const char *type)
{
    const char *at = accept != NULL ? strcasestr(accept, type) : NULL;
    if (at == NULL)
        return false;
    const char *end = at + strcspn(at, ","), *weight = strcasestr(at, "q=");
    return weight == NULL || weight >= end || strtod(weight + 2, NULL) > 0.0;
}

bool events_wanted(const struct request *x, enum field_switch said)
{
    return said != FIELD_ABSENT ? said == FIELD_TRUE : accepts(request_header(x, "Accept"), EVENT_STREAM);
}

enum status events_answer(struct request *x, struct error *err)
{
    (void)err;
    request_job_tell_dropped(x);
    request_add_header(x, "Cache-Control", "no-cache");
    request_add_header(x, "X-Accel-Buffering", "no");
    request_reply_stream(x, EVENT_STREAM);
    return OK;
}
