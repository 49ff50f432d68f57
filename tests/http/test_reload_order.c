/* test_reload_order.c - what a reload does first: keys and settings are in force before the models are looked at,
 * however long these take and whatever is wrong with them; and a folder that cannot be looked at for want of
 * descriptors is not taken for an empty one. The real daemon and small models. */
#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/halt.h"
#include "tests/support/keys.h"
#include "tests/support/model_folder.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define TEXT GOLDEN "lm-local-8"
#define TEXT_B GOLDEN "lm-local-no-global"
#define JSON "application/json"

enum { LIMIT_S = 580 };

/* An Authorization header for one key. */
struct holder {
    char header[KEYS_TEXT_MAX + 32];
};

static struct halt halt;
static struct raw_input in;
static char keys_path[PATH_MAX], config_path[PATH_MAX];
static struct holder first, second, third;

static int tear_down(void **state)
{
    halt_end(&halt);
    return administration_tear_down(state);
}

static void add_key(const char *name, struct holder *ret)
{
    char key[KEYS_TEXT_MAX];
    keys_add(keys_path, name, (const char *const[]){"--apis", "native,openai,admin", NULL}, key);
    (void)snprintf(ret->header, sizeof ret->header, "Authorization: Bearer %s", key);
}

static void write_config(const char *log_level)
{
    char text[PATH_MAX + 128];
    (void)snprintf(text, sizeof text, "{\"keys_file\": \"%s\", \"log_level\": \"%s\"}", keys_path, log_level);
    temp_write(config_path, text, strlen(text));
}

/* Start a daemon with the model "one", for the first key. */
static void start(void)
{
    char flag[PATH_MAX + 16];
    temp_path(keys_path, models_folder, ".keys.json");
    temp_path(config_path, models_folder, ".aftd.json");
    (void)snprintf(flag, sizeof flag, "--config=%s", config_path);
    write_config("info");
    add_key("first", &first);
    model_folder_put(models_folder, "one", TEXT);
    administration_start(flag, NULL);
}

/* Ask a model with a key. `says` is part of the answer; NULL: anything is. */
static void expect(const struct holder *h, const char *model, long status, const char *says)
{
    const char *const headers[] = {h->header, NULL};
    char body[128];
    struct reply r;
    (void)snprintf(body, sizeof body, "{\"model\": \"%s\", \"prompt\": \"a\", \"max_tokens\": 2}", model);
    client_call(
        &administered,
        &(struct request){.path = "/generate", .type = JSON, .body = body, .size = strlen(body), .headers = headers},
        &r);
    if (r.status != status || (says != NULL && strstr(r.body, says) == NULL))
        fail_msg("%s: expected %ld, got %ld: %s", model, status, r.status, r.body);
    reply_clear(&r);
}

static void expect_log_level(const struct holder *h, const char *level)
{
    const char *const headers[] = {h->header, NULL}, *found;
    struct reply r;
    client_call(&administered,
                &(struct request){.path = "/admin/config", .headers = headers, .port = administered.admin_port}, &r);
    json_t *settings = reply_json(&r);
    assert_int_equal(json_unpack(settings, "{s:{s:s}}", "log_level", "value", &found), 0);
    assert_string_equal(found, level);
    json_decref(settings);
    reply_clear(&r);
}

/* ---- keys before models ---------------------------------------------------------------------------------------- */

static void keys_and_settings_do_not_wait_for_models(void **state)
{
    (void)state;
    start();
    expect(&first, "one", 200, NULL);
    keys_remove(keys_path, "first");
    add_key("second", &second);
    write_config("debug");
    model_folder_put(models_folder, "two", TEXT_B);
    halt_begin(&halt, &administered, "loader");
    daemon_signal(&administered, SIGHUP);
    expect(&first, "one", 200, NULL); /* nothing was read yet */
    expect(&second, "one", 401, NULL);
    halt_at_open(&halt, "/two/config.json"); /* the new model is about to be read, and takes as long as it likes */
    expect(&first, "one", 401, "is not known here");
    expect(&second, "one", 200, NULL);
    expect(&second, "two", 404, "loaded models: one");
    expect_log_level(&second, "debug");
    halt_end(&halt);
    daemon_await_log(&administered, "\"models\":{\"loaded\":[\"two\"],");
    expect(&second, "two", 200, NULL);
    daemon_stop(&administered);
}

/* Changes that an administrator asks for wait while another is made, and so does a reload: all of it is done then, also
 * where none of them is made, so that nothing else wakes who does it. */
static void a_hangup_beside_changes_is_not_lost(void **state)
{
    enum { CHANGES = 3 };
    int fds[CHANGES];
    char more[sizeof first.header + 32];
    (void)state;
    start();
    (void)snprintf(more, sizeof more, "%s\r\nConnection: close\r\n", first.header);
    char *change = raw_post("/admin/models/two", "{\"action\": \"load\"}", more);
    model_folder_put(models_folder, "two", TEXT_B);
    model_folder_break(models_folder, "two", TEXT_B, MODEL_TRUNCATED);
    halt_begin(&halt, &administered, "loader");
    for (int i = 0; i < CHANGES; i++) {
        fds[i] = raw_connect(administered.admin_port);
        assert_true(raw_send_text(fds[i], change));
        if (i == 0)
            halt_at_open(&halt, "/two/config.json");
    }
    free(change);
    model_folder_put(models_folder, "three", TEXT);
    daemon_signal(&administered, SIGHUP);
    expect(&first, "one", 200, NULL); /* by then they have come in */
    halt_end(&halt);
    daemon_await_log(&administered, "\"models\":{\"loaded\":[\"three\"],");
    for (int i = 0; i < CHANGES; i++) {
        (void)raw_receive(fds[i], &in, NULL, HANG_MS);
        assert_int_equal(raw_status(&in), 422);
        raw_close(fds[i]);
    }
    daemon_stop(&administered);
}

