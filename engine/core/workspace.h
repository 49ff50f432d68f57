/* workspace.h - all of an engine's memory as one allocation: first every buffer's size is noted, then one call takes
 * the memory and sets the pointers. Each buffer is aligned to a cache line and zeroed; a large allocation by the
 * kernel, page by page as it is first touched: to clear all of it took two thirds of a daemon's start, and much of it
 * is for batches and streams that may never come. */
#ifndef ENGINE_CORE_WORKSPACE_H
#define ENGINE_CORE_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct workspace {
    struct workspace_item {
        void *where; /* the address of a pointer to some object type */
        size_t offset;
    } * items;
    size_t count, capacity;
    uint64_t bytes;
    void *taken; /* the allocation */
    int failed;  /* a note did not fit in memory: workspace_take reports it */
};

void workspace_init(struct workspace *w);
void workspace_clear(struct workspace *w); /* frees the buffers; zeroed is fine */
/* *where will point to count elements of `size` bytes. */
void workspace_note(struct workspace *w, void *where, uint64_t count, size_t size);
/* Take the memory and set all pointers noted. Errors: ERR_NOMEM, naming the bytes. */
enum status workspace_take(struct workspace *w, struct error *err);

#endif
