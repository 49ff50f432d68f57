/* scene.c - see scene.h. */
#include "tests/support/scene.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/daemon.h"
#include "tests/support/model_folder.h"
#include "tests/support/model_variants.h"
#include "tests/support/pictures.h"
#include "tests/support/raw_socket.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GOLDEN "tests/data/golden/"
#define JSON "application/json"
#define LAST_METRIC "\nprocess_threads "
#define BODY(text) .body = (text), .size = sizeof(text) - 1
#define ENDLESS \
    "{\"model\": \"text\", \"prompt\": \"x\", \"max_tokens\": 65536, \"context_overflow\": \"shift\", \"seed\": 1, "

enum { REST_MS = 200, BUSY_PERCENT = 50 };
enum { FIELD_USER_TIME = 12 }; /* of /proc/PID/stat, behind the name; that of the kernel follows */

void scene_put_models(void)
{
    model_folder_put(models_folder, "picture", GOLDEN "conv-heads8-k5");
    model_folder_put(models_folder, "pixels", GOLDEN "pixels-local");
    model_folder_put(models_folder, "text", GOLDEN "lm-local-8");
    model_variants_write_chat(models_folder, "text-chat", GOLDEN "lm-local-8", "A: ", "\n");
    model_folder_put(models_folder, "words", GOLDEN "text-attention");
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static uint8_t *picture;

struct request scene_requests[] = {
    {.path = "/v1/models"},
    {.path = "/v1/models/text"},
    {.path = "/metrics"},
    {.path = "/openapi.json"},
    {.path = "/v2/models/text"},
    {.path = "/v2/models/picture/config"},
    {.path = "/v2/models/stats"},
    {.path = "/v2/repository/index"},
    {.path = "/generate",
     .type = JSON,
     BODY("{\"prompt\": \"ab\", \"max_tokens\": 3, \"seed\": 1, \"stop\": [\"zz\"]}")},
    {.path = "/generate",
     .type = JSON,
     BODY("{\"prompt_base64\": \"YWI=\", \"max_tokens\": 3, \"seed\": 1, \"n\": 2, \"logprobs\": 1, \"echo\": true, "
          "\"bytes_base64\": true}")},
    {.path = "/generate",
     .type = JSON,
     BODY("{\"prompt\": \"ab\", \"max_tokens\": 3, \"seed\": 1, \"return_state\": true}")},
    {.path = "/generate", .type = JSON, BODY("{\"prompt\": \"ab\", \"max_tokens\": 3, \"seed\": 1, \"stream\": true}")},
    {.path = "/generate?prompt=ab&max_tokens=3&seed=1"},
    {.path = "/v1/completions", .type = JSON, BODY("{\"prompt\": [\"ab\", \"c\"], \"max_tokens\": 2, \"seed\": 1}")},
    {.path = "/v1/completions",
     .type = JSON,
     BODY("{\"prompt\": [97], \"max_tokens\": 2, \"seed\": 1, \"logprobs\": 1, \"stream\": true}")},
    {.path = "/v1/chat/completions",
     .type = JSON,
     BODY("{\"model\": \"text-chat\", \"messages\": [{\"role\": \"user\", \"content\": \"ab\"}], \"max_tokens\": 2, "
          "\"seed\": 1, \"logprobs\": true, \"top_logprobs\": 1}")},
    {.path = "/classify?model=picture&top_k=2"},
    {.path = "/classify", .type = JSON, BODY("{\"text\": \"ab\", \"model\": \"words\"}")},
    {.path = "/explain?model=picture&side=32"},
    {.path = "/complete?seed=1&n=2&rows=2"},
    {.path = "/score", .type = JSON, BODY("{\"text\": \"abc\", \"model\": \"text\"}")},
    {.path = "/v1/compress", BODY("abcabc")},
    {.path = "/v1/embeddings", .type = JSON, BODY("{\"input\": [\"ab\", \"c\"], \"model\": \"text\"}")},
    {.path = "/v1/embeddings",
     .type = JSON,
     BODY("{\"input\": [97], \"model\": \"words\", \"encoding_format\": \"base64\"}")},
    {.path = "/v2/models/text/infer",
     .type = JSON,
     BODY("{\"id\": \"1\", \"parameters\": {\"seed\": 1}, \"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", "
          "\"shape\": [1], \"data\": [\"a\"]}], \"outputs\": [{\"name\": \"text\"}]}")},
    {.path = "/"},
    {.path = "/readyz"},
    {.path = "/generate",
     .type = JSON,
     BODY("{\"prompt\": \"ab\", \"timeout_ms\": 60000, \"max_tokens\": 1, \"seed\": 1}")},
    {.path = "/admin/models"},
    {.path = "/admin/config"},
    {.path = "/admin/requests"},
    {.path = "/admin/models/text", .type = JSON, BODY("{\"action\": \"reload\"}")},
    {.path = "/admin/models/words", .type = JSON, BODY("{\"action\": \"unload\"}")},
    {.path = "/admin/models/words", .type = JSON, BODY("{\"action\": \"load\"}")},
    {.path = "/v2/repository/models/words/load", .type = JSON, BODY("{}")},
    {.path = "/admin/config/reload", BODY("")},
};
const size_t scene_request_count = ARRAY_LEN(scene_requests);
const size_t scene_client_request_count = ARRAY_LEN(scene_requests) - 8;

void scene_begin(void)
{
    size_t size;
    scene_end();
    picture = picture_file_read("weights/models/cifar10-aft-conv/sample.jpg", &size);
    for (size_t i = 0; i < scene_request_count; i++) {
        struct request *r = &scene_requests[i];
        if (strchr(r->path, '=') != NULL && strncmp(r->path, "/generate", strlen("/generate")) != 0) {
            r->body = picture;
            r->size = size;
        }
        if (i >= scene_client_request_count)
            r->port = administered.admin_port;
    }
}

void scene_end(void)
{
    free(picture);
    picture = NULL;
}

char *scene_essence(const struct reply *r)
{
    static const char *const fleeting[] = {"timings", "id", "created", "model_stats", "sessions", "total"};
    json_t *value = json_loadb(r->body, r->size, JSON_ALLOW_NUL, NULL);
    if (value == NULL)
        return strdup(r->size > 0 && strstr(r->headers, "event-stream") == NULL &&
                              strstr(r->headers, "text/plain") == NULL
                          ? r->body
                          : "");
    for (size_t i = 0; i < ARRAY_LEN(fleeting); i++)
        (void)json_object_del(value, fleeting[i]);
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(value);
    return text;
}

/* ---- visits ----------------------------------------------------------------------------------------------------- */

const char *scene_visit_name(size_t visit)
{
    return visit < scene_request_count ? scene_requests[visit].path : "a session";
}

/* Whose answer it is; `ret` may be NULL. */
static long ask(const struct request *q, struct reply *ret)
{
    struct reply r;
    if (!client_try(&administered, q, &r))
        return 0;
    const long status = r.status;
    json_t *value = status >= 300 ? json_loadb(r.body, r.size, 0, NULL) : NULL;
    json_t *error = json_object_get(value, "error");
    const bool says = json_is_string(error) || json_is_string(json_object_get(error, "message"));
    json_decref(value);
    if (status >= 300 && ((status < 500 && q->port == 0) || !says)) {
        print_message("%s: %ld: %s\n", q->path, status, r.body);
        fail_msg("%s: expected 200, or an error of the daemon's with a message", q->path);
    }
    if (status == 200 && strcmp(q->path, "/metrics") == 0 && strstr(r.body, LAST_METRIC) == NULL)
        fail_msg("/metrics is cut short after %zu bytes", r.size);
    if (ret != NULL)
        *ret = r;
    else
        reply_clear(&r);
    return status;
}

static bool session_step(const char *method, const char *id, const char *what, const char *type,
                         const struct reply *body, struct reply *ret, long *status)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/v1/sessions%s%s%s", id[0] != '\0' ? "/" : "", id, what);
    const struct request q = {.method = method, .path = path, .type = type, .body = body->body, .size = body->size};
    *status = ask(&q, ret);
    return *status >= 200 && *status < 300;
}

