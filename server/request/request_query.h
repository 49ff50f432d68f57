/* request_query.h - the query of a request -> the same fields that a JSON body has. HTTP threads; no state. */
#ifndef SERVER_REQUEST_REQUEST_QUERY_H
#define SERVER_REQUEST_REQUEST_QUERY_H

#include "server/fields/fields.h"
#include "server/request/request.h"

/* The query as an object for fields_read: a value is a string where the list wants one, else it is read as JSON. *ret
 * is set only on OK, NULL where no parameter is known: json_decref. For routes.c, which asks before there is a body.
 * Errors: ERR_ARGUMENT (a name that is not known or given twice, a text that is not UTF-8), ERR_NOMEM. */
enum status request_query_parse(json_t **ret, const struct field_list *known, struct request *x, struct error *err);

/* One value of such an object; a form's parts are read in the same way. Errors as above. */
enum status request_query_add(json_t *object, const struct field *f, const char *value, size_t value_bytes,
                              struct error *err);

#endif