static void post_reload(const struct holder *h, struct reply *ret)
{
    const char *const headers[] = {h->header, NULL};
    client_call(
        &administered,
        &(struct request){
            .method = "POST", .path = "/admin/config/reload", .headers = headers, .port = administered.admin_port},
        ret);
}

/* One model, then models_dir as a whole. */
static void keys_are_in_force_whatever_is_wrong_with_models(void **state)
{
    struct reply r;
    (void)state;
    start();
    keys_remove(keys_path, "first");
    add_key("second", &second);
    model_folder_break(models_folder, "one", TEXT, MODEL_TRUNCATED);
    post_reload(&first, &r);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"failed\":[{\"model\":\"one\""));
    reply_clear(&r);
    expect(&first, "one", 401, NULL);
    expect(&second, "one", 200, NULL);

    keys_remove(keys_path, "second");
    add_key("third", &third);
    write_config("debug");
    model_folder_put(models_folder, "two words", TEXT);
    post_reload(&second, &r);
    reply_assert_error(&r, 422, "file_refused", NULL,
                       "settings, keys and certificate were taken over, but the models were not: ");
    assert_non_null(strstr(r.body, "two words: the folder's name"));
    reply_clear(&r);
    expect(&second, "one", 401, NULL);
    expect(&third, "one", 200, NULL);
    expect_log_level(&third, "debug");
    daemon_signal(&administered, SIGHUP);
    daemon_await_log(&administered,
                     "reload: settings, keys and certificate were taken over, but the models were not: ");
    daemon_stop(&administered);
}

/* And the other way round: if what is read first is not accepted, nothing changes. */
static void keys_that_are_not_accepted_change_nothing(void **state)
{
    static const char *const broken[] = {"", "{\"keys\": [", "{\"keys\": 1}", "{\"keys\": [{\"name\": \"first\"}]}"};
    struct reply r;
    (void)state;
    start();
    write_config("debug");
    model_folder_put(models_folder, "two", TEXT_B);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        temp_write(keys_path, broken[i], strlen(broken[i]));
        post_reload(&first, &r);
        reply_assert_error(&r, 422, "file_refused", NULL, "nothing has changed: ");
        assert_non_null(strstr(r.body, ".keys.json"));
        reply_clear(&r);
        expect(&first, "one", 200, NULL);
        expect(&first, "two", 404, NULL);
        expect_log_level(&first, "info");
    }
    daemon_stop(&administered);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

/* The lowest number that the daemon's next descriptor can have. */
static rlim_t free_descriptor(void)
{
    char path[64];
    rlim_t number = 0;
    for (bool taken = true; taken; number += taken) {
        struct dirent *e;
        (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)administered.pid);
        DIR *dir = opendir(path);
        assert_non_null(dir);
        for (taken = false; (e = readdir(dir)) != NULL;)
            taken = taken || (e->d_name[0] != '.' && strtoul(e->d_name, NULL, 10) == number);
        (void)closedir(dir);
    }
    return number;
}

static void await_descriptors(unsigned count)
{
    for (const int64_t end = test_now_ms() + HANG_MS; daemon_usage(&administered).fds != count; test_sleep_ms(1))
        assert_true(test_now_ms() < end);
}

static void a_folder_that_cannot_be_looked_at_is_not_empty(void **state)
{
    struct rlimit limit;
    char path[PATH_MAX];
    (void)state;
    model_folder_put(models_folder, "many", TEXT); /* makes the folder, which from here on has only versions */
    model_folder_put(models_folder, "many/2", TEXT);
    temp_path(path, models_folder, "many/config.json");
    assert_int_equal(remove(path), 0);
    administration_start("--http-threads=1", NULL);
    const unsigned idle = daemon_usage(&administered).fds;
    char *text = model_text("many");
    await_descriptors(idle); /* that connection is closed */
    const int fd = raw_connect(administered.admin_port);
    await_descriptors(idle + 1);
    assert_int_equal(prlimit(administered.pid, RLIMIT_NOFILE, NULL, &limit), 0);
    const struct rlimit none = {.rlim_cur = free_descriptor(), .rlim_max = limit.rlim_max};
    assert_int_equal(prlimit(administered.pid, RLIMIT_NOFILE, &none, NULL), 0);
    char *request = raw_post("/admin/models/many", "{\"action\": \"reload\"}", "Connection: close\r\n");
    assert_true(raw_send_text(fd, request));
    (void)raw_receive(fd, &in, NULL, HANG_MS);
    raw_close(fd);
    free(request);
    assert_int_equal(prlimit(administered.pid, RLIMIT_NOFILE, &limit, NULL), 0);
    if (raw_status(&in) != 422 || strstr(in.bytes, "Too many open files") == NULL)
        fail_msg("expected 422 and what was wrong, got %s", in.bytes);
    model_assert_writes("many", text);
    admin_act_well("many", "reload");
    model_assert_writes("many", text);
    free(text);
    daemon_stop(&administered);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, administration_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(keys_and_settings_do_not_wait_for_models),        TEST(a_hangup_beside_changes_is_not_lost),
        TEST(keys_are_in_force_whatever_is_wrong_with_models), TEST(keys_that_are_not_accepted_change_nothing),
        TEST(a_folder_that_cannot_be_looked_at_is_not_empty),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
