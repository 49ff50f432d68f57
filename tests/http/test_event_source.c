/* test_event_source.c - GET /generate, for browsers' EventSource: the text is that of a POST, a stream that has ended
 * is not begun again, and no page has anything computed that may not. That a real one closes is in tests/clients.
 * The real daemon with the shipped text model. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GENERATED "aftd_generated_bytes_total"

enum { LIMIT_S = 60, TEXT_MAX = 1000 };

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--cors-origins=https://friend.example", NULL});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_stop(&aftd);
    return 0;
}

static void get(const char *path, const char *const headers[], struct reply *ret)
{
    client_call(&aftd, &(struct request){.path = path, .headers = headers}, ret);
}

/* The text that the events give, whose last must tell that it is the end; and how many of them tell an id. */
static unsigned read_events(const struct reply *r, char text[TEXT_MAX])
{
    unsigned ids = 0;
    bool ended = false;
    text[0] = '\0';
    for (const char *at = r->body; *at != '\0'; at = strchr(at, '\n') + 1) {
        assert_non_null(strchr(at, '\n'));
        ids += strncmp(at, "id: ", 4) == 0;
        if (strncmp(at, "data: ", 6) != 0)
            continue;
        assert_false(ended);
        json_t *event = json_loadb(at + 6, strcspn(at + 6, "\n"), 0, NULL);
        assert_non_null(event);
        if (json_object_get(event, "text") != NULL)
            strncat(text, json_string_value(json_object_get(event, "text")), TEXT_MAX - strlen(text) - 1);
        ended = json_object_get(event, "finish_reason") != NULL;
        json_decref(event);
    }
    assert_true(ended);
    return ids;
}

static void the_text_is_that_of_a_post(void **state)
{
    static const struct {
        const char *query, *body;
    } cases[] = {
        {"prompt=The+history%20of%20&max_tokens=30&seed=5&temperature=0.7",
         "{\"prompt\": \"The history of \", \"max_tokens\": 30, \"seed\": 5, \"temperature\": 0.7}"},
        {"prompt=Caf%C3%A9&max_tokens=20&seed=1&utf8=true&top_k=5&min_p=0.01&stop=12&model=enwik8-aft-local",
         "{\"prompt\": \"Caf\u00e9\", \"max_tokens\": 20, \"seed\": 1, \"utf8\": true, \"top_k\": 5, \"min_p\": 0.01, "
         "\"stop\": \"12\"}"},
        {"prompt=&max_tokens=20&seed=2&allowed_bytes=0123456789&context_overflow=stop&priority=low&echo=true",
         "{\"max_tokens\": 20, \"seed\": 2, \"allowed_bytes\": \"0123456789\"}"},
        {"prompt_base64=VGhlIA%3D%3D&max_tokens=20&seed=3", "{\"prompt\": \"The \", \"max_tokens\": 20, \"seed\": 3}"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[500], type[64], text[TEXT_MAX];
        struct reply streamed, whole;
        (void)snprintf(path, sizeof path, "/generate?%s", cases[i].query);
        get(path, NULL, &streamed);
        if (streamed.status != 200)
            fail_msg("%s: %s", path, streamed.body);
        assert_true(reply_header(&streamed, "Content-Type", type, sizeof type));
        assert_string_equal(type, "text/event-stream");
        client_call(&aftd, &(struct request){.path = "/generate", .body = cases[i].body, .size = strlen(cases[i].body)},
                    &whole);
        json_t *answer = reply_json(&whole);
        assert_int_equal(read_events(&streamed, text), 1);
        assert_string_equal(text, json_string_value(json_object_get(answer, "text")));
        json_decref(answer);
        reply_clear(&streamed);
        reply_clear(&whole);
    }
}

/* The id is the request's, and comes with the first event, so that a browser that has had any never begins anew. */
static void the_first_event_tells_the_requests_id(void **state)
{
    static const char *const named[] = {"X-Request-Id: my-own.1", NULL};
    struct reply r;
    (void)state;
    get("/generate?prompt=x&max_tokens=3", named, &r);
    assert_int_equal(strncmp(r.body, "id: my-own.1\ndata: {\"text\":", 27), 0);
    reply_clear(&r);
    static const char body[] = "{\"prompt\": \"x\", \"max_tokens\": 3, \"stream\": true}"; /* POST is as it was */
    client_call(&aftd, &(struct request){.path = "/generate", .body = body, .size = sizeof body - 1}, &r);
    assert_null(strstr(r.body, "id:"));
    reply_clear(&r);
}

static void a_stream_that_ended_is_not_begun_again(void **state)
{
    static const char *const again[] = {"Last-Event-ID: my-own.1", "Accept: text/event-stream", NULL};
    static const char *const paths[] = {"/generate?prompt=x&max_tokens=3", "/generate?prompt=x&max_tokens=4"};
    const double before = client_metric(&aftd, GENERATED);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        char cached[64];
        struct reply r;
        get(paths[i], again, &r);
        assert_int_equal(r.status, 204);
        assert_int_equal(r.size, 0);
        assert_true(reply_header(&r, "Cache-Control", cached, sizeof cached));
        assert_string_equal(cached, "no-cache");
        reply_clear(&r);
    }
    assert_true(client_metric(&aftd, GENERATED) == before);
}

