/* test_remote.c - aft classify, explain, generate and score with a daemon's URL or socket: what they print is what
 * they print with the model itself, and what goes wrong is said in the daemon's words. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define PICTURE_MODEL "cifar10-aft-conv"
#define TEXT_MODEL "enwik8-aft-local"
#define LOCAL_MODELS "tests/data/models/"

#define CLASSIFIER "tests/data/golden/text-fastformer" /* of texts */

enum { LIMIT_S = 580, URL_MAX_BYTES = 64 };

static const char cat[] = PICTURES_DIR "small-32.jpg", cat_title[] = PICTURES_DIR "small-32.jpg\t";
static const char gray[] = PICTURES_DIR "gray.jpg";
static const char local_text_model[] = LOCAL_MODELS TEXT_MODEL;
static struct daemon aftd;
static char aft[PATH_MAX], dir[PATH_MAX], url[URL_MAX_BYTES], socket_path[PATH_MAX];

static int setup(void **state)
{
    char flag[PATH_MAX + 32];
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(setenv("AFTD_PRECISION", "f32", 1), 0); /* of both, whose folders of models differ */
    temp_dir_create(dir);
    temp_path(socket_path, dir, "aftd.socket");
    (void)snprintf(flag, sizeof flag, "--listen-unix=%s", socket_path);
    const char *const flags[] = {flag, "--max-tokens-max=500", "--model=" CLASSIFIER, NULL};
    daemon_start(&aftd, flags);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", aftd.port);
    return 0;
}

/* ---- the same as without a daemon ------------------------------------------------------------------------------- */

/* aft with `args`, then `more`; must succeed. */
static struct program_run run(const char *const *args, const char *const *more, const char *input, size_t size)
{
    struct program_run p = {.argv = {aft}, .input = input, .input_size = size};
    size_t count = 1;
    for (size_t i = 0; args[i] != NULL; i++)
        p.argv[count++] = args[i];
    for (size_t i = 0; more[i] != NULL; i++)
        p.argv[count++] = more[i];
    program_run(&p);
    if (p.exit_code != 0)
        fail_msg("aft %s: exit code %d: %s", args[0], p.exit_code, p.err);
    return p;
}

