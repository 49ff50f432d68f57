/* score.c - aft score MODEL FILE, or FILE and a daemon: mean -log2 p of a file's bytes in windows of T, each from
 * scratch and beginning with the last byte of the one before, or in one piece if the context is unlimited; without a
 * start embedding the first byte of the file is not scored. Under a model that draws pictures the file is one, and its
 * sub-pixels are scored. Single threaded. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/json.h"
#include "engine/logits.h"
#include "server/cli/cli.h"
#include "server/cli/remote.h"
#include "server/media/picture.h"

static void add_bits(struct cli_bits *to, double bits, size_t past)
{
    size_t i = 0;
    for (size_t most = 64; i + 1 < sizeof to->by_past / sizeof to->by_past[0] && past >= most; most *= 8)
        i++;
    to->sum += bits;
    to->count++;
    to->by_past[i].sum += bits;
    to->by_past[i].count++;
}

int cli_score_bits(struct cli_bits *to, struct engine *e, const uint8_t *bytes, size_t size, size_t past,
                   struct cli_progress *progress, size_t before)
{
    const struct engine_info *info = engine_info(e);
    const size_t first = info->starts ? 0 : 1, total = size - first, window = past > 0 ? past : info->context;
    float *logits = malloc(sizeof *logits * CLI_SCORE_ROWS * BYTE_VALUES);
    if (logits == NULL)
        return cli_fail("out of memory");
    for (size_t at = 0, begin = 0; at < total; begin = at - past / 2) {
        const size_t end = total - begin < window ? total : begin + window;
        engine_stream_reset(e, 0);
        for (size_t row = begin, n; row < end; row += n) {
            uint8_t fed[CLI_SCORE_ROWS];
            char mean[48];
            n = end - row < CLI_SCORE_ROWS ? end - row : CLI_SCORE_ROWS;
            for (size_t i = 0; i < n; i++)
                fed[i] = first + row + i > 0 ? bytes[first + row + i - 1] : 0;
            const struct engine_part part = {.count = (uint32_t)n, .bytes = fed, .every = true, .logits = logits};
            engine_feed(e, &part, 1);
            for (size_t i = at > row ? at - row : 0; i < n; i++)
                add_bits(to, -logits_log2(logits + i * BYTE_VALUES, BYTE_VALUES, bytes[first + row + i]),
                         row + i - begin);
            if (!isfinite(to->sum)) { /* the weights overflow on this input */
                free(logits);
                return cli_fail("the model gives no finite probability to a byte before %zu", row + n + first);
            }
            (void)snprintf(mean, sizeof mean, "%.4f bits each", to->sum / (double)to->count);
            cli_progress_show(progress, before + row + n, mean);
        }
        at = end;
    }
    free(logits);
    return CLI_OK;
}

/* What the command line says, and what is scored: a text, or a picture under a model that draws such. */
struct scoring {
    const char *file;
    bool json;
    struct cli_engine with;
    struct remote remote;
};

static int print_score(const struct scoring *s, const char *model, bool picture, double bits, json_int_t scored)
{
    if (s->json)
        return cli_print_json(json_pack("{s:o, s:s, s:f, s:I}", "path", cli_json_text(s->file, strlen(s->file)),
                                        "model", model, picture ? "bits_per_dim" : "bits_per_byte", bits,
                                        picture ? "dims" : "bytes", scored));
    (void)printf("%.4f bits per %s\n", bits, picture ? "sub-pixel" : "byte");
    return CLI_OK;
}

/* ---- by an engine of our own ------------------------------------------------------------------------------------ */

/* The model's elements of the file, its bytes or those of a picture as the model sees it: *ret is malloc'd. */
static int read_elements(const struct scoring *s, const struct model *m, uint8_t **ret, size_t *size)
{
    const struct model_config *c = &m->config;
    *size = (size_t)3 * c->size[0] * c->size[1];
    if (c->task == TASK_IMAGE_GENERATION)
        return cli_read_pixels(ret, s->file, c, NULL);
    return cli_read(ret, size, s->file, SCORE_FILE_MAX);
}

