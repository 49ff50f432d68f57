/* status.h - the one list of failures: every function that can fail returns one of these, and what a client
 * or a user reads (HTTP code, error type) comes from the same row. struct error carries the details.
 * Any thread; no state. */
#ifndef CONFIG_STATUS_H
#define CONFIG_STATUS_H

#include "config/limits.h"

/*   name               HTTP  error "type"              error "code" */
#define STATUSES(X)                                                      \
    X(OK, 200, "ok", "ok")                                               \
    X(ERR_ARGUMENT, 400, "invalid_request_error", "invalid_value")       \
    X(ERR_KEY, 401, "authentication_error", "invalid_api_key")           \
    X(ERR_FORBIDDEN, 403, "permission_error", "not_allowed")             \
    X(ERR_NOT_FOUND, 404, "not_found_error", "not_found")                \
    X(ERR_METHOD, 405, "invalid_request_error", "method_not_allowed")    \
    X(ERR_TIMEOUT, 408, "timeout_error", "deadline_exceeded")            \
    X(ERR_CONFLICT, 409, "conflict_error", "conflict")                   \
    X(ERR_LENGTH, 411, "invalid_request_error", "length_required")       \
    X(ERR_TOO_LARGE, 413, "invalid_request_error", "body_too_large")     \
    X(ERR_URL, 414, "invalid_request_error", "url_too_long")             \
    X(ERR_MEDIA_TYPE, 415, "invalid_request_error", "unsupported_media") \
    X(ERR_PICTURE, 422, "invalid_request_error", "undecodable_picture")  \
    X(ERR_REFUSED, 422, "invalid_request_error", "file_refused")         \
    X(ERR_RATE, 429, "rate_limit_error", "rate_limit_exceeded")          \
    X(ERR_CLIENT_GONE, 499, "cancelled_error", "client_left")            \
    X(ERR_CANCELLED_BY_ADMIN, 499, "cancelled_error", "cancelled")       \
    X(ERR_INTERNAL, 500, "server_error", "internal")                     \
    X(ERR_NOMEM, 503, "overloaded_error", "out_of_memory")               \
    X(ERR_FULL, 503, "overloaded_error", "queue_full")                   \
    X(ERR_SESSIONS, 503, "overloaded_error", "sessions_full")            \
    X(ERR_STORE, 503, "overloaded_error", "session_store")               \
    X(ERR_UNAVAILABLE, 503, "overloaded_error", "unavailable")           \
    X(ERR_LOADING, 503, "overloaded_error", "model_loading")             \
    X(ERR_IO, 500, "server_error", "io")                                 \
    X(ERR_FORMAT, 500, "server_error", "bad_file")                       \
    X(ERR_UNSUPPORTED, 500, "server_error", "unsupported_model")         \
    X(ERR_CONFIG, 500, "server_error", "bad_setting")

enum status {
#define X(name, http, type, code) name,
    STATUSES(X)
#undef X
};

/* What went wrong, for a person. `param` is the request's field, the setting or the tensor at fault; it may be
 * empty. A struct error that no failing call has filled holds nothing meaningful. */
struct error {
    enum status status;
    unsigned retry_after_s; /* when the same may succeed; 0: nothing is known of that */
    char param[ERROR_PARAM_MAX];
    char message[ERROR_MESSAGE_MAX];
};

/* Fill *err (NULL is allowed: only the status is kept) and return st, so that callers write
 * `return error_set(err, ERR_FORMAT, "...", ...)`. The message is cut to fit, between two characters, and what it
 * quotes that is not UTF-8, or that would drive a terminal, becomes '?', so that it can be shown anywhere; param
 * becomes empty. */
enum status error_set(struct error *err, enum status st, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, naming the field at fault. */
enum status error_set_param(struct error *err, enum status st, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Of an error that is set (NULL is allowed): when the same may succeed. */
void error_retry_after(struct error *err, unsigned seconds);

/* Static strings and numbers of one status. `st` must be in the list. */
const char *status_name(enum status st); /* "ERR_FULL" */
const char *status_type(enum status st);
const char *status_code(enum status st);
unsigned status_http(enum status st);

/* The status of a system call that failed with errno `error`: ERR_NOMEM if memory ran out, otherwise ERR_IO. */
enum status status_of_errno(int error);

#endif
