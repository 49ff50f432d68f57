/* test_ps.c - aft ps lists what a daemon works on, and aft cancel ends it: found by the configuration, a URL or a
 * socket. The real daemon and the real aft. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { LIMIT_S = 580 };

static struct daemon aftd;
static struct raw_input in;
static char aft[PATH_MAX], dir[PATH_MAX], config[PATH_MAX], admin_path[PATH_MAX], url[64];

static int set_up(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    temp_path(config, dir, "aftd.json");
    temp_path(admin_path, dir, "admin.socket");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

static void start(const char *more)
{
    char flag[PATH_MAX + 32], text[PATH_MAX + 64];
    (void)snprintf(flag, sizeof flag, "--admin-unix=%s", admin_path);
    daemon_start(&aftd, LIST("--admin-address=127.0.0.1", "--admin-port=0", "--streams-max=1", flag, more));
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", aftd.admin_port);
    (void)snprintf(text, sizeof text, "{\"admin_unix\": \"%s\"}", admin_path);
    temp_write(config, text, strlen(text));
}

/* A stream without end that has begun; `header` may be empty. */
static int begin_stream(const char *header)
{
    char *text =
        raw_post("/generate", "{\"stream\": true, \"max_tokens\": 65536, \"context_overflow\": \"shift\"}", header);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    free(text);
    return fd;
}

/* Standard output of aft with `args`, a variable of the environment first if it has a '='. Free it. */
static char *run(const char *const *args, int exit_code, const char *err)
{
    struct program_run p = {.argv = {"/usr/bin/env"}};
    size_t count = 1;
    while (*args != NULL && strchr(*args, '=') != NULL)
        p.argv[count++] = *args++;
    p.argv[count++] = aft;
    while (*args != NULL)
        p.argv[count++] = *args++;
    program_run(&p);
    if (p.exit_code != exit_code || strstr(p.err, err) == NULL || (err[0] == '\0' && p.err_size > 0))
        fail_msg("exit code %d, expected %d: \"%s\", \"%s\"", p.exit_code, exit_code, p.out, p.err);
    char *out = p.out;
    p.out = NULL;
    program_run_clear(&p);
    return out;
}

static void expect(const char *const *args, int exit_code, const char *out, const char *err)
{
    char *said = run(args, exit_code, err);
    if (strstr(said, out) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", out, said);
    free(said);
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

/* ---- listing ---------------------------------------------------------------------------------------------------- */

static void requests_are_listed_in_a_table_and_as_json(void **state)
{
    char variable[PATH_MAX + 32];
    (void)state;
    start(NULL);
    char *none = run(LIST("ps", "--config", config), 0, "");
    assert_int_equal(count_lines(none), 1);
    assert_int_equal(strncmp(none, "STATE ", 6), 0);
    free(none);
    const int fd = begin_stream("X-Request-Id: a.long-one\r\n");
    char *table = run(LIST("ps", "--config", config), 0, "");
    assert_int_equal(count_lines(table), 2);
    const char *line = strchr(table, '\n') + 1;
    assert_int_equal(strncmp(line, "streaming ", 10), 0);
    assert_non_null(strstr(line, "  /generate  enwik8-aft-local  -    127.0.0.1  a.long-one\n"));
    free(table);
    char *text = run(LIST("ps", "--json", "--config", config), 0, "");
    assert_int_equal(count_lines(text), 1);
    json_t *answer = json_loads(text, 0, NULL), *one = json_array_get(json_object_get(answer, "requests"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "id")), "a.long-one");
    assert_int_equal(json_integer_value(json_object_get(answer, "total")), 1);
    json_decref(answer);
    free(text);
    (void)snprintf(variable, sizeof variable, "AFTD_ADMIN_UNIX=%s", admin_path);
    expect(LIST(variable, "ps"), 0, "a.long-one", "");
    expect(LIST("ps", "--unix", admin_path), 0, "a.long-one", "");
    expect(LIST("ps", "--url", url), 0, "a.long-one", "");
    (void)snprintf(variable, sizeof variable, "AFTD_ADMIN_PORT=%u", aftd.admin_port);
    expect(LIST(variable, "AFTD_ADMIN_ADDRESS=0.0.0.0", "ps"), 0, "a.long-one", "");
    raw_close(fd);
    daemon_stop(&aftd);
}

/* Its configuration names none, so that several daemons can be started beside each other in a tree. */
static void the_socket_of_make_run_is_found_without_a_setting(void **state)
{
    char folder[PATH_MAX], link[PATH_MAX], there[PATH_MAX + 16];
    (void)state;
    start(NULL);
    temp_path(folder, dir, "build");
    assert_int_equal(mkdir(folder, 0700), 0);
    temp_path(link, folder, "admin.sock");
    assert_int_equal(symlink(admin_path, link), 0);
    temp_write(config, "{}", 2);
    (void)snprintf(there, sizeof there, "--chdir=%s", dir);
    expect(LIST(there, "ps", "--config", config), 0, "STATE ", "");
    daemon_stop(&aftd);
}

static void a_key_is_sent_if_there_is_one(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 32], boss[KEYS_TEXT_MAX], alice[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 32];
    char variable[KEYS_TEXT_MAX + 32];
    (void)state;
    temp_path(file, dir, "keys.json");
    keys_add(file, "boss", LIST("--apis", "admin"), boss);
    keys_add(file, "alice", NULL, alice);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    start(flag);
    (void)snprintf(header, sizeof header, "X-API-Key: %s\r\n", alice);
    const int fd = begin_stream(header);
    expect(LIST("ps", "--url", url), 1, "", "401");
    expect(LIST("ps", "--url", url, "--key", alice), 1, "", "403");
    expect(LIST("ps", "--url", url, "--key", boss), 0, "  alice  ", "");
    (void)snprintf(variable, sizeof variable, "AFT_KEY=%s", boss);
    expect(LIST(variable, "ps", "--config", config), 0, "  alice  ", "");
    raw_close(fd);
    daemon_stop(&aftd);
}

