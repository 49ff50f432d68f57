/* test_memory_models.c - memory that is short while models are loaded: at the start, of the main thread, and
 * later, of the loader's. Of the allocations of each one after another is refused (scarcity.h): the first few dozen of
 * the thousands, then some. A daemon then either starts as ever or ends, saying why; and one that runs says that there
 * is no memory, goes on with what it had, and loses nothing. The real daemon and small models. */
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
#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/model_folder.h"
#include "tests/support/scarcity.h"
#include "tests/support/scene.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GOLDEN "tests/data/golden/"
#define TEXT_A GOLDEN "lm-local-8"
#define TEXT_B GOLDEN "lm-local-no-global"
#define PICTURE GOLDEN "conv-heads8-k5"
#define RELOAD "{\"action\": \"reload\"}"

enum {
    LIMIT_S = 580,
    LONG_LIMIT_S = 3600,
    ALLOCATIONS_MAX = 100000,
    WARM_ROUNDS = 3, /* after these what stays has come */
    START_PART = 25, /* after so many allocations the steps become longer, by a part that is their inverse */
    CHANGE_PART = 30,
    LAZY_MODELS = 24,
    STEADY_MS = 20,
};

static struct scarce_memory *scarce;
static char key[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 32];
static const char *const keyed[] = {header, NULL};

static int tear_down(void **state)
{
    scarcity_end(scarce);
    scarce = NULL;
    return administration_tear_down(state);
}

/* ---- a daemon --------------------------------------------------------------------------------------------------- */

/* Models with and without versions, and keys: files of every kind are read. */
static void put_files(const char *thread)
{
    char path[PATH_MAX], settings[PATH_MAX + 128];
    scarce = scarcity_begin(models_folder, thread);
    model_folder_put(models_folder, "many", TEXT_A); /* makes the folder, which from here on has only versions */
    model_folder_put(models_folder, "many/2", TEXT_B);
    temp_path(path, models_folder, "many/config.json");
    assert_int_equal(remove(path), 0);
    model_folder_put(models_folder, "picture", PICTURE);
    model_folder_put(models_folder, "text", TEXT_A);
    temp_path(path, models_folder, ".keys.json");
    keys_add(path, "admin", (const char *const[]){"--apis", "native,openai,admin", NULL}, key);
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", key);
    (void)snprintf(settings, sizeof settings,
                   "{\"keys_file\": \"%s\", \"log_requests\": false, \"streams_max\": 8, "
                   "\"models_broken\": \"refuse\"}",
                   path);
    temp_path(path, models_folder, ".aftd.json");
    temp_write(path, settings, strlen(settings));
}

/* Like daemon_try_start. */
static int try_start(const char *flag)
{
    char models[PATH_MAX + 16], config[PATH_MAX + 32];
    (void)snprintf(models, sizeof models, "--models-dir=%s", models_folder);
    (void)snprintf(config, sizeof config, "--config=%s/.aftd.json", models_folder);
    scarcity_enter();
    atomic_store(&scarce->live, 0);
    const int code =
        daemon_try_start(&administered, (const char *const[]){models, config, "--admin-address=127.0.0.1",
                                                              "--admin-port=0", "--picture-tokens-max=64", flag, NULL});
    scarcity_leave();
    return code;
}