static void assert_same_output(const struct program_run *a, const struct program_run *b, const char *what)
{
    if (a->out_size != b->out_size || memcmp(a->out, b->out, a->out_size) != 0)
        fail_msg("%s: by itself %zu bytes, by the daemon %zu:\n%s\n%s", what, a->out_size, b->out_size, a->out, b->out);
    if (strcmp(a->err, b->err) != 0)
        fail_msg("%s: by itself it says \"%s\", by the daemon \"%s\"", what, a->err, b->err);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void a_daemon_prints_what_the_model_itself_does(void **state)
{
    static const struct {
        const char *name, *verb, *model, *options[12], *input;
    } cases[] = {
        {"labels", "classify", PICTURE_MODEL, {cat}, NULL},
        {"one label of each picture", "classify", PICTURE_MODEL, {cat, gray, "--top-k", "1"}, NULL},
        {"a line for each picture", "classify", PICTURE_MODEL, {cat, gray}, NULL},
        {"names from a list", "classify", PICTURE_MODEL, {"--files-from", "-"}, PICTURES_DIR "gray.jpg\n"},
        {"pictures as JSON", "classify", PICTURE_MODEL, {cat, gray, "--json"}, NULL},
        {"a text as JSON", "generate", TEXT_MODEL, {"--json", "--prompt=A", "--seed=1", "--max-tokens=20"}, NULL},
        {"a text that stops",
         "generate",
         TEXT_MODEL,
         {"--prompt=The ", "--seed=1", "--stop=zzz", "--stop", "e", "--max-tokens=200", "--json"},
         NULL},
        {"a score as JSON", "score", TEXT_MODEL, {"LICENSE", "--json"}, NULL},
        {"more labels than there are", "classify", PICTURE_MODEL, {"--top-k=1000", gray}, NULL},
        {"an overlay", "explain", PICTURE_MODEL, {gray, "-o", "-"}, NULL},
        {"an overlay with options",
         "explain",
         PICTURE_MODEL,
         {"-o", "-", "--layer", "0", "--head", "1", "--side", "64", cat},
         NULL},
        {"biases", "explain", PICTURE_MODEL, {"--view", "biases", "-o", "-"}, NULL},
        {"a text", "generate", TEXT_MODEL, {"--prompt", "The history of ", "--seed", "1", "--max-tokens", "200"}, NULL},
        {"no prompt", "generate", TEXT_MODEL, {"--seed=2", "--max-tokens=50"}, NULL},
        {"the likeliest", "generate", TEXT_MODEL, {"--prompt=[[", "--temperature=0", "--max-tokens=50"}, NULL},
        {"every option",
         "generate",
         TEXT_MODEL,
         {"--prompt=== A", "--seed=9007199254740991", "--temperature=0.8", "--top-k=40", "--top-p=0.93", "--min-p=0.01",
          "--repetition-penalty=1.1", "--presence-penalty=0.5", "--frequency-penalty=-0.1", "--utf8",
          "--max-tokens=80"},
         NULL},
        {"a prompt that is not UTF-8",
         "generate",
         TEXT_MODEL,
         {"--prompt=-", "--seed=3", "--max-tokens=40"},
         "caf\xe9 \xff\xfe"},
        {"a text that is not UTF-8",
         "generate",
         TEXT_MODEL,
         {"--seed=5", "--temperature=20", "--max-tokens=300"},
         NULL},
        {"a file", "score", TEXT_MODEL, {"README.md"}, NULL},
        {"bytes", "score", TEXT_MODEL, {"-"}, "\x80\x81 The history of Rome \xff"},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char model[PATH_MAX];
        const char *input = cases[i].input;
        const size_t size = input != NULL ? strlen(input) : 0;
        (void)snprintf(model, sizeof model, LOCAL_MODELS "%s", cases[i].model);
        print_message("  %s\n", cases[i].name);
        struct program_run local = run(LIST(cases[i].verb, model), cases[i].options, input, size);
        struct program_run remote = run(LIST(cases[i].verb, "--url", url), cases[i].options, input, size);
        struct program_run named =
            run(LIST(cases[i].verb, "--unix", socket_path, "--model", cases[i].model), cases[i].options, input, size);
        assert_true(local.out_size > 0);
        assert_same_output(&local, &remote, cases[i].name);
        assert_same_output(&local, &named, cases[i].name);
        program_run_clear(&local);
        program_run_clear(&remote);
        program_run_clear(&named);
    }
}

static void texts_are_classified_alike(void **state)
{
    (void)state;
    static const char *const options[] = {"-", "--json", NULL};
    static const char text[] = "What a \"film\"!";
    struct program_run local = run(LIST("classify", CLASSIFIER), options, text, strlen(text));
    struct program_run remote = run(LIST("classify", "--texts", "--url", url), options, text, strlen(text));
    assert_true(local.out_size > 0);
    assert_same_output(&local, &remote, "a text");
    program_run_clear(&local);
    program_run_clear(&remote);
}

static void a_long_prompt_is_cut_and_that_is_said(void **state)
{
    enum { LONG = 3000 };
    static const char *const options[] = {"--prompt", "-", "--seed", "1", "--max-tokens", "5", NULL};
    char prompt[LONG];
    (void)state;
    memset(prompt, 'a', sizeof prompt);
    struct program_run local = run(LIST("generate", local_text_model), options, prompt, sizeof prompt);
    struct program_run remote = run(LIST("generate", "--url", url), options, prompt, sizeof prompt);
    assert_non_null(strstr(local.err, "the prompt has 3000 bytes; its last "));
    assert_same_output(&local, &remote, "a long prompt");
    program_run_clear(&local);
    program_run_clear(&remote);
}

/* A terminal is shown no control characters, whoever made the text. */
static void a_terminal_sees_repaired_text(void **state)
{
    (void)state;
    program_need_terminal();
    struct program_run local = {.argv = {aft, "generate", local_text_model, "--seed=4", "--max-tokens=60"},
                                .out_sink = PROGRAM_TERMINAL};
    struct program_run remote = {.argv = {aft, "generate", "--url", url, "--seed=4", "--max-tokens=60"},
                                 .out_sink = PROGRAM_TERMINAL};
    program_run(&local);
    program_run(&remote);
    assert_int_equal(local.exit_code, 0);
    assert_int_equal(remote.exit_code, 0);
    assert_same_output(&local, &remote, "on a terminal");
    program_run_clear(&local);
    program_run_clear(&remote);
}

static void a_daemons_models_are_listed_and_inspected(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"a table", {"models", "--url", url}, NULL, 0, "\n" TEXT_MODEL "  text-generation       aft-local ", ""},
        {"as JSON", {"models", "--unix", socket_path, "--json"}, NULL, 0, "{\"id\": \"" PICTURE_MODEL "\", ", ""},
        {"one",
         {"inspect", "--url", url, "-m", TEXT_MODEL},
         NULL,
         0,
         "\nmixer                          aft-local\n",
         ""},
        {"one as JSON", {"inspect", "--url", url, "-m", TEXT_MODEL, "--json"}, NULL, 0, "\"mixer\": \"aft-local\"", ""},
        {"none", {"inspect", "--url", url}, NULL, 2, "", "--model is missing"},
        {"one that is not there", {"inspect", "--url", url, "-m", "a/b"}, NULL, 1, "", "the daemon answers 404: "},
        {"a folder", {"models", "weights/models", "--url", url}, NULL, 2, "", "a daemon has its own folder of models"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* ---- what goes wrong -------------------------------------------------------------------------------------------- */

static void what_a_request_is_refused_for_is_said(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"a model that is not there",
         {"classify", cat, "--url", url, "--model", "x"},
         NULL,
         1,
         "",
         "the daemon answers 404: no model is named \"x\""},
        {"a model for something else",
         {"score", "README.md", "--url", url, "--model", PICTURE_MODEL},
         NULL,
         1,
         "",
         "(model)"},
        {"no picture",
         {"classify", "README.md", "--url", url},
         NULL,
         1,
         "",
         "aft classify: README.md: the daemon answers 415: "},
        {"one of two is no picture", {"classify", "README.md", cat, "--url", url}, NULL, 1, cat_title, "README.md: "},
        {"no such file", {"classify", "/nonexistent", "--url", url}, NULL, 1, "", "No such file"},
        {"no such layer", {"explain", cat, "--layer", "99", "-o", "-", "--url", url}, NULL, 2, "", "(layer)"},
        {"no picture to explain", {"explain", "-o", "-", "--url", url}, NULL, 2, "", "a picture is missing"},
        {"a folder that is none", {"explain", cat, "-o", "/nonexistent/x", "--url", url}, NULL, 1, "", "No such file"},
        {"too many bytes", {"generate", "--max-tokens", "501", "--url", url}, NULL, 1, "", "from 1 to 500"},
        {"nothing to score", {"score", "/dev/null", "--url", url}, NULL, 1, "", "at least 2"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_daemon_that_is_not_there_is_said(void **state)
{
    char elsewhere[2 * URL_MAX_BYTES];
    (void)state;
    (void)snprintf(elsewhere, sizeof elsewhere, "%s/no/such/place", url);
    const struct program_case cases[] = {
        {"no daemon",
         {"generate", "--url", "http://127.0.0.1:1"},
         NULL,
         1,
         "",
         "127.0.0.1:1: cannot connect: Connection refused; is aftd running"},
        {"no socket", {"generate", "--unix", "/nonexistent"}, NULL, 1, "", "/nonexistent: "},
        {"another path", {"generate", "--url", elsewhere}, NULL, 1, "", "answers 404"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_wrong_command_line_is_told_what_was_expected(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"no URL", {"generate", "--url", "file:///"}, NULL, 2, "", "expected [http(s)://]HOST:PORT"},
        {"a password", {"generate", "--url", "http://a:b@127.0.0.1"}, NULL, 2, "", "--key"},
        {"a key in two lines", {"generate", "--url", url, "--key", "a\r\nX: y"}, NULL, 2, "", "the key"},
        {"MODEL beside a URL", {"generate", TEXT_MODEL, "text", "--url", url}, NULL, 2, "", "--model"},
        {"MODEL beside a URL", {"score", TEXT_MODEL, "README.md", "--url", url}, NULL, 2, "", "--model"},
        {"MODEL beside a URL", {"explain", PICTURE_MODEL, cat, "-o", "-", "--url", url}, NULL, 2, "", "--model"},
        {"--model beside MODEL",
         {"score", "README.md", "README.md", "-m", "x"},
         NULL,
         2,
         "",
         "--model names the model"},
        {"--key without a daemon", {"score", TEXT_MODEL, "README.md", "--key", "x"}, NULL, 2, "", "--url"},
        {"--ca-file without a daemon", {"classify", PICTURE_MODEL, cat, "--ca-file", "x"}, NULL, 2, "", "--url"},
        {"a setting of the daemon",
         {"classify", cat, "--tokens-max", "9", "--url", url},
         NULL,
         2,
         "",
         "picture_tokens_max"},
        {"a setting of the daemon",
         {"explain", cat, "-o", "-", "--tokens-max", "9", "--url", url},
         NULL,
         2,
         "",
         "picture_tokens_max"},
        {"too few without a daemon", {"classify", PICTURE_MODEL}, NULL, 2, "", "too few"},
        {"too few without a daemon", {"explain", "-o", "-"}, NULL, 2, "", "too few"},
        {"too few without a daemon", {"generate"}, NULL, 2, "", "too few"},
        {"too few without a daemon", {"score", TEXT_MODEL}, NULL, 2, "", "too few"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* ---- other servers ---------------------------------------------------------------------------------------------- */

/* Reads a request whose body ends with "}", from `fd` into `request`. */
static void read_request(int fd, char *request, size_t size)
{
    size_t used = 0;
    while (used + 1 < size && (used == 0 || request[used - 1] != '}')) {
        const ssize_t n = read(fd, request + used, size - 1 - used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    request[used] = '\0';
}

/* The child: one request is answered with `text`, as it is, and kept in dir/request. Never returns. */
static void serve_once(int listener, const char *text)
{
    char request[65536], path[PATH_MAX];
    const int fd = accept(listener, NULL, NULL);
    read_request(fd, request, sizeof request);
    temp_path(path, dir, "request");
    FILE *f = fopen(path, "w");
    const bool kept = f != NULL && fputs(request, f) >= 0 && fclose(f) == 0;
    _exit(fd >= 0 && kept && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1);
}

/* Run `aft generate` at a server that answers with `text`; what it was asked is in dir/request. */
static struct program_run run_at(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char there[URL_MAX_BYTES];
    int status;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    const pid_t child = fork();
    if (child == 0)
        serve_once(listener, text);
    assert_true(child > 0);
    (void)snprintf(there, sizeof there, "http://127.0.0.1:%u", ntohs(address.sin_port));
    struct program_run p = {.argv = {aft, "generate", "--url", there, "--seed=1"}};
    program_run(&p);
    (void)close(listener);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return p;
}

#define EVENTS "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define FIRST_EVENT "data: {\"text\":\"abc\",\"index\":0,\"tokens\":3,\"bytes_base64\":\"YWJj\"}\n\n"

static void what_is_no_answer_of_a_daemon_is_refused(void **state)
{
    static const struct {
        const char *name, *answer, *out, *err;
    } cases[] = {
        {"a page", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<p>", "", "in the middle"},
        {"a page about an error", "HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\n<p>", "", "answers 500, expected 200"},
        {"a redirection", "HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "",
         "answers 302, expected 200"},
        {"no HTTP", "hello\n", "", "aft generate: http://127.0.0.1:"},
        {"nothing", "", "", "aft generate: http://127.0.0.1:"},
        {"no JSON", EVENTS "data: {\n\n", "", "not a JSON object"},
        {"no base64", EVENTS "data: {\"text\":\"a\",\"bytes_base64\":\"Y\"}\n\n", "", "not base64"},
        {"no bytes", EVENTS "data: {\"text\":\"a\",\"bytes_base64\":5}\n\n", "", "not base64"},
        {"no object", EVENTS "data: []\n\n", "", "not a JSON object"},
        {"a text that just ends", EVENTS ": ping\n\n" FIRST_EVENT, "abc", "ends in the middle"},
        {"half an event", EVENTS FIRST_EVENT "data: {\"text\":", "abc", "ends in the middle"},
        {"a deadline", EVENTS FIRST_EVENT "data: {\"finish_reason\":\"timeout\"}\n\n", "abc",
         "cut the text off: timeout"},
        {"an error", EVENTS FIRST_EVENT "data: {\"error\":{\"message\":\"it is too late\"}}\n\n", "abc",
         "it is too late"},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct program_run p = run_at(cases[i].answer);
        if (p.exit_code != 1 || strcmp(p.out, cases[i].out) != 0 || strstr(p.err, cases[i].err) == NULL)
            fail_msg("%s: exit code %d, \"%s\", %s", cases[i].name, p.exit_code, p.out, p.err);
        program_run_clear(&p);
    }
}

static void the_key_is_sent_and_nothing_else_of_the_environment(void **state)
{
    char path[PATH_MAX];
    size_t size;
    (void)state;
    assert_int_equal(setenv("AFT_KEY", "s3cret", 1), 0);
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    struct program_run p = run_at(EVENTS FIRST_EVENT "data: {\"finish_reason\":\"length\"}\n\n");
    (void)unsetenv("AFT_KEY");
    (void)unsetenv("http_proxy");
    assert_int_equal(p.exit_code, 0);
    assert_string_equal(p.out, "abc");
    assert_string_equal(p.err, "");
    temp_path(path, dir, "request");
    char *request = temp_read(path, &size);
    assert_non_null(strstr(request, "\r\nAuthorization: Bearer s3cret\r\n"));
    assert_non_null(strstr(request, "POST /generate HTTP/1.1\r\n"));
    free(request);
    program_run_clear(&p);
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

static void a_daemon_that_wants_a_key_is_shown_it(void **state)
{
    struct daemon keyed;
    char file[PATH_MAX], flag[PATH_MAX + 32], key[KEYS_TEXT_MAX], there[URL_MAX_BYTES];
    (void)state;
    temp_path(file, dir, "keys");
    keys_add(file, "reader", NULL, key);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    daemon_start(&keyed, LIST(flag));
    (void)snprintf(there, sizeof there, "http://127.0.0.1:%u", keyed.port);
    const struct program_case cases[] = {
        {"no key", {"classify", cat, "--url", there}, NULL, 1, "", "; give it with --key or in AFT_KEY"},
        {"another key", {"classify", cat, "--url", there, "--key", "x"}, NULL, 1, "", "the daemon answers 401: "},
        {"the key", {"classify", cat, "--url", there, "--key", key, "--top-k=1"}, NULL, 0, "0.", ""},
    };
    program_expect(aft, cases, LENGTH(cases));
    assert_int_equal(setenv("AFT_KEY", key, 1), 0);
    program_expect(aft,
                   &(const struct program_case){
                       "the environment's", {"score", "README.md", "--url", there}, NULL, 0, "bits per byte\n", ""},
                   1);
    (void)unsetenv("AFT_KEY");
    daemon_stop(&keyed);
}

/* A daemon that takes a connection and says nothing. */
static void a_wait_is_told_on_a_terminal(void **state)
{
    char there[URL_MAX_BYTES];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    (void)state;
    program_need_terminal();
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(there, sizeof there, "http://127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    struct program_run p = {.argv = {"/usr/bin/timeout", "2", aft, "score", "LICENSE", "--url", there},
                            .err_sink = PROGRAM_TERMINAL};
    program_run(&p);
    const char *told = strstr(p.err, "\rwaiting for http://127.0.0.1:");
    if (p.exit_code != 124 || told == NULL || strstr(told, "\033[K") == NULL)
        fail_msg("exit code %d, \"%s\"", p.exit_code, p.err);
    program_run_clear(&p);
    p.err_sink = PROGRAM_COLLECTED;
    program_run(&p);
    assert_string_equal(p.err, "");
    program_run_clear(&p);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_daemon_prints_what_the_model_itself_does),
        cmocka_unit_test(texts_are_classified_alike),
        cmocka_unit_test(a_long_prompt_is_cut_and_that_is_said),
        cmocka_unit_test(a_terminal_sees_repaired_text),
        cmocka_unit_test(a_daemons_models_are_listed_and_inspected),
        cmocka_unit_test(what_a_request_is_refused_for_is_said),
        cmocka_unit_test(a_daemon_that_is_not_there_is_said),
        cmocka_unit_test(a_wrong_command_line_is_told_what_was_expected),
        cmocka_unit_test(what_is_no_answer_of_a_daemon_is_refused),
        cmocka_unit_test(a_daemon_that_wants_a_key_is_shown_it),
        cmocka_unit_test(the_key_is_sent_and_nothing_else_of_the_environment),
        cmocka_unit_test(a_wait_is_told_on_a_terminal),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, setup, daemons_end);
}
