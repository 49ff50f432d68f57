/* test_tls.c - encrypted connections: requests, streams, clients that leave, certificates that change. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <curl/curl.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct daemon aftd;
static char dir[PATH_MAX], certificate[PATH_MAX], key[PATH_MAX];
static char certificate_flag[PATH_MAX + 64], key_flag[PATH_MAX + 64];

static void run(const char *command)
{
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): paths of our own */
}

/* A certificate that signs itself, for 127.0.0.1, and its key. */
static void make_certificate(const char *certificate_path, const char *key_path, int days)
{
    char command[4 * PATH_MAX];
    (void)snprintf(command, sizeof command,
                   "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout %s -out %s -days %d "
                   "-subj /CN=aftd -addext subjectAltName=IP:127.0.0.1 2>%s/openssl",
                   key_path, certificate_path, days, dir);
    run(command);
}

static int set_up(void **state)
{
    (void)state;
    if (system("openssl version >/dev/null 2>&1") != 0) { /* NOLINT(cert-env33-c): a fixed command */
        print_message("skipped: there is no openssl to make a certificate with\n");
        skip();
    }
    temp_dir_create(dir);
    temp_path(certificate, dir, "certificate.pem");
    temp_path(key, dir, "key.pem");
    (void)snprintf(certificate_flag, sizeof certificate_flag, "--tls-certificate=%s", certificate);
    (void)snprintf(key_flag, sizeof key_flag, "--tls-key=%s", key);
    make_certificate(certificate, key, 2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    if (dir[0] != '\0')
        temp_dir_remove(dir);
    dir[0] = '\0';
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

static void requests_and_streams_are_served(void **state)
{
    enum { COUNT = 32 };
    static const char text[] = "{\"prompt\": \"The \", \"max_tokens\": 100, \"temperature\": 0}";
    static const char stream[] = "{\"prompt\": \"The \", \"max_tokens\": 100, \"temperature\": 0, \"stream\": true}";
    static char large[300000];
    static struct request requests[COUNT];
    static struct reply replies[COUNT];
    (void)state;
    memset(large, 'x', sizeof large);
    daemon_start(
        &aftd, (const char *const[]){certificate_flag, key_flag, "--admin-address=127.0.0.1", "--admin-port=0", NULL});
    for (size_t i = 0; i < COUNT; i++) {
        const char *body = i % 2 == 0 ? text : stream;
        requests[i] = (struct request){.path = "/generate", .body = body, .size = strlen(body), .ca_file = certificate};
        if (i % 8 == 7) /* a large body, of which each byte is read */
            requests[i] =
                (struct request){.path = "/classify", .body = large, .size = sizeof large, .ca_file = certificate};
    }
    client_call_all(&aftd, requests, replies, COUNT, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(replies[i].status, i % 8 == 7 ? 415 : 200);
        if (i % 8 != 7)
            assert_non_null(strstr(replies[i].body, "\"finish_reason\":\"length\""));
        reply_clear(&replies[i]);
    }
    struct reply reply; /* administration is not encrypted: it has its own, local listener */
    client_call(&aftd, &(struct request){.path = "/readyz", .port = aftd.admin_port}, &reply);
    assert_int_equal(reply.status, 200);
    reply_clear(&reply);
    daemon_stop(&aftd);
}

static CURL *prepare(const char *path, const char *body)
{
    static char url[256];
    CURL *e = curl_easy_init();
    assert_non_null(e);
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%u%s", aftd.port, path);
    (void)curl_easy_setopt(e, CURLOPT_URL, url);
    (void)curl_easy_setopt(e, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(e, CURLOPT_CAINFO, certificate);
    (void)curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)HANG_MS);
    if (body != NULL)
        (void)curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, body);
    return e;
}

static size_t take_none(char *bytes, size_t one, size_t n, void *arg)
{
    (void)bytes;
    (void)one;
    (void)n;
    (void)arg;
    return 0; /* which has libcurl close the connection */
}

/* libcurl's callback while it waits. */
static int leave_once_it_runs(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return client_metric(arg, "aftd_streams_running") > 0.5;
}

