/* test_log.c - what the log's lines say, as they arrive on stderr: shape, escaping, bounds. test_log_writer.c is about
 * how they get there. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
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
#include <jansson.h>

#include "config/limits.h"
#include "server/core/log.h"
#include "server/core/log_line.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static FILE *captured; /* what stderr goes to meanwhile */
static int real_stderr = -1;

static void capture_begin(void)
{
    captured = tmpfile();
    assert_non_null(captured);
    real_stderr = dup(STDERR_FILENO);
    assert_true(real_stderr >= 0);
    assert_true(dup2(fileno(captured), STDERR_FILENO) >= 0);
}

/* What was written since capture_begin; free it. */
static char *capture_end(void)
{
    assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
    (void)close(real_stderr);
    const off_t size = lseek(fileno(captured), 0, SEEK_END);
    assert_true(size >= 0);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(pread(fileno(captured), text, (size_t)size, 0), size);
    text[size] = '\0';
    (void)fclose(captured);
    return text;
}

static char *capture_message(enum log_format format, const char *message)
{
    log_init(LOG_LEVEL_DEBUG, format);
    capture_begin();
    log_warning("%s", message);
    return capture_end();
}

static char *capture_fields(enum log_format format, const struct log_field *fields, size_t n)
{
    log_init(LOG_LEVEL_INFO, format);
    capture_begin();
    log_fields(LOG_LEVEL_INFO, "request", fields, n);
    return capture_end();
}

#define COLUMN_TEXT(name, value)                                                  \
    {                                                                             \
        .key = (name), .kind = LOG_FIELD_TEXT, .is_column = true, .text = (value) \
    }
#define COLUMN_NUMBER(name, value)                                                    \
    {                                                                                 \
        .key = (name), .kind = LOG_FIELD_NUMBER, .is_column = true, .number = (value) \
    }
#define COLUMN_MS(name, value)                                                \
    {                                                                         \
        .key = (name), .kind = LOG_FIELD_MS, .is_column = true, .ms = (value) \
    }
#define TEXT(name, value)                                      \
    {                                                          \
        .key = (name), .kind = LOG_FIELD_TEXT, .text = (value) \
    }
#define NUMBER(name, value)                                        \
    {                                                              \
        .key = (name), .kind = LOG_FIELD_NUMBER, .number = (value) \
    }
#define MS(name, value)                                    \
    {                                                      \
        .key = (name), .kind = LOG_FIELD_MS, .ms = (value) \
    }

