/* held.c - see held.h. */
#include "server/cli/held.h"

#include <stdlib.h>
#include <string.h>

bool held_add(struct held *h, const void *bytes, size_t n, size_t max)
{
    if (n > max || h->size > max - n) {
        h->fault = "is larger than any answer that was asked for";
        return false;
    }
    if (h->room - h->size < n + 1) {
        const size_t room = 2 * (h->size + n) + 256;
        char *more = realloc(h->bytes, room);
        if (more == NULL) {
            h->fault = "does not fit into memory";
            return false;
        }
        h->bytes = more;
        h->room = room;
    }
    if (n > 0)
        memcpy(h->bytes + h->size, bytes, n);
    h->size += n;
    h->bytes[h->size] = '\0';
    return true;
}

bool held_line(struct held *h, const char **bytes, size_t *n, size_t max)
{
    const char *end = memchr(*bytes, '\n', *n);
    const size_t part = end != NULL ? (size_t)(end - *bytes) : *n, taken = part + (end != NULL ? 1 : 0);
    if (!held_add(h, *bytes, part, max))
        return false;
    *bytes += taken;
    *n -= taken;
    return end != NULL;
}
