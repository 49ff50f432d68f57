/* load_ask.c - see load_ask.h. Proxies from the environment are not used: what is measured is the URL given. */
#include "server/cli/load_ask.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/cli/load_answer.h"

/* ---- what all requests have -------------------------------------------------------------------------------------- */

char *load_join(const char *base, const char *path, const char *more)
{
    const size_t room = strlen(base) + strlen(path) + strlen(more) + 1;
    char *text = malloc(room);
    if (text != NULL)
        (void)snprintf(text, room, "%s%s%s", base, path, more);
    return text;
}

bool load_add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

bool load_add_headers(struct curl_slist **list, const struct load_options *o)
{
    char key[REMOTE_KEY_MAX + 32];
    (void)snprintf(key, sizeof key, "Authorization: Bearer %s", o->to.key != NULL ? o->to.key : "");
    bool fine = o->to.key == NULL || load_add_header(list, key);
    for (size_t i = 0; i < o->headers.count && fine; i++)
        fine = load_add_header(list, o->headers.at[i]);
    return fine;
}

void load_set_common(CURL *easy, const struct load_options *o)
{
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_USERAGENT, "aft/" AFTD_VERSION);
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(1e3 * o->timeout_s));
    if (o->to.ca_file != NULL)
        (void)curl_easy_setopt(easy, CURLOPT_CAINFO, o->to.ca_file);
    if (o->to.unix_path != NULL)
        (void)curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, o->to.unix_path);
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

struct asker {
    const struct load_options *o;
    CURL *easy; /* the connection is kept from one request to the next */
    struct curl_slist *headers;
    struct load_answer answer;
    CURLcode code;
    char why[CURL_ERROR_SIZE];                /* of libcurl, if there was no answer */
    const volatile sig_atomic_t *interrupted; /* NULL: that is no reason to stop */
};

static void asker_clear(struct asker *a)
{
    curl_easy_cleanup(a->easy);
    curl_slist_free_all(a->headers);
    load_answer_clear(&a->answer);
    memset(a, 0, sizeof *a);
}

/* False: out of memory. Clear it in any case. */
static bool asker_init(struct asker *a, const struct load_options *o)
{
    *a = (struct asker){.o = o, .easy = curl_easy_init()};
    return a->easy != NULL && load_add_header(&a->headers, "Content-Type: application/json") &&
           load_add_header(&a->headers, "Expect:") && load_add_headers(&a->headers, o);
}

static size_t take(char *bytes, size_t one, size_t n, void *arg)
{
    struct asker *a = arg;
    (void)load_answer_take(&a->answer, bytes, one * n, cli_now());
    return one * n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct asker *asker = arg;
    (void)a, (void)b, (void)c, (void)d;
    return asker->interrupted != NULL && *asker->interrupted != 0; /* ends the request */
}

