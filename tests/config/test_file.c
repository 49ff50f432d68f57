/* test_file.c - a file that changes between opening and the last byte is noticed. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/file.h"
#include "tests/support/temp_dir.h"

static char dir[PATH_MAX], path[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "x");
    temp_write(path, "0123456789", 10);
    return 0;
}

static void an_untouched_file_is_read_in_parts(void **state)
{
    struct file f;
    char bytes[11] = "";

    (void)state;
    assert_int_equal(file_open(&f, path, 10, NULL), OK);
    assert_int_equal(f.size, 10);
    assert_int_equal(file_read(&f, bytes, 4, NULL), OK);
    assert_int_equal(file_read(&f, bytes + 4, 6, NULL), OK);
    assert_string_equal(bytes, "0123456789");
    assert_int_equal(file_check_unchanged(&f, NULL), OK);
    file_close(&f);
    file_close(&f);
    file_close(NULL);
}

static void a_whole_file_is_read_up_to_its_bound(void **state)
{
    char *bytes = NULL;
    size_t size = 0;
    struct error err;

    (void)state;
    assert_int_equal(file_read_all(&bytes, &size, path, 10, NULL), OK);
    assert_int_equal(size, 10);
    assert_string_equal(bytes, "0123456789");
    free(bytes);
    bytes = NULL;
    assert_int_equal(file_read_all(&bytes, &size, path, 9, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "has 10 bytes, expected at most 9"));
    assert_null(bytes);
    assert_int_equal(file_read_all(&bytes, &size, "/dev/null", 9, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "is a device, expected a regular file"));
}

static void a_file_cut_while_being_read_is_noticed(void **state)
{
    struct file f;
    char bytes[10];
    struct error err;

    (void)state;
    assert_int_equal(file_open(&f, path, 10, NULL), OK);
    assert_int_equal(truncate(path, 7), 0);
    assert_int_equal(file_read(&f, bytes, 10, &err), ERR_IO);
    assert_non_null(strstr(err.message, "ended 3 bytes early"));
    file_close(&f);
}

static void a_file_that_grew_is_noticed(void **state)
{
    struct file f;
    struct error err;

    (void)state;
    assert_int_equal(file_open(&f, path, 10, NULL), OK);
    assert_int_equal(truncate(path, 12), 0);
    assert_int_equal(file_check_unchanged(&f, &err), ERR_IO);
    assert_non_null(strstr(err.message, "changed from 10 to 12 bytes"));
    file_close(&f);
}

static void a_file_written_to_in_place_is_noticed(void **state)
{
    struct file f;
    struct error err;
    /* What a writer does to the time, without waiting for the clock to move. */
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1, .tv_nsec = 1000}};

    (void)state;
    assert_int_equal(file_open(&f, path, 10, NULL), OK);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(file_check_unchanged(&f, &err), ERR_IO);
    assert_non_null(strstr(err.message, "was written to while being read"));
    file_close(&f);
}

/* The last test: there is no way back. */
static void nothing_is_read_once_the_program_stops(void **state)
{
    char *bytes = NULL;
    size_t size;
    struct file f;
    char first[1];
    struct error err;

    (void)state;
    assert_int_equal(file_open(&f, path, 10, NULL), OK);
    assert_int_equal(file_read(&f, first, 1, &err), OK);
    file_stop_reading();
    assert_int_equal(file_read(&f, first, 1, &err), ERR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "the program is stopping"));
    file_close(&f);
    assert_int_equal(file_read_all(&bytes, &size, path, 10, &err), ERR_UNAVAILABLE);
    assert_null(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_untouched_file_is_read_in_parts, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_whole_file_is_read_up_to_its_bound, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_cut_while_being_read_is_noticed, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_that_grew_is_noticed, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_written_to_in_place_is_noticed, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(nothing_is_read_once_the_program_stops, setup, temp_dirs_end),
    };

    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
