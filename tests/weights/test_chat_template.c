/* test_chat_template.c - config.json's chat_template: what is read, what is refused in which words, and the prompt that
 * a conversation becomes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/temp_dir.h"
#include "weights/model_config.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define TEMPLATE                                                                        \
    "{\"system\":\"<s>{content}</s>\",\"user\":\"U: {content}\\n\",\"assistant\":\"A: " \
    "{content}\\n\",\"reply\":\"A:\","                                                  \
    "\"stop\":[\"\\n\",\"U:\"]}"

static char dir[PATH_MAX], path[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "config.json");
    return 0;
}

/* A text model's config with that chat_template, which is taken; NULL: without one. */
static void write_config(json_t *template)
{
    json_t *root = json_pack("{s:s, s:i, s:s, s:i, s:i, s:{s:s}, s:{s:s, s:i}}", "format", "aftd-model", "version", 1,
                             "task", "text-generation", "dim", 8, "depth", 1, "mixer", "type", "aft-simple", "input",
                             "kind", "bytes", "context", 9);
    assert_non_null(root);
    if (template != NULL)
        assert_int_equal(json_object_set_new(root, "chat_template", template), 0);
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    temp_write(path, text, strlen(text));
    free(text);
    json_decref(root);
}

/* The good template with one key changed: `value`, which is taken, or NULL to remove it. */
static json_t *changed(const char *key, json_t *value)
{
    json_t *template = json_loads(TEMPLATE, 0, NULL);
    assert_non_null(template);
    assert_int_equal(value != NULL ? json_object_set_new(template, key, value) : json_object_del(template, key), 0);
    return template;
}

static void refuse_warning(void *arg, const char *message)
{
    (void)arg;
    fail_msg("%s", message);
}

static struct model_config read_good(void)
{
    struct model_config c;
    struct error err = {.message = ""};
    if (model_config_read(&c, path, refuse_warning, NULL, &err) != OK)
        fail_msg("%s", err.message);
    return c;
}

/* ---- what is read ----------------------------------------------------------------------------------------------- */

static void a_template_is_optional_and_is_read(void **state)
{
    (void)state;
    write_config(NULL);
    struct model_config c = read_good();
    assert_false(chat_template_exists(&c.chat));
    model_config_clear(&c);
    write_config(json_loads(TEMPLATE, 0, NULL));
    c = read_good();
    assert_true(chat_template_exists(&c.chat));
    assert_string_equal(c.chat.roles[CHAT_SYSTEM], "<s>{content}</s>");
    assert_string_equal(c.chat.roles[CHAT_USER], "U: {content}\n");
    assert_string_equal(c.chat.roles[CHAT_ASSISTANT], "A: {content}\n");
    assert_string_equal(c.chat.reply, "A:");
    assert_int_equal(c.chat.stop_count, 2);
    assert_string_equal(c.chat.stops[1], "U:");
    model_config_clear(&c);
    model_config_clear(&c);
}

/* Braces that are no placeholder are text; the longest strings are read; an answer may begin with nothing. */
static void what_is_no_placeholder_is_text(void **state)
{
    char longest[MODEL_CHAT_TEXT_MAX + 1];
    (void)state;
    write_config(changed("user", json_string("{}{ a } {\n{{content}}{a-b}{role}{")));
    struct model_config c = read_good();
    assert_string_equal(c.chat.roles[CHAT_USER], "{}{ a } {\n{{content}}{a-b}{role}{");
    model_config_clear(&c);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    write_config(changed("reply", json_string(longest)));
    c = read_good();
    assert_string_equal(c.chat.reply, longest);
    model_config_clear(&c);
    write_config(changed("reply", json_string("")));
    c = read_good();
    assert_string_equal(c.chat.reply, "");
    model_config_clear(&c);
}

static void count_warning(void *arg, const char *message)
{
    assert_non_null(strstr(message, "key \"chat_template\" has no meaning for this model"));
    ++*(unsigned *)arg;
}

