/* test_hosts.c - what a host is, which settings are lists of hosts, and which hosts such a list stands for. Requests
 * with all kinds of hosts are in tests/http/test_hosts.c. */
#include "server/request/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define LABEL_63 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk"

static void equal_hosts_have_equal_texts(void **state)
{
    static const struct {
        const char *text, *name; /* NULL: it is no host */
        bool is_address;
    } cases[] = {
        {"a", "a", false},
        {"A.Example", "a.example", false},
        {"a.example.", "a.example", false},
        {"a.example.:80", "a.example", false},
        {"a.example:", "a.example", false},
        {"a_b-c.1", "a_b-c.1", false},
        {"127.0.0.1", "127.0.0.1", true},
        {"127.0.0.1.:65535", "127.0.0.1", true},
        {"127.1", "127.1", false},
        {"1.2.3.256", "1.2.3.256", false},
        {"[::1]", "[::1]", true},
        {"[0:0::0001]:80", "[::1]", true},
        {"[FE80::AB%25eth0]", "[fe80::ab]", true},
        {"[::ffff:7f00:1]", "[::ffff:127.0.0.1]", true},
        {LABEL_63 ".a", LABEL_63 ".a", false},
        {"..", NULL, false},
        {"", NULL, false},
        {".", NULL, false},
        {"a..", NULL, false},
        {"a..b", NULL, false},
        {".a", NULL, false},
        {":80", NULL, false},
        {"a:65536", NULL, false},
        {"a:000080", NULL, false},
        {"a:8x", NULL, false},
        {"a:80:80", NULL, false},
        {"a b", NULL, false},
        {"a/", NULL, false},
        {"a@b", NULL, false},
        {"a%41", NULL, false},
        {"*.a", NULL, false},
        {"\xc3\xa4", NULL, false},
        {"::1", NULL, false},
        {"[::1", NULL, false},
        {"[::1]80", NULL, false},
        {"[::1]:80]", NULL, false},
        {"[]", NULL, false},
        {"[", NULL, false},
        {"[a]", NULL, false},
        {"[127.0.0.1]", NULL, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct host h = {.name = "untouched"};
        if (host_read(&h, cases[i].text, strlen(cases[i].text)) != (cases[i].name != NULL))
            fail_msg("\"%s\" is taken for the opposite of what it is", cases[i].text);
        assert_string_equal(h.name, cases[i].name != NULL ? cases[i].name : "untouched");
        assert_int_equal(h.is_address, cases[i].is_address);
    }
}

static void names_end_where_dns_has_no_more_room(void **state)
{
    char text[HOST_NAME_BYTES_MAX + 3];
    struct host h;
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 == 0 ? 'a' : '.';
    assert_true(host_read(&h, text, HOST_NAME_BYTES_MAX));
    assert_true(host_read(&h, text, HOST_NAME_BYTES_MAX + 1)); /* the root's dot */
    assert_false(host_read(&h, text, HOST_NAME_BYTES_MAX + 2));
    assert_false(host_read(&h, "a\0b", 3));
}

static void origins_are_read_as_browsers_write_them(void **state)
{
    static const struct {
        const char *origin, *name; /* NULL: it is none */
    } cases[] = {
        {"http://a.example", "a.example"},
        {"https://a.example:8443", "a.example"},
        {"HTTPS://A.example", "a.example"},
        {"http://[::1]:3000", "[::1]"},
        {"http://127.0.0.1", "127.0.0.1"},
        {"null", NULL},
        {"", NULL},
        {"a.example", NULL},
        {"http://", NULL},
        {"http:///", NULL},
        {"http://a.example/", NULL},
        {"http://a.example?", NULL},
        {"http://a@b", NULL},
        {"http://a http://b", NULL},
        {"ftp://a.example", NULL},
        {"//a.example", NULL},
        {"chrome-extension://abc", NULL},
        {"file://", NULL},
        {"http://a.example:80:80", NULL},
        {" http://a.example", NULL},
        {"http://a.example,http://b", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct host h = {.name = "untouched"};
        if (host_read_origin(&h, cases[i].origin) != (cases[i].name != NULL))
            fail_msg("\"%s\" is taken for the opposite of what it is", cases[i].origin);
        assert_string_equal(h.name, cases[i].name != NULL ? cases[i].name : "untouched");
    }
}

static void lists_name_hosts_and_nothing_else(void **state)
{
    static const char *const right[] = {"auto",      "*",           "a",
                                        "a.example", "*.a.example", "auto,a.example, *.b.example ,*",
                                        "localhost", "10.0.0.1",    "[::1]",
                                        "A.Example."},
                             *const wrong[] = {"",     ",",          "a,",           "a,,b",     "off",
                                               "a:80", "[::1]:80",   "http://a",     "a/b",      "*.",
                                               "*a",   "*.*.a",      "a.*",          "*.[::1]",  "*.10.0.0.1",
                                               "a b",  "a.example;", "user@example", "\xc3\xa4", "::1"};
    struct hosts h;
    struct error err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++)
        if (hosts_init(&h, right[i], "machine", &err) != OK)
            fail_msg("\"%s\": %s", right[i], err.message);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        if (hosts_init(&h, wrong[i], "machine", &err) != ERR_CONFIG)
            fail_msg("\"%s\" is accepted", wrong[i]);
        assert_string_equal(err.param, "hosts");
        assert_non_null(strstr(err.message, "expected the name of a host"));
    }
    assert_int_equal(hosts_init(&h, "a, b:80,c", "machine", &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "hosts has \"b:80\"; expected"));
}

