/* fuzz_text.c - stop strings and UTF-8 against plain twins: the definitions, tried out at every place.
 * An input is the number of stop strings, each with its length before it, then the seed of the chunks that UTF-8 is
 * repaired in, then the bytes that a model generated. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "config/utf8.h"
#include "server/operation/stops.h"
#include "tests/support/random.h"

enum { GENERATED_MAX = 1024 }; /* the twins are slow */

/* ---- stop strings ----------------------------------------------------------------------------------------------- */

static void read_stops(struct stop_set *s, struct fuzz_input *in)
{
    for (uint32_t left = fuzz_number(in, 1) % (GENERATE_STOPS_MAX + 1); left > 0; left--) {
        const size_t size = 1 + fuzz_number(in, 1) % GENERATE_STOP_BYTES_MAX;
        if (size > in->left)
            return;
        fuzz_check(stop_set_add(s, in->at, size), "a stop string that is short enough is taken");
        in->at += size;
        in->left -= size;
    }
}

/* Does text[0..size) end with the first `length` bytes of the stop string? */
static bool ends_with(const uint8_t *text, size_t size, const uint8_t *stop, size_t length)
{
    return length <= size && memcmp(text + size - length, stop, length) == 0;
}

/* How much of text[0..size) a client may have: all but the longest stop string that it ends with (*stopped), or else
 * all but the longest end of it that may become one. */
static size_t twin_released(const struct stop_set *s, const uint8_t *text, size_t size, bool *stopped)
{
    size_t whole = 0, part = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        const size_t length = s->lengths[i];
        if (length > whole && ends_with(text, size, s->bytes[i], length))
            whole = length;
        for (size_t n = 1; n < length; n++)
            if (n > part && ends_with(text, size, s->bytes[i], n))
                part = n;
    }
    *stopped = whole > 0;
    return size - (whole > 0 ? whole : part);
}

/* Feed all bytes. Returns how many of them a client may have. */
static size_t check_matcher(const struct stop_set *stops, const uint8_t *text, size_t size)
{
    struct stop_matcher m = {.stops = stops};
    size_t released = 0;

    for (size_t i = 0; i < size; i++) {
        size_t n = 0;
        bool expected = false;
        const bool stopped = stop_matcher_feed(&m, text[i], &n);
        const size_t may = twin_released(stops, text, i + 1, &expected);
        fuzz_check(stopped == expected, "a stop string ends the stream when it is complete, and nothing else does");
        fuzz_check(released + n == may, "all is released that cannot belong to a stop string, and no more");
        released += n;
        fuzz_check(memcmp(m.held, text + released, m.held_bytes) == 0, "what is held is what was fed");
        if (stopped) {
            fuzz_check(m.held_bytes == 0, "nothing is held after the end");
            return released;
        }
    }
    fuzz_check(released + m.held_bytes == size, "a stream that ends by itself is released whole");
    return size;
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------ */

/* Bytes of a character that begins with `first`, and the smallest number that may take so many; 0: none begins so. */
static size_t twin_length(uint8_t first, uint32_t *smallest)
{
    static const struct {
        uint8_t mask, lead;
        uint32_t smallest;
    } rows[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((first & rows[i].mask) == rows[i].lead) {
            *smallest = rows[i].smallest;
            return i + 1;
        }
    return 0;
}

/* Can a character begin with these n bytes? It can if one of the numbers that are then left is one of Unicode's, which
 * are those from `smallest` to 10FFFF without the surrogates. *whole: is it all of it? */
static bool twin_begins(const uint8_t *in, size_t n, bool *whole)
{
    uint32_t smallest = 0;
    const size_t length = twin_length(in[0], &smallest);
    uint32_t number = length == 1 ? in[0] : in[0] & (0x7fu >> length);

    if (length < n)
        return false;
    for (size_t i = 1; i < n; i++) {
        if ((in[i] & 0xc0u) != 0x80u)
            return false;
        number = number << 6 | (in[i] & 0x3fu);
    }
    const uint32_t open = 6 * (uint32_t)(length - n);
    const uint32_t low = number << open, high = low | ((UINT32_C(1) << open) - 1);
    *whole = n == length;
    return high >= smallest && low <= 0x10ffff && !(low >= 0xd800 && high <= 0xdfff);
}

/* Unicode's "substitution of maximal subparts". Returns what was written to out [UTF8_GROWTH * size]. */
static size_t twin_repair(char *out, const uint8_t *in, size_t size)
{
    static const char replacement[UTF8_GROWTH] = {'\xef', '\xbf', '\xbd'};
    size_t written = 0;

    for (size_t at = 0; at < size;) {
        bool whole = false, longer = false;
        size_t n = 0;
        while (!whole && at + n < size && twin_begins(in + at, n + 1, &longer)) {
            n++;
            whole = longer;
        }
        if (whole)
            memcpy(out + written, in + at, n);
        else
            memcpy(out + written, replacement, sizeof replacement);
        written += whole ? n : UTF8_GROWTH;
        at += n > 0 ? n : 1;
    }
    return written;
}

/* In chunks, what one leaves coming before the next, as an answer that is streamed does it. */
static size_t repair_in_chunks(char *out, const uint8_t *in, size_t size, struct random *random)
{
    uint8_t chunk[UTF8_INCOMPLETE_MAX + 8];
    char piece[UTF8_GROWTH * sizeof chunk];
    size_t kept = 0, written = 0;

    for (size_t at = 0;;) {
        const size_t room = 1 + random_below(random, 8), n = room < size - at ? room : size - at;
        memcpy(chunk + kept, in + at, n);
        at += n;
        const bool last = at == size && n < room;
        size_t bytes = 0;
        const size_t used = utf8_repair(piece, &bytes, chunk, kept + n, last);
        fuzz_check(used <= kept + n && kept + n - used <= UTF8_INCOMPLETE_MAX, "little is left for the next chunk");
        fuzz_check_utf8(piece, bytes);
        memcpy(out + written, piece, bytes);
        written += bytes;
        kept += n - used;
        memmove(chunk, chunk + used, kept);
        if (last) {
            fuzz_check(kept == 0, "nothing is left at the end");
            return written;
        }
    }
}

static void check_repair(const uint8_t *in, size_t size, uint32_t seed)
{
    char *expected = malloc(UTF8_GROWTH * size + 1), *got = malloc(UTF8_GROWTH * size + 1);
    struct random random = {.state = seed};
    size_t bytes = 0;

    fuzz_check(expected != NULL && got != NULL, "there is memory for the texts");
    const size_t expected_bytes = twin_repair(expected, in, size);
    fuzz_check(utf8_repair(got, &bytes, in, size, true) == size, "the last piece is used whole");
    fuzz_check(bytes == expected_bytes && memcmp(got, expected, bytes) == 0, "bytes are replaced as Unicode says");
    fuzz_check_utf8(got, bytes);
    bytes = repair_in_chunks(got, in, size, &random);
    fuzz_check(bytes == expected_bytes && memcmp(got, expected, bytes) == 0, "chunks make no difference");
    free(expected);
    free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct stop_set stops = {0};

    read_stops(&stops, &in);
    const uint32_t seed = fuzz_number(&in, 1);
    const size_t text = in.left < GENERATED_MAX ? in.left : GENERATED_MAX;
    const size_t released = check_matcher(&stops, in.at, text);
    check_repair(in.at, released, seed);
    return 0;
}
