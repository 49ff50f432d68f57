/* load_run.c - when each request is due, and the event loop that sends them: epoll, a timer, libcurl's multi interface.
 * One thread, and another one that libcurl starts to look up a host's name. libcurl says which sockets to watch
 * (on_socket) and when it next wants to be called (on_timer); nothing calls it from within those. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "engine/sampler.h"
#include "server/cli/load_client.h"

#define EVENTS_AT_A_TIME 256
#define TICK_S 0.1           /* between two checks for signals, and two updates of the progress */
#define DESCRIPTORS_SPARE 64 /* besides one for each connection */

struct run {
    const struct load_options *o;
    struct load_result *result;
    struct load_shared shared;
    struct load_client *clients;
    struct load_session *sessions; /* [client_count], if clients go on with any */
    struct load_client **idle;     /* [idle_count], the last one used on top: its connection is warm */
    size_t client_count, idle_count;
    CURLM *multi;
    int epoll, timer;
    double curl_due_s;               /* when libcurl wants to be called; infinite: never */
    double start_s, window_s, end_s; /* end_s may be infinite */
    double arrival_s;                /* open loop: when request number `index` is due */
    uint64_t index, measured;        /* requests begun, warm-up included; those of the window */
    bool opened, closed;             /* the window */
    double cpu_s, tick_s;            /* CPU time at its start; when the next tick is due */
    struct cli_progress progress;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- libcurl's wishes -------------------------------------------------------------------------------------------- */

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
    const int how = of_socket != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    (void)curl_multi_assign(r->multi, fd, r); /* anything but NULL: it is watched */
    return epoll_ctl(r->epoll, how, fd, &e) == 0 ? 0 : -1;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct run *r = arg;
    (void)multi;
    r->curl_due_s = timeout_ms < 0 ? INFINITY : cli_now() + 1e-3 * (double)timeout_ms;
    return 0;
}

/* ---- what is due ------------------------------------------------------------------------------------------------- */

double load_arrival_gap_s(uint64_t seed, uint64_t n, double rate)
{
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    sampler_philox(out, counter, key);
    const uint64_t bits = (uint64_t)out[0] << 32 | out[1];
    return -log(ldexp((double)(bits >> 11) + 1.0, -53)) / rate; /* of a number in (0, 1] */
}

/* Kinds alternate evenly, so that every beginning of the run has its share of both. */
static enum load_kind kind_at(const struct run *r, uint64_t index)
{
    const double before = floor((double)index * r->o->mix), after = floor((double)(index + 1) * r->o->mix);
    return after > before ? LOAD_CLASSIFY : LOAD_GENERATE;
}

static void advance(struct run *r, double due_s)
{
    r->measured += due_s >= r->window_s ? 1 : 0;
    r->index++;
    if (r->o->rate > 0.0)
        r->arrival_s += load_arrival_gap_s(r->o->seed, r->index, r->o->rate);
}

/* A client that may send; NULL if there is none. */
static struct load_client *take_idle(struct run *r, double now_s)
{
    for (size_t i = r->idle_count; i-- > 0;)
        if (r->idle[i]->rest_until_s <= now_s) {
            struct load_client *c = r->idle[i];
            r->idle[i] = r->idle[--r->idle_count];
            return c;
        }
    return NULL;
}

/* Begin whatever is due and has a client. */
static void send_due(struct run *r, double now_s)
{
    const bool open = r->o->rate > 0.0;
    while (r->measured < r->o->requests) {
        const double sent_s = cli_now(), due_s = open ? r->arrival_s : sent_s;
        if (due_s > sent_s || due_s >= r->end_s)
            return;
        struct load_client *c = take_idle(r, now_s);
        if (c == NULL)
            return;
        load_client_begin(c, kind_at(r, r->index), due_s, sent_s, due_s >= r->window_s);
        advance(r, due_s);
        if (curl_multi_add_handle(r->multi, c->easy) != CURLM_OK) { /* out of memory */
            load_client_end(c, CURLE_OUT_OF_MEMORY, now_s);
            r->idle[r->idle_count++] = c;
        }
    }
}

/* Count the requests that were due in the window and never sent. */
static void count_unsent(struct run *r, double until_s)
{
    while (r->o->rate > 0.0 && r->arrival_s < until_s && r->measured < r->o->requests) {
        if (r->arrival_s >= r->window_s) {
            struct load_tally *t = &r->result->tallies[kind_at(r, r->index)];
            t->requests++;
            t->unsent++;
        }
        advance(r, r->arrival_s);
    }
}

