/* progress.c - how far a verb has come, on standard error where that is a terminal, and colours; see cli.h. Single
 * threaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* ---- a bar ------------------------------------------------------------------------------------------------------ */

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
    if (!p->on || (now - p->shown < 1e-3 * REDRAWN_MS && done < p->total))
        return;
    p->shown = now;
    is_drawn = true;
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

/* ---- a wait ----------------------------------------------------------------------------------------------------- */

static struct cli_progress waiting;

void cli_wait_begin(const char *says, const char *whom)
{
    waiting = cli_progress_begin(0);
    is_drawn |= waiting.on;
    if (waiting.on)
        (void)fprintf(stderr, "\r%s %.80s\033[K", says, whom);
}

void cli_wait_end(void)
{
    cli_progress_end(&waiting);
}
