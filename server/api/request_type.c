/* request_type.c - see request_type.h. */
#include "server/api/request_type.h"

#include <string.h>
#include <strings.h>

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
