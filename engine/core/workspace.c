/* workspace.c - see workspace.h. Runs when an engine opens and closes, never in between. */
#include "engine/core/workspace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINE 64
#define LARGE_PAGE (2 << 20)

void workspace_init(struct workspace *w)
{
    *w = (struct workspace){0};
}

void workspace_clear(struct workspace *w)
{
    free(w->items);
    free(w->taken);
    *w = (struct workspace){0};
}

void workspace_note(struct workspace *w, void *where, uint64_t count, size_t size)
{
    assert(w->taken == NULL);
    if (w->count == w->capacity) {
        const size_t more = w->capacity == 0 ? 64 : 2 * w->capacity;
        struct workspace_item *items = realloc(w->items, more * sizeof *items);
        if (items == NULL) {
            w->failed = 1;
            return;
        }
        w->items = items;
        w->capacity = more;
    }
    w->items[w->count++] = (struct workspace_item){where, (size_t)w->bytes};
    /* Sizes are products of bounded settings and model sizes; what overflows 2^63 could not be allocated anyway. */
    if (size != 0 && count > (UINT64_MAX / 4 - w->bytes) / size) {
        w->failed = 1;
        return;
    }
    w->bytes = (w->bytes + count * size + LINE - 1) / LINE * LINE;
}

enum status workspace_take(struct workspace *w, struct error *err)
{
    /* In large pages weights are read with fewer TLB misses. */
    const size_t align = w->bytes >= LARGE_PAGE ? LARGE_PAGE : LINE;
    if (!w->failed && w->bytes <= SIZE_MAX / 2)
        w->taken = calloc(1, (size_t)w->bytes + align);
    if (w->taken == NULL)
        return error_set(err, ERR_NOMEM, "not enough memory for the %" PRIu64 " bytes of the engine", w->bytes);
    char *memory = w->taken;
    memory += (align - (uintptr_t)memory % align) % align;
    if (align == LARGE_PAGE)
        (void)madvise(memory, (size_t)w->bytes, MADV_HUGEPAGE); /* a hint: a kernel without them refuses */
    for (size_t i = 0; i < w->count; i++) {
        void *at = memory + w->items[i].offset;
        memcpy(w->items[i].where, &at, sizeof at); /* the target may be any T *, so no assignment through void ** */
    }
    return OK;
}
