/* test_openapi.c - /openapi.json says all that the tables of routes and fields have, and nothing else. What it says is
 * held against the daemon's answers by `make test-openapi`. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "server/api/openapi.h"
#include "server/api/routes.h"
#include "server/fields/fields.h"
#include "server/request/route.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, KEYS_MAX = 256 };

static struct settings settings;
static json_t *doc, *admin_doc;

static int make(void **state)
{
    (void)state;
    settings_init(&settings);
    doc = openapi_describe(&settings, false);
    admin_doc = openapi_describe(&settings, true);
    return doc != NULL && admin_doc != NULL ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    json_decref(doc);
    json_decref(admin_doc);
    return 0;
}

/* Every value under `value`, with the keys that lead to it. */
static void visit(const json_t *value, const char *path, void (*each)(const json_t *value, const char *path))
{
    char longer[KEYS_MAX];
    const char *key;
    json_t *inner;
    size_t i;
    each(value, path);
    json_object_foreach((json_t *)value, key, inner)
    {
        (void)snprintf(longer, sizeof longer, "%s / %s", path, key);
        visit(inner, longer, each);
    }
    json_array_foreach(value, i, inner)
    {
        (void)snprintf(longer, sizeof longer, "%s / %zu", path, i);
        visit(inner, longer, each);
    }
}

static void refuse_undocumented(const json_t *value, const char *path)
{
    if (json_object_get(value, "x-undocumented") != NULL)
        fail_msg("%s is not described in server/api/openapi.json", path);
}

static void every_route_and_field_is_described(void **state)
{
    (void)state;
    visit(doc, "", refuse_undocumented);
    visit(admin_doc, "", refuse_undocumented);
}

static void refuse_left_over(const json_t *value, const char *path)
{
    static const char *const ours[] = {"x-query", "x-fields", "x-errors"};
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (json_object_get(value, ours[i]) != NULL)
            fail_msg("%s / %s of server/api/openapi.json belongs to no route", path, ours[i]);
}

/* Each path is one label of the metrics, and a request finds its methods where it finds the first. */
static void the_methods_of_a_path_are_neighbours(void **state)
{
    const char *paths[METRICS_ENDPOINTS_MAX];
    const size_t count = routes_paths(paths);
    (void)state;
    assert_true(count > 1);
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++)
            if (strcmp(paths[i], paths[k]) == 0)
                fail_msg("the rows of %s in server/api/route_table.h are not all together", paths[i]);
}

/* An operation that no route has would keep openapi.json's own words, or have no operationId. */
static void expect_routes(json_t *described, bool admin)
{
    size_t routes = 0, operations = 0;
    const char *path, *method;
    json_t *item, *operation;
    visit(described, "", refuse_left_over);
    for (size_t i = 0; i < api_routes.count; i++)
        routes += route_is_served(&api_routes.list[i], admin) ? 1 : 0;
    json_object_foreach(json_object_get(described, "paths"), path, item)
    {
        json_object_foreach(item, method, operation)
        {
            operations++;
            if (json_object_get(operation, "operationId") == NULL)
                fail_msg("%s %s is described in server/api/openapi.json, and no route", method, path);
        }
    }
    assert_int_equal(operations, routes);
}

static void each_listener_describes_what_it_serves(void **state)
{
    (void)state;
    expect_routes(doc, false);
    expect_routes(admin_doc, true);
    assert_non_null(json_object_get(json_object_get(doc, "paths"), "/generate"));
    assert_null(json_object_get(json_object_get(admin_doc, "paths"), "/generate"));
}

/* Of `path`, whose GET is meant: may it be asked without a key? */
static bool asks_for_key(const json_t *described, const char *path)
{
    json_t *ways = NULL, *way;
    size_t i;
    bool without = false;
    assert_int_equal(json_unpack((json_t *)described, "{s:{s:{s:{s:o}}}}", "paths", path, "get", "security", &ways), 0);
    json_array_foreach(ways, i, way) without |= json_object_size(way) == 0;
    return json_array_size(ways) > 0 && !without;
}

static void keys_are_asked_for_where_they_are_needed(void **state)
{
    struct settings keyed = settings;
    (void)state;
    assert_false(asks_for_key(doc, "/v1/models"));
    (void)snprintf(keyed.keys_file, sizeof keyed.keys_file, "/keys");
    keyed.metrics_open = false;
    json_t *described = openapi_describe(&keyed, false);
    assert_non_null(described);
    assert_true(asks_for_key(described, "/v1/models"));
    assert_true(asks_for_key(described, "/metrics"));
    assert_false(asks_for_key(described, "/healthz"));
    json_decref(described);
}

