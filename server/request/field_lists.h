/* field_lists.h - the tables of fields that clients may use, by the names that openapi.json calls them. A new one is a
 * row here, and defined beside its table: const struct field_list NAME = {table, COUNT}. Constant. */
#ifndef SERVER_REQUEST_FIELD_LISTS_H
#define SERVER_REQUEST_FIELD_LISTS_H

#include "server/request/fields.h"

#define FIELD_LISTS(X)    \
    X(classify_fields)    \
    X(classify_query)     \
    X(complete_query)     \
    X(compress_query)     \
    X(explain_query)      \
    X(generate_fields)    \
    X(openai_fields)      \
    X(session_fields)     \
    X(fork_fields)        \
    X(score_fields)       \
    X(admin_model_fields) \
    X(score_query)

#define X(name) extern const struct field_list name;
FIELD_LISTS(X)
#undef X

#endif
