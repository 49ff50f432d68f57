/* test_capacity.c - aft capacity: how many replicas it finds for costs that are known, what it says of a command line
 * that is wrong, and that costs measured here can be used again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "config/limits.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char aft[PATH_MAX], folder[PATH_MAX], text[PATH_MAX], pictures[PATH_MAX];

/* A pass of 10 ms whatever is in it, and a picture in 20 ms. */
static const char text_costs[] =
    "{\"costs\": {\"model\": \"made-up\", \"isa\": \"avx2\", \"precision\": \"f32\", \"threads\": 1, \"generates\": "
    "true, "
    "\"context\": 0, \"starts\": false, \"ahead\": false, \"per_machine\": 4, \"idle_us\": 0, \"wake_us\": 0, "
    "\"waker_us\": 0, "
    "\"crowding\": [[1, 1.0]], \"step_us\": "
    "[[1, 10000], [64, "
    "10000]], \"prompt_us\": [[1, 10000], [96, "
    "10000]]}}";
static const char picture_costs[] =
    "{\"costs\": {\"model\": \"made-up\", \"isa\": \"avx2\", \"precision\": \"f32\", "
    "\"threads\": 1, \"generates\": false, "
    "\"context\": 0, \"starts\": false, \"ahead\": false, \"per_machine\": 4, \"idle_us\": 0, "
    "\"wake_us\": 0, \"waker_us\": 0, \"crowding\": [[1, 1.0]], "
    "\"batch_us\": [[1, 20000], [8, 20000]]}}";

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(folder);
    temp_path(text, folder, "text.json");
    temp_path(pictures, folder, "pictures.json");
    temp_write(text, text_costs, strlen(text_costs));
    temp_write(pictures, picture_costs, strlen(picture_costs));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(folder);
    return 0;
}

static json_t *object_of(struct program_run *p)
{
    json_error_t error;
    program_run(p);
    if (p->exit_code != 0 || p->err_size != 0)
        fail_msg("exit code %d: %s", p->exit_code, p->err);
    json_t *object = json_loads(p->out, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object))
        fail_msg("%s in\n%s", error.text, p->out);
    program_run_clear(p);
    return object;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

/* 64 texts of 20 passes at a time are 320 a second for each: 1,000 a second are more than three can do. */
static void the_fewest_replicas_that_hold_are_found(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft,         "capacity", "--costs",        text, "--rate",       "1000",
                                     "--p99",     "400",      "--prompt-bytes", "1",  "--max-tokens", "20",
                                     "--cores",   "2",        "--request-us",   "0",  "--event-us",   "0",
                                     "--pass-us", "0",        "--json"}};
    json_t *o = object_of(&p);
    assert_int_equal((int)number(o, "replicas_needed"), 4);
    assert_int_equal((int)number(o, "cores_needed"), 8);
    assert_true(number(o, "machine_per_second") > 310.0 && number(o, "machine_per_second") < 330.0);
    assert_true(number(o, "alone_ms") > 199.0 && number(o, "alone_ms") < 201.0);
    const json_t *rows = json_object_get(o, "rows");
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const bool holds = json_is_true(json_object_get(row, "holds"));
        assert_int_equal(holds, number(row, "replicas") >= 4.0);
        if (holds)
            assert_true(number(json_object_get(row, "whole_ms"), "p99") <= 400.0);
    }
    json_decref(o);
}