static void what_is_wrong_with_a_query_is_said(void **state)
{
    static const struct {
        const char *query, *param, *says;
    } cases[] = {
        {"", "prompt", "\"prompt\" is missing"},
        {"?max_tokens=3", "prompt", "\"prompt\" is missing"},
        {"?prompt=x&max_tokens=0", "max_tokens", "\"max_tokens\" is 0; expected a whole number from 1"},
        {"?prompt=x&max_tokens=many", "max_tokens", "expected a whole number"},
        {"?prompt=x&temperature=101", "temperature", "a number from 0 to 100"},
        {"?prompt=x&prompt=y", "prompt", "given twice"},
        {"?prompt=x&prompt_base64=eA%3D%3D", NULL, "prompt_base64"},
        {"?prompt=%ff", "prompt", "not UTF-8"},
        {"?prompt=x&stop=", "stop", "\"stop\" is empty"},
        {"?prompt=x&maxtokens=3", "maxtokens", "did you mean \"max_tokens\"?"},
        {"?prompt=x&session=0123", "session", "there is no parameter \"session\" here"},
        {"?prompt=x&stream=false", "stream", "there is no parameter \"stream\" here"},
        {"?prompt=x&n=65", "n", "from 1 to 64"},
        {"?prompt=x&priority=urgent", "priority", "\"high\""},
        {"?prompt=x&model=cifar10-aft-conv", "model", "cifar10-aft-conv"},
    };
    const double before = client_metric(&aftd, GENERATED);
    char path[HTTP_URL_MAX + 100];
    struct reply r;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(path, sizeof path, "/generate%s", cases[i].query);
        get(path, NULL, &r);
        reply_assert_error(&r, 400, "invalid_value", cases[i].param, cases[i].says);
        reply_clear(&r);
    }
    (void)snprintf(path, sizeof path, "/generate?prompt=%0*d", HTTP_URL_MAX, 0);
    get(path, NULL, &r);
    reply_assert_error(&r, 400, "invalid_value", NULL, "2048");
    reply_clear(&r);
    assert_true(client_metric(&aftd, GENERATED) == before);
}

/* Links, pictures and frames on pages of others make browsers send a GET without an Origin. */
static void only_pages_that_may_have_something_computed(void **state)
{
    static const struct {
        const char *const headers[4];
        long status;
        const char *param;
    } cases[] = {
        {{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", NULL}, 403, "Sec-Fetch-Site"},
        {{"Sec-Fetch-Site: same-site", NULL}, 403, "Sec-Fetch-Site"},
        {{"Sec-Fetch-Site: cross-site", "Origin: https://friend.example", NULL}, 200, NULL},
        {{"Sec-Fetch-Site: cross-site", "Origin: https://stranger.example", NULL}, 403, "Origin"},
        {{"Sec-Fetch-Site: same-origin", NULL}, 200, NULL},
        {{"Sec-Fetch-Site: none", NULL}, 200, NULL},
        {{NULL}, 200, NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        char allowed[64];
        get("/generate?prompt=x&max_tokens=1", cases[i].headers, &r);
        if (cases[i].status == 200)
            assert_int_equal(r.status, 200);
        else
            reply_assert_error(&r, cases[i].status, "not_allowed", cases[i].param, NULL);
        assert_int_equal(reply_header(&r, "Access-Control-Allow-Origin", allowed, sizeof allowed), i == 2);
        reply_clear(&r);
    }
}

static void a_head_has_nothing_computed(void **state)
{
    const double before = client_metric(&aftd, GENERATED);
    char type[64];
    struct reply r;
    (void)state;
    client_call(&aftd, &(struct request){.method = "HEAD", .path = "/generate?prompt=x&max_tokens=3"}, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.size, 0);
    assert_true(reply_header(&r, "Content-Type", type, sizeof type));
    assert_string_equal(type, "text/event-stream");
    reply_clear(&r);
    client_call(&aftd, &(struct request){.method = "HEAD", .path = "/generate"}, &r);
    assert_int_equal(r.status, 400);
    reply_clear(&r);
    assert_true(client_metric(&aftd, GENERATED) == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_that_of_a_post),
        cmocka_unit_test(the_first_event_tells_the_requests_id),
        cmocka_unit_test(a_stream_that_ended_is_not_begun_again),
        cmocka_unit_test(what_is_wrong_with_a_query_is_said),
        cmocka_unit_test(only_pages_that_may_have_something_computed),
        cmocka_unit_test(a_head_has_nothing_computed),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("GET /generate", tests, start, stop);
}
