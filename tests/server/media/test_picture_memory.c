/* test_picture_memory.c - pictures are decoded while memory is short: each allocation, those of the libraries too, is
 * refused in its turn, alone and with all that follow. Then there is the picture as it is, or ERR_NOMEM; never what
 * tells the sender that the picture is wrong, and never one that is not turned. The program's own functions refuse.
 * WebP is left out: libwebp 1.2 writes through a null pointer then, so that the decoder asks for all before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/media/picture.h"
#include "tests/support/pictures.h"
#include "tests/support/refused_memory.h"

static void assert_same(const char *path, long n, const struct picture *p, const struct picture *whole)
{
    if (p->width != whole->width || p->height != whole->height ||
        memcmp(p->pixels, whole->pixels, (size_t)whole->width * whole->height * 3) != 0)
        fail_msg("%s without allocation %ld is another picture", path, n);
}

/* How often it was refused. */
static unsigned decode_without_each(const char *path, const uint8_t *bytes, size_t size, const struct picture *whole,
                                    bool stays)
{
    unsigned refused = 0;
    for (long n = 1;; n++) {
        struct picture p = {.width = 0};
        struct error err = {.message = ""};
        assert_true(n < ALLOCATIONS_MAX);
        refuse_memory(n, stays);
        const enum status st = picture_decode(&p, bytes, size, NULL, &err);
        const bool reached = give_memory();
        if (st != OK && (!reached || st != ERR_NOMEM || strstr(err.message, "memory") == NULL))
            fail_msg("%s without allocation %ld%s: %d, %s", path, n, stays ? " and later ones" : "", (int)st,
                     err.message);
        if (st == OK) {
            assert_same(path, n, &p, whole);
            picture_clear(&p);
        }
        if (!reached)
            return refused;
        refused += st != OK;
    }
}

static void a_picture_that_finds_no_memory_is_not_called_wrong(void **state)
{
    static const char *const paths[] = {
        "tests/data/images/formats/turned.png",    "tests/data/images/formats/turned-late.png",
        "tests/data/images/formats/palette-4.png", "tests/data/images/formats/interlaced-rgba-8.png",
        "tests/data/images/progressive-444.jpg",   "tests/data/images/orientation-6.jpg",
    };
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: sanitizers have their own malloc\n");
        skip();
    }
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        size_t size;
        struct picture whole;
        struct error err;
        uint8_t *bytes = picture_file_read(paths[i], &size);
        if (picture_decode(&whole, bytes, size, NULL, &err) != OK)
            fail_msg("%s: %s", paths[i], err.message);
        for (int stays = 0; stays < 2; stays++) {
            const unsigned refused = decode_without_each(paths[i], bytes, size, &whole, stays == 1);
            print_message("  %s: refused %u times\n", paths[i], refused);
            assert_true(refused >= 2);
        }
        picture_clear(&whole);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_that_finds_no_memory_is_not_called_wrong),
    };
    return cmocka_run_group_tests_name("picture, memory", tests, NULL, NULL);
}
