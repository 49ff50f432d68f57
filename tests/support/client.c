/* client.c - see client.h. */
#include "tests/support/client.h"

#include <curl/curl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "tests/support/program.h"

enum { AT_A_TIME_MAX = 1024 };

/* One request on its way. */
struct transfer {
    CURL *easy;
    struct curl_slist *list;
    struct reply *reply;
};

static size_t append(char **to, size_t *size, const char *bytes, size_t n)
{
    char *grown = realloc(*to, *size + n + 1);
    if (grown == NULL)
        return 0;
    memcpy(grown + *size, bytes, n);
    *to = grown;
    *size += n;
    grown[*size] = '\0';
    return n;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
    struct reply *r = arg;
    return append(&r->body, &r->size, bytes, one * n);
}

static size_t on_header(char *bytes, size_t one, size_t n, void *arg)
{
    struct reply *r = arg;
    return append(&r->headers, &r->header_bytes, bytes, one * n);
}

static void set_method(CURL *e, const struct request *r)
{
    if (r->body != NULL) {
        (void)curl_easy_setopt(e, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->size);
        (void)curl_easy_setopt(e, CURLOPT_POSTFIELDS, r->body);
    }
    if (r->method != NULL && strcmp(r->method, "HEAD") == 0)
        (void)curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    else if (r->method != NULL)
        (void)curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, r->method);
}

static void transfer_prepare(struct transfer *t, const struct daemon *d, const struct request *r, struct reply *reply)
{
    char line[256];
    memset(reply, 0, sizeof *reply);
    assert_int_equal(append(&reply->body, &reply->size, "", 0), 0);
    assert_int_equal(append(&reply->headers, &reply->header_bytes, "", 0), 0);
    t->reply = reply;
    t->easy = curl_easy_init();
    assert_non_null(t->easy);
    (void)snprintf(line, sizeof line, "Content-Type:%s%s", r->type != NULL ? " " : "", r->type != NULL ? r->type : "");
    t->list = curl_slist_append(NULL, line);
    t->list = curl_slist_append(t->list, "Expect:");
    for (size_t i = 0; r->headers != NULL && r->headers[i] != NULL; i++)
        t->list = curl_slist_append(t->list, r->headers[i]);
    assert_non_null(t->list);

    const size_t room = strlen(r->path) + 64;
    char *url = malloc(room);
    assert_non_null(url);
    (void)snprintf(url, room, "%s://127.0.0.1:%u%s", r->ca_file != NULL ? "https" : "http",
                   r->port != 0 ? r->port : d->port, r->path);
    (void)curl_easy_setopt(t->easy, CURLOPT_URL, url);
    free(url);
    if (r->ca_file != NULL)
        (void)curl_easy_setopt(t->easy, CURLOPT_CAINFO, r->ca_file);
    if (r->unix_path != NULL)
        (void)curl_easy_setopt(t->easy, CURLOPT_UNIX_SOCKET_PATH, r->unix_path);
    (void)curl_easy_setopt(t->easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(t->easy, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, 2L * HANG_MS * (long)program_slowness());
    (void)curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->list);
    (void)curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, reply);
    (void)curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, reply);
    (void)curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    set_method(t->easy, r);
}

static void transfer_end(struct transfer *t)
{
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->reply->status);
    (void)curl_easy_getinfo(t->easy, CURLINFO_TOTAL_TIME, &t->reply->seconds);
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->list);
    memset(t, 0, sizeof *t);
}

static CURLcode perform(const struct daemon *d, const struct request *r, struct reply *ret)
{
    struct transfer t;
    transfer_prepare(&t, d, r, ret);
    const CURLcode code = curl_easy_perform(t.easy);
    transfer_end(&t);
    if (code != CURLE_OK)
        reply_clear(ret);
    return code;
}

void client_call(const struct daemon *d, const struct request *r, struct reply *ret)
{
    const CURLcode code = perform(d, r, ret);
    if (code != CURLE_OK)
        fail_msg("%s: %s", r->path, curl_easy_strerror(code));
}

bool client_try(const struct daemon *d, const struct request *r, struct reply *ret)
{
    return perform(d, r, ret) == CURLE_OK;
}

void client_get(const struct daemon *d, const char *path, struct reply *ret)
{
    client_call(d, &(struct request){.path = path}, ret);
}

void reply_clear(struct reply *r)
{
    free(r->body);
    free(r->headers);
    memset(r, 0, sizeof *r);
}

/* ---- many at a time -------------------------------------------------------------------------------------------- */

/* Collect those that have ended; returns how many. */
static size_t collect(CURLM *multi)
{
    size_t ended = 0;
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(multi, &left)) != NULL;) {
        struct transfer *t = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        const CURLcode code = m->data.result;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
        (void)curl_multi_remove_handle(multi, t->easy);
        transfer_end(t);
        if (code != CURLE_OK)
            fail_msg("a request of many: %s", curl_easy_strerror(code));
        ended++;
    }
    return ended;
}

