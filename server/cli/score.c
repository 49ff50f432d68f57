/* score.c - aft score MODEL FILE: mean -log2 p of a file's bytes in windows of T, each from scratch and beginning with the
 * last byte of the one before; the first byte of the file is not scored. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/cli/cli.h"

#define ROWS 256                         /* bytes of a pass: a compromise between memory and full tiles */
#define SCORE_FILE_MAX ((size_t)4 << 30) /* beyond it the run takes days */

/* -log2 of the probability that logits [256] give to a byte. */
static double bits_of(const float *logits, uint8_t byte)
{
    double top = (double)logits[0], sum = 0.0;
    for (size_t i = 1; i < BYTE_VALUES; i++)
        top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < BYTE_VALUES; i++)
        sum += exp((double)logits[i] - top);
    return (log(sum) + top - (double)logits[byte]) / log(2.0);
}

static void show_progress(size_t done, size_t total, double bits)
{
    enum { WIDTH = 40 };
    const size_t full = total > 0 ? done * WIDTH / total : WIDTH;
    char bar[WIDTH + 1];
    for (size_t i = 0; i < WIDTH; i++)
        bar[i] = i < full ? '#' : '.';
    bar[WIDTH] = '\0';
    (void)fprintf(stderr, "\r[%s] %3zu %%  %.4f bits per byte ", bar, total > 0 ? done * 100 / total : 100,
                  done > 0 ? bits / (double)done : 0.0);
}

static double score(struct engine *e, uint32_t context, const uint8_t *bytes, size_t size, float *logits)
{
    const bool progress = isatty(STDERR_FILENO) == 1;
    double bits = 0.0, shown = 0.0;
    for (size_t at = 0; at + 1 < size;) {
        const size_t window = size - 1 - at < context ? size - 1 - at : context;
        engine_stream_reset(e, 0);
        for (size_t done = 0; done < window;) {
            const size_t n = window - done < ROWS ? window - done : ROWS;
            const struct engine_part part = {
                .count = (uint32_t)n, .bytes = bytes + at + done, .every = true, .logits = logits};
            engine_feed(e, &part, 1);
            for (size_t i = 0; i < n; i++)
                bits += bits_of(logits + i * BYTE_VALUES, bytes[at + done + i + 1]);
            done += n;
        }
        at += window;
        if (progress && (cli_now() - shown > 0.1 || at + 1 == size)) {
            show_progress(at, size - 1, bits);
            shown = cli_now();
        }
    }
    if (progress)
        (void)fprintf(stderr, "\r\033[K");
    return bits / (double)(size - 1);
}

static int run(const struct model *m, const char *path)
{
    struct engine_options o = {.streams_max = 1, .rows_max = ROWS};
    struct engine *e = NULL;
    float *logits = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct error err;
    int code = CLI_OK;
    if (cli_read(&bytes, &size, path, SCORE_FILE_MAX, &err) != OK)
        return cli_fail_error(&err);
    if (size < 2) {
        code = cli_fail("%s has %zu bytes, expected at least 2: the first is not scored", path, size);
        goto done;
    }
    e = cli_open_engine(m, &o);
    logits = malloc(sizeof *logits * ROWS * BYTE_VALUES);
    if (e == NULL || logits == NULL) {
        code = e == NULL ? CLI_FAILED : cli_fail("out of memory");
        goto done;
    }
    (void)printf("%.4f bits per byte\n", score(e, m->config.context, bytes, size, logits));
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
