/* body.c - see body.h. */
#include "server/http/body.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/limits.h"

enum { FIRST_BYTES = 4096 }; /* a JSON body fits; a picture doubles it a few times */

/* Grow by doubling: room for what has arrived, never for what a header promises. */
static bool grow(struct body *b, size_t needed, size_t size_max, _Atomic uint64_t *total)
{
    if (needed <= b->capacity)
        return true;
    size_t larger = b->capacity < FIRST_BYTES ? FIRST_BYTES : 2 * b->capacity;
    larger = larger < needed ? needed : larger > size_max ? size_max : larger;
    const uint64_t more = larger - b->capacity;
    uint8_t *grown = NULL;
    if (atomic_fetch_add(total, more) + more <= HTTP_BODIES_BYTES_MAX)
        grown = realloc(b->bytes, larger);
    if (grown == NULL) {
        (void)atomic_fetch_sub(total, more);
        return false;
    }
    b->bytes = grown;
    b->capacity = larger;
    return true;
}

void body_append(struct body *b, const char *data, size_t size, size_t size_max, _Atomic uint64_t *total)
{
    b->received += size;
    if (b->status != OK)
        return;
    if (b->received > size_max)
        b->status = ERR_TOO_LARGE;
    else if (!grow(b, b->size + size, size_max, total))
        b->status = ERR_NOMEM;
    if (b->status != OK) {
        body_drop(b, total);
        return;
    }
    memcpy(b->bytes + b->size, data, size);
    b->size += size;
}

void body_drop(struct body *b, _Atomic uint64_t *total)
{
    (void)atomic_fetch_sub(total, b->capacity);
    free(b->bytes);
    b->bytes = NULL;
    b->size = b->capacity = 0;
}

void body_error(const struct body *b, size_t size_max, struct error *err)
{
    if (b->status == ERR_TOO_LARGE)
        (void)error_set(err, ERR_TOO_LARGE, "the body has %llu bytes; at most %zu are allowed",
                        (unsigned long long)b->received, size_max);
    else
        (void)error_set(err, b->status, "out of memory for the body; try again later");
}
