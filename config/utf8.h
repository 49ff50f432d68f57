/* utf8.h - what is well-formed UTF-8 (Unicode 15, table 3-7). Allocates nothing. Any thread; no state. */
#ifndef CONFIG_UTF8_H
#define CONFIG_UTF8_H

#include <stddef.h>

/* Bytes of the character at the start of `text`, which ends with a NUL; 0 if no well-formed character is there. */
size_t utf8_length(const char *text);

#endif
