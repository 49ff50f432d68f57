/* test_shares.c - clients share a model's slots: whatever one of them asks for, others get their turn at once; and a
 * text that gave its slot away in between has the same bytes as one that never did. The real daemon, with few slots; a
 * proxy that is believed says who the clients are. */
#include <jansson.h>
#include <nettle/base64.h>
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
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"

#define RUNNING "aftd_streams_running"
#define PARKED "aftd_streams_parked"
#define WAITING "aftd_queue_depth"
#define PARKINGS "aftd_stream_parkings_total"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, SLOTS = 4, FEW_SLOTS = 2, QUEUE = 8, STREAMS = 64, BLOCKS = 6, BLOCK_BYTES = 8192 };

static struct daemon aftd;
static struct raw_input in;

static void begin(int slots, int queue, const char *flag)
{
    char of_slots[32], of_queue[32];
    (void)snprintf(of_slots, sizeof of_slots, "--streams-max=%d", slots);
    (void)snprintf(of_queue, sizeof of_queue, "--queue-jobs-max=%d", queue);
    daemon_start(&aftd, (const char *const[]){"--trusted-proxies=127.0.0.1", "--timeout-ms=600000", "--threads=1",
                                              of_slots, of_queue, flag, NULL});
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

/* The header that tells who it is. */
static const char *forwarded(unsigned client)
{
    static char header[64];
    (void)snprintf(header, sizeof header, "X-Forwarded-For: 10.0.0.%u", client);
    return header;
}

/* Send a request of a client and leave it open. */
static int connect_for(unsigned client, const char *path, const char *json)
{
    char more[80];
    (void)snprintf(more, sizeof more, "%s\r\n", forwarded(client));
    char *text = raw_post(path, json, more);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    return fd;
}

static void call_for(unsigned client, const char *path, const char *json, struct reply *ret)
{
    const char *const headers[] = {forwarded(client), NULL};
    const struct request r = {
        .path = path, .type = "application/json", .body = json, .size = strlen(json), .headers = headers};
    client_call(&aftd, &r, ret);
}

/* The polite client's five bytes, which must come while the others' work goes on. */
static void assert_served(unsigned client)
{
    struct reply r;
    call_for(client, "/generate", "{\"prompt\": \"The \", \"max_tokens\": 5, \"timeout_ms\": 60000}", &r);
    if (r.status != 200)
        fail_msg("%s", r.body);
    json_t *answer = reply_json(&r);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(answer, "usage"), "completion_tokens")), 5);
    json_decref(answer);
    reply_clear(&r);
}

/* Nothing that was asked for is left. While clients leave one after another there is a moment when nothing runs and
 * something is still parked. */
static void await_nothing_left(void)
{
    (void)client_await_metric(&aftd, PARKED, 0, HANG_MS);
    (void)client_await_metric(&aftd, RUNNING, 0, HANG_MS);
}

#define LONG_PROMPT                                                                                                \
    "The '''history of the Roman Empire''' is one of the most important parts of [[world history]], and so it is " \
    "that many of its [[emperor]]s are known to have written of it at length; "

static void fill_with_prose(char *out, size_t size)
{
    for (size_t i = 0; i < size; i++)
        out[i] = LONG_PROMPT[(i + i / 1000) % (sizeof LONG_PROMPT - 1)];
}

/* ---- whatever one client does ---------------------------------------------------------------------------------- */

static void a_request_of_64_samples_gives_way_to_another_client(void **state)
{
    (void)state;
    begin(SLOTS, 256, NULL);
    const int fd = connect_for(1, "/generate",
                               "{\"prompt\": \"x\", \"n\": 64, \"max_tokens\": 16384, \"context_overflow\": \"shift\", "
                               "\"stream\": true}");
    (void)client_await_metric(&aftd, RUNNING, SLOTS, HANG_MS);
    for (unsigned client = 2; client < 6; client++)
        assert_served(client);
    assert_true(client_metric(&aftd, PARKINGS) >= 1);
    assert_int_equal(client_metric(&aftd, "aftd_first_slot_wait_seconds_count"), 5);
    (void)client_await_metric(&aftd, RUNNING, SLOTS, HANG_MS); /* what was taken is given back */
    raw_close(fd);
    await_nothing_left();
    daemon_stop(&aftd);
}

