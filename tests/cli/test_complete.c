/* test_complete.c - aft complete: the rows given are kept, the rest is what the daemon draws with the same seed; wrong
 * command lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/media/picture.h"
#include "tests/support/daemon.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum { SIDE = 16, ROW = 3 * SIDE };

static const char model[] = "cifar10-pixels-16";
static const char truck[] = "tests/data/cifar/truck.jpg";
static struct daemon aftd;
static char aft[PATH_MAX], dir[PATH_MAX], url[64];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    daemon_start(&aftd, (const char *const[]){"--models-dir=weights/models", "--precision=f32", NULL});
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", aftd.port);
    return 0;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* aft complete with `first` before `options`; must succeed. */
static struct program_run complete(const char *const *first, const char *const *options)
{
    struct program_run p = {.argv = {aft, "complete", "-o", "-"}};
    size_t count = 4;
    for (size_t i = 0; first[i] != NULL; i++)
        p.argv[count++] = first[i];
    for (size_t i = 0; options[i] != NULL; i++)
        p.argv[count++] = options[i];
    program_run(&p);
    if (p.exit_code != 0 || p.err_size != 0)
        fail_msg("exit code %d: %s", p.exit_code, p.err);
    return p;
}

static void a_daemon_draws_the_same(void **state)
{
    (void)state;
    static const char *const options[][9] = {
        {truck, "--seed", "1"},
        {truck, "-s", "2", "--rows=1", "--samples", "3", "--scale", "2"},
        {"--seed=3", "--samples=2", "--temperature=0.5", "--top-k=20", "--top-p=0.9", "--min-p=0.01"},
        {truck, "--seed=9007199254740991", "--rows=15"},
    };
    for (size_t i = 0; i < LENGTH(options); i++) {
        struct program_run here = complete(LIST(model, "--precision=f32"), options[i]);
        struct program_run there = complete(LIST("--url", url), options[i]);
        assert_int_equal(here.out_size, there.out_size);
        assert_memory_equal(here.out, there.out, here.out_size);
        program_run_clear(&here);
        program_run_clear(&there);
    }
}

static void the_rows_given_are_kept(void **state)
{
    (void)state;
    struct program_run p = complete(LIST(model, truck), LIST("-s", "1", "--rows", "5"));
    struct program_run again = complete(LIST(model, truck), LIST("-s", "2", "--rows", "5"));
    uint32_t width, height;
    uint8_t *one = png_read(p.out, p.out_size, &width, &height), wanted[SIDE * ROW];
    uint8_t *other = png_read(again.out, again.out_size, &width, &height);
    size_t size = 0;
    uint8_t *bytes = picture_file_read(truck, &size);
    struct picture picture = {0};
    assert_int_equal(picture_decode(&picture, bytes, size, NULL, NULL), OK);
    assert_int_equal(picture_prepare(wanted, SIDE, SIDE, &picture, SIDE, INTERPOLATION_BICUBIC, NULL), OK);
    assert_true(width == SIDE && height == SIDE);
    const size_t kept = (size_t)5 * ROW;
    assert_memory_equal(one, wanted, kept);
    assert_memory_equal(other, wanted, kept);
    assert_memory_not_equal(one + kept, other + kept, sizeof wanted - kept);
    picture_clear(&picture);
    free(bytes);
    free(one);
    free(other);
    program_run_clear(&p);
    program_run_clear(&again);
}

static void samples_stand_in_a_grid(void **state)
{
    (void)state;
    struct program_run p = complete(LIST(model, truck), LIST("-s", "1", "--samples", "3", "--scale", "4"));
    uint32_t width, height;
    uint8_t *pixels = png_read(p.out, p.out_size, &width, &height);
    assert_true(width == (2 * SIDE + 1) * 4 && height == (2 * SIDE + 1) * 4);
    free(pixels);
    program_run_clear(&p);
}

static void wrong_command_lines_are_refused(void **state)
{
    (void)state;
    char none[PATH_MAX];
    temp_path(none, dir, "none.png");
    const struct program_case cases[] = {
        {"no model", {"complete", "-o", none}, NULL, 2, "", "too few arguments"},
        {"the model by its option",
         {"complete", "-m", model, "-o", none, "--rows", "3"},
         NULL,
         2,
         "",
         "no picture is named"},
        {"no output", {"complete", model, truck}, NULL, 2, "", "-o is missing"},
        {"all rows",
         {"complete", model, truck, "-o", none, "--rows", "16"},
         NULL,
         2,
         "",
         "--rows is 16, expected 0 to 15"},
        {"rows of nothing", {"complete", model, "-o", none, "--rows", "3"}, NULL, 2, "", "no picture is named"},
        {"another kind of model",
         {"complete", "enwik8-aft-local", truck, "-o", none},
         NULL,
         1,
         "",
         "expected one for image-generation"},
        {"no picture", {"complete", model, "LICENSE", "-o", none}, NULL, 1, "", "LICENSE: "},
        {"the daemon says the same", {"complete", truck, "--rows=16", "--url", url, "-o", none}, NULL, 2, "", "(rows)"},
        {"threads of a daemon", {"complete", truck, "-t1", "--url", url, "-o", none}, NULL, 2, "", "--threads is not"},
        {"a model and a daemon",
         {"complete", model, truck, "--url", url, "-o", none},
         NULL,
         2,
         "",
         "--model names the model"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_daemon_draws_the_same),
        cmocka_unit_test(the_rows_given_are_kept),
        cmocka_unit_test(samples_stand_in_a_grid),
        cmocka_unit_test(wrong_command_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, daemons_end);
}
