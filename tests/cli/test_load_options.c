/* test_load_options.c - what aft load says about a wrong URL, options that do not go together, pictures and prompts
 * that cannot be sent. None of it needs a daemon, and none of it may reach one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
/* Nobody listens there: who gets so far fails with exit code 1. */
#define URL "http://127.0.0.1:1"
#define SAMPLE "weights/models/cifar10-aft-conv/sample.jpg"

static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    return 0;
}

#define WRONG_URL(what, url, piece)             \
    {                                           \
        what, {"load", url}, NULL, 2, "", piece \
    }

static void a_url_is_http_without_anything_behind_its_path(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        WRONG_URL("empty", "", "the URL is \"\", expected [http(s)://]HOST:PORT"),
        WRONG_URL("another scheme", "ftp://127.0.0.1", "expected [http(s)://]HOST:PORT"),
        WRONG_URL("a file", "file:///etc/passwd", "expected [http(s)://]HOST:PORT"),
        WRONG_URL("no host", "http://", "expected [http(s)://]HOST:PORT"),
        WRONG_URL("a port out of range", "http://127.0.0.1:65536", "expected [http(s)://]HOST:PORT"),
        WRONG_URL("a blank", "http://127.0.0.1 :80", "expected [http(s)://]HOST:PORT"),
        WRONG_URL("a query", URL "/?model=x", "expected none with \"?\" or \"#\""),
        WRONG_URL("a fragment", URL "/#x", "expected none with \"?\" or \"#\""),
        WRONG_URL("a password", "http://me:secret@127.0.0.1:1", "send a key with --key instead"),
        {"a path is kept", {"load", URL "/behind/a/proxy//"}, NULL, 1, "", URL "/behind/a/proxy//: cannot connect"},
        {"nobody there", {"load", URL}, NULL, 1, "", URL ": cannot connect: "},
        {"a host and a port are enough", {"load", "127.0.0.1:1"}, NULL, 1, "", "127.0.0.1:1: cannot connect: "},
        {"the URL as an option", {"load", "--url=127.0.0.1:1"}, NULL, 1, "", "127.0.0.1:1: cannot connect: "},
        {"a socket", {"load", "--unix=/no/such"}, NULL, 1, "", "/no/such: "},
        {"a key in two lines", {"load", URL, "--key=a\nb"}, NULL, 2, "", "the key is not valid"},
    };
    program_expect(aft, cases, LENGTH(cases));
    struct program_run p = {.argv = {aft, "load", "http://me:secret@127.0.0.1:1"}};
    program_run(&p);
    assert_null(strstr(p.err, "secret"));
    program_run_clear(&p);
}

#define WRONG(what, piece, ...)                              \
    {                                                        \
        what, {"load", URL, __VA_ARGS__}, NULL, 2, "", piece \
    }