/* One line, which the extended regular expression describes whole. */
static void assert_line_matches(const char *line, const char *pattern)
{
    regex_t expression;
    assert_int_equal(regcomp(&expression, pattern, REG_EXTENDED | REG_NOSUB), 0);
    const int result = regexec(&expression, line, 0, NULL, 0);
    regfree(&expression);
    if (result != 0)
        fail_msg("\"%s\" does not match \"%s\"", line, pattern);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

#define TIME_PATTERN "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z"

static void a_message_has_time_and_level(void **state)
{
    (void)state;
    char *text = capture_message(LOG_FORMAT_TEXT, "models: 2 loaded");
    assert_line_matches(text, "^" TIME_PATTERN " warning models: 2 loaded\n$");
    free(text);
    text = capture_message(LOG_FORMAT_JSON, "models: 2 loaded");
    assert_line_matches(text, "^\\{\"time\":\"" TIME_PATTERN
                              "\",\"level\":\"warning\",\"message\":\"models: 2 loaded\"\\}\n$");
    free(text);
}

static void levels_filter(void **state)
{
    static const char *const words[] = {" error ", " warning ", " info ", " debug "};
    (void)state;
    for (unsigned level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
        const struct log_field id = TEXT("id", "x");
        log_init((enum log_level)level, LOG_FORMAT_TEXT);
        capture_begin();
        log_error("m");
        log_warning("m");
        log_info("m");
        log_debug("m");
        log_fields(LOG_LEVEL_INFO, "request", &id, 1);
        char *text = capture_end();
        for (unsigned other = LOG_LEVEL_ERROR; other <= LOG_LEVEL_DEBUG; other++) {
            assert_int_equal(strstr(text, words[other]) != NULL, other <= level);
            assert_int_equal(log_enabled((enum log_level)other), other <= level);
        }
        assert_int_equal(strstr(text, "id=x\n") != NULL, level >= LOG_LEVEL_INFO);
        free(text);
    }
}

/* What a client sends: in a message, as a value, and in JSON, where the reader must get `repaired` back. */
static const struct {
    const char *name, *sent, *message, *value, *repaired;
} escapes[] = {
    {"plain", "abc", "abc", "abc", "abc"},
    {"space", "a b", "a b", "\"a b\"", "a b"},
    {"empty", "", "", "\"\"", ""},
    {"newline", "a\nb", "a\\nb", "\"a\\nb\"", "a\nb"},
    {"forged line", "x\r\n2026-01-02 info ok", "x\\x0d\\n2026-01-02 info ok", "\"x\\x0d\\n2026-01-02 info ok\"",
     "x\r\n2026-01-02 info ok"},
    {"forged field", "x status=200", "x status=200", "\"x status=200\"", "x status=200"},
    {"quote", "a\"b", "a\"b", "\"a\\\"b\"", "a\"b"},
    {"backslash", "a\\nb", "a\\\\nb", "\"a\\\\nb\"", "a\\nb"},
    {"escape sequence", "\x1b[31mred", "\\x1b[31mred", "\"\\x1b[31mred\"", "\x1b[31mred"},
    {"bell, delete", "\a\x7f", "\\x07\\x7f", "\"\\x07\\x7f\"", "\a\x7f"},
    {"C1 control",
     "\xc2\x9b"
     "31m",
     "\\x9b31m", "\"\\x9b31m\"",
     "\xc2\x9b"
     "31m"},
    {"line separators",
     "a\xe2\x80\xa8"
     "b\xe2\x80\xa9",
     "a\\u{2028}b\\u{2029}", "\"a\\u{2028}b\\u{2029}\"",
     "a\xe2\x80\xa8"
     "b\xe2\x80\xa9"},
    {"turned around", "\xe2\x80\xaegnp.\xe2\x81\xa9\xd8\x9c", "\\u{202e}gnp.\\u{2069}\\u{061c}",
     "\"\\u{202e}gnp.\\u{2069}\\u{061c}\"", "\xe2\x80\xaegnp.\xe2\x81\xa9\xd8\x9c"},
    {"no width, tags", "\xe2\x80\x8b\xef\xbb\xbf\xf3\xa0\x81\x81\xc2\xad", "\\u{200b}\\u{feff}\\u{e0041}\\u{00ad}",
     "\"\\u{200b}\\u{feff}\\u{e0041}\\u{00ad}\"", "\xe2\x80\x8b\xef\xbb\xbf\xf3\xa0\x81\x81\xc2\xad"},
    {"UTF-8", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82",
     "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\"", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"},
    {"invalid UTF-8", "a\xff\xc0\xaf", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd",
     "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"cut UTF-8", "a\xe2\x82", "a\xef\xbf\xbd", "\"a\xef\xbf\xbd\"", "a\xef\xbf\xbd"},
};

static void nothing_from_outside_leaves_its_place_in_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(escapes); i++) {
        char want[256];
        char *line = capture_message(LOG_FORMAT_TEXT, escapes[i].sent);
        (void)snprintf(want, sizeof want, " warning %s\n", escapes[i].message);
        assert_string_equal(strstr(line, " warning"), want);
        free(line);
        const struct log_field fields[] = {COLUMN_NUMBER("status", 404), COLUMN_TEXT("outcome", NULL),
                                           COLUMN_MS("total_ms", 0), TEXT("model", escapes[i].sent)};
        line = capture_fields(LOG_FORMAT_TEXT, fields, ARRAY_LEN(fields));
        (void)snprintf(want, sizeof want, " 404 - 0.000 ms model=%s\n", escapes[i].value);
        if (strstr(line, want) == NULL)
            fail_msg("%s: \"%s\" has no \"%s\"", escapes[i].name, line, want);
        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
        free(line);
    }
}

static void nothing_from_outside_leaves_its_place_in_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(escapes); i++) {
        char *line = capture_message(LOG_FORMAT_JSON, escapes[i].sent);
        for (const char *c = line; *c != '\n'; c++) /* not even a byte that a terminal would obey */
            assert_in_range((unsigned char)*c, 0x20, 0x7e);
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        assert_string_equal(json_string_value(json_object_get(object, "message")), escapes[i].repaired);
        json_decref(object);
        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
        free(line);
    }
}

static const struct log_field whole[] = {
    COLUMN_TEXT("method", "POST"), COLUMN_TEXT("path", "/generate"),
    COLUMN_NUMBER("status", 200),  COLUMN_TEXT("outcome", "length"),
    COLUMN_MS("total_ms", 2),      TEXT("model", "enwik8-aft-local"),
    TEXT("error", NULL),           NUMBER("tokens", 7),
    MS("queue_ms", 0.25),          MS("compute_ms", 1.5),
    MS("first_byte_ms", -1),       NUMBER("bytes_out", 345),
    TEXT("client", "127.0.0.1"),   TEXT("id", "abc-1"),
};

