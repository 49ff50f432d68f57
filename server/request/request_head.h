/* request_head.h - what a request says before its body: its query, as the same fields that a JSON body has, and how the
 * body is declared, its Content-Type and Content-Encoding. HTTP threads; no state. */
#ifndef SERVER_REQUEST_REQUEST_HEAD_H
#define SERVER_REQUEST_REQUEST_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/fields/fields.h"
#include "server/request/request.h"

/* The query as an object for fields_read: a value is a string where the list wants one, else it is read as JSON. *ret
 * is set only on OK, NULL where no parameter is known: json_decref. For routes.c, which asks before there is a body.
 * Errors: ERR_ARGUMENT (a name that is not known or given twice, a text that is not UTF-8), ERR_NOMEM. */
enum status request_query_parse(json_t **ret, const struct field_list *known, struct request *x, struct error *err);

/* One value of such an object; a form's parts are read in the same way. Errors as above. */
enum status request_query_add(json_t *object, const struct field *f, const char *value, size_t value_bytes,
                              struct error *err);

/* Read the body's JSON, x->object from then on, into `to` by fields_read; nothing of one that may be missing, and is.
 * Errors: as request_json_parse, fields_read. */
enum status request_read_fields(struct request *x, const struct field_list *list, void *to, struct error *err);

/* ---- the body --------------------------------------------------------------------------------------------------- */

enum { MEDIA_TYPE_MAX = 64 }; /* with its NUL; no type that is accepted is longer */

/* The declared media type without its parameters; false where there is none, or it is too long. */
bool request_type_read(const struct request *x, char out[MEDIA_TYPE_MAX]);

/* May the body be read as it is? Compressed ones are not read. Errors: ERR_MEDIA_TYPE. */
enum status request_type_check_encoding(const struct request *x, struct error *err);

/* Types that a route reads: any, or some of these. */
enum { TYPE_ANY = 0, TYPE_JSON = 1, TYPE_BYTES = 2, TYPE_PICTURE = 4, TYPE_FORM = 8 };
/* Is the body declared as one of them, which x->type becomes, or not at all? curl sends
 * application/x-www-form-urlencoded unless it is told otherwise, and no endpoint takes such forms, so that counts as
 * undeclared. Errors: ERR_MEDIA_TYPE. */
enum status request_type_check(struct request *x, unsigned types, struct error *err);
/* Is the body JSON, of a route that takes pictures too? An undeclared one that begins with { is: no picture does. */
bool request_type_is_json(const struct request *x);
/* Has a body at most so many bytes? Errors: ERR_TOO_LARGE. */
enum status request_type_check_size(uint64_t bytes, size_t most, struct error *err);

#endif
