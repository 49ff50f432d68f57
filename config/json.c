/* json.c - the strict reading of JSON that config.json, safetensors headers and shard indexes share.
 * Any thread. */
#include "config/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/file.h"

static void quote_into(char *out, size_t size, const char *text)
{
    static const char ellipsis[] = "...";
    size_t n = strlen(text);
    const bool cut = n >= size;

    if (cut) {
        n = size - sizeof ellipsis;
        while (n > 0 && ((unsigned char)text[n] & 0xC0u) == 0x80u) /* the middle of a character */
            n--;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        out[i] = c < 0x20 || c == 0x7F ? '?' : text[i];
    }
    (void)snprintf(out + n, size - n, "%s", cut ? ellipsis : "");
}

struct quoted json_quote(const char *text)
{
    struct quoted q;

    quote_into(q.text, sizeof q.text, text);
    return q;
}

struct quoted json_describe(const json_t *value)
{
    struct quoted q = {""};
    char text[sizeof q.text - sizeof "a string (\"\")" + 1];

    if (json_is_object(value)) {
        (void)snprintf(q.text, sizeof q.text, "an object");
    } else if (json_is_array(value)) {
        (void)snprintf(q.text, sizeof q.text, "a list of %zu", json_array_size(value));
    } else if (json_is_string(value)) {
        quote_into(text, sizeof text, json_string_value(value));
        (void)snprintf(q.text, sizeof q.text, "a string (\"%s\")", text);
    } else { /* 1.0 stays 1.0, which is not what is meant by a whole number */
        (void)json_dumpb(value, q.text, sizeof q.text - 1, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    }
    return q;
}

/* ---- objects --------------------------------------------------------------------------------------------------- */

enum status json_parse_object(json_t **ret, const char *text, size_t n, const char *path, struct error *err)
{
    json_error_t why;
    bool lacked_memory;
    json_t *root = json_scan(text, n, JSON_REJECT_DUPLICATES, &why, &lacked_memory);

    if (lacked_memory)
        return error_set(err, ERR_NOMEM, "%s: not enough memory to parse %zu bytes of JSON", path, n);
    if (root == NULL)
        return error_set(err, ERR_FORMAT, "%s: not valid JSON at line %d, column %d: %s", path, why.line, why.column,
                         json_quote(why.text).text);
    if (!json_is_object(root)) {
        const enum status st =
            error_set(err, ERR_FORMAT, "%s: holds %s, expected an object", path, json_describe(root).text);
        json_decref(root);
        return st;
    }
    *ret = root;
    return OK;
}

enum status json_read_object(json_t **ret, const char *path, size_t size_max, struct error *err)
{
    char *text = NULL;
    size_t n = 0;

    enum status st = file_read_all(&text, &n, path, size_max, err);
    if (st == OK)
        st = json_parse_object(ret, text, n, path, err);
    free(text);
    return st;
}