/* ---- the window -------------------------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void open_window(struct run *r)
{
    r->opened = r->shared.in_window = true;
    r->cpu_s = cpu_seconds();
}

static void close_window(struct run *r, double now_s)
{
    const double until_s = now_s < r->end_s ? now_s : r->end_s;
    r->closed = true;
    if (!r->opened)
        return;
    r->shared.in_window = false;
    r->result->cpu_seconds = cpu_seconds() - r->cpu_s;
    r->result->seconds = until_s - r->window_s;
    count_unsent(r, until_s);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* When something has to be done although no socket says so. */
static double next_look_s(const struct run *r)
{
    double at_s = r->curl_due_s < r->tick_s ? r->curl_due_s : r->tick_s;
    if (r->closed)
        return at_s;
    if (!r->opened)
        at_s = fmin(at_s, r->window_s);
    at_s = fmin(at_s, r->end_s);
    if (r->o->rate > 0.0 && r->idle_count > 0 && r->measured < r->o->requests)
        at_s = fmin(at_s, r->arrival_s);
    return at_s; /* resting clients are checked every tick */
}

/* Wait until then or for sockets, and let libcurl do what it can. With a timer, since epoll_wait counts whole
 * milliseconds. */
static void wait_and_perform(struct run *r)
{
    struct epoll_event events[EVENTS_AT_A_TIME];
    const double at_s = next_look_s(r);
    int running, count;
    if (at_s > cli_now()) {
        const double whole_s = floor(at_s);
        const struct itimerspec when = {.it_value = {(time_t)whole_s, (long)(1e9 * (at_s - whole_s)) + 1}};
        (void)timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &when, NULL);
        count = epoll_wait(r->epoll, events, EVENTS_AT_A_TIME, -1);
    } else {
        count = epoll_wait(r->epoll, events, EVENTS_AT_A_TIME, 0);
    }
    for (int i = 0; i < count; i++) {
        uint64_t expirations;
        const uint32_t e = events[i].events;
        if (events[i].data.fd == r->timer) {
            (void)!read(r->timer, &expirations, sizeof expirations);
            continue;
        }
        const int what = ((e & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) | ((e & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                         ((e & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
        (void)curl_multi_socket_action(r->multi, events[i].data.fd, what, &running);
    }
    if (r->curl_due_s <= cli_now()) {
        r->curl_due_s = INFINITY; /* unless it says otherwise meanwhile */
        (void)curl_multi_socket_action(r->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

/* A client whose session has failed comes last: it would fail at once, and take the next request that is due, too. */
static void put_idle(struct run *r, struct load_client *c)
{
    const size_t at = c->is_doubtful ? 0 : r->idle_count;
    memmove((void *)(r->idle + at + 1), (const void *)(r->idle + at),
            (r->idle_count - at) * sizeof(struct load_client *));
    r->idle[at] = c;
    r->idle_count++;
}

static void collect(struct run *r)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(r->multi, &left)) != NULL) {
        struct load_client *c = NULL;
        const CURLcode code = message->data.result;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        (void)curl_multi_remove_handle(r->multi, message->easy_handle);
        load_client_end(c, code, cli_now());
        put_idle(r, c);
    }
}

static void abort_running(struct run *r)
{
    for (size_t i = 0; i < r->client_count; i++)
        if (r->clients[i].busy) {
            (void)curl_multi_remove_handle(r->multi, r->clients[i].easy);
            load_client_abort(&r->clients[i]);
        }
}

static void show_progress(struct run *r, double now_s)
{
    const struct load_progress p = {.now_s = now_s,
                                    .start_s = r->start_s,
                                    .window_s = r->window_s,
                                    .end_s = r->end_s,
                                    .measured = r->measured,
                                    .running = r->client_count - r->idle_count};
    load_progress_show(&r->progress, &p, r->o, r->result);
    r->tick_s = now_s + TICK_S;
}

static void loop(struct run *r)
{
    r->progress = cli_progress_begin(LOAD_PROGRESS_TOTAL);
    r->start_s = r->tick_s = cli_now();
    r->window_s = r->start_s + r->o->warmup_s;
    r->end_s = r->window_s + r->o->duration_s;
    if (r->o->rate > 0.0)
        r->arrival_s = r->start_s + load_arrival_gap_s(r->o->seed, 0, r->o->rate);
    for (;;) {
        double now_s = cli_now();
        if (!r->opened && now_s >= r->window_s)
            open_window(r);
        if (interrupted != 0)
            break;
        if (!r->closed)
            send_due(r, now_s);
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
    abort_running(r);
    cli_progress_end(&r->progress);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

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

static int init_clients(struct run *r)
{
    const size_t count = (size_t)r->o->concurrency;
    r->clients = calloc(count, sizeof *r->clients);
    r->idle = (struct load_client **)calloc(count, sizeof(struct load_client *));
    if (r->clients == NULL || r->idle == NULL)
        return cli_fail("out of memory");
    for (; r->client_count < count; r->client_count++) {
        if (!load_client_init(&r->clients[r->client_count], &r->shared))
            return cli_fail("out of memory for %zu clients", count);
        r->idle[r->idle_count++] = &r->clients[r->client_count];
    }
    return CLI_OK;
}

static int begin_sessions(struct run *r, const struct load_bodies *bodies)
{
    if (!r->o->sessions)
        return CLI_OK;
    r->sessions = calloc(r->client_count, sizeof *r->sessions);
    if (r->sessions == NULL)
        return cli_fail("out of memory");
    for (size_t i = 0; i < r->client_count; i++)
        r->clients[i].session = &r->sessions[i];
    return load_sessions_begin(r->sessions, r->client_count, r->o, bodies, &interrupted);
}

static int init_loop(struct run *r)
{
    struct epoll_event e = {.events = EPOLLIN};
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    e.data.fd = r->timer;
    if (r->epoll < 0 || r->timer < 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->timer, &e) != 0)
        return cli_fail("cannot make an event loop: %s", strerror(errno));
    r->multi = curl_multi_init();
    if (r->multi == NULL)
        return cli_fail("out of memory");
    (void)curl_multi_setopt(r->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(r->multi, CURLMOPT_SOCKETDATA, r);
    (void)curl_multi_setopt(r->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(r->multi, CURLMOPT_TIMERDATA, r);
    (void)curl_multi_setopt(r->multi, CURLMOPT_MAXCONNECTS, (long)r->o->concurrency);
    r->curl_due_s = INFINITY;
    return CLI_OK;
}

static void clear(struct run *r)
{
    for (size_t i = 0; i < r->client_count; i++)
        load_client_clear(&r->clients[i]);
    if (r->multi != NULL)
        (void)curl_multi_cleanup(r->multi);
    for (size_t k = 0; k < LOAD_KINDS; k++)
        load_target_clear(&r->shared.targets[k]);
    free(r->sessions);
    free(r->idle);
    free(r->clients);
    if (r->epoll >= 0)
        (void)close(r->epoll);
    if (r->timer >= 0)
        (void)close(r->timer);
}

/* Ctrl-C ends the run early and lets it report. More of them meanwhile change nothing: programs that pass signals on to
 * a whole group, as timeout(1) does, send two. */
static int loop_with_signals(struct run *r, const struct load_bodies *sessions)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGPIPE};
    struct sigaction before[3];
    interrupted = 0;
    for (size_t i = 0; i < 3; i++) {
        struct sigaction s = {0};
        s.sa_handler = numbers[i] == SIGPIPE ? SIG_IGN : on_signal; /* TLS writes to sockets without MSG_NOSIGNAL */
        (void)sigaction(numbers[i], &s, &before[i]);
    }
    const int code = begin_sessions(r, sessions);
    if (code == CLI_OK)
        loop(r);
    if (r->sessions != NULL)
        load_sessions_end(r->sessions, r->client_count, r->o);
    for (size_t i = 0; i < 3; i++)
        (void)sigaction(numbers[i], &before[i], NULL);
    return code;
}

int load_run(const struct load_options *o, const struct load_bodies bodies[LOAD_KINDS],
             const struct load_bodies *sessions, struct load_result *ret)
{
    struct run r = {.o = o, .result = ret, .epoll = -1, .timer = -1};
    r.shared = (struct load_shared){.o = o, .tallies = ret->tallies};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return cli_fail("libcurl cannot be initialised");
    int code = raise_descriptors(o);
    if (code == CLI_OK)
        code = load_probe(o);
    for (enum load_kind k = 0; k < LOAD_KINDS && code == CLI_OK; k++)
        code = load_target_init(&r.shared.targets[k], k, o, &bodies[k]);
    if (code == CLI_OK)
        code = init_clients(&r);
    if (code == CLI_OK)
        code = init_loop(&r);
    if (code == CLI_OK)
        code = loop_with_signals(&r, sessions);
    clear(&r);
    curl_global_cleanup();
    return code;
}
