/* remote.c - see remote.h. */
#include "server/cli/remote.h"

#include <curl/curl.h>
#include <nettle/base64.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/version.h"
#include "server/cli/held.h"

/* One exchange. */
struct call {
    const struct remote_request *request;
    const char *name;   /* of the daemon, for messages */
    uint8_t *file_body; /* NULL: the body is the request's */
    size_t body_size;
    CURL *easy;
    struct curl_slist *headers;
    char *url;
    struct held held;         /* the answer, or of events the line that is not complete yet */
    char id[REMOTE_ID_BYTES]; /* of the event whose lines come */
    bool events;              /* the answer is events */
    bool stopped;             /* on_event wants no more, or why was printed */
    char why[CURL_ERROR_SIZE];
};

/* ---- options ---------------------------------------------------------------------------------------------------- */

int remote_check(struct remote *r)
{
    r->asks = r->url != NULL || r->unix_path != NULL;
    if (!r->asks && (r->key != NULL || r->ca_file != NULL))
        return cli_fail_usage("--%s is for a daemon, and neither --url nor --unix names one",
                              r->key != NULL ? "key" : "ca-file");
    if (!r->asks)
        return CLI_OK;
    if (r->url == NULL)
        r->url = "http://localhost";
    if (r->key == NULL)
        r->key = getenv("AFT_KEY");
    if (r->key != NULL && r->key[0] == '\0')
        r->key = NULL;
    for (const char *at = r->key; at != NULL && *at != '\0'; at++)
        if (*at <= ' ' || *at > '~' || at - r->key >= REMOTE_KEY_MAX)
            return cli_fail_usage("the key is not valid, expected at most %d printable ASCII characters without blanks",
                                  REMOTE_KEY_MAX);
    return CLI_OK;
}

int remote_parse(struct remote *r, const struct cli_engine *with, const struct cli_option *options, int argc,
                 char **argv, int min, int max, int *count)
{
    int code = cli_parse(options, argc, argv, 0, argc, count);
    if (code == CLI_OK && *count >= 0)
        code = remote_check(r);
    if (code != CLI_OK || *count < 0)
        return code;
    if (r->asks && cli_engine_refuse(with) != CLI_OK)
        return CLI_USAGE;
    const bool named = r->asks || r->model != NULL;
    if (!named && *count > 0) {
        r->model = argv[1];
        memmove(argv + 1, argv + 2, (size_t)-- * count * sizeof *argv);
    }
    if (*count < min || (!r->asks && r->model == NULL))
        return cli_fail_few(r->asks ? NULL : r->model);
    if (*count > max)
        return cli_fail_usage("unexpected argument \"%s\"%s", argv[named ? 1 : 1 + max],
                              named ? ": --model names the model" : "");
    return CLI_OK;
}

/* ---- the request ------------------------------------------------------------------------------------------------ */

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
    char *line = NULL;
    if (asprintf(&line, "%s%s", name, value) < 0)
        return false;
    struct curl_slist *longer = curl_slist_append(*list, line);
    free(line);
    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

int remote_address(char **url, struct curl_slist **headers, const struct remote *r, const struct remote_request *q)
{
    const int code = remote_url(url, r->url, q);
    if (code != CLI_OK)
        return code;
    /* "Expect:" keeps libcurl from asking for permission, and waiting for it, before it sends a large body */
    if ((q->method == NULL &&
         !add_header(headers, "Content-Type: ", q->type != NULL ? q->type : "application/octet-stream")) ||
        !add_header(headers, "Expect:", "") ||
        (r->key != NULL && !add_header(headers, "Authorization: Bearer ", r->key)) ||
        (q->id != NULL && q->id[0] != '\0' && !add_header(headers, "Last-Event-ID: ", q->id)))
        return cli_fail("out of memory");
    for (size_t i = 0; q->headers != NULL && i < q->headers->count; i++)
        if (!add_header(headers, q->headers->at[i], ""))
            return cli_fail("out of memory");
    return CLI_OK;
}

