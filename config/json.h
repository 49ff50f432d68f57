/* json.h - JSON of model files: parse strictly, and describe what was found in words fit for a message. Includes
 * config/json_memory.h. Any thread; no state. */
#ifndef CONFIG_JSON_H
#define CONFIG_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/json_memory.h"
#include "config/status.h"

#define JSON_QUOTE_MAX 96 /* bytes of a quoted text in a message; longer ones are cut */

/* An untrusted text fit for a message or a log: cut to JSON_QUOTE_MAX at a character's boundary, control
 * characters replaced by '?'. */
struct quoted {
    char text[JSON_QUOTE_MAX];
};
struct quoted json_quote(const char *text);

/* What a value is, for "key is ..., expected ...": "5", "1.0", "a string (\"x\")", "a list of 3", "null". */
struct quoted json_describe(const json_t *value);

/* Parse text [n] as one JSON object without duplicate keys. *ret is set only on OK: json_decref it.
 * Errors: ERR_FORMAT naming `path`, line and column. */
enum status json_parse_object(json_t **ret, const char *text, size_t n, const char *path, struct error *err);

/* The same for a whole file of at most size_max bytes. Errors: ERR_IO, ERR_NOMEM too. */
enum status json_read_object(json_t **ret, const char *path, size_t size_max, struct error *err);

#endif