/* ---- cancelling ------------------------------------------------------------------------------------------------- */

static void requests_are_cancelled_by_their_ids(void **state)
{
    (void)state;
    start(NULL);
    const int fd = begin_stream("X-Request-Id: mine\r\n");
    expect(LIST("cancel", "--config", config, "yours", "mine"), 1, "  mine\n", "404: no request with the id \"yours\"");
    enum raw_end end = RAW_LIMIT;
    while (end == RAW_LIMIT) /* what it had sent before */
        end = raw_receive(fd, &in, "\"finish_reason\":\"cancelled\"", HANG_MS);
    assert_int_equal(end, RAW_FOUND);
    raw_close(fd);
    char *table = run(LIST("ps", "--config", config), 0, "");
    assert_int_equal(count_lines(table), 1);
    free(table);
    expect(LIST("cancel", "--config", config, "a/b c"), 1, "", "404");
    expect(LIST("cancel", "--config", config, ""), 2, "", "the id is empty");
    expect(LIST("cancel", "--config", config), 2, "", "too few arguments");
    daemon_stop(&aftd);
}

/* ---- what cannot be asked --------------------------------------------------------------------------------------- */

static void what_is_in_the_way_is_said(void **state)
{
    char public_url[64];
    (void)state;
    start(NULL);
    (void)snprintf(public_url, sizeof public_url, "http://127.0.0.1:%u", aftd.port);
    expect(LIST("ps", "--url", public_url), 1, "", "there is nothing at \"/admin/requests\"; only its admin listener");
    daemon_stop(&aftd);
    expect(LIST("ps", "--config", config), 1, "", "No such file or directory");
    expect(LIST("ps", "--url", url), 1, "", "Connection refused");
    temp_write(config, "{}", 2);
    expect(LIST("--chdir=/", "ps", "--config", config), 2, "", "no admin listener"); /* nor one of make run */
    expect(LIST("ps", "--config", "/no/such/file"), 2, "", "cannot be opened");
    expect(LIST("ps", "now"), 2, "", "unexpected argument");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(requests_are_listed_in_a_table_and_as_json),
        TEST(the_socket_of_make_run_is_found_without_a_setting),
        TEST(a_key_is_sent_if_there_is_one),
        TEST(requests_are_cancelled_by_their_ids),
        TEST(what_is_in_the_way_is_said),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
