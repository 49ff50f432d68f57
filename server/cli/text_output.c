/* text_output.c - see text_output.h. */
#include "server/cli/text_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"

struct text_output text_output_begin(bool collects)
{
    return (struct text_output){.collects = collects, .terminal = !collects && isatty(STDOUT_FILENO) == 1};
}

/* Replace all control characters in valid UTF-8 other than newline and tab by dots: C0, DEL, and C1, which UTF-8
 * encodes as C2 80 to C2 9F and some terminals obey. Returns the new size. */
static size_t disarm(char *text, size_t size)
{
    size_t to = 0;
    for (size_t from = 0; from < size; from++) {
        const unsigned char c = (unsigned char)text[from];
        const bool c0 = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        const bool c1 = c == 0xc2 && from + 1 < size && (unsigned char)text[from + 1] < 0xa0;
        text[to++] = c0 || c1 ? '.' : text[from];
        from += c1 ? 1 : 0;
    }
    return to;
}

size_t text_output_show(char *out, const uint8_t *bytes, size_t size)
{
    size_t written = 0;
    (void)utf8_repair(out, &written, bytes, size, true);
    return disarm(out, written);
}

static void print_pending(struct text_output *o, bool last)
{
    char text[UTF8_GROWTH * sizeof o->pending];
    size_t size = 0;
    const size_t used = utf8_repair(text, &size, o->pending, o->count, last);
    (void)fwrite(text, 1, disarm(text, size), stdout);
    o->count -= used;
    memmove(o->pending, o->pending + used, o->count);
}

int text_output_bytes(struct text_output *o, const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return CLI_OK;
    if (o->collects)
        return held_add(&o->collected, bytes, size, SIZE_MAX - 1) ? CLI_OK : cli_fail("out of memory");
    for (size_t i = 0; i < size && o->terminal; i++) {
        o->pending[o->count++] = bytes[i];
        print_pending(o, false);
    }
    if (!o->terminal)
        (void)fwrite(bytes, 1, size, stdout);
    return cli_flush();
}

void text_output_end(struct text_output *o)
{
    if (!o->terminal)
        return;
    print_pending(o, true);
    (void)printf("\n");
}

void text_output_clear(struct text_output *o)
{
    free(o->collected.bytes);
    *o = (struct text_output){.collects = false};
}
