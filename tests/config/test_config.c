/* test_config.c - where values come from and which wins, every way to be wrong, and what is printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { ARGS_MAX = 8 };

static char temp[PATH_MAX];        /* this run's folder */
static char config_path[PATH_MAX]; /* the configuration file in it */

static int make_temp(void **state)
{
    (void)state;
    temp_dir_create(temp);
    temp_path(config_path, temp, "aftd.json");
    return 0;
}

struct warnings {
    int count;
    char last[ERROR_MESSAGE_MAX];
};

static void note_warning(void *arg, const char *message)
{
    struct warnings *w = arg;
    w->count++;
    (void)snprintf(w->last, sizeof w->last, "%s", message);
}

static char *copy_text(char to[64], const char *from)
{
    const size_t size = strlen(from) + 1;
    assert_true(size <= 64);
    return memcpy(to, from, size);
}

/* Load with a file of this JSON, one variable and up to three more arguments; NULL for none. */
static enum status load(struct config *ret, const char *json, const char *variable, const char *const args[3],
                        struct warnings *warnings, struct error *err)
{
    char *argv[ARGS_MAX] = {(char[]){"aftd"}, (char[]){"--config"}, config_path};
    char *envp[] = {NULL, NULL};
    char texts[4][64]; /* arguments are not const in C's main */
    int argc = 3;
    temp_write(config_path, json, strlen(json));
    for (size_t i = 0; i < 3 && args != NULL && args[i] != NULL; i++)
        argv[argc++] = copy_text(texts[i], args[i]);
    if (variable != NULL)
        envp[0] = copy_text(texts[3], variable);
    memset(err, 0, sizeof *err);
    return config_load(ret, argc, argv, envp, note_warning, warnings, err);
}