static void an_archive_of_many_blocks_gives_way_to_another_client(void **state)
{
    (void)state;
    static char text[BLOCKS * BLOCK_BYTES];
    const size_t size = (size_t)(SLOTS + test_work(BLOCKS - SLOTS)) * BLOCK_BYTES;
    struct reply small;
    const char *const headers[] = {forwarded(1), NULL};
    fill_with_prose(text, size);
    begin(BLOCKS, 256, NULL); /* to make it soon */
    const struct request whole = {
        .path = "/v1/compress", .type = "application/octet-stream", .body = text, .size = size, .headers = headers};
    client_call(&aftd, &whole, &small);
    assert_int_equal(small.status, 200);
    daemon_stop(&aftd);
    begin(SLOTS, 256, NULL);
    char head[256];
    (void)snprintf(head, sizeof head,
                   "POST /v1/decompress HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 10.0.0.1\r\n"
                   "Content-Type: application/octet-stream\r\nContent-Length: %zu\r\n\r\n",
                   small.size);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, head));
    assert_true(raw_send(fd, small.body, small.size, HANG_MS));
    (void)client_await_metric(&aftd, RUNNING, SLOTS, HANG_MS);
    assert_served(2);
    assert_int_equal(raw_receive(fd, &in, "HTTP/1.1 200", 0), RAW_LIMIT); /* it is not through */
    raw_close(fd);
    await_nothing_left();
    reply_clear(&small);
    daemon_stop(&aftd);
}

/* Streams of one client, each a request of its own, also those that wait in the queue. */
static void sixty_four_streams_give_way_to_another_client(void **state)
{
    (void)state;
    int fds[STREAMS];
    begin(SLOTS, 256, NULL);
    for (unsigned i = 0; i < STREAMS; i++)
        fds[i] = connect_for(1, "/generate",
                             "{\"prompt\": \"x\", \"max_tokens\": 16384, \"context_overflow\": \"shift\", "
                             "\"stream\": true}");
    (void)client_await_metric(&aftd, WAITING, STREAMS - SLOTS, HANG_MS);
    for (unsigned client = 2; client < 6; client++)
        assert_served(client);
    for (unsigned i = 0; i < STREAMS; i++)
        raw_close(fds[i]);
    await_nothing_left();
    daemon_stop(&aftd);
}

/* A pass takes as long as all of its rows do: while a client has one stream, only some of another's are in each. */
static void one_stream_does_not_wait_for_anothers_many(void **state)
{
    (void)state;
    enum { MANY = 32, PASSES = 200, ROWS = 10 };
    static const char *const sum_and_count[2] = {"aftd_batch_size_sum", "aftd_batch_size_count"};
    double before[2], after[2];
    begin(MANY, 256, NULL);
    const int many =
        connect_for(1, "/generate",
                    "{\"prompt\": \"x\", \"n\": 64, \"max_tokens\": 16384, \"context_overflow\": \"shift\", "
                    "\"stream\": true}");
    (void)client_await_metric(&aftd, RUNNING, MANY, HANG_MS);
    const int one =
        connect_for(2, "/generate",
                    "{\"prompt\": \"x\", \"max_tokens\": 16384, \"context_overflow\": \"shift\", \"stream\": true}");
    assert_int_equal(raw_receive(one, &in, "data: ", HANG_MS), RAW_FOUND);
    client_metrics(&aftd, sum_and_count, before, 2);
    const int64_t end = test_now_ms() + HANG_MS;
    do {
        assert_true(test_now_ms() < end);
        client_metrics(&aftd, sum_and_count, after, 2);
    } while (after[1] < before[1] + PASSES);
    const double each = (after[0] - before[0]) / (after[1] - before[1]);
    print_message("  %.1f streams in a pass\n", each);
    assert_true(each <= ROWS);
    raw_close(one);
    raw_close(many);
    await_nothing_left();
    daemon_stop(&aftd);
}

