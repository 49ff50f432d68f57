/* test_listeners.c - all sockets that settings ask for: lists of addresses, who is an administrator's, and that none is
 * left open where one cannot be had. */
#include "config/settings.h"
#include "server/http/listeners.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/core/service_manager.h"
#include "server/http/listen.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static char dir[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    return 0;
}

/* On ports that the kernel chooses. */
static struct settings settings(const char *addresses)
{
    struct settings s;
    settings_init(&s);
    s.listen_port = 0;
    s.admin_port = 0;
    (void)snprintf(s.listen_address, sizeof s.listen_address, "%s", addresses);
    return s;
}

static void in_dir(char *out, size_t size, const char *name)
{
    assert_true((size_t)snprintf(out, size, "%s/%s", dir, name) < size);
}

/* Its name begins so; behind it comes the port. */
static void assert_named(const struct listener *l, const char *begins)
{
    if (strncmp(l->name, begins, strlen(begins)) != 0)
        fail_msg("%s, expected %s...", l->name, begins);
}

static void a_list_is_listened_on_in_its_order(void **state)
{
    static const char *const lists[] = {"127.0.0.1,127.0.0.2", " 127.0.0.1 , 127.0.0.2 ", "127.0.0.1,  127.0.0.2"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const struct settings s = settings(lists[i]);
        struct listeners l;
        struct error err;
        if (listeners_open(&l, &s, NULL, &err) != OK)
            fail_msg("\"%s\": %s", lists[i], err.message);
        assert_int_equal(l.count, 2);
        assert_named(&l.all[0], "http://127.0.0.1:");
        assert_named(&l.all[1], "http://127.0.0.2:");
        assert_true(l.all[0].kind == LISTENER_PUBLIC && !l.all[0].is_tls && !l.all[0].is_local);
        assert_string_not_equal(strrchr(l.all[0].name, ':'), ":0"); /* the port that it is */
        listeners_close(&l);
        assert_int_equal(l.count, 0);
    }
}

static void ipv6_is_named_in_brackets(void **state)
{
    const struct settings s = settings("::1");
    struct listeners l;
    struct error err;
    (void)state;
    if (listeners_open(&l, &s, NULL, &err) != OK) {
        assert_non_null(strstr(err.message, "cannot listen on ::1 port 0")); /* and nothing but IPv6 is missing */
        print_message("skipped: there is no IPv6 here (%s)\n", err.message);
        return;
    }
    assert_named(&l.all[0], "http://[::1]:");
    listeners_close(&l);
}

/* Where there is IPv6, on the same port of both. */
static void a_star_is_every_address_of_both_kinds(void **state)
{
    const struct settings s = settings("*"), v6 = settings("::");
    struct listeners l, other;
    (void)state;
    assert_int_equal(listeners_check(&s, NULL), OK);
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), OK);
    assert_named(&l.all[0], "http://0.0.0.0:");
    if (listeners_open(&other, &v6, NULL, NULL) == OK) {
        listeners_close(&other);
        assert_int_equal(l.count, 2);
        assert_named(&l.all[1], "http://[::]:");
        assert_string_equal(strrchr(l.all[1].name, ':'), strrchr(l.all[0].name, ':'));
    } else {
        assert_int_equal(l.count, 1);
    }
    listeners_close(&l);
}

/* First, so that who reads the line of what is served knows that it can be administrated too. */
static void the_administrators_come_first_and_are_theirs(void **state)
{
    struct settings s = settings("127.0.0.1");
    struct listeners l;
    struct stat there;
    (void)state;
    (void)snprintf(s.admin_address, sizeof s.admin_address, "127.0.0.2");
    in_dir(s.admin_unix, sizeof s.admin_unix, "admin");
    in_dir(s.listen_unix, sizeof s.listen_unix, "all");
    (void)snprintf(s.listen_unix_mode, sizeof s.listen_unix_mode, "0640");
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), OK);
    assert_int_equal(l.count, 4);
    for (size_t i = 0; i < l.count; i++) {
        assert_int_equal(l.all[i].kind, i < 2 ? LISTENER_ADMIN : LISTENER_PUBLIC);
        assert_int_equal(l.all[i].is_local, i % 2 == 1);
    }
    assert_named(&l.all[0], "http://127.0.0.2:");
    assert_named(&l.all[1], "unix:");
    assert_string_equal(l.all[1].path, s.admin_unix);
    assert_named(&l.all[2], "http://127.0.0.1:");
    assert_string_equal(l.all[3].path, s.listen_unix);
    assert_int_equal(stat(s.admin_unix, &there), 0);
    assert_int_equal(there.st_mode & 07777, 0600);
    assert_int_equal(stat(s.listen_unix, &there), 0);
    assert_int_equal(there.st_mode & 07777, 0640);
    listeners_close(&l);
    assert_int_not_equal(access(s.admin_unix, F_OK), 0);
    assert_int_not_equal(access(s.listen_unix, F_OK), 0);
}

