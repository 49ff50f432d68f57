/* test_event_source.c - GET /generate, for browsers' EventSource: the text is that of a POST, a stream that has ended
 * is not begun again, and no page has anything computed that may not. That a real one closes is in tests/clients.
 * The real daemon with a text model. */
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

enum { LIMIT_S = 580, TEXT_MAX = 1000, ID_MAX = 100 };

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--cors-origins=https://friend.example", NULL});
    return 0;
}

static void get(const char *path, const char *const headers[], struct reply *ret)
{
    client_call(&aftd, &(struct request){.path = path, .headers = headers}, ret);
}

/* The text that the events give, whose last must tell that it is the end; each has an id. */
static void read_events(const struct reply *r, char text[TEXT_MAX])
{
    bool ended = false, has_id = false;
    text[0] = '\0';
    for (const char *at = r->body; *at != '\0'; at = strchr(at, '\n') + 1) {
        assert_non_null(strchr(at, '\n'));
        has_id |= strncmp(at, "id: ", 4) == 0;
        if (strncmp(at, "data: ", 6) != 0)
            continue;
        assert_true(has_id && !ended);
        has_id = false;
        json_t *event = json_loadb(at + 6, strcspn(at + 6, "\n"), 0, NULL);
        assert_non_null(event);
        if (json_object_get(event, "text") != NULL)
            strncat(text, json_string_value(json_object_get(event, "text")), TEXT_MAX - strlen(text) - 1);
        ended = json_object_get(event, "finish_reason") != NULL;
        json_decref(event);
    }
    assert_true(ended);
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
        read_events(&streamed, text);
        assert_string_equal(text, json_string_value(json_object_get(answer, "text")));
        json_decref(answer);
        reply_clear(&streamed);
        reply_clear(&whole);
    }
}

static void last_id(const struct reply *r, char id[ID_MAX])
{
    const char *at = r->body;
    for (const char *next; (next = strstr(at + 1, "id: ")) != NULL;)
        at = next;
    (void)snprintf(id, ID_MAX, "%.*s", (int)strcspn(at + 4, "\n"), at + 4);
}

/* GET with Last-Event-ID. */
static void get_after(const char *path, const char *id, struct reply *ret)
{
    char header[ID_MAX + 20];
    (void)snprintf(header, sizeof header, "Last-Event-ID: %s", id);
    get(path, (const char *const[]){header, "Accept: text/event-stream", NULL}, ret);
}

static void a_stream_that_broke_goes_on(void **state)
{
    static const char path[] = "/generate?prompt=x&max_tokens=40";
    char text[TEXT_MAX], rest[TEXT_MAX], id[ID_MAX], from[HTTP_URL_MAX];
    struct reply r;
    (void)state;
    get(path, NULL, &r);
    assert_int_equal(strncmp(r.body, "id: ", 4), 0);
    (void)snprintf(id, sizeof id, "%.*s", (int)strcspn(r.body + 4, "\n"), r.body + 4); /* of the first event */
    read_events(&r, text);
    reply_clear(&r);
    get_after(path, id, &r); /* whose seed the daemon has chosen */
    read_events(&r, rest);
    assert_in_range(strlen(rest), 1, strlen(text) - 1);
    assert_string_equal(text + strlen(text) - strlen(rest), rest);
    reply_clear(&r);
    (void)snprintf(from, sizeof from, "%s&from=%s", path, id); /* as a page does that knows where it was */
    get(from, NULL, &r);
    read_events(&r, rest);
    assert_string_equal(text + strlen(text) - strlen(rest), rest);
    reply_clear(&r);
    get_after("/generate?prompt=y&max_tokens=40", id, &r);
    reply_assert_error(&r, 409, "conflict", "Last-Event-ID", "another request's");
    reply_clear(&r);
    get_after(path, "my-own.1", &r);
    reply_assert_error(&r, 400, "invalid_value", "Last-Event-ID", "\"my-own.1\"");
    reply_clear(&r);
}

static void a_stream_that_ended_is_not_begun_again(void **state)
{
    static const char *const paths[] = {"/generate?prompt=x&max_tokens=3", "/generate?prompt=x&max_tokens=3&n=2"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        char cached[64], id[ID_MAX];
        struct reply r;
        get(paths[i], NULL, &r);
        last_id(&r, id);
        reply_clear(&r);
        const double before = client_metric(&aftd, GENERATED);
        get_after(paths[i], id, &r);
        assert_int_equal(r.status, 204);
        assert_int_equal(r.size, 0);
        assert_true(reply_header(&r, "Cache-Control", cached, sizeof cached));
        assert_string_equal(cached, "no-cache");
        reply_clear(&r);
        assert_true(client_metric(&aftd, GENERATED) == before);
    }
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
        {"?prompt=x&moves=2", "moves", "true or false"},
        {"?prompt=x&moves=true&n=2", "moves", "several texts"},
        {"?prompt=x&from=", "from", "1 to 80 bytes"},
        {"?prompt=x&from=0123", "from", "expected the id of an event"},
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
    reply_assert_error(&r, 414, "url_too_long", NULL, "2048");
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
        cmocka_unit_test(a_stream_that_broke_goes_on),
        cmocka_unit_test(a_stream_that_ended_is_not_begun_again),
        cmocka_unit_test(what_is_wrong_with_a_query_is_said),
        cmocka_unit_test(only_pages_that_may_have_something_computed),
        cmocka_unit_test(a_head_has_nothing_computed),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("GET /generate", tests, start, daemons_end);
}
