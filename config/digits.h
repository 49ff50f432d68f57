/* digits.h - whole numbers in decimal digits, as people and clients write them. Any thread; no state. */
#ifndef CONFIG_DIGITS_H
#define CONFIG_DIGITS_H

#include <stdbool.h>
#include <stdint.h>

/* The decimal digits that **at begins with, moving *at past them. False, with both as they were, if there is none, or
 * if they take more than 64 bits: no sign, no blanks, no other notation. */
bool digits_read(uint64_t *ret, const char **at);

#endif
