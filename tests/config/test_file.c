/* test_file.c - a file that changes between opening and the last byte is noticed, and one that is replaced is so as a
 * whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

/* What a socket takes at a time is less than this. */
static void what_is_written_in_pieces_is_written_whole(void **state)
{
    static char bytes[1 << 20], got[1 << 20];
    int pair[2], full;
    size_t at = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i % 251);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const pid_t writer = fork();
    if (writer == 0)
        _exit(file_write_all(pair[1], bytes, sizeof bytes) ? 0 : 1);
    assert_true(writer > 0);
    while (at < sizeof got) {
        const ssize_t n = read(pair[0], got + at, sizeof got - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_memory_equal(got, bytes, sizeof bytes);
    assert_int_equal(waitpid(writer, &full, 0), writer);
    assert_int_equal(full, 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
    assert_true(file_write_all(-1, bytes, 0));
    full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_false(file_write_all(full, bytes, sizeof bytes));
    assert_int_equal(errno, ENOSPC);
    (void)close(full);
}

static bool set_mode(int fd, const void *mode)
{
    return fchmod(fd, *(const mode_t *)mode) == 0;
}

static bool refuse(int fd, const void *arg)
{
    (void)fd;
    (void)arg;
    errno = EDQUOT;
    return false;
}

static size_t count_files(void)
{
    struct dirent **names;
    const int n = scandir(dir, &names, NULL, NULL);
    assert_true(n >= 2);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free((void *)names);
    return (size_t)n - 2;
}

static void a_file_is_replaced_as_a_whole(void **state)
{
    char *bytes = NULL;
    size_t size = 0;
    struct stat before, after;
    const mode_t mode = 0640;

    (void)state;
    assert_int_equal(stat(path, &before), 0);
    assert_true(file_replace(path, "anew", 4, set_mode, &mode));
    assert_int_equal(stat(path, &after), 0);
    assert_int_not_equal(after.st_ino, before.st_ino); /* who has the one before open still reads that */
    assert_int_equal(after.st_mode & 07777, mode);
    assert_int_equal(file_read_all(&bytes, &size, path, 10, NULL), OK);
    assert_string_equal(bytes, "anew");
    free(bytes);
    assert_int_equal(count_files(), 1);
}

static void a_file_that_cannot_be_replaced_stays(void **state)
{
    static char longest[PATH_MAX];
    char *bytes = NULL, below[PATH_MAX];
    size_t size = 0;
    const mode_t mode = 0640;

    (void)state;
    assert_false(file_replace(path, "anew", 4, refuse, NULL));
    assert_int_equal(errno, EDQUOT);
    assert_int_equal(file_read_all(&bytes, &size, path, 10, NULL), OK);
    assert_string_equal(bytes, "0123456789");
    free(bytes);
    temp_path(below, dir, "folder");
    assert_int_equal(mkdir(below, 0700), 0);
    assert_false(file_replace(below, "anew", 4, set_mode, &mode));
    assert_int_equal(errno, EISDIR);
    assert_int_equal(count_files(), 2); /* nothing is left beside them */
    temp_path(below, dir, "missing/x");
    assert_false(file_replace(below, "anew", 4, set_mode, &mode));
    assert_int_equal(errno, ENOENT);
    memset(longest, 'a', sizeof longest - 1);
    assert_false(file_replace(longest, "anew", 4, set_mode, &mode));
    assert_int_equal(errno, ENAMETOOLONG);
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
        cmocka_unit_test_setup_teardown(what_is_written_in_pieces_is_written_whole, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_is_replaced_as_a_whole, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_replaced_stays, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(nothing_is_read_once_the_program_stops, setup, temp_dirs_end),
    };

    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