static void later_sources_override_earlier_ones(void **state)
{
    static const struct {
        const char *json, *variable, *flag;
        uint32_t want;
        enum config_source source;
        const char *described;
    } cases[] = {
        {"{}", NULL, NULL, 8080, CONFIG_FROM_DEFAULT, "default"},
        {"{\"listen_port\": 1}", NULL, NULL, 1, CONFIG_FROM_FILE, "file /"},
        {"{\"listen_port\": 1}", "AFTD_LISTEN_PORT=2", NULL, 2, CONFIG_FROM_ENVIRONMENT,
         "environment AFTD_LISTEN_PORT"},
        {"{\"listen_port\": 1}", "AFTD_LISTEN_PORT=2", "--listen-port=3", 3, CONFIG_FROM_FLAG, "flag --listen-port"},
        {"{}", "AFTD_LISTEN_PORT=2", "--listen_port=3", 3, CONFIG_FROM_FLAG, "flag --listen-port"},
        {"{\"listen_port\": 1}", "AFTD_THREADS=2", NULL, 1, CONFIG_FROM_FILE, "file /"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct error err;
        char described[SETTING_TEXT_MAX + 64];
        const char *const args[3] = {cases[i].flag};
        assert_int_equal(load(&c, cases[i].json, cases[i].variable, args, NULL, &err), OK);
        assert_int_equal(c.action, CONFIG_RUN);
        assert_int_equal(c.settings.listen_port, cases[i].want);
        assert_int_equal(c.sources[SETTING_listen_port], cases[i].source);
        config_describe_source(&c, SETTING_listen_port, described, sizeof described);
        assert_int_equal(strncmp(described, cases[i].described, strlen(cases[i].described)), 0);
    }
}

static void flags_take_both_forms_and_the_last_wins(void **state)
{
    static const char *const apart[3] = {"--models-dir", "/srv/m=1", NULL};
    static const char *const together[3] = {"--models-dir=/srv/m=1", NULL, NULL};
    static const char *const twice[3] = {"--threads=3", "--threads", "4"};
    (void)state;
    struct config c;
    struct error err;
    assert_int_equal(load(&c, "{}", NULL, apart, NULL, &err), OK);
    assert_string_equal(c.settings.models_dir, "/srv/m=1");
    assert_int_equal(load(&c, "{}", NULL, together, NULL, &err), OK);
    assert_string_equal(c.settings.models_dir, "/srv/m=1");
    assert_int_equal(load(&c, "{}", NULL, twice, NULL, &err), OK);
    assert_int_equal(c.settings.threads, 4);
}

/* A wrong value: the message must name the setting, the value, its origin and what was expected. */
static void wrong_values_are_explained(void **state)
{
    static const struct {
        const char *json, *variable, *flag;
        const char *param;
        const char *says[3];
    } cases[] = {
        {"{\"listen_port\": 65536}", NULL, NULL, "listen_port", {"65536", "from 0 to 65535", "from file /"}},
        {"{\"listen_port\": -1}", NULL, NULL, "listen_port", {"-1", "whole number", "from file"}},
        {"{\"listen_port\": \"80\"}", NULL, NULL, "listen_port", {"\"80\"", "whole number", "from file"}},
        {"{\"listen_port\": 80.0}", NULL, NULL, "listen_port", {"80.0", "whole number", "from file"}},
        {"{\"listen_port\": null}", NULL, NULL, "listen_port", {"null", "whole number", "from file"}},
        {"{\"listen_port\": [1, 2]}", NULL, NULL, "listen_port", {"[1,2]", "whole number", "from file"}},
        {"{\"threads\": 9223372036854775807}", NULL, NULL, "threads", {"9223372036854775807", "0 to 256", "file"}},
        {"{\"models_dir\": 5}", NULL, NULL, "models_dir", {"5", "bytes of UTF-8", "from file"}},
        {"{\"models_dir\": \"\"}", NULL, NULL, "models_dir", {"\"\"", "bytes of UTF-8", "from file"}},
        {"{\"log_level\": \"loud\"}", NULL, NULL, "log_level", {"\"loud\"", "error, warning, info, debug", "file"}},
        {"{\"log_level\": 1}", NULL, NULL, "log_level", {"1", "error, warning, info, debug", "from file"}},
        {"{\"log_requests\": \"yes\"}", NULL, NULL, "log_requests", {"\"yes\"", "true or false", "from file"}},
        {"{\"log_requests\": 1}", NULL, NULL, "log_requests", {"1", "true or false", "from file"}},
        {"{}", "AFTD_THREADS=many", NULL, "threads", {"\"many\"", "0 to 256", "from environment AFTD_THREADS"}},
        {"{}", "AFTD_THREADS=", NULL, "threads", {"\"\"", "0 to 256", "from environment AFTD_THREADS"}},
        {"{}", "AFTD_MODELS_DIR=\xff", NULL, "models_dir", {"not UTF-8", "bytes of UTF-8", "AFTD_MODELS_DIR"}},
        {"{}", "AFTD_LOG_REQUESTS=maybe", NULL, "log_requests", {"\"maybe\"", "true or false", "environment"}},
        {"{}", NULL, "--log-format=xml", "log_format", {"\"xml\"", "one of text, json", "from flag --log-format"}},
        {"{}", NULL, "--body-bytes-max=1e6", "body_bytes_max", {"\"1e6\"", "1024 to 67108864", "from flag"}},
        {"{}", NULL, "--listen-port=\x1b[31m", "listen_port", {"\"\\u001B[31m\"", "whole number", "from flag"}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct error err;
        const char *const args[3] = {cases[i].flag};
        memset(&c, 0x5a, sizeof c);
        const struct config before = c;
        assert_int_equal(load(&c, cases[i].json, cases[i].variable, args, NULL, &err), ERR_CONFIG);
        assert_int_equal(err.status, ERR_CONFIG);
        assert_string_equal(err.param, cases[i].param);
        assert_non_null(strstr(err.message, cases[i].param));
        for (size_t j = 0; j < 3; j++) {
            if (strstr(err.message, cases[i].says[j]) == NULL)
                fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].says[j]);
        }
        assert_memory_equal(&c, &before, sizeof c); /* set on success only */
    }
}

