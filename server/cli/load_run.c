/* load_run.c - see load.h: one run. libcurl's multi interface on an epoll of our own: whoever has news is looked at,
 * not every client at every piece of any. */
#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/sampler.h"
#include "server/cli/load.h"

enum { EVENTS_AT_A_TIME = 64, DESCRIPTORS_SPARE = 64, PROGRESS_TOTAL = 1000 };

#define TICK_S 0.1 /* of the progress, and of clients that rest */

/* A connection that carries one request after the other. */
struct client {
    struct run *run;
    CURL *easy;
    struct load_answer answer;
    bool busy, measured; /* a request is under way; it counts */
    double due_s;
    double rest_until_s; /* of a closed loop: nobody is there, and the next try would fail at once, too */
    char why[CURL_ERROR_SIZE];
};

struct run {
    const struct load_options *o;
    const struct load_bodies *bodies;
    struct load_result *result;
    struct client *clients, **idle; /* [client_count], [idle_count] */
    size_t client_count, idle_count;
    struct curl_slist *headers;
    char *url;
    size_t next_body;
    CURLM *multi;
    int epoll;
    double curl_due_s;                          /* when libcurl wants to be called without news */
    double start_s, window_s, end_s, arrival_s; /* the latter: when request number `index` of an open loop is due */
    uint64_t index, measured;                   /* requests begun, warm-up included; those of the window */
    bool in_window, closed;
    double cpu_s, tick_s; /* CPU time at the window's start; when the next tick is due */
    struct cli_progress progress;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- clients ---------------------------------------------------------------------------------------------------- */

static long status_of(const struct client *c)
{
    long status = 0;
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static bool is_refused(const struct client *c)
{
    return status_of(c) < 200 || status_of(c) > 299;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
    struct client *c = arg;
    const uint64_t before = c->answer.bytes;
    if (is_refused(c))
        c->answer.form = LOAD_ERROR;
    load_answer_take(&c->answer, bytes, one * n, cli_now());
    if (c->run->in_window)
        c->run->result->window_bytes += c->answer.bytes - before;
    return one * n;
}

static bool client_init(struct client *c, struct run *r)
{
    c->run = r;
    c->easy = curl_easy_init();
    if (c->easy == NULL || !remote_set_up(c->easy, &r->o->to, r->url, r->headers, c->why))
        return false;
    (void)curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, (long)(1e3 * r->o->timeout_s));
    (void)curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(1e3 * r->o->timeout_s));
    (void)curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    return true;
}

/* The row that counts such failures; the last one takes those that no row is left for. */
static struct load_failure *failure_row(struct load_result *t, const char *what)
{
    for (size_t i = 0; i < t->failure_count; i++)
        if (strcmp(t->failures[i].what, what) == 0)
            return &t->failures[i];
    if (t->failure_count == LOAD_FAILURES_MAX)
        return &t->failures[LOAD_FAILURES_MAX - 1];
    struct load_failure *row = &t->failures[t->failure_count++];
    (void)snprintf(row->what, sizeof row->what, "%s", t->failure_count == LOAD_FAILURES_MAX ? "other" : what);
    return row;
}

static void begin_request(struct client *c, double due_s, double now_s)
{
    struct run *r = c->run;
    const struct load_body *body = &r->bodies->at[r->next_body];
    r->next_body = (r->next_body + 1) % r->bodies->count;
    c->busy = true;
    c->measured = due_s >= r->window_s;
    c->due_s = due_s;
    c->why[0] = '\0';
    load_answer_begin(&c->answer,
                      r->o->picture_count > 0 ? LOAD_OPAQUE
                      : r->o->whole           ? LOAD_TEXT
                                              : LOAD_EVENTS,
                      c->measured ? r->result : NULL);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, (const char *)body->bytes);
    if (c->measured) {
        r->result->requests++;
        r->result->sent++;
        load_times_add(&r->result->times[LOAD_DELAY], now_s - due_s, 1);
    }
}