/* Where nothing can be parked, for want of memory set aside, a waiting client has the next slot that becomes free. */
static void without_room_to_park_clients_take_turns(void **state)
{
    (void)state;
    begin(SLOTS, 256, "--parking-mb=0");
    const int fd = connect_for(1, "/generate", "{\"prompt\": \"x\", \"n\": 64, \"max_tokens\": 100, \"stream\": true}");
    (void)client_await_metric(&aftd, RUNNING, SLOTS, HANG_MS);
    assert_served(2);
    assert_int_equal(client_metric(&aftd, PARKINGS), 0);
    raw_close(fd);
    await_nothing_left();
    daemon_stop(&aftd);
}

/* The newest of the client with most waiting gives way, and is told so. */
static void a_full_queue_has_room_for_another_client(void **state)
{
    (void)state;
    static const char endless[] = "{\"prompt\": \"x\", \"max_tokens\": 16384, \"context_overflow\": \"shift\"}";
    enum { SENT = SLOTS + QUEUE };
    int fds[SENT];
    begin(SLOTS, QUEUE, "--parking-mb=0"); /* so that it has to wait */
    for (unsigned i = 0; i < SENT; i++) {
        fds[i] = connect_for(1, "/generate", endless);
        (void)client_await_metric(&aftd, i < SLOTS ? RUNNING : WAITING, i < SLOTS ? i + 1 : i + 1 - SLOTS, HANG_MS);
    }
    struct reply r;
    call_for(1, "/generate", endless, &r); /* its own do not give way to it */
    reply_assert_error(&r, 503, "queue_full", NULL, NULL);
    reply_clear(&r);
    const int other = connect_for(2, "/generate", "{\"prompt\": \"The \", \"max_tokens\": 5}");
    assert_int_equal(raw_receive(fds[SENT - 1], &in, "queue_full", HANG_MS), RAW_FOUND);
    assert_int_equal(raw_status(&in), 503);
    assert_non_null(strstr(in.bytes, "Retry-After: "));
    assert_int_equal(client_metric(&aftd, WAITING), QUEUE);
    raw_close(fds[0]);
    assert_int_equal(raw_receive(other, &in, "completion_tokens", HANG_MS), RAW_FOUND);
    assert_int_equal(raw_status(&in), 200);
    raw_close(other);
    for (unsigned i = 1; i < SENT; i++)
        raw_close(fds[i]);
    await_nothing_left();
    daemon_stop(&aftd);
}

/* ---- the same bytes -------------------------------------------------------------------------------------------- */

/* An answer without what differs from one time to the next. The caller frees it. */
static char *lasting(const struct reply *r)
{
    if (r->status != 200)
        fail_msg("%s", r->body);
    json_t *answer = reply_json(r);
    (void)json_object_del(answer, "id");
    (void)json_object_del(answer, "created");
    (void)json_object_del(answer, "timings");
    (void)json_object_del(json_object_get(answer, "usage"), "prompt_tokens_details");
    char *text = json_dumps(answer, JSON_SORT_KEYS);
    json_decref(answer);
    assert_non_null(text);
    return text;
}

enum { KINDS = 6, CLIENTS = 4, ASKED = KINDS * CLIENTS };

static const struct {
    const char *path, *json;
} kinds[KINDS] = {
    {"/generate", "{\"prompt\": \"The \", \"n\": 6, \"max_tokens\": 100, \"seed\": 11, \"logprobs\": 2}"},
    {"/generate", "{\"prompt\": \"In \", \"max_tokens\": 600, \"seed\": 12, \"context_overflow\": \"shift\", "
                  "\"repetition_penalty\": 1.2, \"top_p\": 0.9, \"return_state\": true}"},
    {"/generate", "{\"prompt\": \"" LONG_PROMPT "\", \"n\": 5, \"max_tokens\": 100, \"seed\": 13, \"stop\": [\"zq\"]}"},
    {"/v1/completions",
     "{\"prompt\": [\"" LONG_PROMPT "\", \"It\"], \"n\": 2, \"max_tokens\": 100, \"seed\": 14, \"echo\": "
     "true, \"logprobs\": 3}"},
    {"/score", "{\"text\": \"" LONG_PROMPT LONG_PROMPT LONG_PROMPT LONG_PROMPT "\"}"},
    {"/generate",
     "{\"prompt\": \"" LONG_PROMPT LONG_PROMPT "\", \"max_tokens\": 1, \"seed\": 15, \"return_state\": true}"},
};

