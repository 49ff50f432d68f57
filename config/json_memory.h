/* json_memory.h - jansson's functions, but running out of memory is told apart from text that is not JSON or not UTF-8.
 * For every folder. Any thread; the only state is each thread's notes of whether memory ran out. */
#ifndef CONFIG_JSON_MEMORY_H
#define CONFIG_JSON_MEMORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Like json_loadb, json_stringn and json_dumps (the caller frees its text), but NULL whenever memory ran out. jansson
 * 2.14 itself carries on without the byte of a string that it reads, and beyond its buffer if that was the string's
 * last, or without the key that it writes. *lacked_memory tells that from text that is not JSON or not UTF-8; fault may
 * be NULL. */
json_t *json_scan(const char *text, size_t n, size_t flags, json_error_t *fault, bool *lacked_memory);
json_t *json_make_text(const char *text, size_t n, bool *lacked_memory);
char *json_print(const json_t *value, size_t flags);
/* Make a value that is to be printed: put `part`, which is taken, into it. What fails, and a part that is NULL, is
 * noted, so that whoever makes it need not look: the thread's next json_print gives NULL. */
void json_put(json_t *object, const char *key, json_t *part);
void json_append(json_t *array, json_t *part);
/* `value`, of which some part is lacking if `failed`: then it is freed, and NULL. */
json_t *json_unless(bool failed, json_t *value);

#endif
