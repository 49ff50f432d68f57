/* main.c - aftd: start, signals, ordered shutdown; nothing else.
 *
 * Started in the order log, engine thread and models, loader, workers, watcher, HTTP; ended in reverse order. All
 * threads have the signals blocked; the main thread waits for them, so no handler ever runs.
 *
 * Stopping (SIGTERM, SIGINT): /readyz says so, and requests are still accepted for drain_delay_ms; then connections are
 * refused, streams that move end, idle connections may bring a last request within drain_idle_ms, and what runs may end
 * within drain_timeout_ms; then the rest is cancelled, which resumes every suspended connection, and the answers are
 * written. A second signal skips the waiting.
 * On SIGHUP the loader's thread reads files again (reload.h).
 * While it waits, the main thread tells the service manager, if there is one, how the daemon is (heartbeat.h). */
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "config/memory.h"
#include "config/version.h"
#include "engine/engine.h"
#include "server/access/auth.h"
#include "server/api/routes.h"
#include "server/api/version.h"
#include "server/control/heartbeat.h"
#include "server/control/hosting.h"
#include "server/control/loader.h"
#include "server/control/reload.h"
#include "server/core/address_space.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/log_writer.h"
#include "server/core/mailbox.h"
#include "server/core/metrics.h"
#include "server/core/service_manager.h"
#include "server/core/short_spin.h"
#include "server/core/watcher.h"
#include "server/http/listeners.h"
#include "server/operation/batcher.h"
#include "server/request/hosts.h"
#include "server/request/job.h"
#include "server/request/requests.h"
#include "server/request/service.h"
#include "server/request/workers.h"
#include "server/session/sessions.h"

ADDRESS_SPACE_CHECK;

enum { EXIT_RUNTIME = 1, EXIT_USAGE = 2 };
enum {
    DRAIN_LOOK_MS = 20,       /* how often to check, while stopping, whether the running requests have ended */
    STOP_MS_MAX = 15000,      /* to end after the draining: a model that is being loaded, and the last answers */
    LAST_ANSWERS_MS = 2000,   /* for clients to take the answers of what was cancelled, and of what was never begun */
    SPARE_BYTES = 512 * 1024, /* that a thread's heap keeps at its end, at most */
};

struct daemon {
    const struct settings *settings; /* of the config */
    const struct config *config;
    int argc;
    char **argv;
    struct mailboxes *mailboxes;
    struct hosting *hosting;
    struct watcher *watcher;
    struct requests *requests;
    struct hosts hosts;
    struct service service;
    struct service_sockets passed;
    struct listeners listeners; /* until the HTTP server has them */
    struct heartbeat heartbeat;
    struct reload reload;
    sigset_t signals;
};

/* ---- start ----------------------------------------------------------------------------------------------------- */

static void warn_of_setting(void *arg, const char *message)
{
    (void)arg;
    (void)fprintf(stderr, "aftd: %s\n", message);
}

/* A connection is a file descriptor: allow as many as the system lets us. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* By default, glibc lets each thread's heap keep twice the largest block that was ever freed, up to 64 MiB, and
 * malloc_trim gives back only what lies between others. Pictures take megabytes each, on many threads: these go back at
 * once, and the next one takes fresh pages, which is 6 % of the time of a PNG of two megapixels. */
static void keep_little_spare_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, SPARE_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, SPARE_BYTES);
}

static void block_signals(struct daemon *d)
{
    (void)sigemptyset(&d->signals);
    (void)sigaddset(&d->signals, SIGTERM);
    (void)sigaddset(&d->signals, SIGINT);
    (void)sigaddset(&d->signals, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &d->signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN); /* no reason to end: there is no log file to reopen */
    (void)signal(SIGUSR2, SIG_IGN);
}

/* It does not begin where it could only be killed. */
static enum status describe_memory(const struct config *c, struct error *err)
{
    char text[ERROR_MESSAGE_MAX];
    const enum status st = memory_check(&c->settings, c->sources, c->memory, text, sizeof text, err);
    if (st != OK)
        return st;
    if (text[0] != '\0')
        log_warning("%s", text);
    memory_describe(&c->settings, c->memory, text, sizeof text);
    log_info("%s", text);
    return OK;
}