bool remote_set_up(void *easy, const struct remote *r, const char *url, struct curl_slist *headers, char *why)
{
    const double connect_s = r->timeout_s > 0.0 ? r->timeout_s : REMOTE_CONNECT_S;
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_USERAGENT, "aft/" AFTD_VERSION);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(1e3 * connect_s));
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(1e3 * r->timeout_s)); /* 0: none */
    (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, r->trusts_all ? 0L : 1L);
    (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, r->trusts_all ? 0L : 2L);
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    return curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
           (r->unix_path == NULL || curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, r->unix_path) == CURLE_OK) &&
           (r->ca_file == NULL || curl_easy_setopt(easy, CURLOPT_CAINFO, r->ca_file) == CURLE_OK);
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg);

static void set_method(const struct call *c)
{
    const struct remote_request *q = c->request;
    if (q->method != NULL) {
        (void)curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, q->method);
        return;
    }
    (void)curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->body_size);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS,
                           c->body_size == 0 ? "" : (const char *)(c->file_body != NULL ? c->file_body : q->body));
}

/* CLI_OK, or an exit code and why is printed. */
static int prepare(struct call *c, const struct remote *r)
{
    const struct remote_request *q = c->request;
    int code = CLI_OK;
    c->body_size = q->size;
    if (q->file != NULL && q->body == NULL)
        code = cli_read(&c->file_body, &c->body_size, q->file, HTTP_BODY_MAX);
    if (code == CLI_OK)
        code = remote_address(&c->url, &c->headers, r, q);
    if (code != CLI_OK)
        return code;
    c->easy = curl_easy_init();
    if (c->easy == NULL || !remote_set_up(c->easy, r, c->url, c->headers, c->why))
        return cli_fail("out of memory");
    set_method(c);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    return CLI_OK;
}

/* ---- the answer ------------------------------------------------------------------------------------------------- */

