/* running.c - see running.h. */
#include "tests/support/running.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MEMBERS = 11 /* of a request */ };

json_t *running_list(const struct daemon *d)
{
    struct reply r;
    client_call(d, &(struct request){.path = "/admin/requests", .port = d->admin_port}, &r);
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.body, RUNNING_PROMPT));
    json_t *answer = reply_json(&r);
    reply_clear(&r);
    return answer;
}

const char *running_text(const json_t *request, const char *member)
{
    const char *text = json_string_value(json_object_get(request, member));
    return text != NULL ? text : "null";
}

double running_number(const json_t *request, const char *member)
{
    return json_number_value(json_object_get(request, member));
}

/* In the order of the list. Static memory. */
static const char *summary(const json_t *answer)
{
    static char text[1024];
    size_t used = 0, i;
    const json_t *request;
    text[0] = '\0';
    json_array_foreach(json_object_get(answer, "requests"), i, request)
    {
        assert_int_equal(json_object_size(request), MEMBERS);
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%s", i > 0 ? " " : "",
                                     running_text(request, "id"), running_text(request, "state"));
    }
    return text;
}

json_t *running_await(const struct daemon *d, const char *expected)
{
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(2)) {
        json_t *answer = running_list(d);
        if (strcmp(summary(answer), expected) == 0)
            return answer;
        if (test_now_ms() > end)
            fail_msg("the list is \"%s\", expected \"%s\"", summary(answer), expected);
        json_decref(answer);
    }
}

void running_cancel(const struct daemon *d, const char *id, struct reply *ret)
{
    char path[256];
    (void)snprintf(path, sizeof path, "/admin/requests/%s", id);
    client_call(d, &(struct request){.method = "DELETE", .path = path, .port = d->admin_port}, ret);
}

void running_cancel_well(const struct daemon *d, const char *id, const char *expected)
{
    struct reply r;
    running_cancel(d, id, &r);
    assert_int_equal(r.status, 202);
    json_t *answer = reply_json(&r);
    assert_string_equal(summary(answer), expected);
    json_decref(answer);
    reply_clear(&r);
}