static void a_request_says_what_happened(void **state)
{
    (void)state;
    char *line = capture_fields(LOG_FORMAT_TEXT, whole, ARRAY_LEN(whole));
    assert_line_matches(line,
                        "^" TIME_PATTERN " info POST /generate 200 length 2\\.000 ms model=enwik8-aft-local tokens=7 "
                        "queue_ms=0\\.250 compute_ms=1\\.500 bytes_out=345 client=127\\.0\\.0\\.1 id=abc-1\n$");
    free(line);
    line = capture_fields(LOG_FORMAT_JSON, whole, ARRAY_LEN(whole));
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    assert_string_equal(json_string_value(json_object_get(object, "message")), "request");
    assert_string_equal(json_string_value(json_object_get(object, "path")), "/generate");
    assert_string_equal(json_string_value(json_object_get(object, "outcome")), "length");
    assert_int_equal(json_integer_value(json_object_get(object, "status")), 200);
    assert_int_equal(json_integer_value(json_object_get(object, "bytes_out")), 345);
    assert_true(json_real_value(json_object_get(object, "queue_ms")) == 0.25);
    assert_null(json_object_get(object, "first_byte_ms")); /* did not happen */
    assert_null(json_object_get(object, "error"));
    json_decref(object);
    free(line);
}

/* In text each column is there, and what is nothing is not spelled out. */
static void a_request_of_little_is_a_short_line(void **state)
{
    const struct log_field little[] = {COLUMN_TEXT("method", "GET"),
                                       COLUMN_NUMBER("status", 200),
                                       COLUMN_MS("total_ms", 0.1),
                                       NUMBER("bytes_in", 0),
                                       MS("queue_ms", 0),
                                       TEXT("client", "unix")};
    const struct log_field none[] = {COLUMN_TEXT("method", NULL), COLUMN_NUMBER("status", 499),
                                     COLUMN_MS("total_ms", -1)};
    (void)state;
    char *line = capture_fields(LOG_FORMAT_TEXT, little, ARRAY_LEN(little));
    assert_line_matches(line, "^" TIME_PATTERN " info GET 200 0\\.100 ms client=unix\n$");
    free(line);
    line = capture_fields(LOG_FORMAT_TEXT, none, ARRAY_LEN(none));
    assert_line_matches(line, "^" TIME_PATTERN " info - 499 -\n$");
    free(line);
    line = capture_fields(LOG_FORMAT_JSON, little, ARRAY_LEN(little));
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_integer(json_object_get(object, "bytes_in"))); /* programs get them all */
    assert_true(json_is_real(json_object_get(object, "queue_ms")));
    json_decref(object);
    free(line);
}

static void times_that_are_none_are_left_out(void **state)
{
    static const double none[] = {-0.001, -INFINITY, INFINITY, NAN, 1e300};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        for (unsigned format = LOG_FORMAT_TEXT; format <= LOG_FORMAT_JSON; format++) {
            const struct log_field times[] = {COLUMN_MS("total_ms", none[i]), MS("queue_ms", none[i]),
                                              MS("compute_ms", 1)};
            char *line = capture_fields((enum log_format)format, times, ARRAY_LEN(times));
            assert_null(strstr(line, "queue_ms"));
            assert_null(strstr(line, "total_ms"));
            assert_non_null(strstr(line, "compute_ms"));
            free(line);
        }
    }
}

/* Fill every text with the same long one, of the kind that grows most when escaped. */
static void lines_are_bounded_and_stay_valid(void **state)
{
    static const char *const fillers[] = {"a", "\"", "\n", "\x01", "\xff", "\xc3\xa9", "\xf0\x9f\x99\x82", " "};
    static char text[20000];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fillers); i++) {
        const size_t length = strlen(fillers[i]);
        for (size_t at = 0; at + length < sizeof text; at += length)
            memcpy(text + at, fillers[i], length + 1);
        for (unsigned format = LOG_FORMAT_TEXT; format <= LOG_FORMAT_JSON; format++) {
            const uint64_t most = format == LOG_FORMAT_JSON ? INT64_MAX : UINT64_MAX; /* that jansson reads */
            struct log_field fields[LOG_FIELDS_MAX] = {COLUMN_TEXT("path", text)};
            for (size_t f = 1; f < LOG_FIELDS_MAX; f++)
                fields[f] = f <= LOG_TEXTS_MAX ? (struct log_field)TEXT("first_byte_ms", text)
                            : f % 2 == 0       ? (struct log_field)NUMBER("first_byte_ms", most)
                                               : (struct log_field)MS("first_byte_ms", 9e14);
            char *lines[] = {capture_message((enum log_format)format, text),
                             capture_fields((enum log_format)format, fields, LOG_FIELDS_MAX)};
            for (size_t j = 0; j < ARRAY_LEN(lines); j++) {
                assert_in_range(strlen(lines[j]), 200, LOG_LINE_MAX);
                assert_ptr_equal(strchr(lines[j], '\n'), lines[j] + strlen(lines[j]) - 1);
                json_t *object = json_loads(lines[j], 0, NULL);
                assert_int_equal(object != NULL, format == LOG_FORMAT_JSON);
                json_decref(object);
                free(lines[j]);
            }
        }
    }
}