/* In the middle of a stream, and while it waits for its answer. */
static void a_client_that_leaves_is_noticed(void **state)
{
    (void)state;
    daemon_start(
        &aftd, (const char *const[]){certificate_flag, key_flag, "--admin-address=127.0.0.1", "--admin-port=0", NULL});
    struct daemon admin = aftd;
    admin.port = aftd.admin_port; /* where /metrics is plain */
    for (int streams = 0; streams < 2; streams++) {
        CURL *e =
            prepare("/generate", streams != 0 ? "{\"prompt\": \"x\", \"max_tokens\": 65536, \"context_overflow\": "
                                                "\"shift\", \"stream\": true}"
                                              : "{\"prompt\": \"x\", \"max_tokens\": 65536, \"context_overflow\": "
                                                "\"shift\"}");
        (void)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_none);
        if (streams == 0) {
            (void)curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
            (void)curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, leave_once_it_runs);
            (void)curl_easy_setopt(e, CURLOPT_XFERINFODATA, &admin);
        }
        assert_int_equal(curl_easy_perform(e), streams != 0 ? CURLE_WRITE_ERROR : CURLE_ABORTED_BY_CALLBACK);
        curl_easy_cleanup(e);
        (void)client_await_metric(&admin, "aftd_streams_running", 0, HANG_MS);
        (void)client_await_metric(&admin, "aftd_requests_cancelled_total", streams + 1, HANG_MS);
    }
    daemon_stop(&aftd);
}

static void what_is_no_tls_is_closed(void **state)
{
    static struct raw_input in;
    static const char plain[] = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct reply reply;
    (void)state;
    daemon_start(&aftd, (const char *const[]){certificate_flag, key_flag, "--receive-timeout-ms=500", NULL});
    assert_true(raw_exchange(aftd.port, plain, strlen(plain), &in, HANG_MS) <= RAW_RESET);
    assert_int_equal(raw_count_answers(&in), 0);
    int fd = raw_connect(aftd.port); /* says nothing */
    assert_true(raw_receive(fd, &in, NULL, HANG_MS) <= RAW_RESET);
    raw_close(fd);
    fd = raw_connect(aftd.port); /* half a handshake */
    assert_true(raw_send(fd, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, HANG_MS));
    assert_true(raw_receive(fd, &in, NULL, HANG_MS) <= RAW_RESET);
    raw_close(fd);
    CURL *e = prepare("/readyz", NULL);
    (void)curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_1 | (long)CURL_SSLVERSION_MAX_TLSv1_1);
    (void)curl_easy_setopt(e, CURLOPT_SSL_CIPHER_LIST, "DEFAULT@SECLEVEL=0"); /* libcurl itself would take it */
    assert_int_equal(curl_easy_perform(e), CURLE_SSL_CONNECT_ERROR);
    curl_easy_cleanup(e);
    client_call(&aftd, &(struct request){.path = "/readyz", .ca_file = certificate}, &reply);
    assert_int_equal(reply.status, 200);
    reply_clear(&reply);
    daemon_stop(&aftd);
}

static const unsigned char hello[] = {
    0x16, 0x03, 0x01, 0x00, 0x83, 0x01, 0x00, 0x00, 0x7f, 0x03, 0x03, 0xea, 0xdf, 0xa5, 0xe1, 0x86, 0x66,
    0xdb, 0x41, 0x3e, 0xde, 0xf8, 0x10, 0x60, 0x10, 0x62, 0x21, 0x0c, 0x5a, 0xe9, 0x69, 0xa8, 0x19, 0xc5,
    0x65, 0xf4, 0xb9, 0x05, 0x1b, 0x18, 0x5f, 0xd6, 0x27, 0x00, 0x00, 0x04, 0xc0, 0x2b, 0x00, 0xff, 0x01,
    0x00, 0x00, 0x52, 0x00, 0x0b, 0x00, 0x04, 0x03, 0x00, 0x01, 0x02, 0x00, 0x0a, 0x00, 0x0c, 0x00, 0x0a,
    0x00, 0x1d, 0x00, 0x17, 0x00, 0x1e, 0x00, 0x19, 0x00, 0x18, 0x00, 0x23, 0x00, 0x00, 0x00, 0x16, 0x00,
    0x00, 0x00, 0x17, 0x00, 0x00, 0x00, 0x0d, 0x00, 0x2a, 0x00, 0x28, 0x04, 0x03, 0x05, 0x03, 0x06, 0x03,
    0x08, 0x07, 0x08, 0x08, 0x08, 0x09, 0x08, 0x0a, 0x08, 0x0b, 0x08, 0x04, 0x08, 0x05, 0x08, 0x06, 0x04,
    0x01, 0x05, 0x01, 0x06, 0x01, 0x03, 0x03, 0x03, 0x01, 0x03, 0x02, 0x04, 0x02, 0x05, 0x02, 0x06, 0x02,
};

/* Clients that begin to encrypt and say no more: after three bytes, or once their finished hello has been answered. */
enum { STALLED = 16 };
static const size_t sizes[] = {3, 6, 60, sizeof hello};

static void stall(int fds[STALLED])
{
    for (size_t i = 0; i < STALLED; i++) {
        fds[i] = raw_connect(aftd.port);
        assert_true(raw_send(fds[i], hello, sizes[i % ARRAY_LEN(sizes)], HANG_MS));
    }
}

