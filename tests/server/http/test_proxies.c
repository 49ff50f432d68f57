/* test_proxies.c - which proxies are believed, and whom they say a request came from. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "server/http/proxies.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

/* ---- addresses -------------------------------------------------------------------------------------------------- */

static struct proxies_address address(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const struct sockaddr local = {.sa_family = AF_UNIX};
    struct proxies_address ret = {.family = AF_UNSPEC};
    if (strcmp(text, "unix") == 0)
        proxies_address_of(&ret, &local);
    else if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        proxies_address_of(&ret, (struct sockaddr *)&v4);
    else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        proxies_address_of(&ret, (struct sockaddr *)&v6);
    else
        fail_msg("%s is no address", text);
    return ret;
}

static void addresses_are_described(void **state)
{
    const struct sockaddr other = {.sa_family = AF_UNSPEC};
    static const char *const cases[][2] = {{"192.0.2.1", "192.0.2.1"},
                                           {"2001:db8::1", "2001:db8::1"},
                                           {"unix", "unix"},
                                           {"::ffff:192.0.2.1", "192.0.2.1"}};
    struct proxies_address a;
    char out[INET6_ADDRSTRLEN];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        a = address(cases[i][0]);
        proxies_print_address(&a, out);
        assert_string_equal(out, cases[i][1]);
    }
    proxies_address_of(&a, &other);
    proxies_print_address(&a, out);
    assert_string_equal(out, "unknown");
    proxies_address_of(&a, NULL);
    proxies_print_address(&a, out);
    assert_string_equal(out, "unknown");
}

static void a_client_is_an_ipv4_address_or_64_bits_of_an_ipv6_one(void **state)
{
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        {"192.0.2.1", "192.0.2.1", true},
        {"192.0.2.1", "192.0.2.2", false},
        {"192.0.2.1", "::ffff:192.0.2.1", true},
        {"2001:db8::1", "2001:db8::ffff:1", true},
        {"2001:db8::1", "2001:db8:0:1::1", false},
        {"unix", "unix", true},
        {"unix", "0.0.0.0", false},
        {"::", "0.0.0.0", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct proxies_address one = address(cases[i].one), other = address(cases[i].other);
        const struct client_id a = proxies_client_id(&one), b = proxies_client_id(&other);
        assert_int_equal(client_id_is_same(&a, &b), cases[i].same);
    }
}

/* ---- the setting ------------------------------------------------------------------------------------------------ */

