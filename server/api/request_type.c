/* request_type.c - see request_type.h. */
#include "server/api/request_type.h"

#include <string.h>
#include <strings.h>

#include "config/json.h"
#include "server/api/reply.h"

bool request_type_is(const struct exchange *x, const char *type)
{
    const char *given = http_header(x, "Content-Type");
    const size_t size = strlen(type);
    return given != NULL && strncasecmp(given, type, size) == 0 &&
           (given[size] == '\0' || strchr("; \t", given[size]) != NULL);
}

bool request_type_is_unsaid(const struct exchange *x)
{
    return http_header(x, "Content-Type") == NULL || request_type_is(x, "application/x-www-form-urlencoded");
}

bool request_type_read(const struct exchange *x, char out[MEDIA_TYPE_MAX])
{
    const char *given = http_header(x, "Content-Type");
    const size_t size = given != NULL ? strcspn(given, "; \t") : 0;
    if (size == 0 || size >= MEDIA_TYPE_MAX)
        return false;
    memcpy(out, given, size);
    out[size] = '\0';
    return true;
}

bool request_type_check_encoding(struct exchange *x)
{
    struct error err;
    const char *encoding = http_header(x, "Content-Encoding");
    if (!x->has_body || encoding == NULL || strcasecmp(encoding, "identity") == 0)
        return true;
    (void)error_set_param(&err, ERR_MEDIA_TYPE, "Content-Encoding",
                          "the body is declared as \"%s\"; expected no encoding: compressed bodies are not read",
                          json_quote(encoding).text);
    reply_send_error(x, &err);
    return false;
}

static void expect_type(struct exchange *x, const char *type)
{
    struct error err;
    if (request_type_is_unsaid(x) || request_type_is(x, type))
        return;
    (void)error_set_param(&err, ERR_MEDIA_TYPE, "Content-Type", "the body is declared as \"%s\"; expected %s",
                          json_quote(http_header(x, "Content-Type")).text, type);
    reply_send_error(x, &err);
}

void request_type_any(struct exchange *x)
{
    (void)x;
}

void request_type_json(struct exchange *x)
{
    expect_type(x, "application/json");
}

void request_type_bytes(struct exchange *x)
{
    expect_type(x, "application/octet-stream");
}
