/* json_memory.c - see json_memory.h. */
#include "config/json_memory.h"

#include <stdlib.h>

static _Thread_local bool lacked; /* an allocation by jansson has failed since this was cleared */

static void *allocate(size_t size)
{
    void *made = malloc(size);
    lacked = lacked || made == NULL;
    return made;
}

/* Runs before main, because all threads of the library use it. */
__attribute__((constructor)) static void watch_allocations(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *json_scan(const char *text, size_t n, size_t flags, json_error_t *fault, bool *lacked_memory)
{
    lacked = false;
    json_t *value = json_loadb(text, n, flags, fault);
    *lacked_memory = lacked;
    if (!lacked)
        return value;
    json_decref(value);
    return NULL;
}

json_t *json_make_text(const char *text, size_t n, bool *lacked_memory)
{
    lacked = false;
    json_t *value = json_stringn(text, n);
    *lacked_memory = lacked;
    return value;
}

char *json_print(const json_t *value, size_t flags)
{
    lacked = false;
    char *text = json_dumps(value, flags);
    if (!lacked)
        return text;
    free(text);
    return NULL;
}
