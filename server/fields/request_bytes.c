/* request_bytes.c - see request_bytes.h. */
#include "server/fields/request_bytes.h"

#include <nettle/base64.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool request_base64_decode(const char *in, size_t in_size, uint8_t *out, size_t *size)
{
    struct base64_decode_ctx base64;
    if (in_size % 4 != 0 || memchr(in, '\0', in_size) != NULL || strpbrk(in, " \t\r\n\v\f") != NULL)
        return false; /* the library skips spaces; RFC 4648 has none */
    base64_decode_init(&base64);
    return base64_decode_update(&base64, size, out, in_size, in) == 1 && base64_decode_final(&base64) == 1;
}

enum status request_bytes_read(uint8_t **ret, size_t *size, const char *name, const json_t *text, const json_t *base64,
                               size_t max, struct error *err)
{
    const json_t *value = text != NULL ? text : base64;
    size_t bytes = json_string_length(value); /* 0 for NULL */
    char in_base64[ERROR_PARAM_MAX];
    (void)snprintf(in_base64, sizeof in_base64, "%s_base64", name);
    if (text != NULL && base64 != NULL)
        return error_set_param(err, ERR_ARGUMENT, in_base64, "\"%s\" and \"%s\" are both given; expected one of them",
                               name, in_base64);
    if (bytes == 0) {
        *ret = NULL;
        *size = 0;
        return OK;
    }
    uint8_t *copy = malloc(bytes);
    if (copy == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the %s; try again later", name);
    if (text != NULL) {
        memcpy(copy, json_string_value(value), bytes);
    } else if (!request_base64_decode(json_string_value(value), bytes, copy, &bytes) || bytes > max) {
        free(copy);
        return error_set_param(err, ERR_ARGUMENT, in_base64,
                               "\"%s\" is not base64 of at most %zu bytes; expected RFC 4648's, padded, without "
                               "line breaks",
                               in_base64, max);
    }
    *ret = copy;
    *size = bytes;
    return OK;
}
