/* json.h - JSON of model files: parse strictly, and describe what was found in words fit for a message; and JSON as
 * text, for everybody. Any thread; no state but whether memory was lacking, which is each thread's own. */
#ifndef WEIGHTS_JSON_H
#define WEIGHTS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"

#define JSON_QUOTE_MAX 96 /* bytes of a quoted text in a message; longer ones are cut */

/* An untrusted text fit for a message or a log: cut to JSON_QUOTE_MAX at a character's boundary, control
 * characters replaced by '?'. */
struct quoted {
    char text[JSON_QUOTE_MAX];
};
struct quoted json_quote(const char *text);

/* What a value is, for "key is ..., expected ...": "an integer (5)", "a string (\"x\")", "a list of 3", "null". */
struct quoted json_describe(const json_t *value);

/* Parse text [n] as one JSON object without duplicate keys. *ret is set only on OK: json_decref it.
 * Errors: ERR_FORMAT naming `path`, line and column. */
enum status json_parse_object(json_t **ret, const char *text, size_t n, const char *path, struct error *err);

/* The same for a whole file of at most size_max bytes. Errors: ERR_IO, ERR_NOMEM too. */
enum status json_read_object(json_t **ret, const char *path, size_t size_max, struct error *err);

/* As json_loadb, json_stringn and json_dumps, whose text the caller frees; but NULL wherever memory was lacking:
 * jansson 2.14 goes on without a byte of a string that it reads, or without a key that it writes, for which there was
 * none. *lacked_memory tells that from text that is no JSON or no UTF-8; fault may be NULL. */
json_t *json_scan(const char *text, size_t n, size_t flags, json_error_t *fault, bool *lacked_memory);
json_t *json_make_text(const char *text, size_t n, bool *lacked_memory);
char *json_print(const json_t *value, size_t flags);

#endif