enum { THREADS = 4, LINES = 200 };

static void *log_many(void *arg)
{
    for (int i = 0; i < LINES; i++)
        log_info("thread %d line %d %.*s.", *(int *)arg, i, i,
                 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    return NULL;
}

static void lines_of_many_threads_stay_whole(void **state)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    int counts[THREADS] = {0};
    (void)state;
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    capture_begin();
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    char *text = capture_end();
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); rest != NULL; line = strsep(&rest, "\n")) {
        const char *at = strstr(line, "thread ");
        char *end = NULL;
        assert_non_null(at);
        const long thread = strtol(at + strlen("thread "), &end, 10);
        assert_int_equal(strncmp(end, " line ", 6), 0);
        const long number = strtol(end + 6, &end, 10);
        assert_int_equal(*end, ' ');
        assert_in_range(thread, 0, THREADS - 1);
        assert_int_equal(number, counts[thread]); /* in order within a thread, none lost */
        assert_int_equal(line[strlen(line) - 1], '.');
        counts[thread]++;
    }
    free(text);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(counts[i], LINES);
}

static void logging_keeps_errno_and_survives_a_closed_stderr(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    const int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    (void)close(STDERR_FILENO);
    errno = ENOENT;
    log_info("nobody reads this");
    const int kept = errno;
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    assert_int_equal(kept, ENOENT);
}

/* ---- the journal ----------------------------------------------------------------------------------------------- */

/* Log while JOURNAL_STREAM names what stderr is, or, `by` inodes off, something else. */
static char *capture_journal(enum log_format format, unsigned by)
{
    struct stat s;
    char stream[64];
    capture_begin();
    assert_int_equal(fstat(STDERR_FILENO, &s), 0);
    (void)snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)s.st_dev, (uintmax_t)s.st_ino + by);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    log_init(LOG_LEVEL_DEBUG, format);
    log_error("e");
    log_warning("w");
    log_info("i");
    log_debug("d");
    log_fields(LOG_LEVEL_INFO, "request", &(struct log_field)COLUMN_TEXT("method", "GET"), 1);
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
    char *text = capture_end();
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    return text;
}

static void the_journal_gets_priorities_in_place_of_times(void **state)
{
    (void)state;
    char *text = capture_journal(LOG_FORMAT_TEXT, 0);
    assert_string_equal(text, "<3>e\n<4>w\n<6>i\n<7>d\n<6>GET\n");
    free(text);
    text = capture_journal(LOG_FORMAT_JSON, 0);
    static const char begins[] =
        "<3>{\"level\":\"error\",\"message\":\"e\"}\n<4>{\"level\":\"warning\",\"message\":\"w\"}\n";
    assert_memory_equal(text, begins, strlen(begins));
    assert_null(strstr(text, "\"time\""));
    free(text);
}

static void another_stream_is_not_the_journal(void **state)
{
    (void)state;
    char *text = capture_journal(LOG_FORMAT_TEXT, 1);
    assert_non_null(strstr(text, "Z error e\n"));
    assert_null(strchr(text, '<'));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_has_time_and_level),
        cmocka_unit_test(levels_filter),
        cmocka_unit_test(nothing_from_outside_leaves_its_place_in_text),
        cmocka_unit_test(nothing_from_outside_leaves_its_place_in_json),
        cmocka_unit_test(a_request_says_what_happened),
        cmocka_unit_test(a_request_of_little_is_a_short_line),
        cmocka_unit_test(times_that_are_none_are_left_out),
        cmocka_unit_test(lines_are_bounded_and_stay_valid),
        cmocka_unit_test(lines_of_many_threads_stay_whole),
        cmocka_unit_test(the_journal_gets_priorities_in_place_of_times),
        cmocka_unit_test(another_stream_is_not_the_journal),
        cmocka_unit_test(logging_keeps_errno_and_survives_a_closed_stderr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
