/* progress.c - a bar on standard error, where that is a terminal; see cli.h. Single threaded. */
#include <stdio.h>
#include <unistd.h>

#include "server/cli/cli.h"

struct cli_progress cli_progress_begin(size_t total)
{
    return (struct cli_progress){.on = isatty(STDERR_FILENO) == 1, .total = total};
}

void cli_progress_show(struct cli_progress *p, size_t done, const char *says)
{
    enum { WIDTH = 40 };
    const double now = p->on ? cli_now() : 0.0;
    if (!p->on || (now - p->shown < 0.1 && done < p->total)) /* a terminal is slower than the model */
        return;
    const size_t full = done * WIDTH / p->total;
    char bar[WIDTH + 1];
    for (size_t i = 0; i < WIDTH; i++)
        bar[i] = i < full ? '#' : '.';
    bar[WIDTH] = '\0';
    (void)fprintf(stderr, "\r[%s] %3zu %%  %s ", bar, done * 100 / p->total, says);
    p->shown = now;
}

void cli_progress_end(const struct cli_progress *p)
{
    if (p->on)
        (void)fprintf(stderr, "\r\033[K");
}
