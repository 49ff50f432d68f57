/* test_uploads.c - uploads that never end, more than there is memory for: others' bodies are still read, whoever has
 * most is refused or gives way, and neither prompts nor administrators notice. The real daemon over raw sockets;
 * loopback has as many client addresses as a test wants. */
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
#include "tests/support/raw_socket.h"

/* As by default, there is memory for 32 of the largest bodies: for 4 as small ones, for 8 that are being cut off, and
 * for 20, of which one client gets 15. What is sent takes as much as a body may but for a byte, so that the memory in
 * use tells how many are kept, and 20 leave no room for a prompt. */
enum {
    LIMIT_S = 580,
    UPLOADS = 33,
    BODY_MAX = 1 << 20,
    SENT = BODY_MAX - 1,
    UPLOADER = 2,
    POLITE = 3,
    KEPT = 15,
    KEPT_BESIDE = 4,
    KEPT_AT_MOST = 20
};

#define PROMPT "{\"prompt\": \"x\", \"max_tokens\": 1}"

static struct daemon aftd;
static struct raw_input in;
static int fds[2 * UPLOADS];
static char bytes[BODY_MAX] = "\xff\xd8\xff"; /* what begins as a JPEG and goes on with zeros is none */

static int start(void **state)
{
    static const char *const flags[] = {"--bodies-memory-max-mb=32",   "--body-bytes-max=1048576",
                                        "--admin-address=127.0.0.1",   "--admin-port=0",
                                        "--trusted-proxies=127.0.0.9", NULL};
    (void)state;
    daemon_start(&aftd, flags);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

/* A picture of that many bytes, of which only some come. */
static int upload(unsigned host, const char *headers, size_t size, size_t sent)
{
    char beginning[256];
    const int fd = raw_connect_as(aftd.port, host);
    (void)snprintf(beginning, sizeof beginning,
                   "POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\nContent-Length: %zu\r\n"
                   "%s\r\n",
                   size, headers);
    (void)raw_send_text(fd, beginning);
    (void)raw_send(fd, bytes, sent, HANG_MS);
    return fd;
}

static void await_bytes(double least)
{
    const int64_t end_ms = test_now_ms() + HANG_MS;
    while (client_metric(&aftd, "aftd_body_bytes ") < least) {
        assert_true(test_now_ms() < end_ms);
        test_sleep_ms(5);
    }
}

/* All but the end of each. Those for which there is room come first: of many at once, all of which grow, fewer would be
 * kept. */
static void begin_uploads(int first, unsigned host, const char *headers)
{
    const int before = first == 0 ? 0 : KEPT, kept = first == 0 ? KEPT : KEPT_BESIDE;
    for (int i = 0; i < UPLOADS; i++) {
        fds[first + i] = upload(host, headers, SENT + 1, SENT);
        if (i == kept - 1)
            await_bytes((double)(before + kept) * SENT);
    }
}

static void end_uploads(int count)
{
    for (int i = 0; i < count; i++)
        raw_close(fds[i]);
    (void)client_await_metric(&aftd, "aftd_body_bytes ", 0, HANG_MS);
}

/* The answer's status. */
static long status_of(int fd)
{
    (void)raw_receive(fd, &in, "}", HANG_MS);
    raw_close(fd);
    return raw_status(&in);
}

static void assert_prompt_is_answered(unsigned host)
{
    char *text = raw_post("/generate", PROMPT, "");
    const int fd = raw_connect_as(aftd.port, host);
    assert_true(raw_send_text(fd, text));
    assert_int_equal(status_of(fd), 200);
    free(text);
}

/* The second client fills the room to the last byte and sends no more, so that whatever is cut is cut for a prompt. */
static void unfinished_uploads_do_not_keep_prompts_out(void **state)
{
    (void)state;
    begin_uploads(0, UPLOADER, "");
    for (int i = 0; i < KEPT_AT_MOST - KEPT; i++)
        fds[UPLOADS + i] = upload(UPLOADER + 2, "", SENT + 1, SENT);
    await_bytes((double)KEPT_AT_MOST * SENT);
    assert_prompt_is_answered(POLITE);
    assert_prompt_is_answered(UPLOADER);
    assert_true(client_metric(&aftd, "aftd_uploads_cut_total") == 0); /* prompts have room of their own */
    end_uploads(UPLOADS + KEPT_AT_MOST - KEPT);
}

static void unfinished_uploads_do_not_keep_administrators_out(void **state)
{
    struct reply r;
    (void)state;
    begin_uploads(0, 1, "");
    begin_uploads(UPLOADS, UPLOADER, "");
    const struct request request = {.path = "/admin/models/enwik8-aft-local",
                                    .type = "application/json",
                                    .body = bytes,
                                    .size = BODY_MAX,
                                    .port = aftd.admin_port};
    client_call(&aftd, &request, &r);
    assert_int_equal(r.status, 400); /* it was read whole, and is no JSON */
    reply_clear(&r);
    end_uploads(2 * UPLOADS);
}

static void a_large_body_gets_room_from_who_has_most(void **state)
{
    (void)state;
    begin_uploads(0, UPLOADER, "");
    begin_uploads(UPLOADS, UPLOADER + 2, "");
    assert_int_equal(status_of(upload(POLITE, "", SENT, SENT)), 422);
    assert_true(client_metric(&aftd, "aftd_uploads_cut_total") >= 1);
    daemon_await_log(&aftd, "error=out_of_memory");
    end_uploads(2 * UPLOADS);
}

static void who_has_its_share_is_refused_and_others_are_not(void **state)
{
    (void)state;
    begin_uploads(0, UPLOADER, "");
    assert_int_equal(status_of(upload(UPLOADER, "", SENT, SENT)), 503);
    assert_non_null(strstr(in.bytes, "\"code\":\"out_of_memory\""));
    assert_non_null(strstr(in.bytes, "\r\nRetry-After: "));
    assert_int_equal(status_of(upload(POLITE, "", SENT, SENT)), 422);
    assert_true(client_metric(&aftd, "aftd_uploads_cut_total") == 0); /* there was room */
    end_uploads(UPLOADS);
}

/* Behind a proxy that is believed, clients are those that it names. */
static void clients_behind_a_proxy_have_shares_of_their_own(void **state)
{
    enum { PROXY = 9 };
    (void)state;
    begin_uploads(0, PROXY, "X-Forwarded-For: 192.0.2.1\r\n");
    assert_int_equal(status_of(upload(PROXY, "X-Forwarded-For: 192.0.2.1\r\n", SENT, SENT)), 503);
    assert_int_equal(status_of(upload(PROXY, "X-Forwarded-For: 192.0.2.2\r\n", SENT, SENT)), 422);
    end_uploads(UPLOADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(unfinished_uploads_do_not_keep_prompts_out, start, stop),
        cmocka_unit_test_setup_teardown(unfinished_uploads_do_not_keep_administrators_out, start, stop),
        cmocka_unit_test_setup_teardown(a_large_body_gets_room_from_who_has_most, start, stop),
        cmocka_unit_test_setup_teardown(who_has_its_share_is_refused_and_others_are_not, start, stop),
        cmocka_unit_test_setup_teardown(clients_behind_a_proxy_have_shares_of_their_own, start, stop),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("uploads", tests, NULL, NULL);
}
