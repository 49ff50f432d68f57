/* reply.c - see reply.h. */
#include "server/request/reply.h"

#include <math.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/json.h"
#include "config/utf8.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/request/job.h"
#include "server/request/request.h"
#include "server/request/service.h"

/* A message may quote what a client sent, truncated anywhere, so it need not be valid UTF-8. */
static json_t *json_text(const char *text)
{
    char fine[UTF8_GROWTH * ERROR_MESSAGE_MAX];
    size_t bytes;
    (void)utf8_repair(fine, &bytes, (const uint8_t *)text, strnlen(text, ERROR_MESSAGE_MAX), true);
    return bytes > 0 ? json_stringn(fine, bytes) : json_null();
}

json_t *reply_describe_error(const struct error *err)
{
    return json_pack("{s:{s:o, s:s, s:o, s:s}}", "error", "message", json_text(err->message), "type",
                     status_type(err->status), "param", json_text(err->param), "code", status_code(err->status));
}

enum status reply_send_text(struct request *x, unsigned status, char *text)
{
    static const char no_memory[] =
        "{\"error\":{\"message\":\"out of memory for the answer; try again later\",\"type\":"
        "\"overloaded_error\",\"param\":null,\"code\":\"out_of_memory\"}}";
    if (text == NULL) {
        text = strdup(no_memory);
        status = status_http(ERR_NOMEM);
        x->error = ERR_NOMEM;
    }
    return request_reply(x, status, "application/json", text, text != NULL ? strlen(text) : 0);
}

enum status reply_send_json(struct request *x, unsigned status, json_t *value)
{
    char *text = json_print(value, REPLY_JSON_FLAGS);
    json_decref(value);
    return reply_send_text(x, status, text);
}

/* A picture that curl has read by -d has lost its line ends, and comes as a form, which curl says by itself then. */
static const char *hint_for(const struct request *x, const struct error *err)
{
    static const char form[] = "application/x-www-form-urlencoded";
    const char *type = err->status == ERR_PICTURE ? request_header(x, "Content-Type") : NULL;
    return type != NULL && strncasecmp(type, form, sizeof form - 1) == 0
               ? "; curl's -d changes files that it reads: send them by --data-binary"
               : "";
}

static void add_retry_after(struct request *x, unsigned seconds)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%u", seconds);
    request_add_header(x, "Retry-After", text);
}

void reply_send_error(struct request *x, const struct error *found)
{
    struct error with_hint = *found;
    const struct error *err = &with_hint;
    const size_t said = strnlen(found->message, ERROR_MESSAGE_MAX);
    (void)snprintf(with_hint.message + said, sizeof with_hint.message - said, "%s", hint_for(x, found));
    const unsigned http = status_http(err->status);
    if (http == 503 && err->status != ERR_SESSIONS) /* sessions end, however long the queue is */
        add_retry_after(x, queue_retry_after_s(x->service->queue));
    else if (err->retry_after_s > 0)
        add_retry_after(x, err->retry_after_s);
    if (err->status == ERR_TIMEOUT) /* OpenAI's clients would have what was too much computed twice more */
        request_add_header(x, "X-Should-Retry", "false");
    x->error = err->status;
    (void)reply_send_json(
        x, http, x->is_below_v2 ? json_pack("{s:o}", "error", json_text(err->message)) : reply_describe_error(err));
}

json_t *reply_base64(const uint8_t *bytes, size_t size)
{
    char *text = malloc(BASE64_ENCODE_RAW_LENGTH(size) + 1);
    if (text == NULL)
        return NULL;
    base64_encode_raw(text, size, bytes);
    json_t *value = json_stringn_nocheck(text, BASE64_ENCODE_RAW_LENGTH(size));
    free(text);
    return value;
}

double reply_milliseconds(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns <= from_ns ? 0.0 : round((double)(to_ns - from_ns) / 1e3) / 1e3;
}
