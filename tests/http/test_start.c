/* test_start.c - what is looked at before the daemon serves: all that --check-config finds, an address that somebody
 * has, models whose files are not accepted; and what clients are told of models that are not loaded. Real daemons and
 * small models. */
#include <jansson.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_folder.h"
#include "tests/support/program.h"

#define GOLDEN "tests/data/golden/"
#define TEXT GOLDEN "lm-local-8"
#define PICTURE GOLDEN "conv-heads8-k5"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, EXIT_USAGE = 2 };

static void put_broken(const char *name, enum model_fault fault)
{
    model_folder_put(models_folder, name, TEXT);
    model_folder_break(models_folder, name, TEXT, fault);
}

/* ---- --check-config --------------------------------------------------------------------------------------------- */

/* {} stands for the test's folder. */
static void check(const char *flag, const char *other, int *code, char **said)
{
    static char program[PATH_MAX], models[PATH_MAX + 32], flags[2][PATH_MAX + 64];
    const char *given[] = {flag, other};
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    (void)snprintf(models, sizeof models, "--models-dir=%s", models_folder);
    struct program_run p = {.argv = {program, models, "--streams-max=8", "--check-config"}};
    for (size_t i = 0, at = 4; i < ARRAY_LEN(given); i++) {
        const char *here = given[i] != NULL ? strstr(given[i], "{}") : NULL;
        if (given[i] == NULL)
            continue;
        const size_t before = here != NULL ? (size_t)(here - given[i]) : strlen(given[i]);
        (void)snprintf(flags[i], sizeof flags[i], "%.*s%s%s", (int)before, given[i], here != NULL ? models_folder : "",
                       here != NULL ? here + 2 : "");
        p.argv[at++] = flags[i];
    }
    program_run(&p);
    *code = p.exit_code;
    *said = malloc(p.err_size + p.out_size + 1);
    assert_non_null(*said);
    (void)sprintf(*said, "%s%s", p.err, p.out);
    program_run_clear(&p);
}

static void what_start_refuses_the_check_refuses(void **state)
{
    static const struct {
        const char *flag, *other, *says;
    } cases[] = {
        {"--isa=avx9", NULL, "\"avx9\""},
        {"--precision=fp9", NULL, "precision has \"fp9\""},
        {"--precision=f32,nobody=int8", NULL, "precision names \"nobody\""},
        {"--models-dir=/nowhere", NULL, "/nowhere"},
        {"--model={}/nothing", NULL, "nothing"},
        {"--default-models=nobody", NULL, "default_models names \"nobody\""},
        {"--aliases=pets=nobody", NULL, "aliases has \"pets=nobody\""},
        {"--listen-address=somewhere", NULL, "listen_address: \"somewhere\""},
        {"--listen-address=off", NULL, "expected at least one"},
        {"--listen-address=127.0.0.1,127.0.0.300", NULL, "127.0.0.300"},
        {"--metrics-address=here", "--isa=auto", "metrics_address"},
        {"--admin-unix={}/text/config.json", NULL, "is not a socket"},
        {"--listen-unix={}", "--listen-unix-mode=999", "listen_unix_mode"},
        {"--tls-certificate={}/text/config.json", NULL, "tls_certificate and tls_key"},
        {"--tls-certificate={}/text/config.json", "--tls-key={}/text/config.json", "PEM"},
        {"--keys-file={}/nothing", NULL, "nothing"},
        {"--keys-file={}/text/config.json", NULL, "config.json"},
        {"--trusted-proxies=here", NULL, "trusted_proxies"},
        {"--cors-origins=here", NULL, "cors_origins"},
        {"--hosts=a/b", NULL, "hosts has \"a/b\""},
        {"--memory-max-mb=64", NULL, "there are 64 MiB of memory (memory_max_mb); expected at least"},
    };
    (void)state;
    model_folder_put(models_folder, "text", TEXT);
    model_folder_put(models_folder, "pictures", PICTURE);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int code;
        char *said;
        check(cases[i].flag, cases[i].other, &code, &said);
        if ((code != 1 && code != EXIT_USAGE) || strstr(said, cases[i].says) == NULL)
            fail_msg("%s: %d \"%s\", expected 1 or 2 and \"%s\"", cases[i].flag, code, said, cases[i].says);
        free(said);
    }
}

static void what_would_start_is_fine(void **state)
{
    int code;
    char *said;
    (void)state;
    model_folder_put(models_folder, "text", TEXT);
    check("--listen-address=localhost", "--precision=text=bf16", &code, &said);
    if (code != 0 || strstr(said, "configuration is fine") == NULL)
        fail_msg("%d \"%s\"", code, said);
    free(said);
    check("--memory-max-mb=256", "--bodies-memory-max-mb=512", &code, &said); /* what is set is taken as it is */
    if (code != 0 || strstr(said, "the daemon may be killed") == NULL ||
        strstr(said, "bodies 512, pictures 32") == NULL)
        fail_msg("%d \"%s\"", code, said);
    free(said);
    put_broken("other", MODEL_TRUNCATED);
    check("--models-broken=skip", "--models-lazy=true", &code, &said);
    if (code != 1 || strstr(said, "other/model.safetensors") == NULL) /* whoever asks wants to know */
        fail_msg("%d \"%s\"", code, said);
    free(said);
}

/* ---- addresses -------------------------------------------------------------------------------------------------- */

static bool has_loopback6(void)
{
    const struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool has = fd >= 0 && bind(fd, (const struct sockaddr *)(const void *)&name, sizeof name) == 0;
    if (fd >= 0)
        (void)close(fd);
    return has;
}