static void networks_hold_what_is_in_them(void **state)
{
    static const struct {
        const char *setting, *address;
        bool trusted;
    } cases[] = {
        {"off", "127.0.0.1", false},
        {"off", "unix", false},
        {"unix", "unix", true},
        {"unix", "127.0.0.1", false},
        {"127.0.0.1", "unix", false},
        {"127.0.0.1", "127.0.0.1", true},
        {"127.0.0.1", "127.0.0.2", false},
        {"127.0.0.1", "::ffff:127.0.0.1", true},
        {"::ffff:127.0.0.1", "127.0.0.1", true},
        {"10.0.0.0/8", "10.255.0.1", true},
        {"10.0.0.0/8", "11.0.0.1", false},
        {"172.16.0.0/12", "172.31.255.255", true},
        {"172.16.0.0/12", "172.32.0.0", false},
        {"192.0.2.128/25", "192.0.2.127", false},
        {"192.0.2.128/25", "192.0.2.128", true},
        {"192.0.2.1/32", "192.0.2.1", true},
        {"192.0.2.1/32", "192.0.2.0", false},
        {"0.0.0.0/0", "203.0.113.9", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"::/0", "2001:db8::1", true},
        {"::/0", "203.0.113.9", false},
        {"::ffff:10.0.0.0/104", "10.1.2.3", true},
        {"2001:db8::/33", "2001:db8:7fff::1", true},
        {"2001:db8::/33", "2001:db8:8000::1", false},
        {" 192.0.2.1 ,\t2001:db8::/32,unix ", "2001:db8::1", true},
        {" 192.0.2.1 ,\t2001:db8::/32,unix ", "unix", true},
        {" 192.0.2.1 ,\t2001:db8::/32,unix ", "192.0.2.2", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct proxies p;
        struct error err;
        const struct proxies_address a = address(cases[i].address);
        if (proxies_parse(&p, cases[i].setting, &err) != OK)
            fail_msg("%s: %s", cases[i].setting, err.message);
        if (proxies_trust(&p, &a) != cases[i].trusted)
            fail_msg("%s, %s", cases[i].setting, cases[i].address);
    }
}

static void what_is_no_network_is_said(void **state)
{
    static const struct {
        const char *setting, *says;
    } cases[] = {
        {"localhost", "\"localhost\": expected an address, or a network"},
        {"10.0.0.0/33", "\"10.0.0.0/33\": expected"},
        {"10.0.0.0/", "\"10.0.0.0/\": expected"},
        {"10.0.0.0/-1", "expected an address"},
        {"10.0.0.0/8/8", "expected an address"},
        {"10.0.0.0/0008", "expected an address"},
        {"/8", "expected an address"},
        {"10.0.0", "expected an address"},
        {"010.0.0.1", "expected an address"},
        {"10.0.0.1:80", "expected an address"},
        {"[::1]", "expected an address"},
        {"fe80::1%lo", "expected an address"},
        {"::/129", "expected an address"},
        {"::ffff:10.0.0.0/95", "expected an address"},
        {"10.0.0.1/8", "a network by its first one"},
        {"2001:db8::1/64", "a network by its first one"},
        {"::ffff:10.0.0.1/104", "a network by its first one"},
        {"127.0.0.1,", "\"\": expected"},
        {",127.0.0.1", "\"\": expected"},
        {"127.0.0.1,off", "\"off\": expected"},
        {"UNIX", "\"UNIX\": expected"},
        {"1.1.1.1111111111111111111111111111111111111111111111111111111111111111", "expected an address"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct proxies p;
        struct error err;
        if (proxies_parse(&p, cases[i].setting, &err) != ERR_CONFIG)
            fail_msg("%s was taken", cases[i].setting);
        assert_string_equal(err.param, "trusted_proxies");
        if (strstr(err.message, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].setting, err.message);
    }
}

static void networks_are_bounded(void **state)
{
    char text[TRUSTED_PROXIES_MAX * 4 + 8] = "::1";
    struct proxies p;
    struct error err;
    (void)state;
    for (size_t i = 1; i < TRUSTED_PROXIES_MAX; i++)
        memcpy(&text[i * 4 - 1], ",::1", 5);
    assert_int_equal(proxies_parse(&p, text, &err), OK);
    memcpy(&text[TRUSTED_PROXIES_MAX * 4 - 1], ",::1", 5);
    assert_int_equal(proxies_parse(&p, text, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "at most"));
}

/* ---- headers ---------------------------------------------------------------------------------------------------- */

#define TRUSTED "10.0.0.0/8,2001:db8::/32,unix"

static const struct {
    const char *peer, *x_forwarded_for, *client;
} requests[] = {
    {"10.0.0.1", NULL, "10.0.0.1"},
    /* only who is trusted is believed */
    {"192.0.2.1", "1.1.1.1", "192.0.2.1"},
    {"10.0.0.1", "192.0.2.1", "192.0.2.1"},
    {"unix", "192.0.2.1", "192.0.2.1"},
    {"::ffff:10.0.0.1", "192.0.2.1", "192.0.2.1"},
    {"10.0.0.1", "6.6.6.6, 192.0.2.1", "192.0.2.1"},
    {"10.0.0.1", "6.6.6.6, 192.0.2.1, 10.0.0.2", "192.0.2.1"},
    {"10.0.0.1", "6.6.6.6,192.0.2.1,2001:db8::7,10.0.0.2", "192.0.2.1"},
    {"10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"},
    {"10.0.0.1", "6.6.6.6|192.0.2.1, 10.0.0.3|10.0.0.2", "192.0.2.1"},
    {"10.0.0.1", "10.0.0.3|10.0.0.2", "10.0.0.3"},
    {"10.0.0.1", "10.0.0.1, 10.0.0.2", "10.0.0.1"},
    {"10.0.0.1", "192.0.2.1\t,\t10.0.0.2", "192.0.2.1"},
    {"10.0.0.1", "192.0.2.1,192.0.2.2,10.0.0.2,10.0.0.3", "192.0.2.2"},
    {"2001:db8::1", "2001:db8::2, 6.6.6.6|2001:db9::1|2001:db8::3", "2001:db9::1"},
    /* ports and brackets */
    {"10.0.0.1", "192.0.2.1:1234", "192.0.2.1"},
    {"10.0.0.1", "[2001:db9::1]:1234", "2001:db9::1"},
    {"10.0.0.1", "[2001:db9::1]", "2001:db9::1"},
    {"10.0.0.1", "2001:db9::1", "2001:db9::1"},
    {"10.0.0.1", "::ffff:192.0.2.1", "192.0.2.1"},
    /* what is no address ends the walk where it is */
    {"10.0.0.1", "", "10.0.0.1"},
    {"10.0.0.1", "unknown", "10.0.0.1"},
    {"10.0.0.1", "6.6.6.6, example.org, 10.0.0.2", "10.0.0.2"},
    {"10.0.0.1", "6.6.6.6, , 10.0.0.2", "10.0.0.2"},
    {"10.0.0.1", "6.6.6.6,", "10.0.0.1"},
    {"10.0.0.1", "6.6.6.6|", "10.0.0.1"},
    {"10.0.0.1", "6.6.6.6|unknown|10.0.0.3, 10.0.0.2", "10.0.0.3"},
    {"10.0.0.1", "unknown, 192.0.2.1", "192.0.2.1"},
    {"10.0.0.1", "unix, 10.0.0.2", "10.0.0.2"},
    {"10.0.0.1", ":80", "10.0.0.1"},
    {"10.0.0.1", "[", "10.0.0.1"},
    {"10.0.0.1", "[]:80", "10.0.0.1"},
    {"10.0.0.1", "[2001:db9::1]:", "10.0.0.1"},
    {"10.0.0.1", "2001:db9::1]", "10.0.0.1"},
    {"10.0.0.1", "for=192.0.2.1", "10.0.0.1"},
    {"10.0.0.1", "192.0.2.1:", "10.0.0.1"},
    {"10.0.0.1", "192.0.2.1:123456", "10.0.0.1"},
    {"10.0.0.1", "192.0.2.1:8o", "10.0.0.1"},
    {"10.0.0.1", "[2001:db9::1", "10.0.0.1"},
    {"10.0.0.1", "[2001:db9::1]1", "10.0.0.1"},
    {"10.0.0.1", "[192.0.2.1]", "10.0.0.1"},
    {"10.0.0.1", "[]", "10.0.0.1"},
    {"10.0.0.1", "192.0.2.1 6.6.6.6", "10.0.0.1"},
    {"10.0.0.1", "192.0.2.1/32", "10.0.0.1"},
    {"10.0.0.1", "\"6.6.6.6, 192.0.2.1", "192.0.2.1"},
    {"10.0.0.1", "\"192.0.2.1\"", "10.0.0.1"},
};

/* The values of the headers have '|' between them here. */
static void expect_client(const char *trusted, const char *peer, const char *values, const char *want)
{
    struct proxies p;
    char text[256], out[INET6_ADDRSTRLEN];
    struct proxies_address client = address(peer), named = {.family = AF_UNSPEC};
    assert_int_equal(proxies_parse(&p, trusted, NULL), OK);
    (void)snprintf(text, sizeof text, "%s", values != NULL ? values : "");
    char *rest = values != NULL && proxies_trust(&p, &client) ? text : NULL;
    for (const char *value; (value = strsep(&rest, "|")) != NULL;)
        proxies_read_forwarded(&p, &named, value);
    proxies_print_address(named.family != AF_UNSPEC ? &named : &client, out);
    if (strcmp(out, want) != 0)
        fail_msg("%s, X-Forwarded-For: %s: expected %s, got %s", peer, values, want, out);
}

static void the_client_is_who_the_proxies_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        expect_client(TRUSTED, requests[i].peer, requests[i].x_forwarded_for, requests[i].client);
}

static void nobody_is_believed_by_default(void **state)
{
    static const char *const peers[] = {"127.0.0.1", "::1", "unix"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(peers); i++)
        expect_client(PROXIES_OFF, peers[i], "192.0.2.1", peers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_described),
        cmocka_unit_test(a_client_is_an_ipv4_address_or_64_bits_of_an_ipv6_one),
        cmocka_unit_test(networks_hold_what_is_in_them),
        cmocka_unit_test(what_is_no_network_is_said),
        cmocka_unit_test(networks_are_bounded),
        cmocka_unit_test(the_client_is_who_the_proxies_say),
        cmocka_unit_test(nobody_is_believed_by_default),
    };
    return cmocka_run_group_tests_name("proxies", tests, NULL, NULL);
}
