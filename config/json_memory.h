/* json_memory.h - jansson where memory may be lacking: it is told apart from text that is no JSON or no UTF-8. For
 * everybody. Any thread; no state but whether memory was lacking, which is each thread's own. */
#ifndef CONFIG_JSON_MEMORY_H
#define CONFIG_JSON_MEMORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* As json_loadb, json_stringn and json_dumps, whose text the caller frees; but NULL wherever memory was lacking:
 * jansson 2.14 goes on without a byte of a string that it reads, or without a key that it writes, for which there was
 * none. *lacked_memory tells that from text that is no JSON or no UTF-8; fault may be NULL. */
json_t *json_scan(const char *text, size_t n, size_t flags, json_error_t *fault, bool *lacked_memory);
json_t *json_make_text(const char *text, size_t n, bool *lacked_memory);
char *json_print(const json_t *value, size_t flags);

#endif