/* The session's id, or that of the first of several; false: there is none. */
static bool take_id(struct reply *r, char id[64])
{
    json_t *value = json_loadb(r->body, r->size, 0, NULL), *one = json_object_get(value, "id");
    if (one == NULL)
        one = json_object_get(json_array_get(json_object_get(value, "sessions"), 0), "id");
    (void)snprintf(id, 64, "%s", one != NULL ? json_string_value(one) : "");
    json_decref(value);
    reply_clear(r);
    return id[0] != '\0';
}

/* How often its text has gone on, from 1; 0: that was not told. */
static long turn_of(const char *id)
{
    const struct reply none = {0};
    struct reply r;
    long status, turn = 0;
    if (session_step("GET", id, "", NULL, &none, &r, &status)) {
        json_t *value = reply_json(&r);
        turn = (long)json_integer_value(json_object_get(value, "turn"));
        json_decref(value);
        reply_clear(&r);
    }
    return turn;
}

static long visit_session(void)
{
    static char create[] = "{\"model\": \"text\", \"prompt\": \"ab\", \"seed\": 1}", empty[] = "{}";
    const struct reply body = {.body = create, .size = sizeof create - 1}, more = {.body = empty, .size = 2},
                       none = {0};
    struct reply r = {0}, state = {0};
    char id[64] = "", forked[64] = "", text[160];
    long status = 0, deleted;
    bool fine = session_step("POST", "", "", JSON, &body, &r, &status);
    if (!fine)
        goto done;
    if (!take_id(&r, id))
        fail_msg("a session without an id");
    (void)snprintf(text, sizeof text, "{\"session\": \"%s\", \"max_tokens\": 2}", id);
    status = ask(&(struct request){.path = "/generate", .type = JSON, .body = text, .size = strlen(text)}, NULL);
    const long turn = turn_of(id);
    if (status != 0 && turn != 0 && turn != (status == 200 ? 2 : 1))
        fail_msg("/generate was answered %ld, and the session's turn is %ld", status, turn);
    fine = status == 200 && session_step("POST", id, "/fork", JSON, &more, &r, &status);
    if (fine && !take_id(&r, forked))
        fail_msg("a fork without an id");
    fine = fine && session_step("GET", id, "", NULL, &none, NULL, &status) &&
           session_step("GET", id, "/state", NULL, &none, &state, &status) &&
           session_step("PUT", id, "/state", "application/octet-stream", &state, NULL, &status);
    if (forked[0] != '\0' && !session_step("DELETE", forked, "", NULL, &none, NULL, &deleted) && fine) {
        status = deleted;
        fine = false;
    }
    if (!session_step("DELETE", id, "", NULL, &none, NULL, &deleted) && fine)
        status = deleted;
done:
    reply_clear(&state);
    return status;
}

