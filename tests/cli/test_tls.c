/* test_tls.c - aft and a daemon that speaks TLS: who it trusts, and what it says where it does not. The real daemon
 * with certificates made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define NEW_KEY "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"

enum { LIMIT_S = 580, URL_MAX_BYTES = 64 };

static const char cat[] = PICTURES_DIR "small-32.jpg";
static struct daemon aftd;
static char aft[PATH_MAX], dir[PATH_MAX], authority[PATH_MAX], stranger[PATH_MAX], certificate[PATH_MAX], key[PATH_MAX];
static char url[URL_MAX_BYTES], other_host[URL_MAX_BYTES], plain[URL_MAX_BYTES];

static void run_shell(const char *format, const char *a, const char *b, const char *c, const char *d)
{
    char command[5 * PATH_MAX];
    (void)snprintf(command, sizeof command, format, a, b, c, d);
    struct program_run p = {.argv = {"/bin/sh", "-c", command}};
    program_run(&p);
    if (p.exit_code != 0)
        fail_msg("%s: %s", command, p.err);
    program_run_clear(&p);
}

/* Two that sign, and what the first has signed: a certificate for 127.0.0.1 alone. */
static void make_certificates(void)
{
    char authority_key[PATH_MAX], stranger_key[PATH_MAX];
    temp_path(authority, dir, "authority.pem");
    temp_path(stranger, dir, "stranger.pem");
    temp_path(authority_key, dir, "authority-key.pem");
    temp_path(stranger_key, dir, "stranger-key.pem");
    temp_path(certificate, dir, "certificate.pem");
    temp_path(key, dir, "key.pem");
    run_shell("openssl req -x509 " NEW_KEY " -keyout %s -out %s -subj /CN=authority%s%s", authority_key, authority, "",
              "");
    run_shell("openssl req -x509 " NEW_KEY " -keyout %s -out %s -subj /CN=stranger%s%s", stranger_key, stranger, "",
              "");
    run_shell("openssl req -x509 " NEW_KEY " -CA %s -CAkey %s -keyout %s -out %s -subj /CN=aftd "
              "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE",
              authority, authority_key, key, certificate);
}

static int setup(void **state)
{
    char certificate_flag[PATH_MAX + 32], key_flag[PATH_MAX + 32];
    (void)state;
    if (system("openssl version >/dev/null 2>&1") != 0) { /* NOLINT(cert-env33-c): a fixed command */
        print_message("skipped: there is no openssl to make a certificate with\n");
        skip();
    }
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    make_certificates();
    (void)snprintf(certificate_flag, sizeof certificate_flag, "--tls-certificate=%s", certificate);
    (void)snprintf(key_flag, sizeof key_flag, "--tls-key=%s", key);
    daemon_start(&aftd, (const char *const[]){certificate_flag, key_flag, NULL});
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%u", aftd.port);
    (void)snprintf(other_host, sizeof other_host, "https://localhost:%u", aftd.port);
    (void)snprintf(plain, sizeof plain, "http://127.0.0.1:%u", aftd.port);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    if (dir[0] != '\0')
        temp_dir_remove(dir);
    return 0;
}

static void who_is_trusted_is_asked(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"a picture", {"classify", cat, "--url", url, "--ca-file", authority, "--top-k=1"}, NULL, 0, "0.", ""},
        {"a text",
         {"generate", "--url", url, "--ca-file", authority, "--temperature=0", "--max-tokens=20"},
         NULL,
         0,
         "[[",
         ""},
        {"bytes", {"compress", "--url", url, "--ca-file", authority}, "The history of Rome", 0, "aftz", ""},
        {"load", {"load", url, "--ca-file", authority, "--requests=1", "--max-tokens=1"}, NULL, 0, " 1 answered", ""},
        {"the certificate itself", {"score", "README.md", "--url", url, "--ca-file", certificate}, NULL, 0, "bits", ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

#define HINT "--ca-file names the certificates to trust"

static void who_is_not_is_sent_nothing(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"nobody's word for it", {"classify", cat, "--url", url}, NULL, 1, "", HINT},
        {"what curl calls it", {"classify", cat, "--url", url}, NULL, 1, "", "certificate"},
        {"nobody's word, of a text", {"generate", "--url", url}, NULL, 1, "", HINT},
        {"another's word", {"classify", cat, "--url", url, "--ca-file", stranger}, NULL, 1, "", HINT},
        {"another's word, of load", {"load", url, "--ca-file", stranger}, NULL, 1, "", HINT},
        {"another host, of load", {"load", other_host, "--ca-file", authority}, NULL, 1, "", "subject name"},
        {"no such file, of load", {"load", url, "--ca-file", "/nonexistent"}, NULL, 1, "", "/nonexistent\n"},
        {"another host", {"classify", cat, "--url", other_host, "--ca-file", authority}, NULL, 1, "", "'localhost'\n"},
        {"no such file", {"classify", cat, "--url", url, "--ca-file", "/nonexistent"}, NULL, 1, "", "/nonexistent\n"},
        {"no certificates", {"classify", cat, "--url", url, "--ca-file", "README.md"}, NULL, 1, "", "README.md\n"},
        {"no encryption", {"classify", cat, "--url", plain}, NULL, 1, "", "aft classify: http://127.0.0.1:"},
    };
    program_expect(aft, cases, LENGTH(cases));
    char *log = daemon_log(&aftd);
    assert_null(strstr(log, "/classify")); /* the request was never sent */
    free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_is_trusted_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(who_is_not_is_sent_nothing, setup, teardown),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("cli_tls", tests, NULL, NULL);
}