static void an_address_in_use_is_told_before_models_are_loaded(void **state)
{
    struct daemon second = {.pid = 0};
    char port[32];
    (void)state;
    model_folder_put(models_folder, "text", TEXT);
    administration_start(NULL, NULL);
    (void)snprintf(port, sizeof port, "--listen-port=%u", administered.port);
    assert_int_equal(daemon_try_start(&second, (const char *const[]){port, NULL}), 1);
    char *log = daemon_log(&second);
    assert_non_null(strstr(log, "cannot listen on 127.0.0.1"));
    assert_non_null(strstr(log, "; `ss -ltnp` tells who has it, --listen-port chooses another"));
    assert_null(strstr(log, "info model ")); /* not one was read */
    free(log);
    daemon_clear(&second);
    daemon_stop(&administered);
}

static void localhost_is_both_loopback_addresses(void **state)
{
    (void)state;
    model_folder_put(models_folder, "text", TEXT);
    administration_start("--listen-address=localhost", NULL);
    char six[64];
    (void)snprintf(six, sizeof six, "listening on http://[::1]:%u\n", administered.port);
    if (has_loopback6())
        daemon_await_log(&administered, six);
    else
        print_message("this machine has no ::1: localhost is 127.0.0.1 alone\n");
    daemon_stop(&administered);
}

/* ---- models ----------------------------------------------------------------------------------------------------- */

/* A member of GET /v1/models/NAME; "" if it is not there. */
static const char *told(const char *name, const char *member)
{
    static char value[128];
    char path[128];
    struct reply r;
    (void)snprintf(path, sizeof path, "/v1/models/%s", name);
    client_get(&administered, path, &r);
    assert_int_equal(r.status, 200);
    json_t *m = reply_json(&r);
    const char *text = json_string_value(json_object_get(m, member));
    (void)snprintf(value, sizeof value, "%s", text != NULL ? text : "");
    json_decref(m);
    reply_clear(&r);
    return value;
}

static void get_ready(struct reply *r)
{
    client_get(&administered, "/readyz", r);
    assert_int_equal(r->status, 200);
}

static void one_broken_folder_does_not_keep_others_down(void **state)
{
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "good", TEXT);
    for (int fault = 0; fault < MODEL_FAULTS; fault++) {
        put_broken("bad", (enum model_fault)fault);
        administration_start(NULL, NULL);
        free(model_text("good"));
        model_assert_error("bad", 503, "unavailable", "cannot be loaded");
        assert_string_equal(told("bad", "state"), "failed");
        assert_string_equal(told("bad", "task"), "");
        assert_string_equal(told("good", "state"), "loaded");
        get_ready(&r);
        assert_string_equal(r.body, "{\"status\":\"ready\",\"models_failed\":1}");
        reply_clear(&r);
        assert_true(client_metric(&administered, "aftd_models_failed ") == 1);
        daemon_await_log(&administered, "error model bad: not served: ");
        model_folder_put(models_folder, "bad", TEXT);
        assert_string_equal(admin_reload(), "loaded bad, unchanged good");
        get_ready(&r);
        assert_string_equal(r.body, "{\"status\":\"ready\"}");
        reply_clear(&r);
        daemon_stop(&administered);
        model_folder_drop(models_folder, "bad");
    }
}

static void a_broken_folder_ends_the_start_where_it_is_to(void **state)
{
    char models[PATH_MAX + 32];
    (void)state;
    model_folder_put(models_folder, "good", TEXT);
    put_broken("bad", MODEL_NO_TENSOR);
    (void)snprintf(models, sizeof models, "--models-dir=%s", models_folder);
    assert_int_equal(daemon_try_start(&administered, (const char *const[]){models, "--models-broken=refuse", NULL}), 1);
    daemon_await_log(&administered, "/bad");
    char *log = daemon_log(&administered);
    assert_null(strstr(log, "not served")); /* nothing is: it is told once */
    free(log);
    daemon_clear(&administered);
    model_folder_drop(models_folder, "good"); /* the last one */
    assert_int_equal(daemon_try_start(&administered, (const char *const[]){models, NULL}), 1);
    daemon_await_log(&administered, "/bad");
    daemon_clear(&administered);
}

static void a_model_that_is_not_loaded_yet_is_listed(void **state)
{
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "pictures", PICTURE);
    model_folder_put(models_folder, "text", TEXT);
    administration_start("--models-lazy=true", "--precision=auto");
    client_get(&administered, "/v1/models", &r);
    json_t *list = reply_json(&r);
    assert_int_equal(json_array_size(json_object_get(list, "data")), 2);
    json_decref(list);
    reply_clear(&r);
    assert_string_equal(told("text", "state"), "idle");
    assert_string_equal(told("text", "task"), "text-generation");
    assert_string_equal(told("text", "mixer"), "");
    admin_act_well("text", "load");
    assert_string_equal(told("text", "state"), "loaded");
    assert_string_equal(told("text", "mixer"), "aft-local");
    assert_string_equal(told("text", "precision_by"), "files");
    admin_act_well("text", "unload");
    client_get(&administered, "/v1/models/text", &r);
    reply_assert_error(&r, 404, "not_found", "model", "there is no model");
    reply_clear(&r);
    daemon_stop(&administered);
}

int main(void)
{
#define TEST_IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, administration_set_up, administration_tear_down)
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(what_start_refuses_the_check_refuses),
        TEST_IN_FOLDER(what_would_start_is_fine),
        TEST_IN_FOLDER(an_address_in_use_is_told_before_models_are_loaded),
        TEST_IN_FOLDER(localhost_is_both_loopback_addresses),
        TEST_IN_FOLDER(one_broken_folder_does_not_keep_others_down),
        TEST_IN_FOLDER(a_broken_folder_ends_the_start_where_it_is_to),
        TEST_IN_FOLDER(a_model_that_is_not_loaded_yet_is_listed),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("start", tests, NULL, NULL);
}
