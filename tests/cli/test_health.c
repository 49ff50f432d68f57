/* test_health.c - aft health finds the daemon by its configuration and says how it is: well, hanging, draining, gone.
 * The real daemon and the real aft. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "config/config.h"
#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { LIMIT_S = 580 };

static struct daemon aftd;
static char aft[PATH_MAX], dir[PATH_MAX], config[PATH_MAX], socket_path[PATH_MAX];
static char usual[PATH_MAX]; /* where the configuration is looked for in `dir` */

static int set_up(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    temp_path(config, dir, "aftd.json");
    temp_path(socket_path, dir, "aftd.socket");
    temp_path(usual, dir, "config");
    assert_int_equal(mkdir(usual, 0700), 0);
    temp_path(usual, dir, CONFIG_TREE_PATH);
    temp_write(usual, "{}", 2); /* rather than what is installed */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

/* What the daemon was told, and where it then listens: its configuration. */
static void write_config(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void write_config(const char *format, ...)
{
    char text[4 * PATH_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    temp_write(config, text, strlen(text));
}

/* aft health in `dir` with nothing in its environment but `variables`, and what ThreadSanitizer is told; `more` are
 * options. */
static void expect(const char *const *variables, const char *const *more, int exit_code, const char *out,
                   const char *err)
{
    char sanitizer[256];
    const char *given = getenv("TSAN_OPTIONS");
    (void)snprintf(sanitizer, sizeof sanitizer, "TSAN_OPTIONS=%s", given != NULL ? given : "");
    struct program_run p = {.argv = {"/usr/bin/env", "-i", "-C", dir, sanitizer}};
    size_t count = 5;
    while (*variables != NULL)
        p.argv[count++] = *variables++;
    p.argv[count++] = aft;
    p.argv[count++] = "health";
    while (*more != NULL)
        p.argv[count++] = *more++;
    program_run(&p);
    const size_t lines = (size_t)(strchr(p.out, '\n') != NULL) + (strchr(p.err, '\n') != NULL);
    if (p.exit_code != exit_code || strstr(p.out, out) == NULL || strstr(p.err, err) == NULL || lines != 1)
        fail_msg("exit code %d, expected %d: \"%s\", \"%s\"", p.exit_code, exit_code, p.out, p.err);
    program_run_clear(&p);
}

#define NONE LIST(NULL)

/* ---- how it is -------------------------------------------------------------------------------------------------- */

static void a_daemon_is_well_until_it_hangs_and_again_afterwards(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    write_config("{\"listen_port\": %u}", aftd.port);
    expect(NONE, LIST("--config", config), 0, ": ok\n", "");
    expect(NONE, LIST("--config", config, "--ready"), 0, ": ready\n", "");
    expect(NONE, LIST("--config", config, "--json"), 0, "\", \"status\": \"ok\"}\n", "");
    daemon_signal(&aftd, SIGSTOP);
    const int64_t begin_ms = test_now_ms();
    expect(NONE, LIST("--config", config, "--timeout", "0.5"), 1, "", "no answer within 0.5 s");
    assert_true(test_now_ms() - begin_ms >= 500);
    daemon_signal(&aftd, SIGCONT);
    expect(NONE, LIST("--config", config), 0, ": ok\n", "");
    daemon_stop(&aftd);
    expect(NONE, LIST("--config", config), 1, "", "Connection refused");
}

/* The daemon has as long for a connection as for the answer: the kernel takes it, and nobody answers its greeting. */
static void a_handshake_may_take_as_long_as_was_said(void **state)
{
    char url[64];
    (void)state;
    daemon_start(&aftd, NULL);
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%u", aftd.port);
    daemon_signal(&aftd, SIGSTOP);
    const int64_t begin_ms = test_now_ms();
    expect(NONE, LIST("--url", url, "--timeout", "2"), 1, "", "no answer within 2 s");
    assert_true(test_now_ms() - begin_ms >= 2000);
    daemon_signal(&aftd, SIGCONT);
    daemon_stop(&aftd);
}

static void a_draining_daemon_is_well_and_not_ready(void **state)
{
    (void)state;
    daemon_start(&aftd, LIST("--drain-delay-ms=600000"));
    write_config("{\"listen_port\": %u}", aftd.port);
    daemon_signal(&aftd, SIGTERM);
    daemon_await_log(&aftd, "draining");
    expect(NONE, LIST("--config", config), 0, ": ok\n", "");
    expect(NONE, LIST("--config", config, "--ready"), 1, "", "503: the server is draining");
    daemon_signal(&aftd, SIGTERM); /* no more waiting */
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
}

/* ---- where it is ------------------------------------------------------------------------------------------------ */

static void the_environment_counts_more_than_the_file(void **state)
{
    char variable[64], text[64];
    (void)state;
    daemon_start(&aftd, NULL);
    (void)snprintf(text, sizeof text, "{\"listen_port\": %u}", aftd.port);
    write_config("{\"listen_port\": 1, \"listen_address\": \"off\", \"listen_unix\": \"/nowhere\"}");
    (void)snprintf(variable, sizeof variable, "AFTD_LISTEN_PORT=%u", aftd.port);
    expect(LIST(variable, "AFTD_LISTEN_ADDRESS=127.0.0.1", "AFTD_NO_SUCH_SETTING=1"), LIST("--config", config), 0,
           ": ok", "");
    expect(LIST(variable), NONE, 0, ": ok", "");
    temp_write(usual, text, strlen(text));
    expect(NONE, NONE, 0, ": ok", "");
    daemon_stop(&aftd);
}

static void every_interface_is_asked_through_the_loopback(void **state)
{
    char variable[64], url[64];
    (void)state;
    daemon_start(&aftd, NULL);
    (void)snprintf(variable, sizeof variable, "AFTD_LISTEN_PORT=%u", aftd.port);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u: ok", aftd.port);
    expect(LIST(variable, "AFTD_LISTEN_ADDRESS=0.0.0.0"), NONE, 0, url, "");
    expect(LIST(variable, "AFTD_LISTEN_ADDRESS= 0.0.0.0 , ::"), NONE, 0, url, "");
    (void)snprintf(url, sizeof url, "http://[::1]:%u: ", aftd.port); /* where it does not listen */
    expect(LIST(variable, "AFTD_LISTEN_ADDRESS=::"), NONE, 1, "", url);
    expect(LIST(variable, "AFTD_LISTEN_ADDRESS=::1,127.0.0.1"), NONE, 1, "", url);
    daemon_stop(&aftd);
}

static void without_tcp_a_socket_is_asked(void **state)
{
    char listen[PATH_MAX + 32], admin[PATH_MAX + 32], expected[PATH_MAX + 32], admin_path[PATH_MAX];
    (void)state;
    temp_path(admin_path, dir, "admin.socket");
    (void)snprintf(listen, sizeof listen, "--listen-unix=%s", socket_path);
    (void)snprintf(admin, sizeof admin, "--admin-unix=%s", admin_path);
    daemon_start(&aftd, LIST(listen, admin));
    write_config("{\"listen_address\": \"off\", \"listen_unix\": \"%s\"}", socket_path);
    (void)snprintf(expected, sizeof expected, "%s: ok", socket_path);
    expect(NONE, LIST("--config", config), 0, expected, "");
    write_config("{\"listen_port\": 0, \"admin_unix\": \"%s\"}", admin_path); /* a port that only the kernel knows */
    (void)snprintf(expected, sizeof expected, "%s: ok", admin_path);
    expect(NONE, LIST("--config", config), 0, expected, "");
    (void)snprintf(expected, sizeof expected, "%s: ready", socket_path);
    expect(NONE, LIST("--unix", socket_path, "--ready"), 0, expected, "");
    daemon_stop(&aftd);
    write_config("{\"listen_address\": \"off\", \"listen_unix\": \"%s\"}", socket_path);
    expect(NONE, LIST("--config", config), 1, "", "No such file or directory");
}

static void a_certificate_of_another_name_is_no_fault(void **state)
{
    char command[4 * PATH_MAX], key[PATH_MAX], certificate[PATH_MAX], flags[2][PATH_MAX + 32];
    (void)state;
    if (system("openssl version >/dev/null 2>&1") != 0) { /* NOLINT(cert-env33-c): a fixed command */
        print_message("skipped: there is no openssl to make a certificate with\n");
        skip();
    }
    temp_path(key, dir, "key.pem");
    temp_path(certificate, dir, "certificate.pem");
    (void)snprintf(command, sizeof command,
                   "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout %s -out %s "
                   "-subj /CN=example.org",
                   key, certificate);
    struct program_run make = {.argv = {"/bin/sh", "-c", command}};
    program_run(&make);
    assert_int_equal(make.exit_code, 0);
    program_run_clear(&make);
    (void)snprintf(flags[0], sizeof flags[0], "--tls-key=%s", key);
    (void)snprintf(flags[1], sizeof flags[1], "--tls-certificate=%s", certificate);
    daemon_start(&aftd, LIST(flags[0], flags[1]));
    write_config("{\"listen_port\": %u, \"tls_key\": \"%s\", \"tls_certificate\": \"%s\"}", aftd.port, key,
                 certificate);
    expect(NONE, LIST("--config", config), 0, "https://127.0.0.1", "");
    char url[64]; /* a URL that somebody gives is verified */
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%u", aftd.port);
    expect(NONE, LIST("--url", url), 1, "", "--ca-file");
    daemon_stop(&aftd);
}

static void no_key_is_needed(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 32], key[KEYS_TEXT_MAX];
    (void)state;
    temp_path(file, dir, "keys.json");
    keys_add(file, "one", NULL, key);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    daemon_start(&aftd, LIST(flag));
    write_config("{\"listen_port\": %u, \"keys_file\": \"%s\"}", aftd.port, file);
    expect(NONE, LIST("--config", config), 0, ": ok", "");
    daemon_stop(&aftd);
}

/* ---- what cannot be asked --------------------------------------------------------------------------------------- */

static void what_is_wrong_with_the_question_is_told_apart(void **state)
{
    (void)state;
    write_config("{\"listen_port\": 0}");
    expect(NONE, LIST("--config", config), 2, "", "no listener is configured");
    write_config("{\"listen_prot\": 80}");
    expect(NONE, LIST("--config", config), 2, "", "did you mean listen_port");
    write_config("{");
    expect(NONE, LIST("--config", config), 2, "", "aftd.json: line 1");
    expect(NONE, LIST("--config", "/no/such/file"), 2, "", "cannot be opened");
    expect(LIST("AFTD_LISTEN_PORT=many"), NONE, 2, "", "AFTD_LISTEN_PORT");
    expect(NONE, LIST("--timeout", "0"), 2, "", "--timeout");
    expect(NONE, LIST("--timeout=1e9"), 2, "", "--timeout");
    expect(NONE, LIST("--url", "ftp://127.0.0.1:80"), 2, "", "expected [http(s)://]HOST:PORT");
    expect(NONE, LIST("now"), 2, "", "unexpected argument");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_daemon_is_well_until_it_hangs_and_again_afterwards),
        TEST(a_handshake_may_take_as_long_as_was_said),
        TEST(a_draining_daemon_is_well_and_not_ready),
        TEST(the_environment_counts_more_than_the_file),
        TEST(every_interface_is_asked_through_the_loopback),
        TEST(without_tcp_a_socket_is_asked),
        TEST(a_certificate_of_another_name_is_no_fault),
        TEST(no_key_is_needed),
        TEST(what_is_wrong_with_the_question_is_told_apart),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
