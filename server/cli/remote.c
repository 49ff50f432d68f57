/* remote.c - see remote.h. */
#include "server/cli/remote.h"

#include <curl/curl.h>
#include <nettle/base64.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/version.h"

/* One exchange. While events come, `bytes` holds the line that is not complete yet. */
struct call {
    const struct remote_request *request;
    const char *name; /* of the daemon, for messages */
    CURL *easy;
    struct curl_slist *headers;
    char *url, *bytes;
    size_t size, room;
    char id[REMOTE_ID_BYTES]; /* of the event whose lines come */
    bool events;              /* the answer is events */
    bool stopped;             /* on_event wants no more, or why was printed */
    const char *excess;       /* why the answer cannot be read; NULL: it can */
    char why[CURL_ERROR_SIZE];
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

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

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* Append `more` to *text, which may be NULL. False: out of memory. */
static bool add_text(char **text, const char *more)
{
    const size_t had = *text != NULL ? strlen(*text) : 0, size = strlen(more);
    char *longer = realloc(*text, had + size + 1);
    if (longer == NULL)
        return false;
    memcpy(longer + had, more, size + 1);
    *text = longer;
    return true;
}

static bool add_query(char **url, const struct remote_request *q)
{
    const char *separator = "?";
    for (size_t i = 0; i < q->query_count; i++) {
        if (q->query[i].value == NULL)
            continue;
        char *escaped = curl_easy_escape(NULL, q->query[i].value, 0);
        const bool added = escaped != NULL && add_text(url, separator) && add_text(url, q->query[i].name) &&
                           add_text(url, "=") && add_text(url, escaped);
        curl_free(escaped);
        if (!added)
            return false;
        separator = "&";
    }
    return true;
}

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
    const int code = cli_url_make(url, r->url);
    if (code != CLI_OK)
        return code;
    /* "Expect:" keeps libcurl from asking for permission, and waiting for it, before it sends a large body */
    if (!add_text(url, q->path) || !add_query(url, q) ||
        (q->type != NULL && !add_header(headers, "Content-Type: ", q->type)) || !add_header(headers, "Expect:", "") ||
        (r->key != NULL && !add_header(headers, "Authorization: Bearer ", r->key)) ||
        (q->id != NULL && q->id[0] != '\0' && !add_header(headers, "Last-Event-ID: ", q->id)))
        return cli_fail("out of memory");
    for (size_t i = 0; q->headers != NULL && i < q->headers->count; i++)
        if (!add_header(headers, q->headers->at[i], ""))
            return cli_fail("out of memory");
    return CLI_OK;
}

bool remote_set_up(void *easy, const struct remote *r)
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
    return (r->unix_path == NULL || curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, r->unix_path) == CURLE_OK) &&
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
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->size);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, q->size > 0 ? (const char *)q->body : "");
}

/* CLI_OK, or an exit code and why is printed. */
static int prepare(struct call *c, const struct remote *r)
{
    const int code = remote_address(&c->url, &c->headers, r, c->request);
    if (code != CLI_OK)
        return code;
    c->easy = curl_easy_init();
    if (c->easy == NULL || !remote_set_up(c->easy, r) || curl_easy_setopt(c->easy, CURLOPT_URL, c->url) != CURLE_OK)
        return cli_fail("out of memory");
    set_method(c);
    (void)curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->why);
    return CLI_OK;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

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

/* Keep the bytes, with a NUL after them. False if there are too many. */
static bool keep(struct call *c, const char *bytes, size_t size, size_t max)
{
    if (size > max || c->size > max - size) {
        c->excess = "is larger than any answer that was asked for";
        return false;
    }
    while (c->room < c->size + size + 1) {
        const size_t room = c->room == 0 ? 65536 : 2 * c->room;
        char *more = realloc(c->bytes, room);
        if (more == NULL) {
            c->excess = "does not fit into memory";
            return false;
        }
        c->bytes = more;
        c->room = room;
    }
    memcpy(c->bytes + c->size, bytes, size);
    c->size += size;
    c->bytes[c->size] = '\0';
    return true;
}

