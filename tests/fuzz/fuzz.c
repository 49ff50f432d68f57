/* fuzz.c - see fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_fail(const char *what)
{
    (void)fprintf(stderr, "fuzz: expected that %s\n", what);
    abort();
}

void fuzz_check_utf8(const char *text, size_t size)
{
    json_t *string = json_stringn(text, size);

    fuzz_check(string != NULL, "the text is UTF-8");
    json_decref(string);
}

void fuzz_check_error(enum status st, const struct error *err, const enum status allowed[], size_t count)
{
    bool found = false;

    for (size_t i = 0; i < count; i++)
        found = found || st == allowed[i];
    fuzz_check(found, "the status is one that the header names");
    fuzz_check(err->status == st, "the details are about the status returned");
    fuzz_check(err->message[0] != '\0', "a failure has a message");
    fuzz_check_utf8(err->message, strlen(err->message));
    fuzz_check_utf8(err->param, strlen(err->param));
}

const char *fuzz_file(const void *bytes, size_t size)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        fuzz_check(fd >= 0, "the system makes a file in memory");
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_check(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size, "the file in memory is written");
    return path;
}

uint8_t fuzz_byte(struct fuzz_input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

uint32_t fuzz_number(struct fuzz_input *in, unsigned bytes)
{
    uint32_t number = 0;

    for (unsigned i = 0; i < bytes; i++)
        number |= (uint32_t)fuzz_byte(in) << (8 * i);
    return number;
}