static void a_task_without_texts_to_write_has_no_template(void **state)
{
    static const char classifier[] =
        "{\"format\":\"aftd-model\",\"version\":1,\"task\":\"text-classification\",\"dim\":8,\"depth\":1,\"mixer\":"
        "{\"type\":\"aft-simple\"},\"labels\":[\"a\"],\"input\":{\"kind\":\"bytes\",\"context\":9},\"chat_template\":"
        "1}";
    struct model_config c;
    struct error err = {.message = ""};
    unsigned warnings = 0;
    (void)state;
    temp_write(path, classifier, sizeof classifier - 1);
    if (model_config_read(&c, path, count_warning, &warnings, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(warnings, 1);
    assert_false(chat_template_exists(&c.chat));
    model_config_clear(&c);
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static const struct {
    const char *key, *value, *param, *piece; /* value NULL: the key is missing; param behind "chat_template." */
} refusals[] = {
    {"system", NULL, "system", "chat_template.system is missing, expected a string of at most 1024 bytes"},
    {"user", NULL, "user", "chat_template.user is missing"},
    {"assistant", NULL, "assistant", "chat_template.assistant is missing"},
    {"reply", NULL, "reply", "chat_template.reply is missing"},
    {"stop", NULL, "stop", "chat_template.stop is missing, expected a list of 1..4 strings of at most 64 bytes"},
    {"user", "5", "user", "chat_template.user is 5, expected a string of at most 1024 bytes"},
    {"reply", "[\"A:\"]", "reply", "chat_template.reply is a list of 1, expected a string"},
    {"stop", "\"U:\"", "stop", "chat_template.stop is a string (\"U:\"), expected a list of 1..4 strings"},
    {"stop", "[]", "stop", "chat_template.stop is a list of 0"},
    {"stop", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", "stop", "chat_template.stop is a list of 5"},
    {"stop", "[\"a\",1]", "stop", "chat_template.stop[1] is 1"},
    {"stop", "[\"a\",\"\"]", "stop", "chat_template.stop[1] is empty, expected 1..64 bytes"},
    {"stop", "[\"{content}\"]", "stop", "has \"{content}\" 1 times, expected 0"},
    {"user", "\"U: \\n\"", "user", "chat_template.user has \"{content}\" 0 times, expected 1"},
    {"assistant", "\"{content}{content}\"", "assistant", "has \"{content}\" 2 times, expected 1"},
    {"user", "\"U: {Content}\"", "user", "chat_template.user has \"{content}\" 0 times, expected 1"},
    {"reply", "\"A: {content}\"", "reply", "chat_template.reply has \"{content}\" 1 times, expected 0"},
};

static void expect_refusal(const char *what, const char *param, const char *piece)
{
    struct model_config c = {.dim = 77};
    struct error err = {.message = ""};
    const enum status st = model_config_read(&c, path, NULL, NULL, &err);
    if (st != ERR_FORMAT || strstr(err.message, piece) == NULL || strstr(err.message, path) == NULL ||
        strcmp(err.param, param) != 0)
        fail_msg("%s: %s \"%s\" about \"%s\", expected \"%s\" about \"%s\"", what, status_name(st),
                 st == OK ? "" : err.message, st == OK ? "" : err.param, piece, param);
    assert_int_equal(c.dim, 77);
}

static void a_refusal_names_the_key_and_what_was_expected(void **state)
{
    char param[ERROR_PARAM_MAX], longer[MODEL_CHAT_TEXT_MAX + 2];
    (void)state;
    for (size_t i = 0; i < LENGTH(refusals); i++) {
        const char *value = refusals[i].value;
        write_config(changed(refusals[i].key, value != NULL ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL));
        (void)snprintf(param, sizeof param, "chat_template.%s", refusals[i].param);
        expect_refusal(refusals[i].piece, param, refusals[i].piece);
    }
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    write_config(changed("reply", json_string(longer)));
    expect_refusal("1025 bytes", "chat_template.reply", "chat_template.reply is a string (\"xxx");
    write_config(json_string("{% for message in messages %}"));
    expect_refusal("Jinja", "chat_template",
                   "chat_template is a string (\"{% for message in messages %}\"), expected an");
}

/* ---- the prompt ------------------------------------------------------------------------------------------------- */

static void a_conversation_is_written_by_its_roles(void **state)
{
    static const char expected[] = "<s>be {content}</s>U: a\0b\nA: \nU: U: c\nA:";
    static const struct chat_message messages[] = {
        {CHAT_SYSTEM, (const uint8_t *)"be {content}", 12}, /* what is written is not looked at again */
        {CHAT_USER, (const uint8_t *)"a\0b", 3},
        {CHAT_ASSISTANT, NULL, 0},
        {CHAT_USER, (const uint8_t *)"U: c", 4},
    };
    uint8_t out[sizeof expected];
    (void)state;
    write_config(json_loads(TEMPLATE, 0, NULL));
    struct model_config c = read_good();
    assert_int_equal(chat_template_write(&c.chat, messages, LENGTH(messages), NULL), sizeof expected - 1);
    assert_int_equal(chat_template_write(&c.chat, messages, LENGTH(messages), out), sizeof expected - 1);
    assert_memory_equal(out, expected, sizeof expected - 1);
    assert_int_equal(chat_template_write(&c.chat, NULL, 0, out), 2);
    assert_memory_equal(out, "A:", 2);
    model_config_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_is_optional_and_is_read),
        cmocka_unit_test(what_is_no_placeholder_is_text),
        cmocka_unit_test(a_task_without_texts_to_write_has_no_template),
        cmocka_unit_test(a_refusal_names_the_key_and_what_was_expected),
        cmocka_unit_test(a_conversation_is_written_by_its_roles),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