static void handshakes_that_stall_end_at_the_deadline(void **state)
{
    static struct raw_input in;
    int fds[STALLED];
    (void)state;
    daemon_start(
        &aftd, (const char *const[]){certificate_flag, key_flag, "--http-threads=2", "--receive-timeout-ms=300", NULL});
    stall(fds);
    for (size_t i = 0; i < STALLED; i++) {
        assert_true(raw_receive(fds[i], &in, NULL, HANG_MS) <= RAW_RESET);
        raw_close(fds[i]);
    }
    daemon_stop(&aftd);
}

static void handshakes_that_stall_cost_nothing(void **state)
{
    enum { LATER_MS = 1000 };
    static struct raw_input in;
    int fds[STALLED];
    (void)state;
    daemon_start(&aftd, (const char *const[]){certificate_flag, key_flag, "--admin-address=127.0.0.1", "--admin-port=0",
                                              "--http-threads=2", "--receive-timeout-ms=600000", NULL});
    struct daemon admin = aftd;
    admin.port = aftd.admin_port; /* where /metrics is plain */
    stall(fds);
    const size_t open = ARRAY_LEN(fds) + 1; /* and who asks */
    (void)client_await_metric(&admin, "aftd_connections", (double)open, HANG_MS);
    for (size_t i = ARRAY_LEN(sizes) - 1; i < ARRAY_LEN(fds); i += ARRAY_LEN(sizes)) /* has its answer */
        assert_int_equal(raw_receive(fds[i], &in, "\x16\x03\x03", HANG_MS), RAW_FOUND);
    const double before_s = client_metric(&admin, "process_cpu_seconds_total");
    test_sleep_ms(LATER_MS);
    assert_true(client_metric(&admin, "process_cpu_seconds_total") - before_s < 0.3e-3 * LATER_MS);
    struct reply reply;
    client_call(&aftd, &(struct request){.path = "/readyz", .ca_file = certificate}, &reply);
    assert_int_equal(reply.status, 200);
    reply_clear(&reply);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) /* they leave by themselves */
        raw_reset(fds[i]);
    (void)client_await_metric(&admin, "aftd_connections", 1, HANG_MS);
    const int last = raw_connect(aftd.port); /* nor does one that waits hold up the end */
    assert_true(raw_send(last, hello, 3, HANG_MS));
    (void)client_await_metric(&admin, "aftd_connections", 2, HANG_MS);
    daemon_stop(&aftd);
    raw_close(last);
}

/* ---- certificates ---------------------------------------------------------------------------------------------- */

static bool answers(const char *ca_file)
{
    struct reply reply;
    if (!client_try(&aftd, &(struct request){.path = "/readyz", .ca_file = ca_file}, &reply))
        return false;
    assert_int_equal(reply.status, 200);
    reply_clear(&reply);
    return true;
}

/* In how many days the metrics say that the certificate expires, rounded. */
static int days_left(void)
{
    const uint16_t port = aftd.port;
    aftd.port = aftd.admin_port; /* where /metrics is plain */
    const double at = client_metric(&aftd, "aftd_tls_certificate_expiry_timestamp_seconds");
    aftd.port = port;
    return (int)((at - (double)time(NULL)) / 86400 + 0.5);
}

/* With a key of a kind that RSA key exchange would work with. */
static void only_forward_secrecy_and_authenticated_ciphers_are_spoken(void **state)
{
    static const struct {
        const char *options;
        bool works;
    } cases[] = {
        {"-tls1_3", true},
        {"-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256", true},
        {"-tls1_2 -cipher ECDHE-RSA-CHACHA20-POLY1305", true},
        {"-tls1_2 -cipher AES128-GCM-SHA256", false}, /* RSA key exchange */
        {"-tls1_2 -cipher AES256-SHA", false},
        {"-tls1_2 -cipher ECDHE-RSA-AES128-SHA", false}, /* CBC */
        {"-tls1_2 -cipher ECDHE-RSA-AES256-SHA384", false},
        {"-tls1_1 -cipher DEFAULT@SECLEVEL=0", false},
    };
    char command[4 * PATH_MAX];
    unsigned failed = 0;
    (void)state;
    (void)snprintf(command, sizeof command,
                   "openssl req -x509 -newkey rsa:2048 -nodes -keyout %s -out %s -days 2 -subj /CN=aftd "
                   "-addext subjectAltName=IP:127.0.0.1 2>%s/openssl",
                   key, certificate, dir);
    run(command);
    daemon_start(&aftd, (const char *const[]){certificate_flag, key_flag, NULL});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(command, sizeof command,
                       "openssl s_client -brief -connect 127.0.0.1:%u %s </dev/null >/dev/null 2>&1",
                       (unsigned)aftd.port, cases[i].options);
        const bool works = system(command) == 0; /* NOLINT(cert-env33-c): a command of our own */
        if (works == cases[i].works)
            continue;
        print_error("%s: %s\n", cases[i].options, works ? "accepted" : "refused");
        failed++;
    }
    assert_int_equal(failed, 0);
}

