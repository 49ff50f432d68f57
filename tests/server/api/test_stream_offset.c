/* test_stream_offset.c - the ids of events: what is printed is read again, and nothing else is an id. What the daemon
 * makes of them is in tests/http/test_resume.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/stream_offset.h"
#include "tests/support/random.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define NONE "0000000000000000.00000000.0000000000000000" /* digests */

static void assert_same(const struct stream_offset *a, const struct stream_offset *b)
{
    assert_true(a->seed == b->seed && a->model == b->model && a->request == b->request);
    assert_true(a->arithmetic == b->arithmetic && a->beginning == b->beginning && a->bytes == b->bytes);
    assert_true(a->is_several == b->is_several && a->is_end == b->is_end && b->is_given);
}

static void what_is_printed_is_read(void **state)
{
    struct random random = {1};
    char id[STREAM_OFFSET_MAX + 1];
    (void)state;
    for (int i = 0; i < 1000; i++) {
        const unsigned less = random_below(&random, 53);
        struct stream_offset read, p = {
                                       .seed = random_next(&random) % (SEED_MAX + 1) >> less,
                                       .model = random_next(&random) >> less,
                                       .request = random_next(&random) >> less,
                                       .arithmetic = (uint32_t)random_next(&random) >> less % 32,
                                       .beginning = (uint32_t)random_next(&random) >> less % 32,
                                       .is_several = random_below(&random, 8) == 0,
                                       .is_end = random_below(&random, 4) == 0,
                                   };
        p.bytes = p.is_several ? 0 : random_below(&random, 1u << 22);
        stream_offset_print(&p, id);
        assert_true(stream_offset_read(&read, id));
        assert_same(&p, &read);
    }
    const struct stream_offset most = {.seed = SEED_MAX,
                                       .model = UINT64_MAX,
                                       .request = UINT64_MAX,
                                       .arithmetic = UINT32_MAX,
                                       .beginning = UINT32_MAX,
                                       .bytes = UINT32_MAX,
                                       .is_end = true};
    stream_offset_print(&most, id);
    struct stream_offset read;
    assert_true(stream_offset_read(&read, id));
    assert_same(&most, &read);
}

/* Each beginning of an id, and an id with one character more or another one. */
static void nothing_else_is_an_id(void **state)
{
    static const char good[] = "1.7.f396f709dc0da91a.d0989655.498d65c05f49f8cd.0.3c.z";
    static const char *const wrong[] = {"",
                                        ".",
                                        "1",
                                        "1.",
                                        "1.......",
                                        "1.7." NONE ".0.n.",
                                        "1.7." NONE ".0.n1",
                                        "1.7." NONE ".0.0.f",
                                        "1.20000000000000." NONE ".0.0",
                                        "1.7.10000000000000000.00000000.0000000000000000.0.0",
                                        "1.7.0000000000000000.100000000.0000000000000000.0.0",
                                        "1.7." NONE ".0.100000000",
                                        "1.+7." NONE ".0.0",
                                        "1. 7." NONE ".0.0",
                                        "1.07." NONE ".0.0",
                                        "1.0x7." NONE ".0.0",
                                        "1.7." NONE ".0.3C"};
    struct stream_offset read, before = {.bytes = 42};
    (void)state;
    assert_true(stream_offset_read(&read, good));
    assert_true(stream_offset_read(&read, "1.7." NONE ".0.0"));
    read = before;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(stream_offset_read(&read, wrong[i]));
    for (size_t at = 0; at <= strlen(good); at++) {
        char id[sizeof good + 1];
        memcpy(id, good, at);
        id[at] = '\0';
        const size_t left = strlen(good) - at;
        assert_int_equal(stream_offset_read(&read, id),
                         left == 0 || left == 2 || left == 3); /* with ".z", or without */
        for (const char *other = "gG+- \n%/"; *other != '\0'; other++) {
            memcpy(id, good, at);
            id[at] = *other;
            memcpy(id + at + 1, good + at, sizeof good - at);
            read = before;
            assert_false(stream_offset_read(&read, id));
            assert_int_equal(read.bytes, before.bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_printed_is_read),
        cmocka_unit_test(nothing_else_is_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