void client_call_all(const struct daemon *d, const struct request requests[], struct reply replies[], size_t count,
                     const long starts_ms[])
{
    struct transfer *transfers = calloc(count, sizeof *transfers);
    CURLM *multi = curl_multi_init();
    assert_true(count <= AT_A_TIME_MAX);
    assert_non_null(transfers);
    assert_non_null(multi);
    const int64_t start = test_now_ms();
    size_t started = 0, ended = 0;
    while (ended < count) {
        int running;
        const int64_t now = test_now_ms() - start;
        for (; started < count && (starts_ms == NULL || starts_ms[started] <= now); started++) {
            transfer_prepare(&transfers[started], d, &requests[started], &replies[started]);
            (void)curl_easy_setopt(transfers[started].easy, CURLOPT_FRESH_CONNECT, 1L);
            (void)curl_easy_setopt(transfers[started].easy, CURLOPT_FORBID_REUSE, 1L);
            assert_int_equal(curl_multi_add_handle(multi, transfers[started].easy), CURLM_OK);
        }
        assert_int_equal(curl_multi_perform(multi, &running), CURLM_OK);
        ended += collect(multi);
        const int wait_ms = started < count ? 1 : 20;
        if (ended < count)
            assert_int_equal(curl_multi_poll(multi, NULL, 0, wait_ms, NULL), CURLM_OK);
    }
    (void)curl_multi_cleanup(multi);
    free(transfers);
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

bool reply_header(const struct reply *r, const char *name, char *out, size_t size)
{
    const size_t length = strlen(name);
    for (const char *line = r->headers; line != NULL && *line != '\0';) {
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            const char *value = line + length + 1;
            value += strspn(value, " \t");
            (void)snprintf(out, size, "%.*s", (int)strcspn(value, "\r\n"), value);
            return true;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return false;
}

json_t *reply_json(const struct reply *r)
{
    char type[128] = "none";
    json_error_t err;
    if (!reply_header(r, "Content-Type", type, sizeof type) || strncmp(type, "application/json", 16) != 0)
        fail_msg("Content-Type is %s, expected application/json (status %ld: %s)", type, r->status, r->body);
    json_t *value = json_loadb(r->body, r->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);
    if (value == NULL)
        fail_msg("not JSON: %s: %s", err.text, r->body);
    return value;
}

void reply_assert_error(const struct reply *r, long status, const char *code, const char *param, const char *says)
{
    const char *message = NULL, *type = NULL, *found_code = NULL;
    json_t *found_param = NULL;
    json_t *value = reply_json(r);
    if (json_unpack_ex(value, NULL, JSON_STRICT, "{s:{s:s, s:s, s:o, s:s}}", "error", "message", &message, "type",
                       &type, "param", &found_param, "code", &found_code) != 0)
        fail_msg("not an error of message, type, param and code alone: status %ld: %s", r->status, r->body);
    if (r->status != status || strcmp(found_code, code) != 0)
        fail_msg("expected %ld %s, got %ld: %s", status, code, r->status, r->body);
    if (message[0] == '\0' || type[0] == '\0' || !(json_is_null(found_param) || json_is_string(found_param)))
        fail_msg("an empty message or type, or a param that is no text: %s", r->body);
    if (param != NULL && (!json_is_string(found_param) || strcmp(json_string_value(found_param), param) != 0))
        fail_msg("expected the param \"%s\": %s", param, r->body);
    if (says != NULL && strstr(message, says) == NULL)
        fail_msg("expected a message that says \"%s\": %s", says, r->body);
    json_decref(value);
}

bool reply_is_late(struct reply *r, json_t *fields)
{
    const json_int_t ms = json_integer_value(json_object_get(fields, "timeout_ms"));
    if (r->status != 408 || ms == 0)
        return false;
    reply_clear(r);
    assert_int_equal(json_object_set_new(fields, "timeout_ms", json_integer(2 * ms)), 0);
    return true;
}

/* ---- metrics --------------------------------------------------------------------------------------------------- */

static double metric_in(const char *metrics, const char *series)
{
    double sum = 0;
    for (const char *line = metrics; line != NULL && *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        if (strncmp(line, series, strlen(series)) == 0) {
            const char *value = line + length;
            while (value > line && value[-1] != ' ')
                value--;
            sum += strtod(value, NULL);
        }
        line = line[length] == '\n' ? line + length + 1 : NULL;
    }
    return sum;
}

void client_metrics(const struct daemon *d, const char *const series[], double values[], size_t n)
{
    struct reply r;
    client_get(d, "/metrics", &r);
    assert_int_equal(r.status, 200);
    for (size_t i = 0; i < n; i++)
        values[i] = metric_in(r.body, series[i]);
    reply_clear(&r);
}

double client_metric(const struct daemon *d, const char *series)
{
    double value;
    client_metrics(d, &series, &value, 1);
    return value;
}

int64_t client_await_metric(const struct daemon *d, const char *series, double value, long limit_ms)
{
    for (const int64_t start = test_now_ms();; test_sleep_ms(1)) {
        const int64_t asked = test_now_ms();
        const double now = client_metric(d, series);
        if (fabs(now - value) < 0.5)
            return asked - start;
        if (asked - start > limit_ms)
            fail_msg("%s is %.0f, expected %.0f within %ld ms", series, now, value, limit_ms);
    }
}
