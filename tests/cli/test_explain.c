/* test_explain.c - aft explain: the overlay lies where the picture's thing is, the views, where the PNG goes, and
 * what is wrong with a command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/bright_model.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char conv[] = "cifar10-aft-conv", sima[] = "cifar10-sima", text[] = "enwik8-aft-local";
static const char cat[] = PICTURES_DIR "small-32.jpg";
static char aft[PATH_MAX], dir[PATH_MAX], bright[PATH_MAX], out[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    temp_path(bright, dir, "bright");
    temp_path(out, dir, "out.png");
    bright_model_write(bright);
    return 0;
}

/* Run it; it must be done without a word. */
static void run_quietly(struct program_run *p)
{
    program_run(p);
    if (p->exit_code != 0 || p->err_size != 0)
        fail_msg("exit code %d: %s", p->exit_code, p->err);
}

static void a_bright_square_is_found_at_its_place(void **state)
{
    static const struct square squares[] = {{96, 64, 16 + 24, 40, 8}, {64, 96, 8, 16 + 16, 8}};
    (void)state;
    for (size_t i = 0; i < LENGTH(squares); i++) {
        size_t size = 0;
        uint8_t *jpeg = square_jpeg(&squares[i], i == 0 ? 6 : 8, &size);
        struct program_run p = {.argv = {aft, "explain", bright, "-", "--layer", "0", "--side", "300", "-o", "-"},
                                .input = jpeg,
                                .input_size = size};
        run_quietly(&p);
        square_assert_found(&squares[i], p.out, p.out_size, 300, 0.004);
        program_run_clear(&p);
        free(jpeg);
    }
}

static void views_are_written_where_they_shall_be(void **state)
{
    static const struct {
        const char *args[10];
        uint32_t width, height;
    } cases[] = {
        {{conv, cat}, 512, 512},
        {{conv, cat, "--view=keys", "--layer=1", "--head=15", "--side=64"}, 64, 64},
        {{sima, cat, "--view", "tokens", "--head", "3"}, 512, 512},
        {{conv, PICTURES_DIR "landscape.jpg"}, 512, 342},
        {{conv, "--view", "biases"}, 451, 339},
        {{conv, cat, "--layer", "each", "--head", "each"}, 435, 327},
        {{"tests/data/golden/image-aft-full-class-token", "--view", "biases", "--row", "3"}, 495, 495},
        {{conv, PICTURES_DIR "landscape.jpg", "--size=64x128", "--side=640"}, 640, 427},
        {{conv, cat, "--view", "biases"}, 451, 339},
        {{text, "--view=biases"}, 486, 213},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct program_run p = {.argv = {aft, "explain", "-o", out}};
        uint32_t width = 0, height = 0;
        size_t size = 0;
        for (size_t k = 0; cases[i].args[k] != NULL; k++)
            p.argv[4 + k] = cases[i].args[k];
        run_quietly(&p);
        assert_int_equal(p.out_size, 0);
        program_run_clear(&p);
        char *png = temp_read(out, &size);
        free(png_read(png, size, &width, &height));
        free(png);
        if (width != cases[i].width || height != cases[i].height)
            fail_msg("case %zu: %u x %u, expected %u x %u", i, width, height, cases[i].width, cases[i].height);
    }
}

static void mistakes_are_named(void **state)
{
    static const struct program_case cases[] = {
        {"no model", {"explain", "-o", out}, NULL, 2, "", "too few arguments"},
        {"no -o", {"explain", conv, cat}, NULL, 2, "", "-o is missing"},
        {"-o without a value", {"explain", conv, cat, "-o"}, NULL, 2, "", "-o needs a value"},
        {"another letter", {"explain", conv, cat, "-x", "x.png"}, NULL, 2, "", "unknown option \"-x\""},
        {"two dashes", {"explain", conv, cat, "--o", "x.png"}, NULL, 2, "", "unknown option \"--o\""},
        {"too many", {"explain", conv, cat, cat, "-o", out}, NULL, 2, "", "unexpected argument"},
        {"no picture", {"explain", conv, "-o", out}, NULL, 2, "", "keys is about a picture"},
        {"view", {"explain", conv, cat, "-o", out, "--view", "tokens"}, NULL, 2, "", "expected keys or biases"},
        {"no biases", {"explain", sima, cat, "-o", out, "--view", "biases"}, NULL, 2, "", "expected tokens or queries"},
        {"no row",
         {"explain", conv, "-o", out, "--view", "biases", "--row", "1"},
         NULL,
         2,
         "",
         "has no biases of pairs"},
        {"too many maps",
         {"explain", conv, cat, "-o", out, "--layer", "each", "--head", "each", "--size", "1024x1024", "--tokens-max",
          "65536"},
         NULL,
         1,
         "",
         "values; expected at most 4194304"},
        {"layer", {"explain", conv, cat, "-o", out, "--layer", "6"}, NULL, 2, "", "whole number from 0 to 5"},
        {"head", {"explain", conv, cat, "-o", out, "--head", "32"}, NULL, 2, "", "whole number from 0 to 31"},
        {"side", {"explain", conv, cat, "-o", out, "--side", "9999"}, NULL, 2, "", "from 16 to 2048"},
        {"size", {"explain", conv, cat, "-o", out, "--size", "4"}, NULL, 1, "", "expected native, or HxW"},
        {"a text model", {"explain", text, cat, "-o", out}, NULL, 1, "", "is a model for text-generation"},
        {"no such picture", {"explain", conv, "/no/such.jpg", "-o", out}, NULL, 1, "", "/no/such.jpg: No such file"},
        {"no picture at all", {"explain", conv, "Makefile", "-o", out}, NULL, 1, "", "Makefile: "},
        {"no such folder", {"explain", conv, cat, "-o", "/no/such/x.png"}, NULL, 1, "", "/no/such/x.png: No such file"},
        {"no room", {"explain", conv, cat, "-o", "/dev/full"}, NULL, 1, "", "/dev/full: No space left"},
        {"help", {"explain", "--help"}, NULL, 0, "  -o, --output PNG", ""},
    };
    (void)state;
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bright_square_is_found_at_its_place),
        cmocka_unit_test(views_are_written_where_they_shall_be),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
