/* test_model_memory.c - a model is loaded while memory is short: each allocation is refused in its turn, alone and with
 * all that follow. The program's own functions refuse them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/model_variants.h"
#include "tests/support/refused_memory.h"
#include "tests/support/temp_dir.h"
#include "weights/model.h"

static unsigned load_without_each(const char *dir, bool stays)
{
    unsigned refused = 0;
    for (long n = 1;; n++) {
        struct model *m = NULL;
        struct error err = {.message = ""};
        assert_true(n < ALLOCATIONS_MAX);
        refuse_memory(n, stays);
        const enum status st = model_load(&m, dir, NULL, NULL, &err);
        const bool reached = give_memory();
        if (st != OK && (!reached || st != ERR_NOMEM || strstr(err.message, "memory") == NULL || m != NULL))
            fail_msg("%s without allocation %ld: %d, %s", dir, n, (int)st, err.message);
        if (st == OK)
            model_free(m);
        if (!reached)
            return refused;
        refused += st != OK;
    }
}

static void a_model_that_finds_no_memory_is_refused(void **state)
{
    char dir[PATH_MAX], chat[PATH_MAX];
    const char *const models[] = {"tests/data/golden/lm-local-8", "tests/data/golden/conv-heads8-k5", chat};
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: sanitizers have their own malloc\n");
        skip();
    }
    temp_dir_create(dir);
    temp_path(chat, dir, "chat");
    model_variants_write_chat(dir, "chat", "tests/data/golden/lm-simple", "A:", "\n");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int stays = 0; stays < 2; stays++) {
            const unsigned refused = load_without_each(models[i], stays == 1);
            print_message("  %s: refused %u times\n", models[i], refused);
            assert_true(refused > 20);
        }
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_finds_no_memory_is_refused),
    };
    return cmocka_run_group_tests_name("model, memory", tests, NULL, NULL);
}
