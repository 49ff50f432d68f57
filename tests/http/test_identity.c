/* test_identity.c - a state names the very weights that made it, also while somebody keeps exchanging the files
 * that the daemon reads. The real daemon and a small model. */
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_folder.h"
#include "tests/support/temp_dir.h"

#define SOURCE "tests/data/golden/lm-local-8"

enum {
    LIMIT_S = 580,
    LOADED = 20,
    TRIES_MAX = 400,
    CHANGED_BYTES = 20000,
    DIGEST_BASE64_AT = (32 + 2) / 3 * 4, /* the blob has it from byte 32 on */
    DIGEST_BASE64 = 20,
    TEXT_MAX = 512
};

/* What a state and a text show about the weights. */
struct said {
    char text[TEXT_MAX];
    char digest[DIGEST_BASE64 + 1]; /* of its 16 bytes, those that are whole in base64 */
};

static char files[2][PATH_MAX], used[PATH_MAX], aside[PATH_MAX];
static pid_t exchanger;

static int set_up(void **state)
{
    exchanger = 0;
    return administration_set_up(state);
}

static void end_exchanger(void)
{
    if (exchanger > 0) {
        (void)kill(exchanger, SIGKILL);
        (void)waitpid(exchanger, NULL, 0);
    }
    exchanger = 0;
}

static int tear_down(void **state)
{
    end_exchanger();
    return administration_tear_down(state);
}

/* Two files of weights that differ in some values, beside the folder of the model, which has the first. */
static void make_files(void)
{
    size_t size;
    char source[PATH_MAX];
    temp_path(source, SOURCE, "model.safetensors");
    char *bytes = temp_read(source, &size);
    model_folder_put(models_folder, "m", SOURCE);
    for (int i = 0; i < 2; i++) {
        temp_path(files[i], models_folder, i == 0 ? "first" : "second");
        temp_write(files[i], bytes, size);
        for (size_t k = 0; k < CHANGED_BYTES && k < size / 2; k++)
            bytes[size - 1 - k] ^= (size - 1 - k) % 4 == 2 ? 0x40 : 0; /* of the fraction of a float */
    }
    free(bytes);
    temp_path(used, models_folder, "m/model.safetensors");
    temp_path(aside, models_folder, "m/.aside");
}

/* Exchange the files as a publisher of models does; a link costs nothing. */
static bool exchange(int i)
{
    return link(files[i], aside) == 0 && rename(aside, used) == 0;
}

static void exchange_for_ever(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned i = 0;; i++) {
        if (!exchange((int)(i % 2)))
            _exit(1);
        test_sleep_ms((long)(i * 7 % 12));
    }
}

static void ask(struct said *ret)
{
    static const char body[] = "{\"prompt\": \"Abc\", \"max_tokens\": 24, \"temperature\": 0, \"return_state\": true}";
    struct reply r;
    client_call(
        &administered,
        &(struct request){.path = "/generate", .type = "application/json", .body = body, .size = sizeof body - 1}, &r);
    assert_int_equal(r.status, 200);
    json_t *answer = reply_json(&r);
    const char *state = json_string_value(json_object_get(answer, "state"));
    assert_non_null(state);
    (void)snprintf(ret->text, sizeof ret->text, "%s", json_string_value(json_object_get(answer, "text")));
    (void)snprintf(ret->digest, sizeof ret->digest, "%s", state + DIGEST_BASE64_AT);
    json_decref(answer);
    reply_clear(&r);
}

static void a_state_names_the_weights_that_made_it(void **state)
{
    struct said known[2], now;
    int loaded = 0, of_second = 0;
    (void)state;
    make_files();
    administration_start(NULL, NULL);
    for (int i = 0; i < 2; i++) {
        assert_true(exchange(i));
        admin_act_well("m", "reload");
        ask(&known[i]);
    }
    assert_string_not_equal(known[0].text, known[1].text);
    assert_string_not_equal(known[0].digest, known[1].digest);
    exchanger = fork();
    assert_true(exchanger >= 0);
    if (exchanger == 0)
        exchange_for_ever();
    for (int i = 0; i < TRIES_MAX && loaded < LOADED; i++) {
        struct reply r;
        admin_post("/admin/models/m", "{\"action\": \"reload\"}", &r);
        if (r.status == 200)
            loaded++;
        else
            reply_assert_error(&r, 422, "file_refused", NULL, "changed while they were read");
        reply_clear(&r);
        ask(&now);
        const int is = strcmp(now.text, known[1].text) == 0;
        of_second += is;
        assert_string_equal(now.text, known[is].text);
        if (strcmp(now.digest, known[is].digest) != 0)
            fail_msg("after %d reloads the text is of the file %d, and the state says it is of another", loaded, is);
    }
    print_message("%d reloads while files were exchanged, %d texts of the second file\n", loaded, of_second);
    assert_true(loaded > 0);
    end_exchanger();
    daemon_stop(&administered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_state_names_the_weights_that_made_it, set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
