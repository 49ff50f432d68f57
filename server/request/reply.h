/* reply.h - answers: JSON, and errors in the form of the request's API. HTTP threads; a request is answered once. */
#ifndef SERVER_REQUEST_REPLY_H
#define SERVER_REQUEST_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "server/request/request.h"

struct job;

/* JSON numbers have enough digits for a float32, or for a time in microseconds. */
#define REPLY_JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9))

/* Answer with a text of JSON, or with a value, which is taken; NULL stands for want of memory. Return OK. */
enum status reply_send_text(struct request *x, unsigned status, char *text);
enum status reply_send_json(struct request *x, unsigned status, json_t *value);
/* Answer with an error. Retry-After is by the length of the queue with 503, else what the error says. */
void reply_send_error(struct request *x, const struct error *err);

/* {"error": {"message", "type", "param", "code"}}, empty ones null. Returns NULL for want of memory. */
json_t *reply_describe_error(const struct error *err);
/* Bytes in base64. NULL for want of memory. */
json_t *reply_base64(const uint8_t *bytes, size_t size);
/* A duration for answers, in milliseconds, rounded to whole microseconds. */
double reply_milliseconds(uint64_t from_ns, uint64_t to_ns);

#endif
