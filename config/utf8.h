/* utf8.h - what is well-formed UTF-8 (Unicode 15, table 3-7), what of it must not reach a terminal, and how bytes that
 * are not become such. Allocates nothing. Any thread; no state. */
#ifndef CONFIG_UTF8_H
#define CONFIG_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What may follow a first byte (Unicode 15, table 3-7): how many bytes the character has, 0 if no character begins with
 * it, and the range of its second byte. All later ones are 80..BF. */
struct utf8_lead {
    unsigned length;
    uint8_t low, high;
};
struct utf8_lead utf8_lead(uint8_t first);

/* Bytes of the character at the start of `text`, which ends with a NUL; 0 if no well-formed character is there. */
size_t utf8_length(const char *text);

/* What follows is for a text that begins with a well-formed character. */
uint32_t utf8_code_point(const char *text);
/* C0, DEL, and the C1 controls U+0080 to U+009F, which terminals obey as well. */
bool utf8_is_control(const char *text);
/* Characters that nobody sees and that change how the rest is shown: they turn its direction, begin a line, or join and
 * part what stands beside them. */
bool utf8_is_invisible(const char *text);

/* ---- repair ----------------------------------------------------------------------------------------------------- */

#define UTF8_GROWTH 3         /* one byte that is not UTF-8 becomes U+FFFD, three bytes */
#define UTF8_INCOMPLETE_MAX 3 /* bytes of a character that may wait for its last one */

/* How many bytes of `in` (size > 0) utf8_repair turns into its first character if nothing follows them: at least 1. */
size_t utf8_first(const uint8_t *in, size_t size);

/* Copy `in` to `out` (UTF8_GROWTH * size bytes) up to the end of its last character, replacing each maximal subpart
 * of an ill-formed sequence by one U+FFFD (Unicode 15, section 3.9; what Python's errors="replace" gives). An
 * incomplete character at the end of `in` is left, unless this is the `last` piece of the stream: then it becomes one
 * U+FFFD. Returns how many bytes of `in` were used, all but at most UTF8_INCOMPLETE_MAX; *out_bytes is how many were
 * written. */
size_t utf8_repair(char *out, size_t *out_bytes, const uint8_t *in, size_t size, bool last);

#endif
