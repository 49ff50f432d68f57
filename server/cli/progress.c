/* progress.c - how far a verb has come, on standard error where that is a terminal, and colours; see cli.h. Single
 * threaded, but for the thread that tells of a wait: it prints, under `waiting.lock`, and the main thread does not
 * until it has ended. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/cli.h"

enum { BAR = 40, REDRAWN_MS = 100 /* a terminal is slower than the model */ };

bool cli_is_terminal(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && !(kind != NULL && strcmp(kind, "dumb") == 0);
}

bool cli_has_colors(int fd)
{
    const char *none = getenv("NO_COLOR");
    return cli_is_terminal(fd) && (none == NULL || none[0] == '\0');
}

bool cli_output_goes_to_file(void)
{
    struct stat st;
    return isatty(STDOUT_FILENO) == 0 && fstat(STDOUT_FILENO, &st) == 0 && (S_ISREG(st.st_mode) || S_ISCHR(st.st_mode));
}

/* ---- a bar ------------------------------------------------------------------------------------------------------- */

static bool is_begun; /* there is one, and no room for another */
static bool is_drawn; /* something of it is on the screen */

struct cli_progress cli_progress_begin(size_t total)
{
    const bool on = !is_begun && cli_is_terminal(STDERR_FILENO);
    is_begun |= on;
    return (struct cli_progress){.on = on, .began = cli_now(), .total = total};
}

/* "1:05:00", "2:07", "9 s" */
static void say_time(char *out, size_t size, double seconds)
{
    const unsigned s = (unsigned)seconds;
    if (s >= 3600)
        (void)snprintf(out, size, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    else if (s >= 60)
        (void)snprintf(out, size, "%u:%02u", s / 60, s % 60);
    else
        (void)snprintf(out, size, "%u s", s);
}

/* What is left, if it goes on as it did. Not before there is something to go by. */
static void say_left(char *out, size_t size, const struct cli_progress *p, size_t done, double now)
{
    enum { HOURS_MAX = 1000 };
    char left[32];
    const double elapsed = now - p->began;
    out[0] = '\0';
    if (done == 0 || elapsed < 1.0 || done >= p->total)
        return;
    const double seconds = elapsed * (double)(p->total - done) / (double)done + 0.999;
    if (seconds > 3600.0 * HOURS_MAX)
        return;
    say_time(left, sizeof left, seconds);
    (void)snprintf(out, size, ", %s left", left);
}

void cli_progress_show(struct cli_progress *p, size_t done, const char *says)
{
    char bar[BAR + 1], time[48];
    const double now = p->on ? cli_now() : 0.0;
    if (!p->on || (now - p->shown < 1e-3 * REDRAWN_MS && (done < p->total || p->total == 0)))
        return;
    p->shown = now;
    is_drawn = true;
    if (p->total == 0) {
        say_time(time, sizeof time, now - p->began);
        (void)fprintf(stderr, "\r%s, %s\033[K", says, time);
        return;
    }
    const size_t full = done * BAR / p->total;
    for (size_t i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    say_left(time, sizeof time, p, done, now);
    (void)fprintf(stderr, "\r[%s] %3zu %%  %s%s\033[K", bar, done * 100 / p->total, says, time);
}

void cli_progress_wipe(void)
{
    if (is_drawn)
        (void)fprintf(stderr, "\r\033[K");
    is_drawn = false;
}

void cli_progress_end(struct cli_progress *p)
{
    if (!p->on)
        return;
    cli_progress_wipe();
    is_begun = false;
    p->on = false;
}

/* ---- a wait ------------------------------------------------------------------------------------------------------ */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool runs, is_over; /* is_over: under the lock */
    char says[128];
    struct cli_progress progress;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void *tell_wait(void *arg)
{
    struct timespec next;
    (void)arg;
    (void)clock_gettime(CLOCK_MONOTONIC, &next);
    (void)pthread_mutex_lock(&waiting.lock);
    while (!waiting.is_over) {
        next.tv_sec++; /* not before the first second is over */
        if (pthread_cond_clockwait(&waiting.ended, &waiting.lock, CLOCK_MONOTONIC, &next) != 0 && !waiting.is_over)
            cli_progress_show(&waiting.progress, 0, waiting.says);
    }
    (void)pthread_mutex_unlock(&waiting.lock);
    return NULL;
}

void cli_wait_begin(const char *says, const char *whom)
{
    waiting.progress = cli_progress_begin(0);
    waiting.is_over = false;
    (void)snprintf(waiting.says, sizeof waiting.says, "%s %.80s", says, whom);
    waiting.runs = waiting.progress.on && pthread_create(&waiting.thread, NULL, tell_wait, NULL) == 0;
}

void cli_wait_end(void)
{
    if (waiting.runs) {
        (void)pthread_mutex_lock(&waiting.lock);
        waiting.is_over = true;
        (void)pthread_cond_signal(&waiting.ended);
        (void)pthread_mutex_unlock(&waiting.lock);
        (void)pthread_join(waiting.thread, NULL);
    }
    waiting.runs = false;
    cli_progress_end(&waiting.progress);
}