/* Bytes that are compressed and restored meanwhile. */
static char prose[2 * BLOCK_BYTES];
static size_t prose_bytes;

static void fill_requests(struct request requests[ASKED], char headers[ASKED][64], const char *lists[ASKED][2])
{
    for (unsigned i = 0; i < ASKED; i++) {
        (void)snprintf(headers[i], sizeof headers[i], "%s", forwarded(1 + i / KINDS));
        lists[i][0] = headers[i];
        lists[i][1] = NULL;
        requests[i] = (struct request){.path = kinds[i % KINDS].path,
                                       .type = "application/json",
                                       .body = kinds[i % KINDS].json,
                                       .size = strlen(kinds[i % KINDS].json),
                                       .headers = lists[i]};
    }
}

/* Compressing blocks takes longer than all of the rest; it must come to the same archive, and that to the text. */
static void compress(struct reply *ret)
{
    const struct request r = {
        .path = "/v1/compress", .type = "application/octet-stream", .body = prose, .size = prose_bytes};
    client_call(&aftd, &r, ret);
    assert_int_equal(ret->status, 200);
}

static void parked_texts_go_on_with_the_same_bytes(void **state)
{
    (void)state;
    static struct request requests[ASKED + 2];
    static struct reply replies[ASKED + 2];
    static char headers[ASKED][64];
    static const char *lists[ASKED][2];
    struct reply archive;
    char *alone[KINDS];
    const size_t asked = (size_t)(1 + test_work(CLIENTS - 1)) * KINDS;
    fill_with_prose(prose, sizeof prose);
    prose_bytes = (size_t)test_work(2) * BLOCK_BYTES;
    fill_requests(requests, headers, lists);
    begin(64, 256, "--prefix-cache-mb=0");
    for (size_t k = 0; k < KINDS; k++) {
        client_call(&aftd, &requests[k], &replies[k]);
        alone[k] = lasting(&replies[k]);
        reply_clear(&replies[k]);
    }
    compress(&archive);
    assert_int_equal(client_metric(&aftd, PARKINGS), 0);
    daemon_stop(&aftd);

    begin(FEW_SLOTS, 256, "--prefix-cache-mb=0");
    requests[asked] = (struct request){
        .path = "/v1/compress", .type = "application/octet-stream", .body = prose, .size = prose_bytes};
    requests[asked + 1] = (struct request){
        .path = "/v1/decompress", .type = "application/octet-stream", .body = archive.body, .size = archive.size};
    client_call_all(&aftd, requests, replies, asked + 2, NULL);
    for (size_t i = 0; i < asked; i++) {
        char *beside = lasting(&replies[i]);
        assert_string_equal(beside, alone[i % KINDS]);
        free(beside);
    }
    assert_int_equal(replies[asked].status, 200);
    assert_int_equal(replies[asked].size, archive.size);
    assert_memory_equal(replies[asked].body, archive.body, archive.size);
    assert_int_equal(replies[asked + 1].status, 200);
    assert_int_equal(replies[asked + 1].size, prose_bytes);
    assert_memory_equal(replies[asked + 1].body, prose, prose_bytes);
    const double parkings = client_metric(&aftd, PARKINGS);
    print_message("  %.0f parkings\n", parkings);
    assert_true(parkings >= 1); /* how many depends on how soon the others come */
    await_nothing_left();
    daemon_stop(&aftd);
    for (size_t i = 0; i < asked + 2; i++)
        reply_clear(&replies[i]);
    for (size_t k = 0; k < KINDS; k++)
        free(alone[k]);
    reply_clear(&archive);
}

/* The bytes of a text that was not streamed, which the caller frees. */
static size_t bytes_of(const struct reply *r, uint8_t **ret)
{
    json_t *answer = reply_json(r);
    const char *text = json_string_value(json_object_get(answer, "bytes_base64"));
    struct base64_decode_ctx base64;
    size_t n;
    if (text == NULL)
        fail_msg("%s", r->body);
    *ret = malloc(BASE64_DECODE_LENGTH(strlen(text)) + 1);
    assert_non_null(*ret);
    base64_decode_init(&base64);
    assert_int_equal(base64_decode_update(&base64, &n, *ret, strlen(text), text), 1);
    json_decref(answer);
    return n;
}