/* The request is over, and was removed from libcurl: count it. */
static void end_request(struct client *c, CURLcode code, double now_s)
{
    char fault[sizeof c->run->result->failures[0].what] = "";
    struct load_answer *a = &c->answer;
    struct load_result *t = c->run->result;
    const uint64_t before = a->bytes;
    if (is_refused(c))
        a->form = LOAD_ERROR; /* also one without a body */
    if (code == CURLE_OK)
        load_answer_end(a);
    if (code != CURLE_OK)
        (void)snprintf(fault, sizeof fault, "curl %d", (int)code);
    else if (is_refused(c))
        (void)snprintf(fault, sizeof fault, "HTTP %ld", status_of(c));
    else if (a->fault != NULL)
        (void)snprintf(fault, sizeof fault, "%s", a->fault);
    if (c->run->in_window) {
        t->window_bytes += a->bytes - before;
        t->window_answered += fault[0] == '\0' ? 1 : 0;
    }
    c->busy = false;
    c->rest_until_s = code != CURLE_OK && status_of(c) == 0 && c->run->o->rate <= 0.0 ? now_s + LOAD_PAUSE_S : 0.0;
    if (!c->measured)
        return;
    t->bytes += a->bytes;
    if (fault[0] != '\0') {
        struct load_failure *row = failure_row(t, fault);
        if (row->count++ == 0)
            (void)snprintf(row->detail, sizeof row->detail, "%s",
                           code == CURLE_OK    ? a->detail
                           : c->why[0] != '\0' ? c->why
                                               : curl_easy_strerror(code));
        t->failed++;
        return;
    }
    t->answered++;
    load_times_add(&t->times[LOAD_TTFB], (a->first_s > 0.0 ? a->first_s : now_s) - c->due_s, 1);
    load_times_add(&t->times[LOAD_E2E], now_s - c->due_s, 1);
}

/* ---- libcurl's wishes ------------------------------------------------------------------------------------------- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_socket)
{
    struct run *r = arg;
    struct epoll_event e = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    e.events =
        ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0) | ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0);
    (void)curl_multi_assign(r->multi, fd, r); /* anything but NULL: it is watched */
    return epoll_ctl(r->epoll, of_socket != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -1;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct run *r = arg;
    (void)multi;
    r->curl_due_s = timeout_ms < 0 ? INFINITY : cli_now() + 1e-3 * (double)timeout_ms;
    return 0;
}

/* ---- what is due ------------------------------------------------------------------------------------------------ */

double load_arrival_gap_s(uint64_t seed, uint64_t n, double rate)
{
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    sampler_philox(out, counter, key);
    const uint64_t bits = (uint64_t)out[0] << 32 | out[1];
    return -log(ldexp((double)(bits >> 11) + 1.0, -53)) / rate; /* of a number in (0, 1] */
}

static void advance(struct run *r, double due_s)
{
    r->measured += due_s >= r->window_s ? 1 : 0;
    r->index++;
    if (r->o->rate > 0.0)
        r->arrival_s += load_arrival_gap_s(r->o->seed, r->index, r->o->rate);
}

/* A client that may send; NULL if there is none. */
static struct client *take_idle(struct run *r, double now_s)
{
    for (size_t i = r->idle_count; i-- > 0;)
        if (r->idle[i]->rest_until_s <= now_s) {
            struct client *c = r->idle[i];
            r->idle[i] = r->idle[--r->idle_count];
            return c;
        }
    return NULL;
}

/* Begin whatever is due and has a client. */
static void send_due(struct run *r)
{
    const bool open = r->o->rate > 0.0;
    while (r->measured < r->o->requests) {
        const double now_s = cli_now(), due_s = open ? r->arrival_s : now_s;
        if (due_s > now_s || due_s >= r->end_s)
            return;
        struct client *c = take_idle(r, now_s);
        if (c == NULL)
            return;
        begin_request(c, due_s, now_s);
        advance(r, due_s);
        if (curl_multi_add_handle(r->multi, c->easy) != CURLM_OK) { /* out of memory */
            end_request(c, CURLE_OUT_OF_MEMORY, now_s);
            r->idle[r->idle_count++] = c;
        }
    }
}

/* Count the requests that were due in the window and never sent. */
static void count_unsent(struct run *r, double until_s)
{
    for (; r->o->rate > 0.0 && r->arrival_s < until_s && r->measured < r->o->requests; advance(r, r->arrival_s))
        if (r->arrival_s >= r->window_s) {
            r->result->requests++;
            r->result->unsent++;
        }
}

/* What was due in the warm-up and found no client is left out: of an open loop that is far too fast it would be all
 * that is sent in the window, too. */
static void forget_the_warm_up(struct run *r)
{
    while (r->o->rate > 0.0 && r->arrival_s < r->window_s)
        advance(r, r->arrival_s);
}