static long status_of(const struct call *c)
{
    long status = 0;
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static bool is_events(const struct call *c)
{
    const char *type = NULL;
    (void)curl_easy_getinfo(c->easy, CURLINFO_CONTENT_TYPE, &type);
    return status_of(c) == 200 && c->request->on_event != NULL && type != NULL &&
           strncmp(type, "text/event-stream", strlen("text/event-stream")) == 0;
}

/* The line that is complete now. */
static bool take_line(struct call *c)
{
    static const char prefix[] = "data: ", id_prefix[] = "id: ";
    const char *line = c->held.bytes;
    bool good = true;
    if (strncmp(line, id_prefix, strlen(id_prefix)) == 0)
        (void)snprintf(c->id, sizeof c->id, "%s", line + strlen(id_prefix));
    if (strncmp(line, prefix, strlen(prefix)) == 0) {
        json_t *event = json_loads(line + strlen(prefix), JSON_ALLOW_NUL, NULL);
        good = json_is_object(event);
        if (!good)
            c->held.fault = "has an event that is not a JSON object";
        else if (!c->request->on_event(c->request->arg, event))
            good = !(c->stopped = true);
        else if (c->request->id != NULL)
            (void)snprintf(c->request->id, REMOTE_ID_BYTES, "%s", c->id);
        json_decref(event);
    }
    c->held.size = 0;
    return good;
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct call *c = arg;
    const char *at = bytes;
    size_t left = one * n;
    c->events = is_events(c);
    if (!c->events)
        return held_add(&c->held, bytes, left, REMOTE_ANSWER_MAX) ? left : 0;
    while (held_line(&c->held, &at, &left, REMOTE_EVENT_MAX))
        if (!take_line(c))
            return 0; /* which ends the transfer */
    return c->held.fault == NULL ? one * n : 0;
}

/* Print it, or leave it to whoever may try again. */
static int fail(const struct call *c, bool passes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fail(const struct call *c, bool passes, const char *format, ...)
{
    struct remote_trouble trouble = {.passes = passes && c->request->trouble != NULL};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(trouble.message, sizeof trouble.message, format, arguments);
    va_end(arguments);
    if (c->request->trouble != NULL)
        *c->request->trouble = trouble;
    return trouble.passes ? CLI_FAILED : cli_fail("%s", trouble.message);
}

/* Print what an answer that is an error says, in its own words. */
static int fail_refused(const struct call *c, long status)
{
    const struct remote_request *q = c->request;
    const char *subject = q->file, *message = NULL, *field = NULL;
    json_t *answer = c->held.bytes != NULL ? json_loadb(c->held.bytes, c->held.size, JSON_ALLOW_NUL, NULL) : NULL;
    (void)json_unpack(answer, "{s:{s:s}}", "error", "message", &message);
    (void)json_unpack(answer, "{s:{s:s}}", "error", "param", &field);
    const char *before = subject != NULL ? subject : "", *colon = subject != NULL ? ": " : "";
    int code = CLI_FAILED;
    for (size_t i = 0; i < q->query_count && field != NULL; i++)
        if (q->query[i].option && strcmp(q->query[i].name, field) == 0)
            code = CLI_USAGE;
    const bool passes = status == 502 || status == 503 || status == 504;
    const bool elsewhere = status == 404 && strncmp(q->path, "/admin/", strlen("/admin/")) == 0 && message != NULL &&
                           strstr(message, q->path) != NULL;
    const char *advice = status == 401 ? "; give it with --key or in AFT_KEY"
                         : elsewhere ? "; only its admin listener has that, see its settings admin_unix and admin_port"
                                     : "";
    if (message != NULL)
        (void)fail(c, passes, "%s%sthe daemon answers %ld: %s%s%s%s%s", before, colon, status, message,
                   field != NULL ? " (" : "", field != NULL ? field : "", field != NULL ? ")" : "", advice);
    else
        (void)fail(c, passes, "%s%s%s answers %ld, expected 200; is it aftd?", before, colon, c->name, status);
    json_decref(answer);
    return code;
}

/* Was the certificate signed by nobody who is trusted? For a certificate of another host, libcurl leaves the 1 from
 * before. */
static bool is_distrusted(const struct call *c, CURLcode result)
{
    long verified = 0;
    (void)curl_easy_getinfo(c->easy, CURLINFO_SSL_VERIFYRESULT, &verified);
    return result == CURLE_PEER_FAILED_VERIFICATION && verified > 1;
}

/* There was no whole answer. */
static int fail_without_answer(const struct call *c, CURLcode result, double timeout_s)
{
    long error = 0; /* of a system call */
    (void)curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &error);
    if (result == CURLE_OPERATION_TIMEDOUT && timeout_s > 0.0)
        return fail(c, false, "%s: no answer within %g s", c->name, timeout_s);
    if (result == CURLE_COULDNT_CONNECT && error != 0)
        return fail(c, true, "%s: cannot connect: %s; is aftd running there?", c->name, strerror((int)error));
    return fail(c, !is_distrusted(c, result), "%s: %s%s", c->name,
                c->why[0] != '\0' ? c->why : curl_easy_strerror(result),
                is_distrusted(c, result) ? "; --ca-file names the certificates to trust" : "");
}

static int judge(const struct call *c, CURLcode result, double timeout_s)
{
    const long status = status_of(c);
    if (c->stopped)
        return CLI_FAILED;
    if (c->held.fault != NULL)
        return cli_fail("the answer of %s %s", c->name, c->held.fault);
    if (result != CURLE_OK)
        return fail_without_answer(c, result, timeout_s);
    if (status < 200 || status > 299)
        return fail_refused(c, status);
    return CLI_OK;
}

const char *remote_name(const struct remote *r)
{
    return r->unix_path != NULL ? r->unix_path : r->url;
}

/* What is printed meanwhile is the answer's, if it is events. */
static CURLcode perform(const struct call *c)
{
    const bool waits = c->request->on_event == NULL && c->request->method == NULL;
    if (waits)
        cli_wait_begin("waiting for", c->name);
    const CURLcode result = curl_easy_perform(c->easy);
    if (waits)
        cli_wait_end();
    return result;
}

int remote_post(const struct remote *r, const struct remote_request *q, struct remote_answer *ret)
{
    struct call c = {.request = q, .name = remote_name(r)};
    int code = prepare(&c, r);
    if (code == CLI_OK)
        code = judge(&c, perform(&c), r->timeout_s);
    if (code == CLI_OK && !c.events) {
        ret->bytes = c.held.bytes;
        ret->size = c.held.size;
        c.held.bytes = NULL;
    }
    curl_easy_cleanup(c.easy);
    curl_slist_free_all(c.headers);
    curl_free(c.url);
    free(c.file_body);
    free(c.held.bytes);
    return code;
}

int remote_post_file(const struct remote *r, const char *path, const struct remote_parameter *query, size_t count,
                     const char *file, const struct cli_output *out)
{
    const struct remote_request q = {.path = path, .query = query, .query_count = count, .file = file};
    struct remote_answer answer = {0};
    int code = remote_post(r, &q, &answer);
    if (code == CLI_OK && answer.size == 0)
        code = cli_fail("%s answers nothing; is it aftd?", remote_name(r));
    if (code == CLI_OK)
        code = cli_output_write(out, answer.bytes, answer.size, file, 0);
    free(answer.bytes);
    return code;
}

int remote_post_json(const struct remote *r, const struct remote_request *q, json_t **ret)
{
    struct remote_answer answer = {0};
    const int code = remote_post(r, q, &answer);
    if (code != CLI_OK)
        return code;
    json_t *object = answer.bytes != NULL ? json_loadb(answer.bytes, answer.size, JSON_ALLOW_NUL, NULL) : NULL;
    free(answer.bytes);
    if (!json_is_object(object)) {
        json_decref(object);
        return cli_fail("%s answers something that is not a JSON object; is it aftd?", remote_name(r));
    }
    *ret = object;
    return CLI_OK;
}

int remote_get(const struct remote *r, const char *path, struct remote_answer *ret)
{
    const struct remote_request q = {.method = "GET", .path = path};
    return remote_post(r, &q, ret);
}

int remote_get_json(const struct remote *r, const char *path, json_t **ret)
{
    const struct remote_request q = {.method = "GET", .path = path};
    return remote_post_json(r, &q, ret);
}

int remote_named_json(const struct remote *r, const char *method, const char *folder, const char *name, json_t **ret)
{
    char *escaped = curl_easy_escape(NULL, name, 0), *path = NULL;
    int code = CLI_FAILED;
    if (escaped != NULL && asprintf(&path, "%s%s", folder, escaped) >= 0) {
        const struct remote_request q = {.method = method, .path = path};
        code = remote_post_json(r, &q, ret);
    } else {
        (void)cli_fail("out of memory");
    }
    curl_free(escaped);
    free(path);
    return code;
}

json_t *remote_base64(const uint8_t *bytes, size_t size)
{
    const size_t room = BASE64_ENCODE_RAW_LENGTH(size);
    char *text = malloc(room + 1);
    if (text == NULL)
        return NULL;
    base64_encode_raw(text, size, bytes);
    json_t *value = json_stringn(text, room);
    free(text);
    return value;
}

bool remote_read_base64(uint8_t **ret, size_t *size, const json_t *value)
{
    const char *text = json_string_value(value);
    const size_t length = json_string_length(value); /* 0 if it is not a string */
    struct base64_decode_ctx context;
    size_t count = BASE64_DECODE_LENGTH(length);
    uint8_t *bytes = malloc(count + 1);
    base64_decode_init(&context);
    if (text == NULL || bytes == NULL || base64_decode_update(&context, &count, bytes, length, text) == 0 ||
        base64_decode_final(&context) == 0) {
        free(bytes);
        return false;
    }
    *ret = bytes;
    *size = count;
    return true;
}

void remote_print_versions(void)
{
    version_print_library("libcurl", curl_version(), stdout);
}
