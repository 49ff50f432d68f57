/* score.c - aft score MODEL FILE, or FILE and a daemon: mean -log2 p of a file's bytes in windows of T, each from
 * scratch and beginning with the last byte of the one before, or in one piece if the context is unlimited; without a
 * start embedding the first byte of the file is not scored. Single threaded. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/json.h"
#include "engine/logits.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"

int cli_score_bits(double *ret, struct engine *e, const uint8_t *bytes, size_t size)
{
    const struct engine_info *info = engine_info(e);
    const size_t first = info->starts ? 0 : 1, total = size - first;
    float *logits = malloc(sizeof *logits * CLI_SCORE_ROWS * BYTE_VALUES);
    if (logits == NULL)
        return cli_fail("out of memory");
    struct cli_progress progress = cli_progress_begin(total);
    double bits = 0.0;
    for (size_t at = 0, left = 0; at < total;) { /* left: what the window still takes */
        uint8_t fed[CLI_SCORE_ROWS];
        char mean[48];
        if (left == 0) {
            engine_stream_reset(e, 0);
            left = total - at < info->context ? total - at : info->context;
        }
        const size_t n = left < CLI_SCORE_ROWS ? left : CLI_SCORE_ROWS;
        for (size_t i = 0; i < n; i++)
            fed[i] = first + at + i > 0 ? bytes[first + at + i - 1] : 0;
        const struct engine_part part = {.count = (uint32_t)n, .bytes = fed, .every = true, .logits = logits};
        engine_feed(e, &part, 1);
        for (size_t i = 0; i < n; i++)
            bits -= logits_log2(logits + i * BYTE_VALUES, BYTE_VALUES, bytes[first + at + i]);
        at += n;
        if (!isfinite(bits)) { /* the weights overflow on this input */
            cli_progress_end(&progress);
            free(logits);
            return cli_fail("the model gives no finite probability to a byte before %zu", at + first);
        }
        left -= n;
        (void)snprintf(mean, sizeof mean, "%.4f bits per byte", bits / (double)at);
        cli_progress_show(&progress, at, mean);
    }
    cli_progress_end(&progress);
    free(logits);
    *ret = bits;
    return CLI_OK;
}

static int run(const struct model *m, const char *path)
{
    struct engine_options o = {.streams_max = 1, .rows_max = CLI_SCORE_ROWS};
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    struct engine *e = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    double bits = 0.0;
    struct error err;
    int code = CLI_OK;
    if (cli_read(&bytes, &size, path, SCORE_FILE_MAX, &err) != OK)
        return cli_fail_error(&err);
    if (size < (m->start_embed != NULL ? 1 : 2)) {
        code = cli_fail("%s has %zu byte%s, expected at least %s", name, size, size == 1 ? "" : "s",
                        m->start_embed != NULL ? "1" : "2: the first is not scored");
        goto done;
    }
    e = cli_open_engine(m, NULL, &o);
    code = e != NULL ? cli_score_bits(&bits, e, bytes, size) : CLI_FAILED;
    if (code == CLI_OK)
        (void)printf("%.4f bits per byte\n", bits / (double)(size - (m->start_embed != NULL ? 0 : 1)));
done:
    free(bytes);
    engine_close(e);
    return code;
}

/* The same by a daemon, which accepts fewer bytes. */
static int ask(const struct remote *r, const char *path)
{
    struct error err;
    uint8_t *bytes = NULL;
    size_t size = 0;
    json_t *answer = NULL;
    int code = CLI_FAILED;
    if (cli_read(&bytes, &size, path, SCORE_BYTES_MAX, &err) != OK)
        return cli_fail_error(&err);
    json_t *object = json_pack("{s:o, s:s*}", "text_base64", remote_base64(bytes, size), "model", r->model);
    char *body = object != NULL ? json_print(object, JSON_COMPACT) : NULL;
    if (body == NULL) {
        (void)cli_fail("out of memory");
        goto done;
    }
    const struct remote_request request = {
        .path = "/score", .type = "application/json", .body = body, .size = strlen(body)};
    code = remote_post_json(r, &request, &answer);
    double bits = 0.0;
    if (code == CLI_OK && json_unpack(answer, "{s:F}", "bits_per_byte", &bits) != 0)
        code = cli_fail("the daemon's answer has no bits_per_byte");
    if (code == CLI_OK)
        (void)printf("%.4f bits per byte\n", bits);
done:
    json_decref(answer);
    json_decref(object);
    free(body);
    free(bytes);
    return code;
}

int cli_score(int argc, char **argv)
{
    struct remote remote = {0};
    bool asks = false;
    const struct cli_option options[] = {REMOTE_OPTIONS(&remote){0}};
    int count;
    int code = cli_parse(options, argc, argv, 1, 2, &count);
    if (code == CLI_OK && count >= 0)
        code = remote_check(&remote, &asks);
    if (code != CLI_OK || count < 0)
        return code;
    if (asks && count > 1)
        return cli_fail_usage("\"%s\" is one argument too many: the daemon's model is named by --model", argv[1]);
    if (asks)
        return ask(&remote, argv[1]);
    if (count < 2)
        return cli_fail_usage("too few arguments");
    struct model *m = cli_load_model(argv[1], &(enum model_task){TASK_TEXT_GENERATION});
    if (m == NULL)
        return CLI_FAILED;
    code = run(m, argv[2]);
    model_free(m);
    return code;
}
