/* cors.c - see cors.h. */
#include "server/http/cors.h"

#include <stddef.h>
#include <string.h>

static bool is_off(const char *origins)
{
    return strcmp(origins, CORS_OFF) == 0;
}

static bool is_everybody(const char *origins)
{
    return strcmp(origins, "*") == 0;
}

/* scheme://host or scheme://host:port, in lower case as browsers send it, and nothing after it. */
static bool is_origin(const char *text, size_t size)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-:[]";
    const size_t scheme = size > 8 && strncmp(text, "https://", 8) == 0  ? 8
                          : size > 7 && strncmp(text, "http://", 7) == 0 ? 7
                                                                         : 0;
    return scheme != 0 && scheme + strspn(text + scheme, allowed) >= size;
}

enum status cors_check(const char *origins, struct error *err)
{
    if (is_off(origins) || is_everybody(origins))
        return OK;
    for (const char *at = origins; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL) {
        const size_t size = strcspn(at, ",");
        if (!is_origin(at, size))
            return error_set_param(err, ERR_CONFIG, "cors_origins",
                                   "cors_origins: \"%.*s\": expected an origin such as https://example.org or "
                                   "http://localhost:3000 in lower case, without a path; * alone; or " CORS_OFF,
                                   (int)(size < 256 ? size : 256), at);
    }
    return OK;
}

const char *cors_answer(const char *origins, const char *origin)
{
    if (origin == NULL || is_off(origins))
        return NULL;
    if (is_everybody(origins))
        return "*";
    const size_t length = strlen(origin);
    for (const char *at = origins; at != NULL; at = strchr(at, ',') != NULL ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == length && strncmp(at, origin, length) == 0)
            return origin;
    return NULL;
}

bool cors_varies(const char *origins)
{
    return !is_off(origins) && !is_everybody(origins);
}