static void a_table_is_printed_for_people(void **state)
{
    (void)state;
    struct program_run p = {
        .argv = {aft, "capacity", "--costs", pictures, "--rate", "20", "--p99", "200", "--cores", "1"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_non_null(strstr(p.out, "made-up: avx2 kernels, f32, 1 thread"));
    assert_non_null(strstr(p.out, "replicas  cores   answered/s"));
    assert_non_null(strstr(p.out, "1 replica, 1 core: 99 of 100 requests are answered within 200 ms"));
    program_run_clear(&p);
}

static void what_cannot_be_held_is_said(void **state)
{
    (void)state;
    const struct {
        const char *argv[8];
        const char *says;
    } cases[] = {
        {{"--rate", "10", "--p99", "100"}, "takes 2.57e+03 ms where there is no other"},
        {{"--rate", "10", "--p99", "3000", "--mix", "1:10:9,1:1000:1"}, "more replicas do not help"},
        {{"--rate", "1e6", "--p99", "9000", "--replicas", "1"}, "would have to be simulated"},
        {{"--rate", "50000", "--p99", "2800"}, "and --replicas-max is 1024"},
        {{"--rate", "100", "--p99", "4000", "--replicas", "1"}, "none of these answers 99 of 100 requests"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct program_run p = {.argv = {aft, "capacity", "--costs", text}};
        for (size_t j = 0; cases[i].argv[j] != NULL; j++)
            p.argv[4 + j] = cases[i].argv[j];
        program_run(&p);
        if (p.exit_code != 1 || (strstr(p.err, cases[i].says) == NULL && strstr(p.out, cases[i].says) == NULL))
            fail_msg("%s: exit code %d, %s%s", cases[i].says, p.exit_code, p.out, p.err);
        program_run_clear(&p);
    }
}

/* 50,000 a second are half as many again as a hundred replicas can do: that their queues grow shows after the usual
 * number of requests, of which all would still be in time. */
static void an_overload_is_seen_however_fast_requests_come(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft,         "capacity", "--costs",    text,   "--rate",       "50000",
                                     "--p99",     "1000",     "--cores",    "2",    "--replicas",   "100",
                                     "-n",        "20",       "--mix",      "1:20", "--request-us", "0",
                                     "--pass-us", "0",        "--event-us", "0"}};
    program_run(&p);
    if (p.exit_code != 1 || strstr(p.out, "none of these") == NULL)
        fail_msg("exit code %d, %s%s", p.exit_code, p.out, p.err);
    program_run_clear(&p);
}

/* Two replicas of a machine with two cores answer 100 a second; four there no more than that. */
static void a_machine_that_is_not_full_is_tried(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft, "capacity", "--costs", pictures, "--rate", "90", "--p99", "1000", "--cores",
                                     "2", "--per-machine", "4", "--json", "--batch-images-max", "1", "--request-us",
                                     "0", "--pass-us", "0"}};
    json_t *o = object_of(&p);
    assert_int_equal((int)number(o, "replicas_needed"), 2);
    json_decref(o);
}

static void few_places_to_wait_are_no_reason_to_stop(void **state)
{
    static const char *const queues[] = {"1", "256"};
    (void)state;
    for (size_t i = 0; i < LENGTH(queues); i++) {
        struct program_run p = {.argv = {aft, "capacity", "--costs", text, "--rate", "1", "--p99", "9000", "--cores",
                                         "2", "--queue-jobs-max", queues[i], "--streams-max", "64", "--requests",
                                         "2000", "--json"}};
        json_t *o = object_of(&p);
        const double most = number(o, "machine_per_second"); /* 64 texts in 256 passes and 64 times 100 bytes by 16 */
        if (!(most > 15.5 && most < 16.5))
            fail_msg("%s: %g a second", queues[i], most);
        json_decref(o);
    }
}