static enum status describe_engine(const struct settings *s, struct error *err)
{
    const struct engine_options o = {.isa = strcmp(s->isa, "auto") == 0 ? NULL : s->isa, .threads = s->threads};
    struct engine_info info;
    if (engine_describe(&info, &o, err) != OK)
        return ERR_CONFIG;
    metrics_build_set(AFTD_VERSION, AFTD_COMMIT, info.isa, info.blas);
    log_info("engine: %u threads, %s, %s", info.threads, info.isa, info.blas);
    return OK;
}

static enum status read_hosts(struct daemon *d, struct error *err)
{
    char machine[HOST_NAME_MAX + 1] = "";
    (void)gethostname(machine, sizeof machine - 1);
    d->service.hosts = &d->hosts;
    return hosts_init(&d->hosts, d->settings->hosts, machine, err);
}

static bool key_is_there(void *keys, const struct client_id *client)
{
    return auth_has(keys, client);
}

/* A key that was taken back takes its sessions along. */
static void drop_sessions_of_gone_keys(void *arg)
{
    const struct daemon *d = arg;
    sessions_keep(d->service.sessions, key_is_there, d->service.keys);
}

static enum status start_workers(struct daemon *d, struct error *err)
{
    const struct workers_purpose pictures = {.threads = d->settings->picture_threads,
                                             .postprocess_max = workers_ahead(d->settings),
                                             .name = "pictures",
                                             .work = "decode pictures",
                                             .setting = "picture_threads",
                                             .nice = 10,
                                             .preprocess = METRIC_PICTURE_PREPARE,
                                             .postprocess = METRIC_PICTURE_DRAW};
    return workers_start(&d->service.workers, &pictures, d->settings, d->mailboxes, err);
}

static enum status start_sessions(struct daemon *d, struct error *err)
{
    const struct workers_purpose stored = {.threads = SESSION_STORE_THREADS,
                                           .postprocess_max = BATCHER_LANES_MAX * d->settings->streams_max,
                                           .name = "sessions",
                                           .work = "read and write sessions",
                                           .setting = "them",
                                           .preprocess = METRIC_SESSION_STORE,
                                           .postprocess = METRIC_SESSION_STORE};
    enum status st = sessions_create(&d->service.sessions, d->settings, d->watcher, err);
    if (st == OK && sessions_are_stored(d->service.sessions))
        st = workers_start(&d->service.keepers, &stored, d->settings, d->mailboxes, err);
    if (st != OK || d->service.keys == NULL)
        return st;
    auth_on_change(d->service.keys, drop_sessions_of_gone_keys, d);
    drop_sessions_of_gone_keys(d); /* stored ones, of keys that were taken back meanwhile */
    return OK;
}

static enum status start(struct daemon *d, struct error *err)
{
    const char *paths[METRICS_ENDPOINTS_MAX];
    metrics_init(paths, routes_paths(paths));
    enum status st = service_manager_take(&d->passed, err);
    if (st == OK)
        st = log_writer_start(err);
    if (st != OK)
        return st;
    raise_file_limit();
    st = mailbox_create(&d->mailboxes, d->settings->http_threads);
    if (st != OK)
        return error_set(err, st, "out of memory or file descriptors for the HTTP threads' mailboxes");
    st = read_hosts(d, err);
    if (st == OK)
        st = describe_memory(d->config, err);
    if (st == OK)
        st = describe_engine(d->settings, err);
    if (st == OK)
        st = requests_check(d->settings, err);
    if (st == OK && strcmp(d->settings->keys_file, "off") != 0)
        st = auth_create(&d->service.keys, d->settings->keys_file, err);
    if (st == OK) /* an address that somebody has is told before models are loaded, which takes long */
        st = listeners_open(&d->listeners, d->settings, &d->passed, err);
    if (st == OK)
        st = hosting_start(&d->hosting, d->settings, d->mailboxes, err);
    if (st != OK)
        return st;
    d->service.batcher = d->hosting->batcher;
    d->service.registry = d->hosting->registry;
    reload_init(&d->reload, d->config, d->argc, d->argv, d->hosting, d->service.keys);
    st = loader_start(&d->service.loader, d->hosting, &d->reload, d->mailboxes, err);
    if (st == OK)
        st = start_workers(d, err);
    if (st == OK)
        st = watcher_start(&d->watcher, err);
    if (st != OK)
        return st;
    st = start_sessions(d, err);
    if (st != OK)
        return st;
    d->service.settings = d->settings;
    d->service.queue = batcher_queue(d->service.batcher);
    d->service.reload = &d->reload;
    d->service.routes = &api_routes;
    return requests_start(&d->requests, &d->service, &d->listeners, d->watcher, d->mailboxes, err);
}

