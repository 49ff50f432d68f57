/* utf8.c - see utf8.h. */
#include "config/utf8.h"

size_t utf8_length(const char *text)
{
    static const struct {
        unsigned char from, to, low, high; /* of the first byte, of the second one */
        size_t length;
    } firsts[] = {
        {0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    const unsigned char *bytes = (const unsigned char *)text;

    for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
        if (bytes[0] < firsts[i].from || bytes[0] > firsts[i].to)
            continue;
        if (firsts[i].length > 1 && (bytes[1] < firsts[i].low || bytes[1] > firsts[i].high))
            return 0;
        for (size_t n = 2; n < firsts[i].length; n++)
            if ((bytes[n] & 0xc0u) != 0x80u)
                return 0;
        return firsts[i].length;
    }
    return 0;
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
