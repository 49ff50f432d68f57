/* cors.c - see cors.h. */
#include "server/request/cors.h"

#include <stddef.h>
#include <string.h>

#include "config/list.h"

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
    const size_t scheme = strncmp(text, "https://", 8) == 0 ? 8 : strncmp(text, "http://", 7) == 0 ? 7 : size;
    return scheme < size && scheme + strspn(text + scheme, allowed) >= size;
}

enum status cors_check(const char *origins, struct error *err)
{
    struct list_item item;
    if (is_off(origins) || is_everybody(origins))
        return OK;
    for (const char *at = origins; list_next(&at, &item);)
        if (!is_origin(item.text, item.size))
            return error_set_param(err, ERR_CONFIG, "cors_origins",
                                   "cors_origins: \"%.*s\": expected an origin such as https://example.org or "
                                   "http://localhost:3000 in lower case, without a path; * alone; or " CORS_OFF,
                                   (int)(item.size < 256 ? item.size : 256), item.text);
    return OK;
}

const char *cors_answer(const char *origins, const char *origin)
{
    struct list_item item;
    if (origin == NULL || is_off(origins))
        return NULL;
    if (is_everybody(origins))
        return "*";
    for (const char *at = origins; list_next(&at, &item);)
        if (list_item_is(&item, origin))
            return origin;
    return NULL;
}

bool cors_varies(const char *origins)
{
    return !is_off(origins) && !is_everybody(origins);
}
