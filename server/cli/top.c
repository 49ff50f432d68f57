/* top.c - aft top: a daemon's models and requests, drawn anew every second on a terminal, or printed one after the
 * other. Plain escapes are all that it takes: the screen is written from its top, and nothing is edited.
 *
 * Single threaded. A signal that ends the program puts the terminal right first, in its handler, because a daemon that
 * hangs keeps the loop waiting; what that uses is allowed in handlers. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "config/limits.h"
#include "server/cli/cli.h"
#include "server/cli/locate.h"
#include "server/cli/top_view.h"

#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define GO_TO_TOP "\033[H"
#define CLEAR_LINE "\033[K" /* from the cursor on */
#define CLEAR_BELOW "\033[J"

enum { SECOND_MS = 1000, ROWS = 24, COLUMNS = 80 /* where a terminal does not say */ };

/* ---- the terminal ----------------------------------------------------------------------------------------------- */

static struct termios before_us;
static volatile sig_atomic_t is_ours; /* the terminal is as we need it */

static void leave_terminal(void)
{
    static const char show[] = SHOW_CURSOR;
    if (!is_ours)
        return;
    is_ours = 0;
    (void)!write(STDOUT_FILENO, show, sizeof show - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &before_us);
}

static void on_signal(int number)
{
    leave_terminal();
    if (number == SIGINT) /* how one leaves */
        _exit(CLI_OK);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Keys come one by one and are not shown; Ctrl-C is still a signal, Ctrl-Z is not. */
static void enter_terminal(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    if (tcgetattr(STDIN_FILENO, &before_us) != 0)
        return;
    struct termios ours = before_us;
    ours.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    ours.c_cc[VSUSP] = _POSIX_VDISABLE;
    ours.c_cc[VMIN] = 1;
    ours.c_cc[VTIME] = 0;
    is_ours = 1;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        (void)signal(ends[i], on_signal);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &ours);
    (void)printf(HIDE_CURSOR GO_TO_TOP CLEAR_BELOW);
}

static struct winsize terminal_size(void)
{
    struct winsize size = {.ws_row = 0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = ROWS, .ws_col = COLUMNS};
    return size;
}

/* Draw the text, cut where the terminal ends, over what is there. */
static void draw(const char *text, struct winsize size)
{
    (void)printf(GO_TO_TOP);
    for (unsigned row = 1; row < size.ws_row && *text != '\0'; row++) {
        const int length = (int)strcspn(text, "\n");
        (void)printf("%.*s" CLEAR_LINE "\n", length < size.ws_col ? length : size.ws_col - 1, text);
        text += length + (text[length] == '\n' ? 1 : 0);
    }
    (void)printf(CLEAR_BELOW);
}

/* Wait for a second, or with keys for one of them: true if that was q. */
static bool is_left_within_a_second(bool with_keys)
{
    struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = '\0';
    if (poll(&keys, with_keys ? 1 : 0, SECOND_MS) != 1)
        return false; /* or the size has changed */
    return read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q';
}

/* ---- showing ---------------------------------------------------------------------------------------------------- */

static int draw_tables(const json_t *told)
{
    char *text = NULL;
    size_t bytes = 0;
    const struct winsize size = terminal_size();
    FILE *to = open_memstream(&text, &bytes);
    if (to == NULL)
        return cli_fail("out of memory");
    top_view_print(to, told, size.ws_row);
    const bool whole = fclose(to) == 0 && text != NULL; /* glibc's fclose does not tell of memory that it lacked */
    if (whole)
        draw(text, size);
    free(text);
    return whole ? CLI_OK : cli_fail("out of memory");
}

enum form { FORM_SCREEN, FORM_TABLES, FORM_JSON };

static int top_show(enum form form, const struct locate *l, const struct top_sample *before,
                    const struct top_sample *now)
{
    json_t *told = top_view_describe(remote_name(&l->to), before, now);
    int code = CLI_OK;
    if (told == NULL || form == FORM_JSON)
        code = cli_print_json(json_incref(told));
    else if (form == FORM_SCREEN)
        code = draw_tables(told);
    else
        top_view_print(stdout, told, SIZE_MAX);
    json_decref(told);
    return code == CLI_OK ? cli_flush() : code;
}

/* `count` tables, each of a second; 0: without end. A screen is drawn at once, without rates, and until it is left. */
static int top_run(const struct locate *l, enum form form, uint64_t count)
{
    struct top_sample before, now;
    int code = top_sample_take(&before, &l->to);
    if (code != CLI_OK)
        return code;
    if (form == FORM_SCREEN) {
        enter_terminal();
        code = top_show(form, l, &before, &before);
    }
    for (uint64_t i = 0; (count == 0 || i < count) && code == CLI_OK; i++) {
        if (is_left_within_a_second(form == FORM_SCREEN))
            break;
        code = top_sample_take(&now, &l->to);
        if (code != CLI_OK)
            break;
        if (form == FORM_TABLES && i > 0)
            (void)printf("\n");
        code = top_show(form, l, &before, &now);
        top_sample_clear(&before);
        before = now;
    }
    leave_terminal();
    top_sample_clear(&before);
    return code;
}

int cli_top(int argc, char **argv)
{
    struct locate l = {.config = NULL};
    bool once = false, json = false;
    uint64_t count_asked = 0;
    const struct cli_option options[] = {
        {"once", CLI_FLAG, &once, 0, 0, NULL, NULL, "print one sample and exit"},
        {"count", CLI_UNSIGNED, &count_asked, 1, TOP_SNAPSHOTS_MAX, "N", NULL, "print N samples and exit"},
        {"json", CLI_FLAG, &json, 0, 0, NULL, NULL, "print each sample as a JSON object on one line"},
        LOCATE_OPTIONS(&l) REMOTE_KEY_OPTION(&l.to){0},
    };
    int count;
    const int code = locate_parse(&l, true, options, argc, argv, 0, 0, &count);
    if (code != CLI_OK || count < 0)
        return code;
    const bool prints = once || json || count_asked > 0 || !cli_is_terminal(STDOUT_FILENO) || isatty(STDIN_FILENO) == 0;
    return top_run(&l, json ? FORM_JSON : prints ? FORM_TABLES : FORM_SCREEN, once ? 1 : count_asked);
}
