/* test_memory.c - what the bounds of memory are by default, by how much there is. */
#include "config/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct config shared(uint64_t there_is)
{
    struct config c = {.action = CONFIG_RUN};
    settings_init(&c.settings);
    memory_share(&c.settings, c.sources, there_is);
    return c;
}

/* All bounds together, as they are documented, and what each connection may take. */
static uint64_t sum_of(const struct settings *s)
{
    return ((uint64_t)s->models_memory_max_mb + s->bodies_memory_max_mb + s->pictures_memory_max_mb +
            s->answers_memory_max_mb + s->sessions_memory_max_mb) *
               MIB +
           (uint64_t)s->connections_max * HTTP_CONNECTION_BYTES_MAX;
}

static void much_memory_leaves_every_default(void **state)
{
    struct settings defaults;
    (void)state;
    settings_init(&defaults);
    struct config c = shared(8 * GIB);
    assert_in_range(c.settings.models_memory_max_mb, 4 * 1024, 8 * 1024 * 4 / 5);
    assert_int_equal(c.sources[SETTING_models_memory_max_mb], CONFIG_FROM_SHARE);
    c.settings.models_memory_max_mb = 0;
    assert_memory_equal(&c.settings, &defaults, sizeof defaults);
    c = shared(0); /* unknown */
    assert_memory_equal(&c.settings, &defaults, sizeof defaults);
}

static void all_bounds_together_fit_into_what_there_is(void **state)
{
    static const uint64_t sizes[] = {256, 300, 384, 512, 1024, 2048, 4096, 6000, 16384, 1048576};
    struct settings defaults;
    (void)state;
    settings_init(&defaults);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const struct config c = shared(sizes[i] * MIB);
        const struct settings *s = &c.settings;
        char warning[ERROR_MESSAGE_MAX];
        struct error err;
        assert_true(sum_of(s) + 16 * MIB < sizes[i] * MIB / 5 * 4); /* the program is there too */
        assert_true(s->models_memory_max_mb * UINT64_C(8) >= sizes[i]);
        assert_true(s->bodies_memory_max_mb * MIB >= UINT64_C(2) * s->body_bytes_max);
        assert_true(s->http_threads >= 1 && s->http_threads <= defaults.http_threads);
        assert_true(s->parking_mb >= 2 && s->parking_mb <= defaults.parking_mb);
        assert_int_equal(memory_check(&c.settings, c.sources, sizes[i] * MIB, warning, sizeof warning, &err), OK);
        assert_string_equal(warning, "");
    }
}

static void what_is_set_is_taken_as_it_is(void **state)
{
    struct config c = {.action = CONFIG_RUN};
    char warning[ERROR_MESSAGE_MAX], text[ERROR_MESSAGE_MAX];
    struct error err;
    (void)state;
    settings_init(&c.settings);
    c.settings.memory_max_mb = 256;
    c.settings.bodies_memory_max_mb = 512;
    c.sources[SETTING_memory_max_mb] = c.sources[SETTING_bodies_memory_max_mb] = CONFIG_FROM_FLAG;
    memory_share(&c.settings, c.sources, 64 * GIB);
    assert_int_equal(c.settings.bodies_memory_max_mb, 512);
    assert_int_equal(c.sources[SETTING_bodies_memory_max_mb], CONFIG_FROM_FLAG);
    assert_true(c.settings.pictures_memory_max_mb < 256);
    assert_int_equal(c.sources[SETTING_pictures_memory_max_mb], CONFIG_FROM_SHARE);
    assert_int_equal(memory_check(&c.settings, c.sources, 64 * GIB, warning, sizeof warning, &err), OK);
    assert_non_null(strstr(warning, "and there are 256 (memory_max_mb), so that the daemon may be killed"));
    assert_non_null(strstr(warning, "bodies 512"));
    memory_describe(&c.settings, 64 * GIB, text, sizeof text);
    assert_non_null(strstr(text, "memory: 256 MiB (memory_max_mb); at most, in MiB: models "));
}

/* What no bound counts is what is left beside the bound that was set. */
static void a_bound_that_leaves_models_the_least_is_warned_of(void **state)
{
    static const struct {
        uint32_t bodies_mb, models_mb; /* 0: not set */
        const char *says;              /* NULL: nothing */
    } cases[] = {
        {600, 0, NULL},
        {700, 0, "so that models get the least"},
        {700, 16, NULL},
        {1000, 0, "so that the daemon may be killed"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c = {.action = CONFIG_RUN};
        char warning[ERROR_MESSAGE_MAX];
        settings_init(&c.settings);
        c.settings.bodies_memory_max_mb = cases[i].bodies_mb;
        c.sources[SETTING_bodies_memory_max_mb] = CONFIG_FROM_FILE;
        c.settings.models_memory_max_mb = cases[i].models_mb;
        if (cases[i].models_mb != 0)
            c.sources[SETTING_models_memory_max_mb] = CONFIG_FROM_FILE;
        memory_share(&c.settings, c.sources, GIB);
        assert_int_equal(memory_check(&c.settings, c.sources, GIB, warning, sizeof warning, NULL), OK);
        if (cases[i].says == NULL)
            assert_string_equal(warning, "");
        else
            assert_non_null(strstr(warning, cases[i].says));
    }
}

static void bodies_have_room_for_the_largest(void **state)
{
    struct config c = {.action = CONFIG_RUN};
    (void)state;
    settings_init(&c.settings);
    c.settings.body_bytes_max = 64 << 20;
    memory_share(&c.settings, c.sources, GIB);
    assert_int_equal(c.settings.bodies_memory_max_mb, 160);
    settings_init(&c.settings);
    c.settings.body_bytes_max = 1024;
    memory_share(&c.settings, c.sources, 128 * MIB);
    assert_int_equal(c.settings.bodies_memory_max_mb, 8);
}

static void too_little_memory_says_what_is_needed(void **state)
{
    char warning[ERROR_MESSAGE_MAX];
    struct error err;
    (void)state;
    const struct config c = shared(64 * MIB);
    assert_int_equal(memory_check(&c.settings, c.sources, 64 * MIB, warning, sizeof warning, &err), ERR_CONFIG);
    assert_string_equal(err.param, "memory_max_mb");
    assert_non_null(strstr(err.message, "there are 64 MiB of memory"));
    assert_non_null(strstr(err.message, "expected at least 1"));
    assert_non_null(strstr(err.message, "bodies 40"));
}

static void the_kernel_says_how_much_there_is(void **state)
{
    (void)state;
    assert_true(memory_there_is() > 64 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(much_memory_leaves_every_default),
        cmocka_unit_test(all_bounds_together_fit_into_what_there_is),
        cmocka_unit_test(what_is_set_is_taken_as_it_is),
        cmocka_unit_test(a_bound_that_leaves_models_the_least_is_warned_of),
        cmocka_unit_test(bodies_have_room_for_the_largest),
        cmocka_unit_test(too_little_memory_says_what_is_needed),
        cmocka_unit_test(the_kernel_says_how_much_there_is),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
