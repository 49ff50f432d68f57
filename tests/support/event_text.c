/* event_text.c - see event_text.h. The request is of HTTP/1.0, so that the answer has no chunks. */
#include "tests/support/event_text.h"

#include <nettle/base64.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/generation.h"
#include "tests/support/raw_socket.h"

enum { ANSWER_BYTES = 1 << 24 };

void event_text_init(struct event_text *t)
{
    *t = (struct event_text){.text = strdup(""), .bytes = json_array(), .logprobs = json_array()};
    assert_non_null(t->text);
}

void event_text_clear(struct event_text *t)
{
    free(t->text);
    json_decref(t->bytes);
    json_decref(t->logprobs);
    json_decref(t->last);
    *t = (struct event_text){.text = NULL};
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static void add_bytes(struct event_text *t, const char *base64, size_t tokens)
{
    uint8_t bytes[8192];
    size_t size = sizeof bytes;
    struct base64_decode_ctx context;
    base64_decode_init(&context);
    assert_true(BASE64_DECODE_LENGTH(strlen(base64)) <= sizeof bytes);
    assert_int_equal(base64_decode_update(&context, &size, bytes, strlen(base64), base64), 1);
    assert_int_equal(base64_decode_final(&context), 1);
    assert_true(size >= tokens);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(json_array_append_new(t->bytes, json_integer(bytes[i])), 0);
}

static void add_event(struct event_text *t, json_t *event)
{
    const json_t *text = json_object_get(event, "text"), *bytes = json_object_get(event, "bytes_base64"),
                 *logprobs = json_object_get(event, "logprobs");
    assert_null(t->last); /* nothing comes after it */
    t->events++;
    if (text == NULL) {
        t->last = json_incref(event);
        return;
    }
    const size_t more = json_string_length(text);
    t->text = realloc(t->text, t->text_bytes + more + 1);
    assert_non_null(t->text);
    memcpy(t->text + t->text_bytes, json_string_value(text), more + 1);
    t->text_bytes += more;
    t->tokens += json_integer_value(json_object_get(event, "tokens"));
    if (bytes != NULL)
        add_bytes(t, json_string_value(bytes), (size_t)json_integer_value(json_object_get(event, "tokens")));
    if (logprobs != NULL)
        assert_int_equal(json_array_extend(t->logprobs, (json_t *)logprobs), 0);
}

/* "id: ID\ndata: JSON" or ": ping", without the blank line after it. */
static void add_block(struct event_text *t, const char *block, size_t size)
{
    if (block[0] == ':') {
        t->pings++;
        return;
    }
    const char *end = memchr(block, '\n', size);
    assert_non_null(end);
    assert_int_equal(strncmp(block, "id: ", 4), 0);
    const size_t id = (size_t)(end - block) - 4;
    assert_true(id > 0 && id <= 80);
    memcpy(t->id, block + 4, id);
    t->id[id] = '\0';
    assert_int_equal(strspn(t->id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"), id);
    assert_int_equal(strncmp(end, "\ndata: ", 7), 0);
    json_t *event = json_loadb(end + 7, size - (size_t)(end + 7 - block), JSON_ALLOW_NUL, NULL);
    assert_non_null(event);
    add_event(t, event);
    json_decref(event);
}

static void add_events(struct event_text *t, const char *body, size_t size)
{
    for (const char *end; (end = memmem(body, size, "\n\n", 2)) != NULL;) {
        add_block(t, body, (size_t)(end - body));
        size -= (size_t)(end + 2 - body);
        body = end + 2;
    }
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static void send_request(int fd, const char *path, const char *body, const char *id)
{
    char head[4096];
    const int n = snprintf(head, sizeof head, "%s %s HTTP/1.0\r\n%s%s%sContent-Length: %zu\r\n\r\n",
                           body != NULL ? "POST" : "GET", path, id[0] != '\0' ? "Last-Event-ID: " : "", id,
                           id[0] != '\0' ? "\r\n" : "", body != NULL ? strlen(body) : 0);
    assert_true(n > 0 && (size_t)n < sizeof head);
    assert_true(raw_send_text(fd, head));
    if (body != NULL)
        assert_true(raw_send_text(fd, body));
}

/* At most `most` bytes. */
static size_t receive(int fd, char *to, size_t most)
{
    const int64_t end_ms = test_now_ms() + HANG_MS;
    size_t size = 0;
    while (size < most) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int64_t left_ms = end_ms - test_now_ms();
        if (poll(&p, 1, left_ms > 0 ? (int)left_ms : 0) <= 0)
            fail_msg("no end of the answer: %zu bytes have come", size);
        const ssize_t n = recv(fd, to + size, most - size, 0);
        if (n <= 0)
            break;
        size += (size_t)n;
    }
    return size;
}

int event_text_send(const struct event_text *t, uint16_t port, const char *path, const char *body)
{
    const int fd = raw_connect(port);
    send_request(fd, path, body, t->id);
    return fd;
}

long event_text_ask(struct event_text *t, uint16_t port, const char *path, const char *body, size_t most)
{
    return event_text_receive(t, event_text_send(t, port, path, body), most);
}

long event_text_receive(struct event_text *t, int fd, size_t most)
{
    char *answer = malloc(ANSWER_BYTES + 1);
    assert_non_null(answer);
    t->received = receive(fd, answer, most < ANSWER_BYTES ? most : ANSWER_BYTES);
    raw_close(fd);
    answer[t->received] = '\0';
    const long status = t->received > 12 ? strtol(answer + 9, NULL, 10) : 0;
    const char *head_end = strstr(answer, "\r\n\r\n");
    if (head_end != NULL && status == 200)
        add_events(t, head_end + 4, t->received - (size_t)(head_end + 4 - answer));
    if (head_end != NULL && status != 200)
        (void)snprintf(t->answer, sizeof t->answer, "%s", head_end + 4);
    free(answer);
    return status;
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

const char *event_text_finish(const struct event_text *t)
{
    const char *finish = json_string_value(json_object_get(t->last, "finish_reason"));
    return finish != NULL ? finish : "";
}

void event_text_assert_same(const char *what, const struct event_text *a, const struct event_text *b)
{
    assert_same_text(what, a->text, a->text_bytes, b->text, b->text_bytes);
    if (!json_equal(a->bytes, b->bytes) || !json_equal(a->logprobs, b->logprobs))
        fail_msg("%s: the bytes or their log probabilities differ", what);
    assert_int_equal(a->tokens, b->tokens);
    assert_string_equal(event_text_finish(a), event_text_finish(b));
    assert_true(json_equal(json_object_get(a->last, "usage"), json_object_get(b->last, "usage")));
    assert_true(json_equal(json_object_get(a->last, "seed"), json_object_get(b->last, "seed")));
}