void scene_restore(void)
{
    struct reply r;
    for (const int64_t end = test_now_ms() + HANG_MS; strcmp(admin_state_of("words"), "loaded") != 0;) {
        admin_post("/admin/models/words", "{\"action\": \"load\"}", &r);
        if (r.status != 200 && test_now_ms() > end)
            fail_msg("a model cannot be loaded any more: %ld: %s", r.status, r.body);
        reply_clear(&r);
    }
}

long scene_visit(size_t visit)
{
    return visit < scene_request_count ? ask(&scene_requests[visit], NULL) : visit_session();
}

/* ---- is all well? ----------------------------------------------------------------------------------------------- */

static const struct request plain = {
    .path = "/generate",
    .type = JSON,
    BODY("{\"model\": \"text\", \"prompt\": \"Abc\", \"max_tokens\": 8, \"seed\": 1}")};
static char *learned[2];
static struct daemon_usage held;

static void learn_one(size_t i, const struct request *q)
{
    struct reply r;
    client_call(&administered, q, &r);
    assert_int_equal(r.status, 200);
    free(learned[i]);
    learned[i] = scene_essence(&r);
    reply_clear(&r);
}

void scene_learn(void)
{
    for (size_t i = 0; i < SCENE_VISITS; i++)
        if (scene_visit(i) / 100 != 2)
            fail_msg("%s goes wrong before anything does", scene_visit_name(i));
    learn_one(0, &plain);
    learn_one(1, &scene_requests[11]);
    held = daemon_usage(&administered);
    for (const int64_t end = test_now_ms() + 100; test_now_ms() < end; test_sleep_ms(2)) {
        const struct daemon_usage now = daemon_usage(&administered);
        held = now.fds < held.fds ? now : held;
    }
}