static void a_wrong_command_line_is_told_what_was_expected(void **state)
{
    (void)state;
    const struct {
        const char *argv[10];
        const char *says;
    } cases[] = {
        {{"--rate", "1", "--p99", "9"}, "expected exactly one of MODEL and --costs FILE"},
        {{"m", "--costs", "f", "--rate", "1", "--p99", "9"}, "expected exactly one of MODEL and --costs FILE"},
        {{"m", "--p99", "9"}, "expected exactly one of --rate and --concurrency"},
        {{"m", "--p99", "9", "--rate", "1", "--concurrency", "1"}, "expected exactly one of --rate and --concurrency"},
        {{"m", "--rate", "1"}, "expected a goal, --p99 MS"},
        {{"--costs", "f", "-t", "2", "--rate", "1", "--p99", "9"}, "--threads is for measuring"},
        {{"m", "--rate", "1", "--p99", "9", "--mix", "10"}, "--mix is \"10\", expected PROMPT:TOKENS"},
        {{"m", "--rate", "1", "--p99", "9", "--mix", "10:0"}, "--mix is \"10:0\""},
        {{"m", "--rate", "1", "--p99", "9", "--mix", "1:1:0"}, "--mix is \"1:1:0\""},
        {{"m", "--rate", "1", "--p99", "9", "--mix", "1:1,"}, "--mix is \"1:1,\""},
        {{"m", "--rate", "1", "--p99", "9", "--mix", "1:1:-2"}, "--mix is \"1:1:-2\""},
        {{"m", "--concurrency", "200", "--p99", "9", "--requests", "100"}, "at least one for each of the 200 clients"},
        {{"--costs", text, "--rate", "1", "--p99", "9", "--streams-max", "65"}, "measured for at most 64"},
        {{"--costs", pictures, "--rate", "1", "--p99", "9", "--batch-images-max", "9"}, "measured for at most 8"},
        {{"--costs", text, "--rate", "1", "--p99", "9", "--per-machine", "5"}, "measured for 4 on a machine"},
        {{"m", "--rate", "1", "--p99", "9", "-t", "255", "--cores", "512"}, "cannot be measured on this machine"},
        {{"m", "--rate", "1", "--p99", "9", "-t", "2", "--cores", "1"}, "does not fit on a machine of --cores 1"},
        {{"m", "--rate", "1", "--p99", "9", "--mix", "1:1:2e6"}, "weights above 0 and up to 1e6"},
        {{"m", "--rate", "1", "--p99", "9", "--requests", "5"}, "expected a whole number from 100 to 10000000"},
        {{"m", "--rate", "1", "--p99", "9", "--replicas", "2000"}, "expected a whole number from 1 to 1024"},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct program_run p = {.argv = {aft, "capacity"}};
        for (size_t j = 0; j < LENGTH(cases[i].argv) && cases[i].argv[j] != NULL; j++)
            p.argv[2 + j] = cases[i].argv[j];
        program_run(&p);
        if (p.exit_code != 2 || strstr(p.err, cases[i].says) == NULL)
            fail_msg("%s: exit code %d, %s", cases[i].says, p.exit_code, p.err);
        program_run_clear(&p);
    }
}

#define BEGIN "{\"costs\": {\"model\": \"m\", \"isa\": \"i\", \"precision\": \"f32\", \"threads\": 1, \"generates\": "
#define AWAKE ", \"context\": 0, \"starts\": false, \"ahead\": false, \"per_machine\": 1, \"idle_us\": 0"
#define MIDDLE AWAKE ", \"wake_us\": 0, \"waker_us\": 0, \"crowding\": 1, "

static void costs_that_are_not_as_they_were_written_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *costs, *says;
    } cases[] = {
        {"{}", "costs is not as"},
        {"{\"costs\": {}}", "costs.model is not as"},
        {"{\"costs\": {\"model\": \"m\", \"isa\": \"i\", \"precision\": \"f32\", \"threads\": 0}}", "costs.threads"},
        {BEGIN "false, \"context\": 0}}", "costs.starts"},
        {BEGIN "false, \"context\": 0, \"starts\": false}}", "costs.ahead"},
        {BEGIN "false, \"context\": 0, \"starts\": false, \"ahead\": false, \"per_machine\": 0}}", "costs.per_machine"},
        {BEGIN "false, \"context\": 0, \"starts\": false, \"ahead\": false, \"per_machine\": 1, \"idle_us\": -1}}",
         "costs.idle_us"},
        {BEGIN "false" AWAKE "}}", "costs.wake_us"},
        {BEGIN "false" AWAKE ", \"wake_us\": -1}}", "costs.wake_us"},
        {BEGIN "false" AWAKE ", \"wake_us\": 1, \"waker_us\": \"1\"}}", "costs.waker_us"},
        {BEGIN "false" MIDDLE "\"slowness\": {\"window_us\": 10000, \"times\": []}}}", "costs.slowness"},
        {BEGIN "false" MIDDLE "\"slowness\": {\"window_us\": 10000, \"times\": [1, 0]}}}", "costs.slowness"},
        {BEGIN "false" MIDDLE "\"slowness\": {\"window_us\": 0, \"times\": [1]}}}", "costs.slowness"},
        {BEGIN "false" MIDDLE "\"slowness\": 1}}", "costs.slowness"},
        {BEGIN "false" MIDDLE "\"batch_us\": [[2, 5], [1, 5]]}}", "costs.batch_us"},
        {BEGIN "false" MIDDLE "\"batch_us\": [[1, 5], [2, 4.9]]}}", "costs.batch_us"},
        {BEGIN "true" MIDDLE "\"step_us\": [[1, -5]]}}", "costs.step_us"},
        {"{\"costs\": {\"model\": \"\\u001b[2J\"}}", "costs.model"},
        {"nonsense", "broken.json"},
    };
    char path[PATH_MAX];
    temp_path(path, folder, "broken.json");
    for (size_t i = 0; i < LENGTH(cases); i++) {
        temp_write(path, cases[i].costs, strlen(cases[i].costs));
        struct program_run p = {.argv = {aft, "capacity", "--costs", path, "--rate", "1", "--p99", "9"}};
        program_run(&p);
        if (p.exit_code != 1 || strstr(p.err, cases[i].says) == NULL)
            fail_msg("%s: exit code %d, %s", cases[i].says, p.exit_code, p.err);
        program_run_clear(&p);
    }
}