static bool names(const char *list, const char *machine, const char *host)
{
    struct hosts h;
    struct host of;
    assert_int_equal(hosts_init(&h, list, machine, NULL), OK);
    assert_true(host_read(&of, host, strlen(host)));
    return hosts_name(&h, &of);
}

static bool serves(const char *list, const char *host)
{
    struct hosts h;
    struct host of;
    assert_int_equal(hosts_init(&h, list, "machine", NULL), OK);
    assert_true(host_read(&of, host, strlen(host)));
    return hosts_serve(&h, &of);
}

static void a_list_names_what_it_says(void **state)
{
    (void)state;
    assert_true(names("a.example", "", "A.Example.:80"));
    assert_true(names("x, A.example.", "", "a.example"));
    assert_false(names("a.example", "", "b.a.example"));
    assert_false(names("a.example", "", "a.example.b"));
    assert_false(names("a.example", "", "ba.example"));
    assert_true(names("*.a.example", "", "b.a.example"));
    assert_true(names("*.a.example", "", "c.b.A.example"));
    assert_false(names("*.a.example", "", "a.example"));
    assert_false(names("*.a.example", "", "ba.example"));
    assert_false(names("*.a.example", "", "b.a.example.c"));
    assert_true(names("10.0.0.1,[::1]", "", "10.0.0.1:80"));
    assert_true(names("10.0.0.1,[::1]", "", "[0::1]:80"));
    assert_false(names("*", "", "a"));
    assert_false(names("*", "", "127.0.0.1"));
    assert_false(names("a", "", "localhost"));
}

static void auto_names_the_machine(void **state)
{
    (void)state;
    assert_true(names("auto", "Box.lan.example", "box.lan.example"));
    assert_true(names("auto", "Box.lan.example", "box"));
    assert_true(names("auto", "Box.lan.example", "box.local:80"));
    assert_false(names("auto", "Box.lan.example", "lan.example"));
    assert_false(names("auto", "Box.lan.example", "box.lan"));
    assert_false(names("auto", "Box.lan.example", "box.lan.example.local"));
    assert_true(names("auto", "box", "box.local"));
    assert_true(names("a,auto", "box", "box"));
    assert_false(names("a", "box", "box"));
    assert_false(names("auto", "(none)", "none"));
    assert_false(names("auto", "", "local"));
    assert_false(names("auto", "10.0.0.1", "10.0.0.1"));
    assert_false(names("auto", "10.0.0.1", "10.local"));
}

static void addresses_and_localhost_are_served_whatever_the_list_says(void **state)
{
    static const char *const always[] = {"127.0.0.1", "10.1.2.3:80",   "[::1]",       "[2001:db8::1]:80",
                                         "localhost", "LOCALHOST.:80", "a.localhost", "a.b.localhost"},
                             *const others[] = {"b", "localhost.a", "alocalhost", "127.0.0.1.a", "127.1", "a.a"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        assert_true(serves("a", always[i]));
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_false(serves("a", others[i]));
        assert_true(serves("*", others[i]));
        assert_true(serves("a,*", others[i]));
    }
    assert_true(serves("a", "a"));
    assert_true(serves("auto", "machine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_hosts_have_equal_texts),
        cmocka_unit_test(names_end_where_dns_has_no_more_room),
        cmocka_unit_test(origins_are_read_as_browsers_write_them),
        cmocka_unit_test(lists_name_hosts_and_nothing_else),
        cmocka_unit_test(a_list_names_what_it_says),
        cmocka_unit_test(auto_names_the_machine),
        cmocka_unit_test(addresses_and_localhost_are_served_whatever_the_list_says),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