static void start(const char *flag)
{
    assert_int_equal(try_start(flag), 0);
    assert_true(atomic_load(&scarce->live) > 0);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static void ask(const char *model, struct reply *ret)
{
    char body[256];
    (void)snprintf(body, sizeof body, "{\"model\": \"%s\", \"prompt\": \"Abc\", \"max_tokens\": 8, \"seed\": 1}",
                   model);
    const struct request r = {
        .path = "/generate", .type = "application/json", .body = body, .size = strlen(body), .headers = keyed};
    client_call(&administered, &r, ret);
}

static void change(const char *path, const char *body, struct reply *ret)
{
    const struct request r = {.method = "POST",
                              .path = path,
                              .type = "application/json",
                              .body = body,
                              .size = strlen(body),
                              .headers = keyed,
                              .port = administered.admin_port};
    client_call(&administered, &r, ret);
}

/* What each model writes, as it was before memory was short. */
static const char *const writers[] = {"many", "text"};
static char written[ARRAY_LEN(writers)][128];

static void note_text(const struct reply *r, char out[128])
{
    if (r->status != 200)
        fail_msg("%ld: %s", r->status, r->body);
    json_t *answer = reply_json(r);
    const int n = snprintf(out, 128, "%s", json_string_value(json_object_get(answer, "text")));
    assert_in_range(n, 1, 127);
    json_decref(answer);
}

static void learn(void)
{
    for (size_t i = 0; i < ARRAY_LEN(writers); i++) {
        struct reply r;
        ask(writers[i], &r);
        note_text(&r, written[i]);
        reply_clear(&r);
    }
    assert_string_not_equal(written[0], written[1]);
}

/* All models, only for those who have a key. */
static void assert_serves_as_ever(long n)
{
    struct reply r;
    for (size_t i = 0; i < ARRAY_LEN(writers); i++) {
        char text[128];
        ask(writers[i], &r);
        note_text(&r, text);
        if (strcmp(text, written[i]) != 0)
            fail_msg("%s, after allocation %ld was refused, writes \"%s\", before \"%s\"", writers[i], n, text,
                     written[i]);
        reply_clear(&r);
    }
    client_call(&administered, &(struct request){.path = "/v1/models", .headers = keyed}, &r);
    assert_non_null(strstr(r.body, "\"picture\""));
    reply_clear(&r);
    client_get(&administered, "/v1/models", &r);
    assert_int_equal(r.status, 401);
    reply_clear(&r);
}

/* ---- the start -------------------------------------------------------------------------------------------------- */

static void a_start_without_memory_says_so_and_ends(void **state)
{
    unsigned started = 0, ended = 0, wrong = 0;
    long n = 1;
    (void)state;
    put_files("aftd");
    start(NULL);
    learn();
    daemon_stop(&administered);
    for (bool reached = true; reached; n += scene_is_long() ? 1 : 1 + n / START_PART) {
        atomic_store(&scarce->until, n);
        const int code = try_start(NULL);
        reached = atomic_exchange(&scarce->until, 0) <= 0;
        if (code == 0) {
            started++;
            assert_serves_as_ever(n);
            daemon_stop(&administered);
            continue;
        }
        char *log = daemon_log(&administered);
        ended++;
        if (code != 1 || strstr(log, "memory") == NULL) {
            wrong++;
            (void)fprintf(stderr, "without allocation %ld: expected 1 and a message, got %d: %s\n", n, code, log);
        }
        free(log);
        daemon_clear(&administered);
        assert_true(n < ALLOCATIONS_MAX);
    }
    print_message("  a start: about %ld allocations; without one it ended %u times and began %u times\n", n, ended,
                  started);
    assert_int_equal(wrong, 0);
    assert_true(ended > 10);
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

/* Does the report of a reload name all models, and say of those not loaded that memory was short? */
static bool is_fine_report(const struct reply *r)
{
    static const char *const lists[] = {"loaded", "reloaded", "unchanged", "failed"};
    json_t *report = reply_json(r), *models = json_object_get(report, "models"), *one;
    size_t count = 0, i;
    bool fine = json_array_size(json_object_get(models, "unloaded")) == 0;
    for (size_t k = 0; k < ARRAY_LEN(lists); k++)
        count += json_array_size(json_object_get(models, lists[k]));
    json_array_foreach(json_object_get(models, "failed"), i, one)
    {
        fine = fine && strstr(json_string_value(json_object_get(one, "message")), "memory") != NULL;
    }
    json_decref(report);
    return fine && count == 3;
}

/* The live memory once nothing more is freed. */
static long settled(void)
{
    long live = atomic_load(&scarce->live);
    for (int64_t since = test_now_ms(); test_now_ms() < since + STEADY_MS; test_sleep_ms(1)) {
        const long now = atomic_load(&scarce->live);
        if (now != live)
            since = test_now_ms();
        live = now;
    }
    return live;
}

static void sweep(const char *path, const char *body, const char *touched)
{
    unsigned made = 0, refused = 0;
    long n = 1, live = 0;
    struct reply r;
    for (int i = 0; i < WARM_ROUNDS; i++) {
        model_folder_put(models_folder, touched, TEXT_A);
        change(path, body, &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
        assert_serves_as_ever(0);
        live = settled();
    }
    for (bool reached = true; reached; n += scene_is_long() ? 1 : 1 + n / CHANGE_PART) {
        model_folder_put(models_folder, touched, TEXT_A);
        atomic_store(&scarce->until, n);
        change(path, body, &r);
        reached = atomic_exchange(&scarce->until, 0) <= 0;
        made += r.status == 200;
        refused += r.status != 200;
        if (r.status != 200)
            reply_assert_error(&r, 503, "out_of_memory", NULL, "memory");
        else if (strstr(path, "/config/") != NULL && !is_fine_report(&r))
            fail_msg("without allocation %ld: %s", n, r.body);
        reply_clear(&r);
        assert_serves_as_ever(n);
        assert_true(n < ALLOCATIONS_MAX);
    }
    change(path, body, &r); /* what was lacking is there again */
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    scarcity_await(scarce, live, path);
    print_message("  %-22s about %ld allocations: made %u times, refused %u times\n", path, n, made, refused);
    assert_true(refused > 10);
}

static void a_change_without_memory_changes_nothing(void **state)
{
    (void)state;
    put_files("loader");
    start("--http-threads=1");
    learn();
    sweep("/admin/models/text", RELOAD, "text");
    sweep("/admin/models/many", RELOAD, "text");
    sweep("/admin/models/picture", RELOAD, "text");
    sweep("/admin/config/reload", "", "text");
    daemon_stop(&administered);
}

/* Ask like a client that is told to try again. */
static void await_loaded(const char *model)
{
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(1)) {
        struct reply r;
        char text[128];
        ask(model, &r);
        const bool there = r.status == 200;
        if (there) {
            note_text(&r, text);
            assert_string_equal(text, written[1]);
        } else {
            reply_assert_error(&r, 503, "model_loading", "model", "is being loaded");
        }
        reply_clear(&r);
        if (there)
            return;
        if (test_now_ms() > end)
            fail_msg("%s does not get loaded", model);
    }
}

static void a_model_that_found_no_memory_is_tried_again(void **state)
{
    char name[LAZY_MODELS][16];
    unsigned missed = 0;
    (void)state;
    put_files("loader");
    start(NULL);
    learn();
    daemon_stop(&administered);
    for (int i = 0; i < LAZY_MODELS; i++) {
        (void)snprintf(name[i], sizeof name[i], "text%02d", i);
        model_folder_put(models_folder, name[i], TEXT_A);
    }
    start("--models-lazy=true");
    for (int i = 0; i < LAZY_MODELS; i++) {
        atomic_store(&scarce->until, 1 + 3L * i * i);
        await_loaded(name[i]);
        missed += atomic_exchange(&scarce->until, 0) <= 0;
    }
    print_message("  %u of %d models were first refused memory\n", missed, LAZY_MODELS);
    assert_true(missed > LAZY_MODELS / 2);
    daemon_stop(&administered);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, administration_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_start_without_memory_says_so_and_ends),
        TEST(a_change_without_memory_changes_nothing),
        TEST(a_model_that_found_no_memory_is_tried_again),
    };
    test_limit_s(scene_is_long() ? LONG_LIMIT_S : LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