/* Two beside each other, if they can. */
#define USUAL                                                                                                          \
    "--rate", "1", "--replicas", "1", "--requests", "100", "--streams-max", "2", "--batch-images-max", "2", "-n", "4", \
        "--cores", "2", "--per-machine", "2", "--json"

static void what_was_measured_can_be_used_again(void **state)
{
    static const char *const wakes[] = {"wake_us", "waker_us"};
    char path[PATH_MAX];
    (void)state;
    temp_path(path, folder, "measured.json");
    struct program_run p = {
        .argv = {aft, "capacity", "tests/data/golden/lm-local-8", "--watch", "0.5", "--threads", "1", USUAL}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    temp_write(path, p.out, p.out_size);
    struct program_run again = {.argv = {aft, "capacity", "--costs", path, USUAL}};
    json_t *first = json_loads(p.out, 0, NULL), *second = object_of(&again);
    const json_t *costs = json_object_get(first, "costs"), *slowness = json_object_get(costs, "slowness");
    assert_in_range(json_array_size(json_object_get(slowness, "times")), 20, CAPACITY_WINDOWS_MAX); /* of 10 ms */
    assert_true(json_equal(slowness, json_object_get(json_object_get(second, "costs"), "slowness")));
    for (size_t i = 0; i < LENGTH(wakes); i++) {
        const double us = number(costs, wakes[i]), read_back = number(json_object_get(second, "costs"), wakes[i]);
        assert_true(us >= 0.0 && us < 1e4 && fabs(us - read_back) <= 1e-6 * us); /* 0: threads of one core */
    }
    const json_t *row = json_array_get(json_object_get(first, "rows"), 0);
    const json_t *same = json_array_get(json_object_get(second, "rows"), 0);
    const double one = number(row, "engine_ms"), other = number(same, "engine_ms"); /* printed to nine digits */
    assert_true(one > 0.0 && fabs(one - other) < 1e-6 * one);
    json_decref(first);
    json_decref(second);
    program_run_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fewest_replicas_that_hold_are_found),
        cmocka_unit_test(a_table_is_printed_for_people),
        cmocka_unit_test(what_cannot_be_held_is_said),
        cmocka_unit_test(an_overload_is_seen_however_fast_requests_come),
        cmocka_unit_test(a_machine_that_is_not_full_is_tried),
        cmocka_unit_test(few_places_to_wait_are_no_reason_to_stop),
        cmocka_unit_test(a_wrong_command_line_is_told_what_was_expected),
        cmocka_unit_test(costs_that_are_not_as_they_were_written_are_refused_by_name),
        cmocka_unit_test(what_was_measured_can_be_used_again),
    };
    return cmocka_run_group_tests_name("cli_capacity", tests, setup, teardown);
}