static void wrong_names_are_errors_with_a_suggestion(void **state)
{
    static const struct {
        const char *json, *flag, *says;
    } cases[] = {
        {"{\"listen_prot\": 1}", NULL, "did you mean listen_port?"},
        {"{\"listen-port\": 1}", NULL, "did you mean listen_port?"}, /* one spelling in files */
        {"{\"Threads\": 1}", NULL, "did you mean threads?"},
        {"{\"\": 1}", NULL, "no setting is named \"\""},
        {"{}", "--listen-prot=1", "did you mean --listen-port?"},
        {"{}", "--LISTEN-PORT=1", "no setting is named \"LISTEN-PORT\""},
        {"{}", "--elephants", "no setting is named \"elephants\""},
        {"{}", "--version=1", "no setting is named \"version\""},
        {"{}", "--=1", "no setting is named \"\""},
        {"{}", "--", "\"--\" is not a flag"},
        {"{}", "-p", "\"-p\" is not a flag"},
        {"{}", "weights", "\"weights\" is not a flag"},
        {"{}", "", "\"\" is not a flag"},
        {"{}", "--threads", "expected a value"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct error err;
        const char *const args[3] = {cases[i].flag};
        assert_int_equal(load(&c, cases[i].json, NULL, args, NULL, &err), ERR_CONFIG);
        if (strstr(err.message, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].says);
    }
}

static void unknown_variables_are_warnings(void **state)
{
    static const struct {
        const char *variable;
        int warnings;
    } cases[] = {
        {"AFTD_SERVICE_HOST=10.0.0.1", 1},
        {"AFTD_=1", 1},
        {"AFTD_listen_port=1", 1},
        {"AFTD_LISTEN-PORT=1", 1},
        {"AFTDX=1", 0},
        {"PATH=/", 0},
        {"AFTD_THREADS", 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct error err;
        struct warnings w = {0};
        assert_int_equal(load(&c, "{}", cases[i].variable, NULL, &w, &err), OK);
        assert_int_equal(w.count, cases[i].warnings);
        assert_int_equal(c.settings.listen_port, 8080);
        if (w.count > 0) /* names the variable, never its value */
            assert_true(strstr(w.last, "AFTD_") != NULL && strchr(w.last, '=') == NULL);
    }
}

static void defaults_may_not_exceed_their_maximum(void **state)
{
    static const struct {
        const char *json, *flag;
        const char *says[2];
    } cases[] = {
        {"{\"timeout_ms\": 700000}", NULL, {"timeout_ms = 700000 (from file", "timeout_ms_max = 600000 (from default"}},
        {"{}", "--timeout-ms-max=1000", {"timeout_ms = 60000 (from default", "timeout_ms_max = 1000 (from flag"}},
        {"{\"max_tokens_max\": 10}", "--max-tokens=11", {"max_tokens = 11 (from flag", "max_tokens_max = 10 (from"}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct error err;
        const char *const args[3] = {cases[i].flag};
        assert_int_equal(load(&c, cases[i].json, NULL, args, NULL, &err), ERR_CONFIG);
        assert_non_null(strstr(err.message, cases[i].says[0]));
        assert_non_null(strstr(err.message, cases[i].says[1]));
    }
    struct config c;
    struct error err;
    static const char *const equal[3] = {"--max-tokens=10"};
    assert_int_equal(load(&c, "{\"max_tokens_max\": 10}", NULL, equal, NULL, &err), OK);
}

static void broken_files_are_refused(void **state)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"", "line 1"},
        {"{\"threads\": 1", "line 1"},
        {"{\"threads\": 1,\n \"streams_max\": }", "line 2"},
        {"[]", "expected a JSON object"},
        {"{\"threads\": 1, \"threads\": 2}", "duplicate"},
        {"{\"threads\": 1} {}", "end of file"},
        {"{\"models_dir\": \"\xff\"}", "decode byte 0xff"},
        {"{\"models_dir\": \"a\\u0000b\"}", "\\u0000"},
    };
    (void)state;
    struct config c;
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(load(&c, cases[i].json, NULL, NULL, NULL, &err), ERR_CONFIG);
        assert_non_null(strstr(err.message, config_path));
        if (strstr(err.message, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].says);
    }
}

