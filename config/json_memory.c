/* json_memory.c - see json_memory.h. */
#include "config/json_memory.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE_BYTES = 64 }; /* beside twice the text */

static _Thread_local bool lacked;     /* an allocation by jansson has failed since this was cleared */
static _Thread_local bool incomplete; /* a part of what is to be printed next could not be put there */

/* For the one allocation after which a scan ends: jansson 2.14 would go on without the byte of a string for which its
 * buffer cannot grow, and look for the string's end behind what it has. */
static _Thread_local struct {
    void *bytes; /* NULL: no scan runs */
    size_t size; /* 0: it is taken */
} spare;

static void *allocate(size_t size)
{
    void *made = malloc(size);
    if (made != NULL)
        return made;
    lacked = true;
    if (size > spare.size)
        return NULL;
    spare.size = 0;
    return spare.bytes;
}

static void release(void *made)
{
    if (made != spare.bytes)
        free(made);
}

/* Runs before main, because all threads of the library use it. */
__attribute__((constructor)) static void watch_allocations(void)
{
    json_set_alloc_funcs(allocate, release);
}

struct scan {
    const char *next;
    size_t left;
    bool in_string, is_escaped; /* where `next` is */
};

/* How many bytes there are to the next that means something in a string; at least 1. */
static size_t plain_bytes(const struct scan *s, size_t most)
{
    size_t n = 0;
    while (n < most && s->next[n] != '"' && s->next[n] != '\\')
        n++;
    return n > 0 ? n : 1;
}

/* jansson gets nothing more once an allocation has failed, and until then no more at a time than can make it ask for
 * one: a byte, or a part of a string, for which only its buffer grows. */
static size_t read_some(void *to, size_t room, void *arg)
{
    struct scan *s = arg;
    const size_t most = room < s->left ? room : s->left;
    if (lacked || most == 0)
        return 0;
    const size_t n = s->in_string && !s->is_escaped ? plain_bytes(s, most) : 1;
    memcpy(to, s->next, n);
    if (!s->is_escaped && *s->next == '"')
        s->in_string = !s->in_string;
    s->is_escaped = s->in_string && !s->is_escaped && *s->next == '\\';
    s->next += n;
    s->left -= n;
    return n;
}

json_t *json_scan(const char *text, size_t n, size_t flags, json_error_t *fault, bool *lacked_memory)
{
    struct scan s = {.next = text, .left = n};
    json_t *value = NULL;
    spare.size = 2 * n + SPARE_BYTES; /* what the buffer of a string grows to, at the most */
    spare.bytes = malloc(spare.size);
    lacked = spare.bytes == NULL;
    if (!lacked)
        value = json_load_callback(read_some, &s, flags, fault);
    value = json_unless(lacked, value);
    free(spare.bytes);
    spare.bytes = NULL;
    spare.size = 0;
    *lacked_memory = lacked;
    return value;
}

json_t *json_make_text(const char *text, size_t n, bool *lacked_memory)
{
    lacked = false;
    json_t *value = json_stringn(text, n);
    *lacked_memory = lacked;
    return value;
}

void json_put(json_t *object, const char *key, json_t *part)
{
    incomplete |= json_object_set_new(object, key, part) != 0;
}

void json_append(json_t *array, json_t *part)
{
    incomplete |= json_array_append_new(array, part) != 0;
}

char *json_print(const json_t *value, size_t flags)
{
    lacked = incomplete;
    char *text = lacked ? NULL : json_dumps(value, flags);
    incomplete = false;
    if (!lacked)
        return text;
    free(text);
    return NULL;
}

json_t *json_unless(bool failed, json_t *value)
{
    if (!failed)
        return value;
    json_decref(value);
    return NULL;
}