/* Whether the deadline falls while the text is parked or while it runs: it goes on as if nothing had been. */
static void a_text_cut_while_parked_goes_on_from_its_state(void **state)
{
    (void)state;
    enum { MORE = 40 };
    int fds[FEW_SLOTS + 2];
    begin(FEW_SLOTS, 256, NULL);
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = connect_for(1 + i, "/generate",
                             "{\"prompt\": \"x\", \"n\": 2, \"max_tokens\": 16384, \"context_overflow\": \"shift\", "
                             "\"stream\": true}");
    for (const int64_t end = test_now_ms() + HANG_MS; client_metric(&aftd, PARKED) < FEW_SLOTS;)
        assert_true(test_now_ms() < end);
    for (unsigned i = 0; i < (unsigned)test_work(4); i++) {
        struct reply first, rest, whole;
        char json[256];
        first = (struct reply){.status = 408};
        for (unsigned ms = 250 + 45 * i; first.status == 408; ms *= 2) { /* until there is time for a first byte */
            reply_clear(&first);
            (void)snprintf(json, sizeof json,
                           "{\"prompt\": \"The \", \"max_tokens\": 16384, \"seed\": 5, \"context_overflow\": "
                           "\"shift\", \"stream\": true, \"return_state\": true, \"timeout_ms\": %u}",
                           ms);
            call_for(10, "/generate", json, &first);
        }
        const char *kept = strstr(first.body, "\"state\":\"");
        assert_int_equal(first.status, 200);
        assert_non_null(kept);
        kept += strlen("\"state\":\"");
        const char *tokens = strstr(first.body, "\"completion_tokens\":");
        assert_non_null(tokens);
        const long n = strtol(tokens + strlen("\"completion_tokens\":"), NULL, 10);
        const size_t size = strcspn(kept, "\"");
        char *text = malloc(size + 128);
        assert_non_null(text);
        (void)snprintf(
            text, size + 128,
            "{\"max_tokens\": %d, \"context_overflow\": \"shift\", \"bytes_base64\": true, \"state\": \"%.*s\"}", MORE,
            (int)size, kept);
        call_for(10, "/generate", text, &rest);
        (void)snprintf(text, size + 128,
                       "{\"prompt\": \"The \", \"max_tokens\": %ld, \"seed\": 5, \"bytes_base64\": true, "
                       "\"context_overflow\": \"shift\"}",
                       n + MORE);
        call_for(10, "/generate", text, &whole);
        uint8_t *end = NULL, *all = NULL;
        const size_t end_bytes = bytes_of(&rest, &end), all_bytes = bytes_of(&whole, &all);
        assert_int_equal(end_bytes, MORE);
        assert_int_equal(all_bytes, n + MORE);
        assert_memory_equal(all + n, end, MORE);
        free(all);
        free(end);
        free(text);
        reply_clear(&whole);
        reply_clear(&rest);
        reply_clear(&first);
    }
    for (unsigned i = 0; i < ARRAY_LEN(fds); i++)
        raw_close(fds[i]);
    await_nothing_left();
    daemon_stop(&aftd);
}

static int clear(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_request_of_64_samples_gives_way_to_another_client, clear),
        cmocka_unit_test_teardown(an_archive_of_many_blocks_gives_way_to_another_client, clear),
        cmocka_unit_test_teardown(sixty_four_streams_give_way_to_another_client, clear),
        cmocka_unit_test_teardown(one_stream_does_not_wait_for_anothers_many, clear),
        cmocka_unit_test_teardown(without_room_to_park_clients_take_turns, clear),
        cmocka_unit_test_teardown(a_full_queue_has_room_for_another_client, clear),
        cmocka_unit_test_teardown(parked_texts_go_on_with_the_same_bytes, clear),
        cmocka_unit_test_teardown(a_text_cut_while_parked_goes_on_from_its_state, clear),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
