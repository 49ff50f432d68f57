/* framing.c - see framing.h.
 *
 * The library hands out names and values as strings that it cut at the first NUL, inside the buffer that the request
 * was read into. So a NUL or a bare line feed is not seen in the strings, but between them: two neighbours are exactly
 * as far apart as the separator that HTTP prescribes. A distance that cannot be one within this request's header says
 * that the strings are not neighbours in memory; then nothing is concluded, nor with header_bytes of 0. */
#include "server/request/framing.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum {
    GAP_IN_REQUEST_LINE = 1, /* a space */
    GAP_AFTER_LINE = 2,      /* CR LF */
    GAP_AFTER_HEADER = 4,    /* CR LF of the last line, and of the empty one */
};

static void check_gap(struct framing *f, uintptr_t from, uintptr_t to, size_t expected)
{
    const uintptr_t gap = to - from; /* huge if they are in the other order */
    if (f->fault == NULL && gap <= f->header_bytes && gap != expected)
        f->fault = "the request's header has a NUL, a line that does not end in CR LF, or misplaced spaces";
}

void framing_begin(struct framing *f, const char *method, const char *target, size_t target_bytes, const char *version,
                   size_t header_bytes)
{
    *f = (struct framing){.previous = (uintptr_t)version + strlen(version),
                          .end = (uintptr_t)method + header_bytes,
                          .header_bytes = header_bytes,
                          .is_1_1 = strcmp(version, "HTTP/1.1") == 0};
    check_gap(f, (uintptr_t)method + strlen(method), (uintptr_t)target, GAP_IN_REQUEST_LINE);
    check_gap(f, (uintptr_t)target + target_bytes, (uintptr_t)version, GAP_IN_REQUEST_LINE);
}

static bool is_token(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)name[i]) && (name[i] == '\0' || strchr("!#$%&'*+-.^_`|~", name[i]) == NULL))
            return false;
    return size > 0;
}

static bool is_text(const char *value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
            return false;
    return true;
}

static bool is_named(const char *name, size_t size, const char *wanted)
{
    return size == strlen(wanted) && strncasecmp(name, wanted, size) == 0;
}

/* Spaces around a value are not part of it. */
static void trim(const char **value, size_t *size)
{
    while (*size > 0 && ((*value)[*size - 1] == ' ' || (*value)[*size - 1] == '\t'))
        --*size;
    while (*size > 0 && (**value == ' ' || **value == '\t')) {
        ++*value;
        --*size;
    }
}

static void read_length(struct framing *f, const char *value, size_t size)
{
    uint64_t length = 0;
    trim(&value, &size);
    bool fine = size > 0 && size < sizeof "9223372036854775807"; /* more digits than any length here */
    for (size_t i = 0; fine && i < size; i++) {
        fine = isdigit((unsigned char)value[i]) != 0;
        length = length * 10 + (uint64_t)(value[i] - '0');
    }
    if (!fine)
        f->fault = "Content-Length is not a number of bytes";
    else if (f->has_length)
        f->fault = "the request has more than one Content-Length";
    f->has_length = true;
    f->length = length;
}

/* Compared exactly as the library does it: a body that it does not take for "chunked" would never end. */
static void read_encoding(struct framing *f, const char *value, size_t size)
{
    if (!is_named(value, size, "chunked"))
        f->fault = "Transfer-Encoding is not \"chunked\", the only one that is supported";
    else if (f->is_chunked)
        f->fault = "the request has more than one Transfer-Encoding";
    else if (!f->is_1_1)
        f->fault = "HTTP/1.0 has no Transfer-Encoding";
    f->is_chunked = true;
}

void framing_header(struct framing *f, const char *name, size_t name_bytes, const char *value, size_t value_bytes)
{
    check_gap(f, f->previous, (uintptr_t)name, GAP_AFTER_LINE);
    f->previous = (uintptr_t)value + value_bytes;
    if (f->fault != NULL)
        return;
    if (!is_token(name, name_bytes))
        f->fault = "the name of a header has a character that is not allowed there";
    else if (!is_text(value, value_bytes))
        f->fault = "the value of a header has a control character";
    else if (is_named(name, name_bytes, "Content-Length"))
        read_length(f, value, value_bytes);
    else if (is_named(name, name_bytes, "Transfer-Encoding"))
        read_encoding(f, value, value_bytes);
    else if (is_named(name, name_bytes, "Host") && f->hosts++ > 0)
        f->fault = "the request has more than one Host";
}

enum status framing_end(struct framing *f, struct error *err)
{
    check_gap(f, f->previous, f->end, GAP_AFTER_HEADER);
    if (f->fault == NULL && f->has_length && f->is_chunked)
        f->fault = "the request has both Content-Length and Transfer-Encoding";
    if (f->fault == NULL && f->hosts == 0 && f->is_1_1)
        f->fault = "the request has no Host, which HTTP/1.1 asks for";
    return f->fault == NULL ? OK : error_set(err, ERR_ARGUMENT, "%s", f->fault);
}

static bool is_id(const char *id)
{
    const size_t size = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return size >= 1 && size <= REQUEST_ID_MAX && id[size] == '\0';
}

void framing_choose_id(char out[REQUEST_ID_MAX + 1], const char *given)
{
    unsigned char random[16];
    if (given != NULL && is_id(given)) {
        (void)snprintf(out, REQUEST_ID_MAX + 1, "%s", given);
        return;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, 0, sizeof random); /* cannot happen once the kernel has started */
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", random[i]);
}
