/* utf8.c - see utf8.h. */
#include "config/utf8.h"

#include <assert.h>
#include <string.h>

struct utf8_lead utf8_lead(uint8_t first)
{
    static const struct {
        uint8_t from, to;
        struct utf8_lead lead;
    } rows[] = {
        {0x00, 0x7f, {1, 0x80, 0xbf}}, {0xc2, 0xdf, {2, 0x80, 0xbf}}, {0xe0, 0xe0, {3, 0xa0, 0xbf}},
        {0xe1, 0xec, {3, 0x80, 0xbf}}, {0xed, 0xed, {3, 0x80, 0x9f}}, {0xee, 0xef, {3, 0x80, 0xbf}},
        {0xf0, 0xf0, {4, 0x90, 0xbf}}, {0xf1, 0xf3, {4, 0x80, 0xbf}}, {0xf4, 0xf4, {4, 0x80, 0x8f}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (first >= rows[i].from && first <= rows[i].to)
            return rows[i].lead;
    return (struct utf8_lead){0, 0, 0};
}

size_t utf8_length(const char *text)
{
    const uint8_t *bytes = (const uint8_t *)text;
    const struct utf8_lead lead = utf8_lead(bytes[0]);
    assert(lead.length <= 4);
    if (bytes[0] == '\0' || (lead.length > 1 && (bytes[1] < lead.low || bytes[1] > lead.high)))
        return 0;
    for (size_t n = 2; n < lead.length; n++)
        if ((bytes[n] & 0xc0u) != 0x80u)
            return 0;
    return lead.length;
}

uint32_t utf8_code_point(const char *text)
{
    static const uint8_t first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const size_t length = utf8_length(text);
    uint32_t code = (unsigned char)text[0] & first_bits[length];
    for (size_t i = 1; i < length; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3fu);
    return code;
}

bool utf8_is_control(const char *text)
{
    const uint32_t code = utf8_code_point(text);
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

bool utf8_is_invisible(const char *text)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e}, {0x200b, 0x200f},   {0x2028, 0x202e},
        {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
    };
    const uint32_t code = utf8_code_point(text);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

/* ---- repair ----------------------------------------------------------------------------------------------------- */

/* Size of the character, or of the part of one, that `in` begins with: at least 1. *whole says which it is. */
static size_t utf8_span(const uint8_t *in, size_t size, unsigned length, uint8_t low, uint8_t high, bool *whole)
{
    size_t n = 1;
    while (n < length && n < size && in[n] >= low && in[n] <= high) {
        low = 0x80;
        high = 0xbf;
        n++;
    }
    *whole = n == length;
    return n;
}

size_t utf8_first(const uint8_t *in, size_t size)
{
    const struct utf8_lead lead = utf8_lead(in[0]);
    bool whole;
    return utf8_span(in, size, lead.length, lead.low, lead.high, &whole);
}

size_t utf8_repair(char *out, size_t *out_bytes, const uint8_t *in, size_t size, bool last)
{
    static const char replacement[UTF8_GROWTH] = {'\xef', '\xbf', '\xbd'};
    size_t used = 0, written = 0;
    while (used < size) {
        const struct utf8_lead lead = utf8_lead(in[used]);
        bool whole;
        const size_t n = utf8_span(in + used, size - used, lead.length, lead.low, lead.high, &whole);
        if (whole) {
            memcpy(out + written, in + used, n);
            written += n;
        } else if (!last && lead.length > 0 && used + n == size) {
            break;
        } else {
            memcpy(out + written, replacement, sizeof replacement);
            written += sizeof replacement;
        }
        used += n;
    }
    *out_bytes = written;
    return used;
}
