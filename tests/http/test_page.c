/* test_page.c - the page's files as the daemon serves them: what they are, what a browser may do with them, that
 * one which was not changed is not sent twice, that they ask nobody else. What the page does is tests/page's. The real
 * daemon over loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, PAGE_BYTES_MAX = 120000 };

static struct daemon aftd;

static const struct {
    const char *path, *type, *says; /* says: part of it; NULL: it is no text */
} files[] = {
    {"/", "text/html; charset=utf-8", "<!doctype html>"},
    {"/page/page.css", "text/css; charset=utf-8", "prefers-color-scheme"},
    {"/page/page.js", "text/javascript; charset=utf-8", "import"},
    {"/page/api.js", "text/javascript; charset=utf-8", "export"},
    {"/page/elements.js", "text/javascript; charset=utf-8", "export"},
    {"/page/keep.js", "text/javascript; charset=utf-8", "export"},
    {"/page/models.js", "text/javascript; charset=utf-8", "export"},
    {"/page/picture.js", "text/javascript; charset=utf-8", "export"},
    {"/page/sending.js", "text/javascript; charset=utf-8", "export"},
    {"/page/classify.js", "text/javascript; charset=utf-8", "\"classify\""},
    {"/page/generate.js", "text/javascript; charset=utf-8", "\"generate\""},
    {"/page/going_on.js", "text/javascript; charset=utf-8", "export"},
    {"/page/coloured.js", "text/javascript; charset=utf-8", "export"},
    {"/page/command.js", "text/javascript; charset=utf-8", "export"},
    {"/page/revisions.js", "text/javascript; charset=utf-8", "export"},
    {"/page/complete.js", "text/javascript; charset=utf-8", "\"complete\""},
    {"/page/many.js", "text/javascript; charset=utf-8", "export"},
    {"/page/score.js", "text/javascript; charset=utf-8", "\"score\""},
    {"/page/surprise.js", "text/javascript; charset=utf-8", "\"score\""},
    {"/page/maps.js", "text/javascript; charset=utf-8", "export"},
    {"/page/seen.js", "text/javascript; charset=utf-8", "export"},
    {"/page/label.js", "text/javascript; charset=utf-8", "\"classify\""},
    {"/page/labels.js", "text/javascript; charset=utf-8", "export"},
    {"/page/live.js", "text/javascript; charset=utf-8", "\"metrics\""},
    {"/page/icon.svg", "image/svg+xml", "<svg"},
    {"/page/sample.jpg", "image/jpeg", NULL},
};

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    return 0;
}

static void assert_header(const struct reply *r, const char *name, const char *want)
{
    char value[512] = "";
    assert_true(reply_header(r, name, value, sizeof value));
    assert_string_equal(value, want);
}

static void every_file_is_served_with_a_strict_policy(void **state)
{
    size_t all = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct reply r;
        print_message("  %s\n", files[i].path);
        client_get(&aftd, files[i].path, &r);
        assert_int_equal(r.status, 200);
        assert_header(&r, "Content-Type", files[i].type);
        assert_header(&r, "Cache-Control", "no-cache");
        assert_header(&r, "X-Content-Type-Options", "nosniff");
        assert_header(&r, "Referrer-Policy", "no-referrer");
        assert_header(&r, "Content-Security-Policy",
                      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
                      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        if (files[i].says != NULL)
            assert_non_null(strstr(r.body, files[i].says));
        all += r.size;
        reply_clear(&r);
    }
    assert_in_range(all, 1, PAGE_BYTES_MAX);
}

/* The policy would block requests to others; the page must not even try. The only foreign address is SVG's namespace.
 * */
static void no_file_names_another_server(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct reply r;
        client_get(&aftd, files[i].path, &r);
        for (const char *at = r.body; files[i].says != NULL && (at = strstr(at, "://")) != NULL; at++)
            if (strncmp(at, "://www.w3.org/2000/svg\"", 23) != 0)
                fail_msg("%s: ...%.40s", files[i].path, at);
        reply_clear(&r);
    }
}

static void a_file_that_did_not_change_is_not_sent_again(void **state)
{
    double unchanged = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char tag[128] = "", other[128] = "";
        struct reply r;
        client_get(&aftd, files[i].path, &r);
        assert_true(reply_header(&r, "ETag", tag, sizeof tag));
        assert_true(strlen(tag) == 34 && tag[0] == '"' && tag[33] == '"');
        reply_clear(&r);
        static const char *const forms[] = {"%s", "W/%s", "\"a\", %s", "*%.0s", "\"a\"%.0s", "\"\"%.0s"};
        for (size_t k = 0; k < ARRAY_LEN(forms); k++) {
            char value[200], header[256];
            (void)snprintf(value, sizeof value, forms[k], tag); /* NOLINT(clang-diagnostic-format-nonliteral) */
            (void)snprintf(header, sizeof header, "If-None-Match: %s", value);
            const char *const headers[] = {header, NULL};
            client_call(&aftd, &(struct request){.path = files[i].path, .headers = headers}, &r);
            assert_int_equal(r.status, k < 4 ? 304 : 200);
            assert_int_equal(r.size == 0, k < 4);
            assert_true(reply_header(&r, "ETag", other, sizeof other));
            assert_string_equal(other, tag);
            unchanged += i > 0 && k < 4 ? 1 : 0; /* the first has a path of its own */
            reply_clear(&r);
        }
    }
    (void)client_await_metric(&aftd, "aftd_requests_total{endpoint=\"/page/{}\",model=\"none\",status=\"304\"}",
                              unchanged, HANG_MS);
}

static void head_tells_the_size(void **state)
{
    struct reply r;
    char bytes[32] = "";
    (void)state;
    client_call(&aftd, &(struct request){.method = "HEAD", .path = "/"}, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.size, 0);
    assert_true(reply_header(&r, "Content-Length", bytes, sizeof bytes));
    assert_true(strtol(bytes, NULL, 10) > 1000);
    reply_clear(&r);
}

static void other_names_are_not_found(void **state)
{
    static const char *const paths[] = {"/page/",         "/page/no.js",      "/page/..%2fpage.js",
                                        "/page/page.js/", "/page/index.html", "/index.html"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct reply r;
        client_get(&aftd, paths[i], &r);
        reply_assert_error(&r, 404, "not_found", NULL, "there is nothing at");
        reply_clear(&r);
    }
}

static void the_page_can_be_switched_off(void **state)
{
    static const char *const flags[] = {"--page=false", NULL};
    static struct daemon bare;
    (void)state;
    daemon_start(&bare, flags);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct reply r;
        client_get(&bare, files[i].path, &r);
        reply_assert_error(&r, 404, "not_found", NULL, "the page is switched off");
        reply_clear(&r);
    }
    daemon_stop(&bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_is_served_with_a_strict_policy),
        cmocka_unit_test(no_file_names_another_server),
        cmocka_unit_test(a_file_that_did_not_change_is_not_sent_again),
        cmocka_unit_test(head_tells_the_size),
        cmocka_unit_test(other_names_are_not_found),
        cmocka_unit_test(the_page_can_be_switched_off),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