/* The words about fields name fields that there are. */
static void every_note_is_about_a_field(void **state)
{
    json_error_t fault;
    const char *list, *field;
    json_t *notes, *note, *text = json_load_file("server/api/openapi.json", JSON_REJECT_DUPLICATES, &fault);
    (void)state;
    if (text == NULL)
        fail_msg("server/api/openapi.json: line %d: %s", fault.line, fault.text);
    json_object_foreach(json_object_get(text, "x-fields"), list, notes)
    {
        const struct field_list *known = routes_fields(list);
        if (known == NULL)
            fail_msg("x-fields has a list \"%s\", and server/api/route_table.h has none", list);
        json_object_foreach(notes, field, note)
        {
            if (known != NULL && fields_find(known, field) == NULL)
                fail_msg("x-fields has a field \"%s\" of \"%s\", and its table has none", field, list);
        }
    }
    json_decref(text);
}

/* A machine that only builds and serves has no Python. */
static const char reference[] = "command -v \"$0\" >/dev/null || exit 77\n"
                                "\"$0\" -B tests/openapi/reference.py \"$1\" | diff server/API.md - >&2";

static void the_reference_is_what_the_daemon_says(void **state)
{
    enum { LACKS_PYTHON = 77 };
    const char *python = getenv("PYTHON");
    char aftd[PATH_MAX];
    (void)state;
    program_find(aftd, "aftd", "AFTD_TEST_DAEMON");
    struct program_run p = {.argv = {"/bin/sh", "-c", reference, python != NULL ? python : "python3", aftd}};
    program_run(&p);
    const int code = p.exit_code;
    if (code != 0 && code != LACKS_PYTHON)
        print_message("server/API.md is not as it should be: make api\n%s", p.err);
    program_run_clear(&p);
    if (code == LACKS_PYTHON)
        skip();
    assert_int_equal(code, 0);
}

static void refuse_broken_reference(const json_t *value, const char *path)
{
    const char *to = json_string_value(json_object_get(value, "$ref"));
    char what[32], name[64];
    if (to == NULL)
        return;
    if (sscanf(to, "#/components/%31[^/]/%63s", what, name) != 2 ||
        json_object_get(json_object_get(json_object_get(doc, "components"), what), name) == NULL)
        fail_msg("%s: there is no %s", path, to);
}

static void every_reference_leads_somewhere(void **state)
{
    (void)state;
    visit(doc, "", refuse_broken_reference);
}

static json_t *property(const char *name)
{
    json_t *schema = NULL;
    assert_int_equal(json_unpack(doc, "{s:{s:{s:{s:{s:{s:{s:{s:{s:o}}}}}}}}}", "paths", "/generate", "post",
                                 "requestBody", "content", "application/json", "schema", "properties", name, &schema),
                     0);
    return schema;
}

static void ranges_are_those_of_the_tables_and_settings(void **state)
{
    (void)state;
    assert_int_equal(json_integer_value(json_object_get(property("max_tokens"), "minimum")), 1);
    assert_int_equal(json_integer_value(json_object_get(property("max_tokens"), "maximum")), settings.max_tokens_max);
    assert_true(json_real_value(json_object_get(property("top_p"), "exclusiveMinimum")) == 0.0);
    const json_t *types = json_object_get(property("stream"), "type"); /* null: as if it were left out */
    assert_int_equal(json_array_size(types), 2);
    assert_string_equal(json_string_value(json_array_get(types, 0)), "boolean");
    assert_string_equal(json_string_value(json_array_get(types, 1)), "null");
    assert_int_equal(json_integer_value(json_object_get(property("prompt"), "maxLength")), GENERATE_PROMPT_MAX);
}

/* The daemon's own settings, at the path where clients look. */
static void the_daemon_serves_it_with_its_own_settings(void **state)
{
    static const char *const flags[] = {"--max-tokens-max=77", "--max-tokens=7", NULL};
    struct daemon aftd;
    struct reply r;
    (void)state;
    daemon_start(&aftd, flags);
    client_get(&aftd, "/openapi.json", &r);
    assert_int_equal(r.status, 200);
    json_t *served = reply_json(&r);
    struct settings own = settings;
    own.max_tokens = 7;
    own.max_tokens_max = 77;
    json_t *expected = openapi_describe(&own, false);
    assert_non_null(expected);
    assert_true(json_equal(served, expected));
    assert_false(json_equal(served, doc));
    json_decref(expected);
    json_decref(served);
    reply_clear(&r);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_and_field_is_described),
        cmocka_unit_test(the_methods_of_a_path_are_neighbours),
        cmocka_unit_test(each_listener_describes_what_it_serves),
        cmocka_unit_test(keys_are_asked_for_where_they_are_needed),
        cmocka_unit_test(every_note_is_about_a_field),
        cmocka_unit_test(the_reference_is_what_the_daemon_says),
        cmocka_unit_test(every_reference_leads_somewhere),
        cmocka_unit_test(ranges_are_those_of_the_tables_and_settings),
        cmocka_unit_test(the_daemon_serves_it_with_its_own_settings),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, make, drop);
}