static void tell_ready(struct daemon *d)
{
    d->heartbeat = (struct heartbeat){
        .settings = d->settings, .batcher = d->service.batcher, .registry = d->hosting->registry, .all = d->requests};
    service_manager_ready();
    heartbeat_begin(&d->heartbeat);
}

/* ---- stop ------------------------------------------------------------------------------------------------------ */

/* The next signal, while the service manager is kept informed; 0: none came by end_ns. */
static int next_signal(struct daemon *d, uint64_t end_ns)
{
    for (;;) {
        const int beat_ms = heartbeat_beat(&d->heartbeat);
        const uint64_t now_ns = clock_now_ns(), left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        const uint64_t beat_ns = beat_ms < 0 ? UINT64_MAX : (uint64_t)beat_ms * CLOCK_NS_PER_MS;
        const struct timespec wait = clock_timespec(left_ns < beat_ns ? left_ns : beat_ns);
        const int received = sigtimedwait(&d->signals, NULL, &wait);
        if (received > 0 || left_ns == 0)
            return received > 0 ? received : 0;
    }
}

/* Wait for a signal to stop. */
static void wait_for_signal(struct daemon *d)
{
    while (next_signal(d, UINT64_MAX) == SIGHUP)
        loader_ask_reload(d->service.loader);
}

/* Wait for one for at most wait_ms; a SIGHUP does not count. */
static bool signal_within(struct daemon *d, uint32_t wait_ms)
{
    const uint64_t end_ns = clock_now_ns() + wait_ms * CLOCK_NS_PER_MS;
    int received;
    do
        received = next_signal(d, end_ns);
    while (received == SIGHUP);
    return received > 0;
}

/* Wait until no request is being answered. False: not within wait_ms, or a signal came. */
static bool wait_for_requests(struct daemon *d, uint32_t wait_ms)
{
    const uint64_t end_ns = clock_now_ns() + wait_ms * CLOCK_NS_PER_MS;
    while (requests_count(d->requests) > 0) {
        if (clock_now_ns() >= end_ns || signal_within(d, DRAIN_LOOK_MS))
            return false;
    }
    return true;
}

/* A stream whose client asked for it ends now, and goes on elsewhere; one that has not begun is refused, likewise. */
static void move(void *arg, struct request *x)
{
    (void)arg;
    if (job_look(&x->job).resumable)
        job_cancel(&x->job, ERR_UNAVAILABLE);
}

/* Wait until all connections have ended, for the last answers on them, as wait_for_requests does. */
static bool wait_for_connections(struct daemon *d, uint32_t wait_ms)
{
    const uint64_t end_ns = clock_now_ns() + wait_ms * CLOCK_NS_PER_MS;
    while (http_connections(requests_http(d->requests)) > 0) {
        requests_see_all(d->requests, move, NULL); /* each time: a last request may have come */
        http_close_idle(requests_http(d->requests));
        if (clock_now_ns() >= end_ns || signal_within(d, DRAIN_LOOK_MS))
            return requests_count(d->requests) == 0;
    }
    return true;
}

static void drain(struct daemon *d)
{
    const struct settings *s = d->settings;
    service_manager_stopping((uint64_t)s->drain_delay_ms + s->drain_timeout_ms + STOP_MS_MAX);
    heartbeat_end(&d->heartbeat);
    log_info("draining: new requests are accepted for %u ms, running ones may continue for %u ms", s->drain_delay_ms,
             s->drain_timeout_ms);
    atomic_store(&d->service.draining, true);
    http_close_after_answers(requests_http(d->requests));
    const bool hurry = signal_within(d, s->drain_delay_ms);
    http_refuse_connections(requests_http(d->requests));
    if (hurry || !wait_for_connections(d, s->drain_timeout_ms))
        log_warning("cancelling %u requests", requests_count(d->requests));
    workers_cancel(d->service.workers);
    batcher_cancel(d->service.batcher);
}

