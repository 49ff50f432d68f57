/* test_compress.c - aft compress and aft decompress: any bytes come back, an archive is the same with the model
 * itself and by a daemon, a file is written whole or not at all, and what is wrong is said. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/operation/archive.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define TEXT_MODEL "enwik8-aft-local"
#define GOLDEN "tests/data/golden/"
#define PICTURE_MODEL "cifar10-aft-conv"

enum { LIMIT_S = 580, URL_MAX_BYTES = 64, BYTES_MAX = 3 * ARCHIVE_BLOCK_BYTES };

static const char small_model[] = GOLDEN "lm-local-8", other_model[] = GOLDEN "lm-local-1";
static struct daemon aftd;
static char aft[PATH_MAX], dir[PATH_MAX], url[URL_MAX_BYTES], socket_path[PATH_MAX];
static char text_path[PATH_MAX], archive_path[PATH_MAX], damaged_path[PATH_MAX], large_path[PATH_MAX];

/* ---- running it ------------------------------------------------------------------------------------------------- */

/* `aft verb args` with `input`; what it wrote to standard output, which must be all. program_run_clear it. */
static struct program_run run(const char *verb, const char *const *args, const void *input, size_t size)
{
    struct program_run p = {.argv = {aft, verb}, .input = input, .input_size = size};
    for (size_t i = 0; args[i] != NULL; i++)
        p.argv[2 + i] = args[i];
    program_run(&p);
    if (p.exit_code != 0 || p.err_size != 0)
        fail_msg("aft %s %s: exit code %d: %s", verb, args[0], p.exit_code, p.err);
    return p;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_bytes(const struct program_run *p, const void *bytes, size_t size, const char *what)
{
    if (p->out_size != size || memcmp(p->out, bytes, size) != 0)
        fail_msg("%s: %zu bytes, expected %zu others", what, p->out_size, size);
}

/* A third is noise, the rest words and some zeros. */
static void fill(uint8_t *out, size_t size)
{
    static const char words[] = "The [[history]] of the [[Roman Empire]] is one of the most important of all. ";
    struct random rng = {7};
    for (size_t i = 0; i < size; i++)
        out[i] = i % 3000 < 1000   ? (uint8_t)random_below(&rng, 256)
                 : i % 3000 < 2900 ? (uint8_t)words[i % (sizeof words - 1)]
                                   : 0;
}

static int setup(void **state)
{
    static const char text[] = "The history of the [[Roman Empire]] is one of the most important of all.\n";
    char flag[PATH_MAX + 32];
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(setenv("AFTD_PRECISION", "f32", 1), 0); /* of both, whose folders of models differ */
    temp_dir_create(dir);
    temp_path(socket_path, dir, "aftd.socket");
    temp_path(text_path, dir, "text");
    temp_path(archive_path, dir, "archive");
    temp_path(damaged_path, dir, "damaged");
    temp_path(large_path, dir, "large");
    temp_write(text_path, text, sizeof text - 1);
    struct program_run p = run("compress", LIST(small_model, text_path), NULL, 0);
    temp_write(archive_path, p.out, p.out_size);
    p.out[p.out_size - 20] ^= 1;
    temp_write(damaged_path, p.out, p.out_size);
    program_run_clear(&p);
    char *zeros = calloc(COMPRESS_BYTES_MAX + 1, 1);
    assert_non_null(zeros);
    temp_write(large_path, zeros, COMPRESS_BYTES_MAX + 1);
    free(zeros);
    (void)snprintf(flag, sizeof flag, "--listen-unix=%s", socket_path);
    daemon_start(&aftd, LIST(flag));
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", aftd.port);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

/* ---- round trips ------------------------------------------------------------------------------------------------ */

static void any_bytes_come_back(void **state)
{
    static const char *const models[] = {GOLDEN "lm-local-8", GOLDEN "lm-conv-heads4-k5", GOLDEN "lm-attention"};
    static const size_t sizes[] = {0, 1, 2, 49, 700, 2 * ARCHIVE_BLOCK_BYTES + 1};
    uint8_t *bytes = malloc(BYTES_MAX);
    (void)state;
    assert_non_null(bytes);
    fill(bytes, BYTES_MAX);
    for (size_t m = 0; m < LENGTH(models); m++)
        for (size_t i = 0; i < LENGTH(sizes); i++) {
            struct program_run small = run("compress", LIST(models[m]), bytes, sizes[i]);
            struct program_run again = run("decompress", LIST(models[m], "-", "-o", "-"), small.out, small.out_size);
            assert_true(small.out_size <= ARCHIVE_BYTES_MAX - COMPRESS_BYTES_MAX + sizes[i]);
            assert_bytes(&again, bytes, sizes[i], models[m]);
            program_run_clear(&again);
            program_run_clear(&small);
        }
    free(bytes);
}

/* Several blocks at a time here, in another order and company there: the same archive, and either restores it. */
static void an_archive_is_the_same_by_a_daemon(void **state)
{
    enum { SIZE = ARCHIVE_BLOCK_BYTES + 3000 };
    uint8_t *bytes = malloc(SIZE);
    (void)state;
    assert_non_null(bytes);
    fill(bytes, SIZE);
    struct program_run local = run("compress", LIST(TEXT_MODEL), bytes, SIZE);
    struct program_run remote = run("compress", LIST("--url", url), bytes, SIZE);
    assert_true(local.out_size < SIZE * 7 / 8);
    assert_bytes(&remote, local.out, local.out_size, "the daemon's archive");
    struct program_run there = run("decompress", LIST("--unix", socket_path, "--model", TEXT_MODEL, "--timeout=600"),
                                   local.out, local.out_size);
    struct program_run here = run("decompress", LIST(TEXT_MODEL), remote.out, remote.out_size);
    assert_bytes(&there, bytes, SIZE, "restored by the daemon");
    assert_bytes(&here, bytes, SIZE, "restored without it");
    struct program_run nothing = run("compress", LIST("--url", url, "/dev/null"), NULL, 0);
    struct program_run still = run("decompress", LIST("--url", url), nothing.out, nothing.out_size);
    assert_int_equal(still.out_size, 0);
    program_run_clear(&still);
    program_run_clear(&nothing);
    program_run_clear(&here);
    program_run_clear(&there);
    program_run_clear(&remote);
    program_run_clear(&local);
    free(bytes);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static unsigned count_files(const char *folder)
{
    unsigned count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d) != NULL)
        count++;
    (void)closedir(d);
    return count;
}

static void assert_file(const char *path, const char *text)
{
    size_t size;
    char *is = temp_read(path, &size);
    assert_string_equal(is, text);
    free(is);
}

static void a_file_is_written_whole_or_not_at_all(void **state)
{
    char out[PATH_MAX], folder[PATH_MAX], link_path[PATH_MAX], absent[PATH_MAX];
    struct stat st;
    size_t size;
    (void)state;
    temp_path(folder, dir, "out");
    assert_int_equal(mkdir(folder, 0700), 0);
    temp_path(out, folder, "file");
    temp_path(absent, folder, "absent");
    temp_path(link_path, folder, "link");
    temp_write(out, "before", 6);
    assert_int_equal(chmod(out, 0640), 0);
    assert_int_equal(symlink("file", link_path), 0);
    const unsigned files = count_files(folder);
    const struct program_case refused[] = {
        {"damaged", {"decompress", small_model, damaged_path, "-o", out}, NULL, 1, "", "the archive "},
        {"damaged", {"decompress", small_model, damaged_path, "-o", absent}, NULL, 1, "", "the archive "},
        {"damaged, by a daemon",
         {"decompress", "--url", url, damaged_path, "-o", out},
         NULL,
         1,
         "",
         " 400: the archive "},
        {"a folder", {"decompress", small_model, archive_path, "-o", folder}, NULL, 1, "", "Is a directory"},
        {"no folder", {"decompress", small_model, archive_path, "-o", "/nonexistent/x"}, NULL, 1, "", "No such file"},
        {"below a file",
         {"decompress", small_model, archive_path, "-o", "README.md/x"},
         NULL,
         1,
         "",
         "Not a directory"},
        {"a full device", {"decompress", small_model, archive_path, "-o", "/dev/full"}, NULL, 1, "", "No space left"},
    };
    program_expect(aft, refused, LENGTH(refused));
    char command[5 * PATH_MAX]; /* no file may have a byte, as where a disk is full */
    (void)snprintf(command, sizeof command, "trap '' XFSZ; ulimit -f 0; exec %s decompress %s %s -o %s", aft,
                   small_model, archive_path, out);
    const struct program_case full = {"a full disk", {"-c", command}, NULL, 1, "", "File too large"};
    if (IS_THREAD_SANITIZED) /* LLVM's OpenMP begins with a file of its own, and dies of a bus error without it */
        print_message("skipped under ThreadSanitizer: a full disk\n");
    else
        program_expect("/bin/sh", &full, 1);
    assert_file(out, "before");
    assert_int_equal(count_files(folder), files);
    /* by its link, which stays one; its mode stays as well */
    struct program_run p = run("decompress", LIST(small_model, archive_path, "-o", link_path), NULL, 0);
    assert_int_equal(p.out_size, 0);
    program_run_clear(&p);
    char *text = temp_read(text_path, &size);
    assert_file(out, text);
    free(text);
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(out, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(count_files(folder), files);
    /* a new one has the mode that any new file has here */
    const mode_t mask = umask(027);
    p = run("decompress", LIST(small_model, archive_path, "-o", absent), NULL, 0);
    (void)umask(mask);
    program_run_clear(&p);
    assert_int_equal(stat(absent, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

/* A pipe with a name is written into, nothing takes its place. */
static void a_pipe_stays_a_pipe(void **state)
{
    char path[PATH_MAX], bytes[256];
    struct stat st;
    size_t size;
    (void)state;
    temp_path(path, dir, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    const int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    struct program_run p = run("decompress", LIST(small_model, archive_path, "-o", path), NULL, 0);
    program_run_clear(&p);
    char *text = temp_read(text_path, &size);
    assert_int_equal(read(fd, bytes, sizeof bytes), size);
    assert_memory_equal(bytes, text, size);
    free(text);
    (void)close(fd);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static void a_terminal_gets_text_alone(void **state)
{
    static const char *const texts[] = {"a \x1b[2J", "\x7f", "caf\xe9", "\xc2\x9b", "a\rb", "\xe2\x82"};
    size_t size;
    (void)state;
    program_need_terminal();
    struct program_run p = {.argv = {aft, "compress", small_model, text_path}, .out_sink = PROGRAM_TERMINAL};
    program_run(&p);
    assert_int_equal(p.exit_code, 2);
    assert_int_equal(p.out_size, 0);
    assert_non_null(strstr(p.err, "standard output is a terminal"));
    program_run_clear(&p);
    p = (struct program_run){.argv = {aft, "decompress", small_model, archive_path}, .out_sink = PROGRAM_TERMINAL};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    char *text = temp_read(text_path, &size);
    assert_bytes(&p, text, size, "text on a terminal");
    free(text);
    program_run_clear(&p);
    for (size_t i = 0; i < LENGTH(texts); i++) {
        struct program_run small = run("compress", LIST(small_model), texts[i], strlen(texts[i]));
        p = (struct program_run){.argv = {aft, "decompress", small_model},
                                 .input = small.out,
                                 .input_size = small.out_size,
                                 .out_sink = PROGRAM_TERMINAL};
        program_run(&p);
        assert_int_equal(p.exit_code, 1);
        assert_int_equal(p.out_size, 0);
        assert_non_null(strstr(p.err, "is not text"));
        program_run_clear(&p);
        program_run_clear(&small);
    }
}

/* ---- what goes wrong -------------------------------------------------------------------------------------------- */

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"no archive", {"decompress", small_model, "README.md"}, NULL, 1, "", "README.md: not an aftz archive"},
        {"nothing", {"decompress", small_model}, "", 1, "", "standard input: not an aftz archive"},
        {"no archive, by a daemon",
         {"decompress", "--url", url, "README.md"},
         NULL,
         1,
         "",
         "README.md: the daemon answers 400: not an aftz archive"},
        {"damaged", {"decompress", small_model, damaged_path}, NULL, 1, "", "damaged: the archive "},
        {"another model", {"decompress", other_model, archive_path}, NULL, 1, "", "the archive is of another model"},
        {"another model, by a daemon", {"decompress", "--url", url, archive_path}, NULL, 1, "", "is of another model"},
        {"no such model", {"compress", "nonexistent", text_path}, NULL, 1, "", "no model \"nonexistent\""},
        {"no such model, by a daemon", {"compress", text_path, "--url", url, "--model=x"}, NULL, 1, "", "answers 404"},
        {"a model of pictures",
         {"compress", PICTURE_MODEL, text_path},
         NULL,
         1,
         "",
         "expected one for text-generation"},
        {"no such file", {"compress", small_model, "/nonexistent"}, NULL, 1, "", "No such file"},
        {"too much", {"compress", small_model, large_path}, NULL, 1, "", "larger than 1048576 bytes"},
        {"too much for a daemon", {"compress", "--url", url, large_path}, NULL, 1, "", "larger than 1048576 bytes"},
        {"too little time", {"compress", "--url", url, "--timeout=0.001", "Makefile"}, NULL, 1, "", "answers 408"},
        {"no model", {"compress"}, NULL, 2, "", "too few"},
        {"MODEL beside a URL", {"compress", small_model, text_path, "--url", url}, NULL, 2, "", "--model"},
        {"one too many", {"decompress", small_model, text_path, "x"}, NULL, 2, "", "unexpected argument"},
        {"a daemon's option", {"compress", small_model, text_path, "--timeout=0.005"}, NULL, 2, "", "--url"},
        {"no daemon", {"compress", text_path, "--url", "http://127.0.0.1:1"}, NULL, 1, "", "127.0.0.1:1: "},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* The same files computed otherwise are another matter: that is told, not a wrong text. */
static void another_arithmetic_is_refused(void **state)
{
    (void)state;
    assert_int_equal(setenv("AFTD_PRECISION", "bf16", 1), 0);
    program_expect(aft,
                   &(const struct program_case){"another precision",
                                                {"decompress", small_model, archive_path},
                                                NULL,
                                                1,
                                                "",
                                                "instruction set and precision must be the same"},
                   1);
    (void)unsetenv("AFTD_PRECISION");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(an_archive_is_the_same_by_a_daemon),
        cmocka_unit_test(a_file_is_written_whole_or_not_at_all),
        cmocka_unit_test(a_pipe_stays_a_pipe),
        cmocka_unit_test(a_terminal_gets_text_alone),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(another_arithmetic_is_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("cli_compress", tests, setup, teardown);
}