static void tcp_alone_is_encrypted_and_not_for_administration(void **state)
{
    struct settings s = settings("127.0.0.1");
    struct listeners l;
    (void)state;
    (void)snprintf(s.tls_certificate, sizeof s.tls_certificate, "certificate.pem"); /* read by others */
    (void)snprintf(s.tls_key, sizeof s.tls_key, "key.pem");
    (void)snprintf(s.admin_address, sizeof s.admin_address, "127.0.0.2");
    in_dir(s.listen_unix, sizeof s.listen_unix, "all");
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), OK);
    assert_named(&l.all[0], "http://127.0.0.2:");
    assert_false(l.all[0].is_tls);
    assert_named(&l.all[1], "https://127.0.0.1:");
    assert_true(l.all[1].is_tls);
    assert_false(l.all[2].is_tls);
    listeners_close(&l);
}

static void a_unix_socket_may_be_all_there_is(void **state)
{
    struct settings s = settings("off");
    struct listeners l;
    (void)state;
    in_dir(s.listen_unix, sizeof s.listen_unix, "all");
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), OK);
    assert_int_equal(l.count, 1);
    assert_true(l.all[0].is_local);
    listeners_close(&l);
}

static void as_many_are_listened_on_as_are_polled(void **state)
{
    static const char list[] = "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5,127.0.0.6,127.0.0.7,127.0.0.8,"
                               "127.0.0.9,127.0.0.10,127.0.0.11,127.0.0.12,127.0.0.13,127.0.0.14,127.0.0.15,127.0.0.16";
    struct listeners l;
    struct error err;
    (void)state;
    struct settings s = settings(list);
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), OK);
    assert_int_equal(l.count, LISTENERS_MAX);
    listeners_close(&l);
    in_dir(s.listen_unix, sizeof s.listen_unix, "all");
    assert_int_equal(listeners_open(&l, &s, NULL, &err), ERR_CONFIG);
    assert_string_equal(err.message, "listen_unix: expected at most 16 listeners in all");
    (void)snprintf(s.listen_unix, sizeof s.listen_unix, "off");
    (void)snprintf(s.listen_address, sizeof s.listen_address, "%s,127.0.0.17", list);
    assert_int_equal(listeners_open(&l, &s, NULL, &err), ERR_CONFIG);
    assert_string_equal(err.message, "listen_address: expected at most 16 listeners in all");
    assert_string_equal(err.param, "listen_address");
}