/* Also takes what a failed start has left. */
static void stop(struct daemon *d)
{
    if (d->service.loader != NULL)
        loader_stop(d->service.loader);
    workers_stop(d->service.workers); /* what they had is with the engine, or done */
    hosting_stop(d->hosting);
    workers_stop(d->service.keepers); /* now every job is done, so no connection is suspended for long */
    if (d->requests != NULL)
        (void)wait_for_requests(d, LAST_ANSWERS_MS);
    requests_stop(d->requests);
    listeners_close(&d->listeners);
    sessions_free(d->service.sessions);
    watcher_free(d->watcher);
    loader_free(d->service.loader);
    auth_free(d->service.keys);
    workers_free(d->service.workers);
    workers_free(d->service.keepers);
    hosting_free(d->hosting);
    mailbox_free(d->mailboxes);
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static int daemon_run(const struct config *config, int argc, char *argv[])
{
    const struct settings *settings = &config->settings;
    struct daemon d = {.settings = settings, .config = config, .argc = argc, .argv = argv};
    struct error err;
    log_init(settings->log_level, settings->log_format);
    keep_little_spare_memory();
    block_signals(&d);
    const enum status st = start(&d, &err);
    if (st != OK) {
        log_error("%s", err.message);
    } else {
        tell_ready(&d);
        wait_for_signal(&d);
        drain(&d);
    }
    stop(&d);
    if (st == OK)
        log_info("stopped");
    log_writer_stop();
    return st == OK ? EXIT_SUCCESS : st == ERR_CONFIG ? EXIT_USAGE : EXIT_RUNTIME;
}

/* The settings can be read; and what they name? What costs least first. Addresses may be in use, by the daemon that is
 * to be restarted. */
static enum status check_all(const struct settings *s, struct error *err)
{
    struct daemon d = {.settings = s};
    struct keys_file keys = {0};
    enum status st = read_hosts(&d, err);
    if (st == OK)
        st = describe_engine(s, err);
    if (st == OK)
        st = requests_check(s, err);
    if (st == OK)
        st = listeners_check(s, err);
    if (st == OK)
        st = sessions_check_settings(s, err);
    if (st == OK && strcmp(s->keys_file, "off") != 0)
        st = keys_file_read(&keys, s->keys_file, err);
    keys_file_clear(&keys);
    return st == OK ? hosting_check(s, err) : st;
}

static int daemon_check(const struct config *config)
{
    struct error err;
    char warning[ERROR_MESSAGE_MAX] = "", memory[ERROR_MESSAGE_MAX];
    log_init(LOG_LEVEL_ERROR, config->settings.log_format);
    enum status st = memory_check(&config->settings, config->sources, config->memory, warning, sizeof warning, &err);
    if (st == OK)
        st = check_all(&config->settings, &err);
    if (st != OK) {
        (void)fprintf(stderr, "aftd: %s\n", err.message);
        return st == ERR_CONFIG ? EXIT_USAGE : EXIT_RUNTIME;
    }
    if (warning[0] != '\0')
        warn_of_setting(NULL, warning);
    config_print_check(config, stdout);
    memory_describe(&config->settings, config->memory, memory, sizeof memory);
    (void)printf("%s\n", memory);
    return EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
    struct config config;
    struct error err;
    short_spin_reexec(argv);
    const enum status st = config_load(&config, argc, argv, environ, warn_of_setting, NULL, &err);
    if (st != OK) {
        (void)fprintf(stderr, "aftd: %s\n", err.message);
        return st == ERR_NOMEM ? EXIT_RUNTIME : EXIT_USAGE;
    }
    switch (config.action) {
    case CONFIG_HELP:
        config_print_help("aftd", stdout);
        return EXIT_SUCCESS;
    case CONFIG_VERSION:
        version_print_daemon(AFTD_COMMIT, stdout);
        return EXIT_SUCCESS;
    case CONFIG_CHECK:
        return daemon_check(&config);
    case CONFIG_PRINT:
        if (config_print(&config, stdout, &err) == OK)
            return EXIT_SUCCESS;
        (void)fprintf(stderr, "aftd: %s\n", err.message);
        return EXIT_RUNTIME;
    case CONFIG_RUN:
        break;
    }
    return daemon_run(&config, argc, argv);
}
