/* administration.c - see administration.h. */
#include "tests/support/administration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

struct daemon administered;
char models_folder[PATH_MAX];

int administration_set_up(void **state)
{
    (void)state;
    temp_dir_create(models_folder);
    return 0;
}

int administration_tear_down(void **state)
{
    (void)state;
    daemon_clear(&administered);
    temp_dir_remove(models_folder);
    return 0;
}

void administration_start(const char *flag, const char *other)
{
    char dir_flag[PATH_MAX + 16];
    (void)snprintf(dir_flag, sizeof dir_flag, "--models-dir=%s", models_folder);
    daemon_start(&administered, (const char *const[]){dir_flag, "--admin-address=127.0.0.1", "--admin-port=0",
                                                      "--streams-max=8", "--picture-tokens-max=64", flag, other, NULL});
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

void admin_post(const char *path, const char *body, struct reply *ret)
{
    const struct request r = {.method = "POST",
                              .path = path,
                              .type = "application/json",
                              .body = body,
                              .size = strlen(body),
                              .port = administered.admin_port};
    client_call(&administered, &r, ret);
}

void admin_act(const char *model, const char *action, long status, struct reply *ret)
{
    char path[128], body[128];
    (void)snprintf(path, sizeof path, "/admin/models/%s", model);
    (void)snprintf(body, sizeof body, "{\"action\": \"%s\"}", action);
    admin_post(path, body, ret);
    if (ret->status != status)
        fail_msg("%s %s: %ld, expected %ld: %s", action, model, ret->status, status, ret->body);
}

void admin_act_well(const char *model, const char *action)
{
    struct reply r;
    admin_act(model, action, 200, &r);
    reply_clear(&r);
}

void admin_act_badly(const char *model, const char *action, long status, const char *code, const char *says)
{
    struct reply r;
    admin_act(model, action, status, &r);
    reply_assert_error(&r, status, code, NULL, says);
    reply_clear(&r);
}

json_t *admin_get(const char *path)
{
    struct reply r;
    client_call(&administered, &(struct request){.path = path, .port = administered.admin_port}, &r);
    assert_int_equal(r.status, 200);
    json_t *value = reply_json(&r);
    reply_clear(&r);
    return value;
}

/* A text that /admin/models says of a model; "" if there is none. */
static void read_of(const char *model, const char *field, char *out, size_t size)
{
    json_t *all = admin_get("/admin/models"), *m;
    size_t i;
    out[0] = '\0';
    json_array_foreach(json_object_get(all, "models"), i, m)
    {
        const char *text = json_string_value(json_object_get(m, field));
        if (strcmp(json_string_value(json_object_get(m, "model")), model) == 0 && text != NULL)
            (void)snprintf(out, size, "%s", text);
    }
    json_decref(all);
}

bool admin_is_in_use(const char *model)
{
    json_t *all = admin_get("/admin/models"), *m;
    bool is_in_use = false;
    size_t i;
    json_array_foreach(json_object_get(all, "models"), i, m)
    {
        if (strcmp(json_string_value(json_object_get(m, "model")), model) == 0)
            is_in_use = json_is_true(json_object_get(m, "in_use"));
    }
    json_decref(all);
    return is_in_use;
}

const char *admin_state_of(const char *model)
{
    static char state[32];
    read_of(model, "state", state, sizeof state);
    return state;
}

const char *admin_failure_of(const char *model)
{
    static char failure[512];
    read_of(model, "failure", failure, sizeof failure);
    return failure;
}

const char *admin_reload(void)
{
    static const char *const lists[] = {"loaded", "reloaded", "unloaded", "unchanged", "failed"};
    static char text[512];
    struct reply r;
    size_t used = 0, i;
    json_t *one;
    admin_post("/admin/config/reload", "", &r);
    assert_int_equal(r.status, 200);
    json_t *report = reply_json(&r), *models = json_object_get(report, "models");
    text[0] = '\0';
    for (size_t k = 0; k < ARRAY_LEN(lists); k++)
        json_array_foreach(json_object_get(models, lists[k]), i, one)
        {
            const char *name = json_string_value(json_is_object(one) ? json_object_get(one, "model") : one);
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used > 0 ? ", " : "", lists[k], name);
        }
    json_decref(report);
    reply_clear(&r);
    return text;
}

void model_ask(const char *model, struct reply *ret)
{
    char body[256];
    (void)snprintf(body, sizeof body,
                   "{\"model\": \"%s\", \"prompt\": \"Abc\", \"max_tokens\": 40, \"temperature\": 0}", model);
    const struct request r = {.path = "/generate", .type = "application/json", .body = body, .size = strlen(body)};
    client_call(&administered, &r, ret);
}

void model_assert_error(const char *model, long status, const char *code, const char *says)
{
    struct reply r;
    model_ask(model, &r);
    reply_assert_error(&r, status, code, "model", says);
    reply_clear(&r);
}

char *model_text(const char *model)
{
    struct reply r;
    model_ask(model, &r);
    if (r.status != 200)
        fail_msg("%s: %ld %s", model, r.status, r.body);
    json_t *answer = reply_json(&r);
    char *text = strdup(json_string_value(json_object_get(answer, "text")));
    json_decref(answer);
    reply_clear(&r);
    assert_non_null(text);
    return text;
}

void model_assert_writes(const char *model, const char *expected)
{
    char *text = model_text(model);
    assert_string_equal(text, expected);
    free(text);
}