static void a_new_certificate_is_taken_while_running(void **state)
{
    char old[PATH_MAX], next[PATH_MAX], next_key[PATH_MAX];
    (void)state;
    temp_path(old, dir, "old.pem");
    temp_path(next, dir, "next.pem");
    temp_path(next_key, dir, "next-key.pem");
    make_certificate(next, next_key, 40);
    assert_int_equal(link(certificate, old), 0);
    daemon_start(
        &aftd, (const char *const[]){certificate_flag, key_flag, "--admin-address=127.0.0.1", "--admin-port=0", NULL});
    assert_true(answers(old));
    assert_false(answers(next));
    assert_int_equal(days_left(), 2);
    assert_int_equal(rename(next, certificate), 0); /* not its key yet: nothing changes */
    daemon_signal(&aftd, SIGHUP);
    daemon_await_log(&aftd, "is not the key of");
    assert_true(answers(old));
    assert_int_equal(days_left(), 2);
    assert_int_equal(rename(next_key, key), 0);
    daemon_signal(&aftd, SIGHUP);
    daemon_await_log(&aftd, "\"certificate\":true");
    assert_true(answers(certificate));
    assert_false(answers(old));
    assert_int_equal(days_left(), 40);
    daemon_stop(&aftd);
}

/* A client refuses the whole once one of them has expired. */
static void the_first_of_a_chain_to_expire_is_told(void **state)
{
    char command[4 * PATH_MAX];
    (void)state;
    (void)snprintf(command, sizeof command,
                   "cd %s && mv certificate.pem ca.pem && mv key.pem ca-key.pem && "
                   "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out leaf.csr "
                   "-subj /CN=leaf 2>openssl && "
                   "openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 40 -out leaf.pem "
                   "2>openssl && cat leaf.pem ca.pem >certificate.pem",
                   dir);
    run(command);
    daemon_start(
        &aftd, (const char *const[]){certificate_flag, key_flag, "--admin-address=127.0.0.1", "--admin-port=0", NULL});
    assert_int_equal(days_left(), 2);
    daemon_stop(&aftd);
}

static void wrong_files_are_named(void **state)
{
    char program[PATH_MAX], other[PATH_MAX], other_key[PATH_MAX], junk[PATH_MAX];
    char other_key_flag[PATH_MAX + 64], junk_flag[PATH_MAX + 64], junk_key_flag[PATH_MAX + 64], dir_flag[PATH_MAX + 64];
    (void)state;
    temp_path(other, dir, "other.pem");
    temp_path(other_key, dir, "other-key.pem");
    temp_path(junk, dir, "junk.pem");
    make_certificate(other, other_key, 2);
    temp_write(junk, "-----BEGIN", 10);
    (void)snprintf(other_key_flag, sizeof other_key_flag, "--tls-key=%s", other_key);
    (void)snprintf(junk_flag, sizeof junk_flag, "--tls-certificate=%s", junk);
    (void)snprintf(junk_key_flag, sizeof junk_key_flag, "--tls-key=%s", junk);
    (void)snprintf(dir_flag, sizeof dir_flag, "--tls-certificate=%s", dir);
    const struct program_case cases[] = {
        {"no key", {"", "", certificate_flag}, NULL, 2, "", "expected both of them, or neither"},
        {"no certificate", {"", "", key_flag}, NULL, 2, "", "expected both of them, or neither"},
        {"another's key", {"", "", certificate_flag, other_key_flag}, NULL, 2, "", "is not the key of"},
        {"no certificate in it", {"", "", junk_flag, key_flag}, NULL, 2, "", "tls_certificate: "},
        {"no key in it", {"", "", certificate_flag, junk_key_flag}, NULL, 2, "", "tls_key: "},
        {"a folder", {"", "", dir_flag, key_flag}, NULL, 2, "", "is a folder, expected a regular file"},
        {"nothing",
         {"", "", certificate_flag, "--tls-key=/no/such"},
         NULL,
         1,
         "",
         "tls_key: /no/such: cannot be opened"},
    };
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct program_case c = cases[i];
        c.args[0] = "--models-dir=tests/data/models";
        c.args[1] = "--listen-port=0";
        program_expect(program, &c, 1);
    }
}

int main(void)
{
    test_limit_s(580);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_and_streams_are_served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_tls_is_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(handshakes_that_stall_end_at_the_deadline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(handshakes_that_stall_cost_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_forward_secrecy_and_authenticated_ciphers_are_spoken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_certificate_is_taken_while_running, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_of_a_chain_to_expire_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_files_are_named, set_up, tear_down),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    curl_global_cleanup();
    return failed;
}