static void what_cannot_be_listened_on_is_named(void **state)
{
#define EXPECTED "\": expected a numeric IPv4 or IPv6 address"
#define OCTAL "\": expected permissions in octal, such as 0660"
    static const struct {
        const char *address, *mode, *admin, *says;
    } cases[] = {
        {"off", "0660", "off", "listen_address and listen_unix are both off: expected at least one"},
        {"127.0.0.1,", "0660", "off", "listen_address: \"" EXPECTED},
        {"127.0.0.1,,127.0.0.2", "0660", "off", "listen_address: \"" EXPECTED},
        {"127.0.0.1,localhosts", "0660", "off", "listen_address: \"localhosts" EXPECTED},
        {"127.0.0.1,off", "0660", "off", "listen_address: \"off" EXPECTED},
        {"127.0.0.1", "0660", "x", "admin_address: \"x" EXPECTED},
        {"127.0.0.1", "rw", "off", "listen_unix_mode = \"rw" OCTAL},
        {"127.0.0.1", "", "off", "listen_unix_mode = \"" OCTAL},
        {"127.0.0.1", "-1", "off", "listen_unix_mode = \"-1" OCTAL},
        {"127.0.0.1", "0680", "off", "listen_unix_mode = \"0680" OCTAL},
        {"127.0.0.1", "0660 ", "off", "listen_unix_mode = \"0660 " OCTAL},
        {"127.0.0.1", "1000", "off", "listen_unix_mode = \"1000" OCTAL},
        {"127.0.0.1", "77777777777777777777777", "off", "listen_unix_mode = \"77777777777777777777777" OCTAL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct settings s = settings(cases[i].address);
        struct listeners l = {.count = 77};
        struct error err = {.message = ""};
        (void)snprintf(s.listen_unix_mode, sizeof s.listen_unix_mode, "%s", cases[i].mode);
        (void)snprintf(s.admin_address, sizeof s.admin_address, "%s", cases[i].admin);
        const enum status st = listeners_open(&l, &s, NULL, &err);
        if (st != ERR_CONFIG || strncmp(err.message, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("\"%s\": %s \"%s\", expected \"%s\"", cases[i].address, status_name(st), err.message,
                     cases[i].says);
        assert_int_equal(l.count, 77);
    }
}

static void a_missing_comma_is_noticed(void **state)
{
    const struct settings s = settings("127.0.0.1 127.0.0.2");
    const char says[] = "listen_address: \"127.0.0.1 127.0.0.2\": expected a numeric IPv4 or IPv6 address";
    struct listeners l;
    struct error err = {.message = ""};
    (void)state;
    assert_int_equal(listeners_open(&l, &s, NULL, &err), ERR_CONFIG);
    assert_int_equal(strncmp(err.message, says, strlen(says)), 0);
}

/* A socket that a service manager has opened, on 127.0.0.1. */
static int open_for_passing(void)
{
    uint16_t port;
    int fd = -1;
    assert_int_equal(listen_open(&fd, &port, "127.0.0.1", 0, false, "test", NULL), OK);
    assert_int_equal(listen_begin(fd, "test", NULL), OK);
    return fd;
}

static void of_passed_sockets_public_tcp_alone_is_encrypted(void **state)
{
    static const struct {
        const char *name, *begins;
        enum listener_kind kind;
    } cases[] = {{"admin", "http://127.0.0.1:", LISTENER_ADMIN},
                 {"metrics", "http://127.0.0.1:", LISTENER_METRICS},
                 {"http", "https://127.0.0.1:", LISTENER_PUBLIC}};
    struct settings s = settings("127.0.0.2");
    struct service_sockets passed = {.count = 0};
    struct listeners l;
    (void)state;
    (void)snprintf(s.tls_certificate, sizeof s.tls_certificate, "certificate.pem"); /* read by others */
    (void)snprintf(s.tls_key, sizeof s.tls_key, "key.pem");
    for (size_t i = ARRAY_LEN(cases); i-- > 0; passed.count++) { /* in another order than they come */
        passed.all[passed.count].fd = open_for_passing();
        (void)snprintf(passed.all[passed.count].name, sizeof passed.all[0].name, "%s", cases[i].name);
    }
    assert_int_equal(listeners_open(&l, &s, &passed, NULL), OK);
    assert_int_equal(l.count, ARRAY_LEN(cases));
    for (size_t i = 0; i < l.count; i++) {
        assert_named(&l.all[i], cases[i].begins);
        assert_int_equal(l.all[i].kind, cases[i].kind);
        assert_int_equal(l.all[i].is_tls, cases[i].kind == LISTENER_PUBLIC);
        assert_null(l.all[i].path);
    }
    listeners_close(&l);
}

static void monitors_have_addresses_of_their_own(void **state)
{
    struct settings s = settings("127.0.0.1");
    struct listeners l;
    struct error err;
    (void)state;
    s.metrics_port = 0;
    (void)snprintf(s.metrics_address, sizeof s.metrics_address, "127.0.0.2,127.0.0.3");
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), OK);
    assert_int_equal(l.count, 3);
    assert_named(&l.all[0], "http://127.0.0.2:");
    assert_int_equal(l.all[0].kind, LISTENER_METRICS);
    assert_int_equal(l.all[1].kind, LISTENER_METRICS);
    assert_int_equal(l.all[2].kind, LISTENER_PUBLIC);
    listeners_close(&l);
    (void)snprintf(s.metrics_address, sizeof s.metrics_address, "localhosts");
    assert_int_equal(listeners_open(&l, &s, NULL, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "metrics_address: \"localhosts\": expected a numeric IPv4 or IPv6 address"));
}

/* Nor is what others have opened: descriptor 0 is what an unused place would name. */
static void only_its_own_sockets_are_closed(void **state)
{
    const struct settings s = settings("127.0.0.1,127.0.0.2");
    struct listeners l;
    (void)state;
    const int kept = fcntl(STDERR_FILENO, F_DUPFD, 3), zero = fcntl(STDIN_FILENO, F_DUPFD, 3);
    assert_true(kept > 0 && dup2(kept, STDIN_FILENO) == STDIN_FILENO);
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), OK);
    listeners_close(&l);
    assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    assert_true(fcntl(kept, F_GETFD) >= 0);
    (void)dup2(zero, STDIN_FILENO);
    (void)close(zero);
    (void)close(kept);
}