static void assert_same(size_t i, const struct request *q, const char *after)
{
    struct reply r;
    if (!client_try(&administered, q, &r)) {
        char *log = daemon_log(&administered);
        print_message("%s\n", log);
        free(log);
        fail_msg("after %s: %s is not answered any more", after, q->path);
    }
    char *found = scene_essence(&r);
    if (r.status != 200 || strcmp(found, learned[i]) != 0)
        fail_msg("after %s: %s: %ld: %s, before %s", after, q->path, r.status, found, learned[i]);
    free(found);
    reply_clear(&r);
}

void scene_assert_serves(const char *after)
{
    assert_same(0, &plain, after);
    assert_same(1, &scene_requests[11], after);
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(2)) {
        const struct daemon_usage now = daemon_usage(&administered);
        if (now.fds <= held.fds && now.threads <= held.threads)
            return;
        if (test_now_ms() > end)
            fail_msg("after %s: %u descriptors and %u threads, before %u and %u", after, now.fds, now.threads, held.fds,
                     held.threads);
    }
}

/* Processor time of the daemon so far, in milliseconds. */
static long used_ms(void)
{
    char path[64], line[1024] = "";
    unsigned long user = 0, kernel = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)administered.pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    (void)fclose(f);
    char *at = strrchr(line, ')'), *left = NULL;
    assert_non_null(at);
    const char *field = strtok_r(at, " ", &left);
    for (int i = 0; i < FIELD_USER_TIME && field != NULL; i++)
        field = strtok_r(NULL, " ", &left);
    assert_non_null(field);
    user = strtoul(field, NULL, 10);
    field = strtok_r(NULL, " ", &left);
    assert_non_null(field);
    kernel = strtoul(field, NULL, 10);
    return (long)((user + kernel) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

void scene_assert_well(const char *after)
{
    static struct raw_input in;
    static const char late[] = ENDLESS "\"timeout_ms\": 30}";
    struct reply r;
    scene_assert_serves(after);
    const struct request q = {.path = "/generate", .type = JSON, BODY(late)};
    if (!client_try(&administered, &q, &r))
        fail_msg("after %s: no deadline is kept", after);
    /* It passes before the first byte or after it. */
    if (r.status != 408 && (r.status != 200 || strstr(r.body, "\"timeout\"") == NULL))
        fail_msg("after %s: a deadline: %ld: %s", after, r.status, r.body);
    reply_clear(&r);
    char *text = raw_post("/generate", ENDLESS "\"stream\": true}", "");
    const int fd = raw_connect(administered.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    raw_close(fd);
    (void)client_await_metric(&administered, "aftd_streams_running", 0, HANG_MS);
    const long before_ms = used_ms();
    test_sleep_ms(REST_MS);
    const long used = used_ms() - before_ms;
    if (used > REST_MS * BUSY_PERCENT / 100)
        fail_msg("after %s: the daemon, which has nothing to do, takes %ld ms of %d", after, used, (int)REST_MS);
}

void scene_tell(void)
{
    enum { LAST_BYTES = 4000 };
    if (administered.pid <= 0)
        return;
    const int code = daemon_wait(&administered, 0);
    char *log = daemon_log(&administered);
    const size_t size = strlen(log), skipped = size > LAST_BYTES ? size - LAST_BYTES : 0;
    (void)fprintf(stderr, "the daemon %s (%d); its log:\n%s\n", code < 0 ? "runs" : "has ended", code, log + skipped);
    free(log);
}

/* ---- how much --------------------------------------------------------------------------------------------------- */

bool scene_is_long(void)
{
    const char *form = getenv("AFTD_TORTURE");
    return form != NULL && strcmp(form, "long") == 0;
}

long scene_step(long count, long most)
{
    return scene_is_long() || count <= most ? 1 : (count + most - 1) / most;
}