static void files_that_cannot_be_read_are_refused(void **state)
{
    static const struct {
        const char *path;
        enum status st;
        const char *says;
    } cases[] = {{"/proc/no-such-file.json", ERR_IO, "cannot be opened"},
                 {"", ERR_IO, "cannot be opened"},
                 {"/proc", ERR_CONFIG, "is a folder, expected a regular file"},
                 {"/dev/zero", ERR_CONFIG, "is a device, expected a regular file"}};
    (void)state;
    struct config c;
    struct error err;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[64];
        char *argv[] = {(char[]){"aftd"}, (char[]){"--config"}, copy_text(path, cases[i].path), NULL};
        assert_int_equal(config_load(&c, 3, argv, NULL, NULL, NULL, &err), cases[i].st);
        assert_non_null(strstr(err.message, cases[i].says));
    }
    /* One byte more than allowed; exactly as many are fine. */
    static char large[CONFIG_FILE_MAX + 1];
    memset(large, ' ', sizeof large);
    large[0] = '{';
    large[CONFIG_FILE_MAX - 1] = '}';
    char *argv[] = {(char[]){"aftd"}, (char[]){"--config"}, config_path, NULL};
    temp_write(config_path, large, CONFIG_FILE_MAX);
    assert_int_equal(config_load(&c, 3, argv, NULL, NULL, NULL, &err), OK);
    temp_write(config_path, large, CONFIG_FILE_MAX + 1);
    assert_int_equal(config_load(&c, 3, argv, NULL, NULL, NULL, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "65536"));
}

static void the_shipped_configuration_is_read_by_default(void **state)
{
    char *argv[] = {(char[]){"aftd"}, NULL};
    (void)state;
    struct config c;
    struct error err;
    assert_int_equal(config_load(&c, 1, argv, NULL, NULL, NULL, &err), OK);
    assert_string_equal(c.path, CONFIG_TREE_PATH);
    assert_int_equal(c.sources[SETTING_listen_port], CONFIG_FROM_FILE);
}

static void without_a_default_file_the_defaults_hold(void **state)
{
    char *argv[] = {(char[]){"aftd"}, NULL};
    char here[4096];
    (void)state;
    struct config c;
    struct error err;
    if (access(CONFIG_INSTALLED_PATH, F_OK) == 0) {
        print_message("this machine has a %s\n", CONFIG_INSTALLED_PATH);
        skip();
    }
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir("/proc/self/fd"), 0); /* a place that surely has no config/ */
    const enum status st = config_load(&c, 1, argv, NULL, NULL, NULL, &err);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(st, OK);
    assert_string_equal(c.path, "");
    assert_int_equal(c.sources[SETTING_listen_port], CONFIG_FROM_DEFAULT);
}

static void actions_are_recognised(void **state)
{
    static const struct {
        const char *flag, *variable;
        enum config_action want;
    } cases[] = {
        {"--help", "AFTD_THREADS=wrong", CONFIG_HELP}, /* helps also where the rest is wrong */
        {"-h", "AFTD_THREADS=wrong", CONFIG_HELP},     {"--version", "AFTD_THREADS=wrong", CONFIG_VERSION},
        {"--check-config", NULL, CONFIG_CHECK},        {"--print_config", NULL, CONFIG_PRINT},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct error err;
        const char *const args[3] = {cases[i].flag};
        assert_int_equal(load(&c, "{}", cases[i].variable, args, NULL, &err), OK);
        assert_int_equal(c.action, cases[i].want);
    }
}

/* What `print` writes, in `out`. */
static void print_to(char *out, size_t size, const struct config *c, void print(const struct config *, FILE *))
{
    FILE *to = fmemopen(out, size, "w");
    assert_non_null(to);
    print(c, to);
    assert_int_equal(fclose(to), 0);
}

static void print_json(const struct config *c, FILE *to)
{
    assert_int_equal(config_print(c, to, NULL), OK);
}

static void print_help(const struct config *c, FILE *to)
{
    (void)c;
    config_print_help("aftd", to);
}

/* Give every setting a value that is not its default. */
static void change_all(struct settings *s)
{
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *row = setting_at(id);
        if (row->kind == SETTING_TEXT)
            setting_set_text(row, s, "/a \"quoted\" \\ \xc3\xa9 path");
        else
            setting_set_number(row, s, row->def == row->max ? row->min : row->max);
    }
    s->timeout_ms = 5; /* what must not exceed its maximum */
    s->max_tokens = 1;
}