/* ---- the window ------------------------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void close_window(struct run *r, double now_s)
{
    const double until_s = fmin(now_s, r->end_s);
    r->closed = true;
    if (!r->in_window)
        return;
    r->in_window = false;
    r->result->cpu_seconds = cpu_seconds() - r->cpu_s;
    r->result->seconds = until_s - r->window_s;
    count_unsent(r, until_s);
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

/* When something has to be done although no socket says so. */
static double next_look_s(const struct run *r)
{
    double at_s = fmin(r->curl_due_s, r->tick_s); /* clients that rest are looked at every tick */
    if (r->closed)
        return at_s;
    at_s = fmin(at_s, r->in_window ? r->end_s : r->window_s);
    if (r->o->rate > 0.0 && r->idle_count > 0 && r->measured < r->o->requests)
        at_s = fmin(at_s, r->arrival_s);
    return at_s;
}

/* Wait until then or for sockets, and let libcurl do what it can. */
static void wait_and_perform(struct run *r)
{
    struct epoll_event events[EVENTS_AT_A_TIME];
    const double wait_s = fmax(0.0, next_look_s(r) - cli_now());
    const struct timespec until = {(time_t)wait_s, (long)(1e9 * (wait_s - floor(wait_s)))};
    int running;
    int count = epoll_pwait2(r->epoll, events, EVENTS_AT_A_TIME, &until, NULL);
    if (count < 0 && errno != EINTR) /* Linux before 5.11 has none */
        count = epoll_wait(r->epoll, events, EVENTS_AT_A_TIME, (int)ceil(1e3 * wait_s));
    for (int i = 0; i < count; i++) {
        const uint32_t e = events[i].events;
        const int what = ((e & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) | ((e & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                         ((e & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        (void)curl_multi_socket_action(r->multi, events[i].data.fd, what, &running);
    }
    if (r->curl_due_s <= cli_now()) {
        r->curl_due_s = INFINITY; /* unless it says otherwise meanwhile */
        (void)curl_multi_socket_action(r->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

static void collect(struct run *r)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(r->multi, &left)) != NULL) {
        struct client *c = NULL;
        const CURLcode code = message->data.result;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        (void)curl_multi_remove_handle(r->multi, message->easy_handle);
        end_request(c, code, cli_now());
        r->idle[r->idle_count++] = c;
    }
}

static void show_progress(struct run *r, double now_s)
{
    char text[96];
    const double of_time = isinf(r->end_s) ? 0.0 : (now_s - r->start_s) / (r->end_s - r->start_s);
    const double of_requests = r->o->requests == UINT64_MAX ? 0.0 : (double)r->measured / (double)r->o->requests;
    const int n = snprintf(text, sizeof text, "%.0f s, %llu answered, %llu failed, %zu running%s", now_s - r->start_s,
                           (unsigned long long)r->result->answered, (unsigned long long)r->result->failed,
                           r->client_count - r->idle_count,
                           now_s < r->window_s ? ", warming up"
                           : now_s >= r->end_s ? ", waiting for these"
                                               : "");
    (void)snprintf(text + n, sizeof text - (size_t)n, "%*s", n < 64 ? 64 - n : 0, ""); /* over a longer one */
    cli_progress_show(&r->progress, (size_t)(PROGRESS_TOTAL * fmin(1.0, fmax(of_time, of_requests))), text);
    r->tick_s = now_s + TICK_S;
}

static void loop(struct run *r)
{
    r->progress = cli_progress_begin(PROGRESS_TOTAL);
    r->start_s = r->tick_s = cli_now();
    r->window_s = r->start_s + r->o->warmup_s;
    r->end_s = r->window_s + r->o->duration_s;
    if (r->o->rate > 0.0)
        r->arrival_s = r->start_s + load_arrival_gap_s(r->o->seed, 0, r->o->rate);
    while (interrupted == 0) {
        const double now_s = cli_now();
        if (!r->in_window && !r->closed && now_s >= r->window_s) {
            r->in_window = true;
            r->cpu_s = cpu_seconds();
            forget_the_warm_up(r);
        }
        if (!r->closed)
            send_due(r);
        const bool all_sent = r->measured >= r->o->requests, none_runs = r->idle_count == r->client_count;
        if (!r->closed && (now_s >= r->end_s || (all_sent && none_runs)))
            close_window(r, now_s);
        if (r->closed && none_runs)
            break;
        if (now_s >= r->tick_s)
            show_progress(r, now_s);
        wait_and_perform(r);
        collect(r);
    }
    if (!r->closed)
        close_window(r, cli_now());
    r->result->interrupted = interrupted != 0;
    cli_progress_end(&r->progress);
}

/* Give up what is under way after an interruption. */
static void abort_running(struct run *r)
{
    for (size_t i = 0; i < r->client_count; i++) {
        struct client *c = &r->clients[i];
        if (!c->busy)
            continue;
        (void)curl_multi_remove_handle(r->multi, c->easy);
        r->result->aborted += c->measured ? 1 : 0;
        r->result->bytes += c->measured ? c->answer.bytes : 0;
    }
}

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

/* Each connection is a descriptor, and the usual limit is 1024. */
static int raise_descriptors(const struct load_options *o)
{
    struct rlimit limit;
    const rlim_t need = (rlim_t)o->concurrency + DESCRIPTORS_SPARE;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return CLI_OK;
    if (limit.rlim_max < need)
        return cli_fail("%llu connections need %llu descriptors, and this process may have %llu (ulimit -Hn)",
                        (unsigned long long)o->concurrency, (unsigned long long)need,
                        (unsigned long long)limit.rlim_max);
    limit.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0
               ? CLI_OK
               : cli_fail("cannot raise the limit of descriptors: %s", strerror(errno));
}

static int init(struct run *r)
{
    const struct load_options *o = r->o;
    const bool classifies = o->picture_count > 0;
    const struct remote_parameter model = {"model", o->to.model, false};
    const struct remote_request q = {.path = classifies ? "/classify" : "/generate",
                                     .query = &model,
                                     .query_count = classifies ? 1 : 0, /* of a text it is in the body */
                                     .type = classifies ? NULL : "application/json",
                                     .headers = &o->headers};
    const int code = remote_address(&r->url, &r->headers, &o->to, &q);
    if (code != CLI_OK)
        return code;
    r->clients = calloc((size_t)o->concurrency, sizeof *r->clients);
    r->idle = (struct client **)calloc((size_t)o->concurrency, sizeof(struct client *));
    r->multi = curl_multi_init();
    if (r->clients == NULL || r->idle == NULL || r->multi == NULL)
        return cli_fail("out of memory");
    while (r->client_count < o->concurrency) {
        struct client *c = r->idle[r->idle_count++] = &r->clients[r->client_count++];
        if (!client_init(c, r))
            return cli_fail("out of memory for %zu clients", r->client_count);
    }
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll < 0)
        return cli_fail("cannot make an event loop: %s", strerror(errno));
    (void)curl_multi_setopt(r->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(r->multi, CURLMOPT_SOCKETDATA, r);
    (void)curl_multi_setopt(r->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(r->multi, CURLMOPT_TIMERDATA, r);
    (void)curl_multi_setopt(r->multi, CURLMOPT_MAXCONNECTS, (long)o->concurrency);
    r->curl_due_s = INFINITY;
    return CLI_OK;
}

static void clear(struct run *r)
{
    for (size_t i = 0; i < r->client_count; i++) {
        curl_easy_cleanup(r->clients[i].easy);
        free(r->clients[i].answer.held.bytes);
    }
    if (r->multi != NULL)
        (void)curl_multi_cleanup(r->multi);
    curl_slist_free_all(r->headers);
    curl_free(r->url);
    free(r->idle);
    free(r->clients);
    if (r->epoll >= 0)
        (void)close(r->epoll);
}

/* Is there a daemon that takes requests? */
static int probe(const struct load_options *o)
{
    const struct remote_request q = {.method = "GET", .path = "/readyz", .headers = &o->headers};
    struct remote to = o->to;
    struct remote_answer answer = {0};
    to.timeout_s = LOAD_PROBE_S;
    const int code = remote_post(&to, &q, &answer);
    free(answer.bytes);
    return code;
}

int load_run(const struct load_options *o, const struct load_bodies *bodies, struct load_result *ret)
{
    struct run r = {.o = o, .bodies = bodies, .result = ret, .epoll = -1};
    int code = raise_descriptors(o);
    if (code == CLI_OK)
        code = probe(o);
    if (code == CLI_OK)
        code = init(&r);
    if (code == CLI_OK) {
        /* Ctrl-C ends the run early and lets it report. More of them change nothing: programs that pass signals on to a
         * whole group, as timeout(1) does, send two. TLS writes to sockets without MSG_NOSIGNAL. */
        (void)signal(SIGINT, on_signal);
        (void)signal(SIGTERM, on_signal);
        (void)signal(SIGPIPE, SIG_IGN);
        loop(&r);
        abort_running(&r);
    }
    clear(&r);
    return code;
}