/* Another daemon that starts meanwhile may take the file of a socket that nobody listens on yet. */
static void a_file_that_was_replaced_is_noticed(void **state)
{
    struct settings first = settings("off"), second;
    struct listeners l, other;
    struct error err;
    (void)state;
    in_dir(first.listen_unix, sizeof first.listen_unix, "all");
    second = first;
    assert_int_equal(listeners_open(&l, &first, NULL, NULL), OK);
    assert_int_equal(listeners_open(&other, &second, NULL, NULL), OK);
    assert_int_equal(listeners_begin(&other, NULL), OK);
    assert_int_equal(listeners_begin(&l, &err), ERR_IO);
    assert_non_null(strstr(err.message, "its file was replaced meanwhile"));
    listeners_close(&l);
    assert_int_equal(access(first.listen_unix, F_OK), 0); /* the other's */
    listeners_close(&other);
}

/* All that may be wrong whatever else runs here: the same answers, and nothing is opened. */
static void a_check_opens_nothing(void **state)
{
    struct settings s = settings("127.0.0.1,localhost,127.0.0.1");
    struct error err;
    (void)state;
    in_dir(s.listen_unix, sizeof s.listen_unix, "all");
    assert_int_equal(listeners_check(&s, NULL), OK);
    assert_int_not_equal(access(s.listen_unix, F_OK), 0);
    s = settings("127.0.0.1,nowhere");
    assert_int_equal(listeners_check(&s, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "listen_address: \"nowhere\""));
}

/* The descriptor that is given next tells whether others are still open. */
static void none_is_left_where_one_cannot_be_had(void **state)
{
    struct settings s = settings("127.0.0.1,127.0.0.2");
    struct listeners l;
    (void)state;
    in_dir(s.admin_unix, sizeof s.admin_unix, "admin");
    in_dir(s.listen_unix, sizeof s.listen_unix, "no/such/folder");
    const int before = dup(STDERR_FILENO);
    (void)close(before);
    assert_int_equal(listeners_open(&l, &s, NULL, NULL), ERR_IO);
    const int after = dup(STDERR_FILENO);
    (void)close(after);
    assert_int_equal(after, before);
    assert_int_not_equal(access(s.admin_unix, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_listened_on_in_its_order),
        cmocka_unit_test(ipv6_is_named_in_brackets),
        cmocka_unit_test(a_star_is_every_address_of_both_kinds),
        cmocka_unit_test_setup_teardown(the_administrators_come_first_and_are_theirs, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(tcp_alone_is_encrypted_and_not_for_administration, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_unix_socket_may_be_all_there_is, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(as_many_are_listened_on_as_are_polled, set_up, temp_dirs_end),
        cmocka_unit_test(what_cannot_be_listened_on_is_named),
        cmocka_unit_test(a_missing_comma_is_noticed),
        cmocka_unit_test(of_passed_sockets_public_tcp_alone_is_encrypted),
        cmocka_unit_test(monitors_have_addresses_of_their_own),
        cmocka_unit_test(only_its_own_sockets_are_closed),
        cmocka_unit_test_setup_teardown(a_file_that_was_replaced_is_noticed, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_check_opens_nothing, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(none_is_left_where_one_cannot_be_had, set_up, temp_dirs_end),
    };
    return cmocka_run_group_tests_name("listeners", tests, NULL, NULL);
}
