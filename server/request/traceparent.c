/* traceparent.c - see traceparent.h. */
#include "server/request/traceparent.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Where the parts of a value begin, and its length. */
enum { AT_TRACE = 3, AT_SPAN = 36, AT_FLAGS = 53, LENGTH = 55 };
_Static_assert(LENGTH + 1 == TRACEPARENT_BYTES, "with its NUL");

static bool is_hex(const char *s, size_t digits)
{
    return strspn(s, "0123456789abcdef") >= digits;
}

static bool is_zero(const char *s, size_t digits)
{
    return strspn(s, "0") >= digits;
}

bool traceparent_parse(struct traceparent *ret, const char *value)
{
    value += strspn(value, " \t");
    size_t size = strlen(value);
    while (size > 0 && (value[size - 1] == ' ' || value[size - 1] == '\t'))
        size--;
    if (size < LENGTH || !is_hex(value, 2) || strncmp(value, "ff", 2) == 0)
        return false;
    if (size > LENGTH && (strncmp(value, "00", 2) == 0 || value[LENGTH] != '-'))
        return false;
    if (value[AT_TRACE - 1] != '-' || value[AT_SPAN - 1] != '-' || value[AT_FLAGS - 1] != '-')
        return false;
    if (!is_hex(value + AT_TRACE, TRACE_ID_BYTES - 1) || is_zero(value + AT_TRACE, TRACE_ID_BYTES - 1) ||
        !is_hex(value + AT_SPAN, TRACE_SPAN_BYTES - 1) || is_zero(value + AT_SPAN, TRACE_SPAN_BYTES - 1) ||
        !is_hex(value + AT_FLAGS, 2))
        return false;
    const char flags[] = {value[AT_FLAGS], value[AT_FLAGS + 1], '\0'};
    memcpy(ret->trace, value + AT_TRACE, TRACE_ID_BYTES - 1);
    memcpy(ret->span, value + AT_SPAN, TRACE_SPAN_BYTES - 1);
    ret->trace[TRACE_ID_BYTES - 1] = ret->span[TRACE_SPAN_BYTES - 1] = '\0';
    ret->flags = (unsigned)strtoul(flags, NULL, 16) & TRACE_FLAGS;
    return true;
}

void traceparent_renew_span(struct traceparent *t)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random || random == 0)
        random = 1; /* zeros alone are no span */
    (void)snprintf(t->span, sizeof t->span, "%016llx", (unsigned long long)random);
}

void traceparent_print(const struct traceparent *t, char out[TRACEPARENT_BYTES])
{
    (void)snprintf(out, TRACEPARENT_BYTES, "00-%s-%s-%02x", t->trace, t->span, t->flags & TRACE_FLAGS);
}
