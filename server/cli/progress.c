/* progress.c - how far a verb has come, on standard error where that is a terminal; see cli.h. Single threaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"

enum { BAR = 40, REDRAWN_MS = 100 /* a terminal is slower than the model */ };

bool cli_is_terminal(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && !(kind != NULL && strcmp(kind, "dumb") == 0);
}

struct cli_progress cli_progress_begin(size_t total)
{
    return (struct cli_progress){.on = cli_is_terminal(STDERR_FILENO), .began = cli_now(), .total = total};
}

void cli_progress_restart(struct cli_progress *p, size_t total)
{
    p->began = cli_now();
    p->total = total;
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

void cli_progress_end(const struct cli_progress *p)
{
    if (p->on)
        (void)fprintf(stderr, "\r\033[K");
}