static void printed_configuration_reads_back(void **state)
{
    static char text[65536];
    (void)state;
    struct config printed = {.action = CONFIG_RUN}, read;
    struct error err;
    settings_init(&printed.settings);
    change_all(&printed.settings);
    print_to(text, sizeof text, &printed, print_json);
    assert_int_equal(load(&read, text, NULL, NULL, NULL, &err), OK);
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        assert_int_equal(read.sources[id], CONFIG_FROM_FILE);
        if (s->kind == SETTING_TEXT)
            assert_string_equal(setting_text(s, &read.settings), setting_text(s, &printed.settings));
        else
            assert_int_equal(setting_number(s, &read.settings), setting_number(s, &printed.settings));
    }
}

static void a_full_disk_is_noticed(void **state)
{
    (void)state;
    struct config c = {.action = CONFIG_PRINT};
    struct error err;
    FILE *to = fopen("/dev/full", "w");
    if (to == NULL) {
        print_message("skipped: there is no /dev/full\n");
        skip();
    }
    settings_init(&c.settings);
    setting_set_text(setting_at(SETTING_models_dir), &c.settings, "m");
    assert_int_equal(config_print(&c, to, &err), ERR_IO);
    (void)fclose(to);
}

static void check_lists_who_set_what(void **state)
{
    static char text[65536];
    static const char *const args[3] = {"--threads=3", "--log-requests=off", NULL};
    (void)state;
    struct config c;
    struct error err;
    assert_int_equal(load(&c, "{\"models_dir\": \"m\"}", "AFTD_LOG_LEVEL=debug", args, NULL, &err), OK);
    print_to(text, sizeof text, &c, config_print_check);
    assert_int_equal(strncmp(text, "configuration is fine\n", 22), 0);
    assert_non_null(strstr(text, "  threads = 3 (from flag --threads)\n"));
    assert_non_null(strstr(text, "  log_requests = false (from flag --log-requests)\n"));
    assert_non_null(strstr(text, "  log_level = debug (from environment AFTD_LOG_LEVEL)\n"));
    assert_non_null(strstr(text, "  models_dir = m (from file "));
    assert_null(strstr(text, "listen_port"));
}

static void help_mentions_every_setting_and_action(void **state)
{
    static char text[65536];
    (void)state;
    struct config c = {.action = CONFIG_HELP};
    print_to(text, sizeof text, &c, print_help);
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        char flag[64];
        (void)snprintf(flag, sizeof flag, "  --%s ", setting_at(id)->name);
        for (char *p = flag; *p != '\0'; p++)
            *p = (char)(*p == '_' ? '-' : *p);
        assert_non_null(strstr(text, flag));
        assert_non_null(strstr(text, setting_at(id)->help));
    }
#define X(name, action, help) assert_non_null(strstr(text, "--" name));
    CONFIG_ACTIONS(X)
#undef X
    assert_non_null(strstr(text, "--listen-port 0..65535"));
    assert_non_null(strstr(text, "(8080)"));
    assert_non_null(strstr(text, "error|warning|info|debug"));
    assert_null(strstr(text, "\n\n\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_sources_override_earlier_ones),
        cmocka_unit_test(flags_take_both_forms_and_the_last_wins),
        cmocka_unit_test(wrong_values_are_explained),
        cmocka_unit_test(wrong_names_are_errors_with_a_suggestion),
        cmocka_unit_test(unknown_variables_are_warnings),
        cmocka_unit_test(defaults_may_not_exceed_their_maximum),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(files_that_cannot_be_read_are_refused),
        cmocka_unit_test(the_shipped_configuration_is_read_by_default),
        cmocka_unit_test(without_a_default_file_the_defaults_hold),
        cmocka_unit_test(actions_are_recognised),
        cmocka_unit_test(printed_configuration_reads_back),
        cmocka_unit_test(a_full_disk_is_noticed),
        cmocka_unit_test(check_lists_who_set_what),
        cmocka_unit_test(help_mentions_every_setting_and_action),
    };
    return cmocka_run_group_tests(tests, make_temp, temp_dirs_end);
}
