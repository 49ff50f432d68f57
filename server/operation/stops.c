/* stops.c - see stops.h. It looks at a few bytes at a time and keeps no more than a stop string's length, so it costs
 * nothing beside a step of a model. */
#include "server/operation/stops.h"

#include <assert.h>
#include <string.h>

_Static_assert(GENERATE_STOP_BYTES_MAX <= UINT8_MAX, "a stop string's length is kept in a byte");

bool stop_set_add(struct stop_set *s, const void *bytes, size_t size)
{
    if (s->count == GENERATE_STOPS_MAX || size == 0 || size > GENERATE_STOP_BYTES_MAX)
        return false;
    memcpy(s->bytes[s->count], bytes, size);
    s->lengths[s->count] = (uint8_t)size;
    s->count++;
    return true;
}

/* The longest stop string that `window` ends with; 0 if it ends with none. */
static size_t matched_length(const struct stop_set *s, const uint8_t *window, size_t size)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const size_t length = s->lengths[i];
        if (length > longest && length <= size && memcmp(window + size - length, s->bytes[i], length) == 0)
            longest = length;
    }
    return longest;
}

/* Does a stop string begin with these bytes and go on after them? */
static bool begins_a_stop(const struct stop_set *s, const uint8_t *bytes, size_t size)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->lengths[i] > size && memcmp(s->bytes[i], bytes, size) == 0)
            return true;
    return false;
}

bool stop_matcher_feed(struct stop_matcher *m, uint8_t byte, size_t *text_bytes)
{
    const size_t size = (size_t)m->held_bytes + 1;
    m->held[m->held_bytes] = byte;
    const size_t matched = matched_length(m->stops, m->held, size);
    size_t text = matched > 0 ? size - matched : 0;
    if (matched == 0)
        while (text < size && !begins_a_stop(m->stops, m->held + text, size - text))
            text++;

    const size_t keep = matched > 0 ? 0 : size - text;
    assert(keep < GENERATE_STOP_BYTES_MAX); /* so the next byte has room */
    memmove(m->held, m->held + text, keep);
    m->held_bytes = (uint32_t)keep;
    *text_bytes = text;
    return matched > 0;
}