static void options_that_do_not_go_together_are_refused(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        WRONG("a prompt for pictures", "--prompt is for texts, and \"" SAMPLE "\" is a picture", SAMPLE, "--prompt=x"),
        WRONG("a file for pictures", "--prompt-file is for texts", SAMPLE, "--prompt-file=x"),
        WRONG("a length for pictures", "--prompt-bytes is for texts", SAMPLE, "--prompt-bytes=1"),
        WRONG("bytes from pictures", "--max-tokens is for texts", SAMPLE, "--max-tokens=1"),
        WRONG("a hot picture", "--temperature is for texts", SAMPLE, "--temperature=0"),
        WRONG("a whole picture", "--no-stream is for texts", SAMPLE, "--no-stream"),
        WRONG("a search without a goal", "--find-rate and --p99 go together", "--find-rate"),
        WRONG("a goal without a search", "--find-rate and --p99 go together", "--p99=5"),
        WRONG("a search at a rate", "--find-rate chooses the rate", "--find-rate", "--p99=5", "--rate=5"),
        WRONG("a search by requests", "leave out --rate and --requests", "--find-rate", "--p99=5", "--requests=5"),
        WRONG("two prompts", "--prompt and --prompt-file are two prompts", "--prompt=a", "--prompt-file=b"),
        WRONG("a header without a colon", "--header is \"Authorization\", expected \"Name: value\"",
              "--header=Authorization"),
        WRONG("a header without a name", "--header is \": x\"", "--header=: x"),
        WRONG("a name with a blank", "--header is \"A B: x\"", "--header=A B: x"),
        WRONG("two headers in one", "expected \"Name: value\" on one line", "--header=A: x\r\nB: y"),
        WRONG("too many headers", "--header is given more than 16 times", "--header=A: 1", "--header=A: 2",
              "--header=A: 3", "--header=A: 4", "--header=A: 5", "--header=A: 6", "--header=A: 7", "--header=A: 8",
              "--header=A: 9", "--header=A: 10", "--header=A: 11", "--header=A: 12", "--header=A: 13", "--header=A: 14",
              "--header=A: 15", "--header=A: 16", "--header=A: 17"),
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void numbers_have_their_ranges(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        WRONG("no client", "--concurrency is \"0\", expected a whole number from 1 to 4096", "--concurrency=0"),
        WRONG("too many clients", "--concurrency is \"4097\"", "--concurrency=4097"),
        WRONG("no rate", "--rate is \"0\", expected a number from 0.001 to 50000", "--rate=0"),
        WRONG("a rate below 0", "--rate is \"-1\"", "--rate=-1"),
        WRONG("no time", "--duration is \"0\", expected a number from 0.1 to 86400", "--duration=0"),
        WRONG("more than a day", "--duration is \"86401\"", "--duration=86401"),
        WRONG("no requests", "--requests is \"0\", expected a whole number from 1 to 1000000000", "--requests=0"),
        WRONG("a warm-up below 0", "--warmup is \"-1\", expected a number from 0 to 86400", "--warmup=-1"),
        WRONG("no timeout", "--timeout is \"0\", expected a number from 0.001 to 3600", "--timeout=0"),
        WRONG("a goal of nothing", "--p99 is \"0\"", "--p99=0"),
        WRONG("no bytes", "--max-tokens is \"0\"", "--max-tokens=0"),
        WRONG("a prompt of nothing", "--prompt-bytes is \"0\"", "--prompt-bytes=0"),
        WRONG("a prompt too long", "--prompt-bytes is \"1048577\"", "--prompt-bytes=1048577"),
        WRONG("too hot", "--temperature is \"101\", expected a number from 0 to 100", "--temperature=101"),
        WRONG("a seed beyond 53 bits", "--seed is \"9007199254740992\"", "--seed=9007199254740992"),
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void more_connections_than_descriptors_are_refused(void **state)
{
    (void)state;
    char command[PATH_MAX + 128];
    (void)snprintf(command, sizeof command, "ulimit -n 100; exec %s load " URL " --concurrency=64", aft);
    const struct program_case refused = {"descriptors",
                                         {"-c", command},
                                         NULL,
                                         1,
                                         "",
                                         "64 connections need 128 descriptors, and this process may have 100"};
    program_expect("/bin/sh", &refused, 1);
    /* what it may have and has not yet, it takes: then nobody listens */
    (void)snprintf(command, sizeof command, "ulimit -Sn 100; exec %s load " URL " --concurrency=64", aft);
    const struct program_case raised = {"a soft limit", {"-c", command}, NULL, 1, "", "cannot connect"};
    program_expect("/bin/sh", &raised, 1);
}

static void what_cannot_be_sent_is_named(void **state)
{
    (void)state;
    char empty[PATH_MAX], folder[PATH_MAX], text[PATH_MAX], nothing[PATH_MAX], none[PATH_MAX + 96];
    temp_path(empty, dir, "empty");
    temp_path(folder, dir, "folder");
    assert_int_equal(mkdir(empty, 0700), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
    temp_path(text, empty, "text.txt"); /* not in the folder's pictures */
    temp_write(text, "text", 4);
    temp_path(nothing, empty, "nothing.txt");
    temp_write(nothing, "", 0);
    (void)snprintf(none, sizeof none, "%s holds no picture: expected files named *.jpg, *.jpeg, *.png or *.webp",
                   empty);
    char false_jpeg[PATH_MAX];
    temp_path(false_jpeg, folder, "false.JPG");
    temp_write(false_jpeg, "GIF89a", 6);
    const struct program_case cases[] = {
        {"no such picture", {"load", URL, "no-such.jpg"}, NULL, 1, "", "no-such.jpg: No such file or directory"},
        {"a text", {"load", URL, text}, NULL, 1, "", "is not a picture: expected a JPEG, PNG or WebP"},
        {"an empty file", {"load", URL, nothing}, NULL, 1, "", "is not a picture"},
        {"a folder without pictures", {"load", URL, empty}, NULL, 1, "", none},
        {"a folder with a false one", {"load", URL, folder}, NULL, 1, "", "/false.JPG is not a picture"},
        {"no such prompt", {"load", URL, "--prompt-file=no-such"}, NULL, 1, "", "no-such: No such file or directory"},
        {"nothing to fill a prompt with",
         {"load", URL, "--prompt-file", nothing, "--prompt-bytes=5"},
         NULL,
         1,
         "",
         "the prompt is empty, and --prompt-bytes is 5"},
        {"the same from standard input",
         {"load", URL, "--prompt=-", "--prompt-bytes=5"},
         "",
         1,
         "",
         "the prompt is empty, and --prompt-bytes is 5"},
        {"a model's name that is no text", {"load", URL, "--model=\xff"}, NULL, 1, "", "expected a name in UTF-8"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_http_without_anything_behind_its_path),
        cmocka_unit_test(options_that_do_not_go_together_are_refused),
        cmocka_unit_test(numbers_have_their_ranges),
        cmocka_unit_test(what_cannot_be_sent_is_named),
        cmocka_unit_test(more_connections_than_descriptors_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