/* The line that is complete now. */
static bool take_line(struct call *c)
{
    static const char prefix[] = "data: ", id_prefix[] = "id: ";
    bool good = true;
    if (strncmp(c->bytes, id_prefix, strlen(id_prefix)) == 0)
        (void)snprintf(c->id, sizeof c->id, "%s", c->bytes + strlen(id_prefix));
    if (strncmp(c->bytes, prefix, strlen(prefix)) == 0) {
        json_t *event = json_loads(c->bytes + strlen(prefix), JSON_ALLOW_NUL, NULL);
        good = json_is_object(event);
        if (!good)
            c->excess = "has an event that is not a JSON object";
        else if (!c->request->on_event(c->request->arg, event))
            good = !(c->stopped = true);
        else if (c->request->id != NULL)
            (void)snprintf(c->request->id, REMOTE_ID_BYTES, "%s", c->id);
        json_decref(event);
    }
    c->size = 0;
    return good;
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct call *c = arg;
    const size_t size = one * n;
    c->events = is_events(c);
    if (!c->events)
        return keep(c, bytes, size, REMOTE_ANSWER_MAX) ? size : 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(bytes + at, '\n', size - at);
        const size_t part = end != NULL ? (size_t)(end - (bytes + at)) : size - at;
        if (!keep(c, bytes + at, part, REMOTE_EVENT_MAX) || (end != NULL && !take_line(c)))
            return 0; /* which ends the transfer */
        at += part + (end != NULL ? 1 : 0);
    }
    return size;
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
static int fail_refused(const struct call *c, long status, char param[ERROR_PARAM_MAX])
{
    const char *subject = c->request->subject, *message = NULL, *field = NULL;
    json_t *answer = c->bytes != NULL ? json_loadb(c->bytes, c->size, JSON_ALLOW_NUL, NULL) : NULL;
    (void)json_unpack(answer, "{s:{s:s}}", "error", "message", &message);
    (void)json_unpack(answer, "{s:{s:s}}", "error", "param", &field);
    const char *before = subject != NULL ? subject : "", *colon = subject != NULL ? ": " : "";
    if (param != NULL)
        (void)snprintf(param, ERROR_PARAM_MAX, "%s", field != NULL ? field : "");
    const bool passes = status == 502 || status == 503 || status == 504;
    const bool elsewhere = status == 404 && strncmp(c->request->path, "/admin/", strlen("/admin/")) == 0 &&
                           message != NULL && strstr(message, c->request->path) != NULL;
    const char *advice = status == 401 ? "; give it with --key or in AFT_KEY"
                         : elsewhere ? "; only its admin listener has that, see its settings admin_unix and admin_port"
                                     : "";
    if (message != NULL)
        (void)fail(c, passes, "%s%sthe daemon answers %ld: %s%s%s%s%s", before, colon, status, message,
                   field != NULL ? " (" : "", field != NULL ? field : "", field != NULL ? ")" : "", advice);
    else
        (void)fail(c, passes, "%s%s%s answers %ld, expected 200; is it aftd?", before, colon, c->name, status);
    json_decref(answer);
    return CLI_FAILED;
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

static int judge(const struct call *c, CURLcode result, double timeout_s, char param[ERROR_PARAM_MAX])
{
    const long status = status_of(c);
    if (c->stopped)
        return CLI_FAILED;
    if (c->excess != NULL)
        return cli_fail("the answer of %s %s", c->name, c->excess);
    if (result != CURLE_OK)
        return fail_without_answer(c, result, timeout_s);
    if (status < 200 || status > 299)
        return fail_refused(c, status, param);
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

int remote_post(const struct remote *r, const struct remote_request *q, struct remote_answer *ret,
                char param[ERROR_PARAM_MAX])
{
    struct call c = {.request = q, .name = remote_name(r)};
    if (param != NULL)
        param[0] = '\0';
    int code = prepare(&c, r);
    if (code == CLI_OK)
        code = judge(&c, perform(&c), r->timeout_s, param);
    if (code == CLI_OK && !c.events) {
        ret->bytes = c.bytes;
        ret->size = c.size;
        c.bytes = NULL;
    }
    curl_easy_cleanup(c.easy);
    curl_slist_free_all(c.headers);
    free(c.url);
    free(c.bytes);
    return code;
}

int remote_post_json(const struct remote *r, const struct remote_request *q, json_t **ret)
{
    struct remote_answer answer = {0};
    const int code = remote_post(r, q, &answer, NULL);
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
    return remote_post(r, &q, ret, NULL);
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
    if (escaped != NULL && add_text(&path, folder) && add_text(&path, escaped)) {
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
