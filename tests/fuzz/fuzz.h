/* fuzz.h - what the fuzz targets share. Each target is a program of its own around libFuzzer: it is given bytes, and
 * aborts when something that must hold does not. One thread. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

/* libFuzzer's entry to a target, with data [size]; always returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort, saying what should have been. */
_Noreturn void fuzz_fail(const char *what);
/* The same, unless it is so. */
static inline void fuzz_check(bool is_so, const char *what)
{
    if (!is_so)
        fuzz_fail(what);
}
/* Abort unless it is well-formed, as the JSON library sees it. */
void fuzz_check_utf8(const char *text, size_t size);
/* Abort unless `st`, a failure, is one of `allowed` [count] and `err` tells of it in words fit for JSON. */
void fuzz_check_error(enum status st, const struct error *err, const enum status allowed[], size_t count);

/* The path of a regular file in memory with these bytes, until the next call. */
const char *fuzz_file(const void *bytes, size_t size);

/* An input read from its front: sizes and choices first, then a text. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};
/* The next byte; 0 when there is none. */
uint8_t fuzz_byte(struct fuzz_input *in);
/* The next `bytes` bytes as a number, the lowest first. */
uint32_t fuzz_number(struct fuzz_input *in, unsigned bytes);

#endif
