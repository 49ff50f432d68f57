/* score.c - aft score MODEL FILE: mean -log2 p of a file's bytes in windows of T, each from scratch and beginning with
 * the last byte of the one before, or in one piece where the model has no end; without a start embedding the first byte
 * of the file is not scored. Single threaded. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/logits.h"

#define ROWS 256 /* bytes of a pass: a compromise between memory and full tiles */

/* A bar on standard error, if that is a terminal. */
struct progress {
    bool on;
    double shown; /* when */
    size_t total;
};

static void progress_show(struct progress *p, size_t done, double bits)
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
    (void)fprintf(stderr, "\r[%s] %3zu %%  %.4f bits per byte ", bar, done * 100 / p->total, bits / (double)done);
    p->shown = now;
}

static void progress_end(const struct progress *p)
{
    if (p->on)
        (void)fprintf(stderr, "\r\033[K");
}

/* bytes [size] in windows, but for the first one where nothing comes before it; logits [ROWS, 256] is scratch. *mean is
 * set on CLI_OK. A row tells the probability of a byte and is fed the one before it, in the place of which the first of
 * a window has the start embedding of a model that has one. */
static int score(double *mean, struct engine *e, const uint8_t *bytes, size_t size, float *logits)
{
    const struct engine_info *info = engine_info(e);
    const size_t first = info->starts ? 0 : 1, total = size - first;
    struct progress progress = {.on = isatty(STDERR_FILENO) == 1, .total = total};
    double bits = 0.0;
    for (size_t at = 0, left = 0; at < total;) { /* left: what the window still takes */
        uint8_t fed[ROWS];
        if (left == 0) {
            engine_stream_reset(e, 0);
            left = total - at < info->context ? total - at : info->context;
        }
        const size_t n = left < ROWS ? left : ROWS;
        for (size_t i = 0; i < n; i++)
            fed[i] = first + at + i > 0 ? bytes[first + at + i - 1] : 0;
        const struct engine_part part = {.count = (uint32_t)n, .bytes = fed, .every = true, .logits = logits};
        engine_feed(e, &part, 1);
        for (size_t i = 0; i < n; i++)
            bits -= logits_log2(logits + i * BYTE_VALUES, BYTE_VALUES, bytes[first + at + i]);
        at += n;
        if (!isfinite(bits)) { /* the weights overflow on this input */
            progress_end(&progress);
            return cli_fail("the model gives no finite probability to a byte before %zu", at + first);
        }
        left -= n;
        progress_show(&progress, at, bits);
    }
    progress_end(&progress);
    *mean = bits / (double)total;
    return CLI_OK;
}

static int run(const struct model *m, const char *path)
{
    struct engine_options o = {.streams_max = 1, .rows_max = ROWS};
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    struct engine *e = NULL;
    float *logits = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    double mean = 0.0;
    struct error err;
    int code = CLI_OK;
    if (cli_read(&bytes, &size, path, SCORE_FILE_MAX, &err) != OK)
        return cli_fail_error(&err);
    if (size < (m->start_embed != NULL ? 1 : 2)) {
        code = cli_fail("%s has %zu byte%s, expected at least %s", name, size, size == 1 ? "" : "s",
                        m->start_embed != NULL ? "1" : "2: the first is not scored");
        goto done;
    }
    e = cli_open_engine(m, &o);
    logits = malloc(sizeof *logits * ROWS * BYTE_VALUES);
    if (e == NULL || logits == NULL) {
        code = e == NULL ? CLI_FAILED : cli_fail("out of memory");
        goto done;
    }
    code = score(&mean, e, bytes, size, logits);
    if (code == CLI_OK)
        (void)printf("%.4f bits per byte\n", mean);
done:
    free(logits);
    free(bytes);
    engine_close(e);
    return code;
}

int cli_score(int argc, char **argv)
{
    const struct cli_option options[] = {{0}};
    int count;
    int code = cli_parse(options, argc, argv, 2, 2, &count);
    if (code != CLI_OK || count < 0)
        return code;
    struct model *m = cli_load_model(argv[1], &(enum model_task){TASK_TEXT_GENERATION});
    if (m == NULL)
        return CLI_FAILED;
    code = run(m, argv[2]);
    model_free(m);
    return code;
}