/* The answer's status; 0: there was none, and a->why says why. What an error's body says is in a->answer.detail. */
static long ask(struct asker *a, const char *method, const char *path, const char *name, const struct load_body *body,
                long timeout_ms)
{
    long status = 0;
    char *url = load_join(a->o->to.url, path, name);
    curl_easy_reset(a->easy);
    load_answer_begin(&a->answer, LOAD_FORM_ERROR, NULL, NULL);
    load_set_common(a->easy, a->o);
    a->why[0] = '\0';
    if (body != NULL) {
        (void)curl_easy_setopt(a->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
        (void)curl_easy_setopt(a->easy, CURLOPT_POSTFIELDS, (const char *)body->bytes);
    }
    (void)curl_easy_setopt(a->easy, CURLOPT_CUSTOMREQUEST, method);
    (void)curl_easy_setopt(a->easy, CURLOPT_TIMEOUT_MS, timeout_ms);
    (void)curl_easy_setopt(a->easy, CURLOPT_HTTPHEADER, a->headers);
    (void)curl_easy_setopt(a->easy, CURLOPT_ERRORBUFFER, a->why);
    (void)curl_easy_setopt(a->easy, CURLOPT_WRITEFUNCTION, take);
    (void)curl_easy_setopt(a->easy, CURLOPT_WRITEDATA, a);
    (void)curl_easy_setopt(a->easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(a->easy, CURLOPT_XFERINFODATA, a);
    (void)curl_easy_setopt(a->easy, CURLOPT_NOPROGRESS, 0L);
    a->code = CURLE_OUT_OF_MEMORY;
    if (url != NULL && curl_easy_setopt(a->easy, CURLOPT_URL, url) == CURLE_OK)
        a->code = curl_easy_perform(a->easy);
    free(url);
    (void)load_answer_end(&a->answer);
    if (a->code == CURLE_OK)
        (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    else if (a->why[0] == '\0')
        (void)snprintf(a->why, sizeof a->why, "%s", curl_easy_strerror(a->code));
    return status;
}

/* Was the certificate signed by nobody who is trusted? For one of another host, libcurl leaves the 1 from before. */
static bool is_distrusted(const struct asker *a)
{
    long verified = 0;
    (void)curl_easy_getinfo(a->easy, CURLINFO_SSL_VERIFYRESULT, &verified);
    return a->code == CURLE_PEER_FAILED_VERIFICATION && verified > 1;
}

/* Print that a request was not answered as it should be. */
static int fail(const struct asker *a, const char *path, const char *name, long status, long expected,
                const char *doubt)
{
    const char *detail = a->answer.detail, *daemon = remote_name(&a->o->to);
    if (a->code == CURLE_ABORTED_BY_CALLBACK)
        return cli_fail("interrupted before anything was measured");
    if (is_distrusted(a) || a->code == CURLE_SSL_CACERT_BADFILE)
        return cli_fail("%s: %s; --ca-file names the certificates to trust", daemon, a->why);
    if (status == 0)
        return cli_fail("%s does not answer: %s; is aftd running there?", daemon, a->why);
    return cli_fail("%s%s%s answers %ld%s%s, expected %ld%s", daemon, path, name, status, detail[0] != '\0' ? ": " : "",
                    detail, expected, doubt);
}

int load_probe(const struct load_options *o)
{
    struct asker a;
    int code = CLI_OK;
    if (asker_init(&a, o)) {
        const long status = ask(&a, "GET", "/readyz", "", NULL, LOAD_PROBE_S * 1000L);
        if (status != 200)
            code = fail(&a, "/readyz", "", status, 200, "; is it aftd, and ready?");
    } else {
        code = cli_fail("out of memory");
    }
    asker_clear(&a);
    return code;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static const char folder[] = "/v1/sessions/";

static bool add_session_headers(struct load_session *s, const struct load_options *o)
{
    char line[sizeof s->id + sizeof "X-Session-ID: "];
    (void)snprintf(line, sizeof line, "X-Session-ID: %s", s->id);
    return load_add_header(&s->headers, "Content-Type: application/json") && load_add_header(&s->headers, "Expect:") &&
           load_add_header(&s->headers, line) && load_add_headers(&s->headers, o);
}

int load_sessions_begin(struct load_session *sessions, size_t count, const struct load_options *o,
                        const struct load_bodies *bodies, const volatile sig_atomic_t *interrupted)
{
    struct asker a;
    uint64_t drawn = 0; /* two runs at a time have sessions of their own */
    int code = asker_init(&a, o) ? CLI_OK : cli_fail("out of memory");
    if (code == CLI_OK && getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        code = cli_fail("cannot draw random ids: %s", strerror(errno));
    a.interrupted = interrupted;
    for (size_t i = 0; i < count && code == CLI_OK; i++) {
        struct load_session *s = &sessions[i];
        (void)snprintf(s->id, sizeof s->id, "load-%016" PRIx64 "-%zu", drawn, i);
        const long status = ask(&a, "PUT", folder, s->id, &bodies->at[i % bodies->count], (long)(1e3 * o->timeout_s));
        if (status != 201) /* it may have been made nevertheless, if the answer was lost: it is to be ended, too */
            code = fail(&a, folder, s->id, status, 201, "; each client needs a session, see --concurrency");
        else if (!add_session_headers(s, o))
            code = cli_fail("out of memory");
    }
    asker_clear(&a);
    return code;
}

void load_sessions_end(struct load_session *sessions, size_t count, const struct load_options *o)
{
    struct asker a;
    size_t left = 0;
    char why[CURL_ERROR_SIZE] = "";
    bool reached = asker_init(&a, o);
    if (!reached)
        (void)snprintf(a.why, sizeof a.why, "out of memory");
    for (size_t i = 0; i < count; i++) {
        struct load_session *s = &sessions[i];
        const bool begun = s->id[0] != '\0'; /* or only tried, or ended meanwhile: then it is not there */
        const long status = begun && reached ? ask(&a, "DELETE", folder, s->id, NULL, LOAD_PROBE_S * 1000L) : 0;
        reached = reached && (!begun || status != 0); /* none of them has to be waited for where nobody answers */
        if (begun && status != 204 && status != 404 && left++ == 0) {
            if (status == 0)
                (void)snprintf(why, sizeof why, "%s", a.why);
            else
                (void)snprintf(why, sizeof why, "the answer is %ld, expected 204", status);
        }
        curl_slist_free_all(s->headers);
        *s = (struct load_session){.headers = NULL};
    }
    if (left > 0) {
        char text[sizeof why + 128];
        (void)snprintf(text, sizeof text, "%zu sessions could not be ended; of the first: %s", left, why);
        cli_warn(text);
    }
    asker_clear(&a);
}