static int score_run(const struct scoring *s, const struct model *m)
{
    struct engine_options o = {.streams_max = 1, .rows_max = CLI_SCORE_ROWS};
    const bool starts = m->start_embed != NULL;
    struct engine *e = NULL;
    uint8_t *elements = NULL;
    size_t size = 0;
    struct cli_bits bits = {.count = 0};
    int code = read_elements(s, m, &elements, &size);
    if (code != CLI_OK)
        return code;
    const size_t scored = size - (starts || size == 0 ? 0 : 1);
    if (scored == 0) {
        code = cli_fail("%s has %zu byte%s, expected at least %s", cli_file_name(s->file), size, size == 1 ? "" : "s",
                        starts ? "1" : "2: the first is not scored");
        goto done;
    }
    e = cli_open_engine(m, &s->with, &o);
    struct cli_progress progress = cli_progress_begin(scored);
    code = e != NULL ? cli_score_bits(&bits, e, elements, size, 0, &progress, 0) : CLI_FAILED;
    cli_progress_end(&progress);
    if (code == CLI_OK)
        code = print_score(s, m->name, m->config.task == TASK_IMAGE_GENERATION, bits.sum / (double)scored,
                           (json_int_t)size);
done:
    free(elements);
    engine_close(e);
    return code;
}

static int run_with(const struct scoring *s, const char *model)
{
    struct model *m = cli_load_model(model, NULL);
    int code = CLI_FAILED;
    if (m == NULL)
        return code;
    if (model_config_causal(&m->config))
        code = score_run(s, m);
    else
        (void)cli_fail("%s is a model for %s, expected one for %s or %s", m->name, model_task_name(m->config.task),
                       model_task_name(TASK_TEXT_GENERATION), model_task_name(TASK_IMAGE_GENERATION));
    model_free(m);
    return code;
}

/* ---- by a daemon, which accepts fewer bytes --------------------------------------------------------------------- */

static int ask_of_text(const struct scoring *s, const uint8_t *bytes, size_t size, json_t **answer)
{
    json_t *object = json_pack("{s:o, s:s*}", "text_base64", remote_base64(bytes, size), "model", s->remote.model);
    char *body = object != NULL ? json_print(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (body == NULL)
        return cli_fail("out of memory");
    const struct remote_request request = {
        .path = "/score", .type = "application/json", .body = body, .size = strlen(body)};
    const int code = remote_post_json(&s->remote, &request, answer);
    free(body);
    return code;
}

static int ask_of_picture(const struct scoring *s, const uint8_t *bytes, size_t size, json_t **answer)
{
    const struct remote_parameter query[] = {{"model", s->remote.model, false}};
    const struct remote_request request = {
        .path = "/score", .query = query, .query_count = 1, .body = bytes, .size = size, .file = s->file};
    return remote_post_json(&s->remote, &request, answer);
}

static int score_ask(const struct scoring *s)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    json_t *answer = NULL;
    json_int_t scored = 0;
    double bits = 0.0;
    const char *model = NULL;
    int code = cli_read(&bytes, &size, s->file, HTTP_BODY_MAX);
    if (code != CLI_OK)
        return code;
    const bool picture = picture_media_type(bytes, size) != NULL;
    if (!picture && size > SCORE_BYTES_MAX)
        code = cli_fail("%s: larger than %d bytes", cli_file_name(s->file), SCORE_BYTES_MAX);
    if (code == CLI_OK)
        code = picture ? ask_of_picture(s, bytes, size, &answer) : ask_of_text(s, bytes, size, &answer);
    if (code == CLI_OK &&
        json_unpack(answer, "{s:s, s:F, s:I}", "model", &model, picture ? "bits_per_dim" : "bits_per_byte", &bits,
                    picture ? "dims" : "bytes", &scored) != 0)
        code = cli_fail("the daemon's answer has no %s", picture ? "bits_per_dim" : "bits_per_byte");
    if (code == CLI_OK)
        code = print_score(s, model, picture, bits, scored);
    json_decref(answer);
    free(bytes);
    return code;
}

/* ---- the verb --------------------------------------------------------------------------------------------------- */

int cli_score(int argc, char **argv)
{
    struct scoring s = {.file = NULL};
    const struct cli_option options[] = {CLI_JSON_OPTION(&s.json) CLI_ENGINE_OPTIONS(&s.with)
                                             REMOTE_OPTIONS(&s.remote){0}};
    int count;
    const int code = remote_parse(&s.remote, &s.with, options, argc, argv, 1, 1, &count);
    if (code != CLI_OK || count < 0)
        return code;
    s.file = argv[1];
    return s.remote.asks ? score_ask(&s) : run_with(&s, s.remote.model);
}
