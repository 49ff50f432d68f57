/* compress.c - aft compress MODEL [FILE] and aft decompress MODEL [FILE], or FILE and a daemon: any bytes, compressed
 * with a model's probabilities, and restored. An archive is the same whoever made it: the coder, the blocks and the
 * format are the daemon's. Single threaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/utf8.h"
#include "server/cli/cli.h"
#include "server/cli/local_lane.h"
#include "server/cli/remote.h"
#include "server/cli/text_output.h"
#include "server/models/precision.h"
#include "server/operation/archive.h"
#include "server/operation/code.h"

enum { STREAMS_MAX = 64 }; /* blocks at a time: more make no step faster */

/* What the command line says. */
struct options {
    bool restores;
    const char *file;
    size_t file_bytes;
    struct cli_output out;
    double timeout_s;       /* 0: the daemon's own */
    struct cli_engine with; /* unless a daemon is asked */
    struct remote remote;
};

static bool goes_to_terminal(const char *out)
{
    return out[0] == '-' && out[1] == '\0' && isatty(STDOUT_FILENO) == 1;
}

/* Is it such that a terminal shows it as it is? */
static bool is_plain_text(const uint8_t *bytes, size_t size)
{
    char *shown = malloc(UTF8_GROWTH * size + 1);
    const bool plain = shown != NULL && text_output_show(shown, bytes, size) == size && memcmp(shown, bytes, size) == 0;
    free(shown);
    return plain;
}

static int write_out(const struct options *w, const void *bytes, size_t size)
{
    if (goes_to_terminal(w->out.path) && !is_plain_text(bytes, size))
        return cli_fail("%s holds something that is not text, and standard output is a terminal: use -o FILE or a pipe",
                        cli_file_name(w->file));
    return cli_output_write(&w->out, bytes, size, w->file, w->file_bytes);
}

/* ---- with the model itself -------------------------------------------------------------------------------------- */

static int fail_file(const struct options *w, const struct error *err)
{
    return cli_fail("%s: %s", cli_file_name(w->file), err->message);
}

/* Make the blocks to code from the file's bytes, which are an archive if they are to be restored. */
static enum status make_blocks(struct archive_blocks *ret, struct archive *archive, const struct options *w,
                               const uint8_t *bytes, size_t size, struct error *err)
{
    if (!w->restores)
        return archive_split(ret, bytes, size, err);
    const enum status st = archive_read(archive, bytes, size, err);
    return st == OK ? archive_open(ret, archive, err) : st;
}

static size_t count_coded(const struct code_job *c)
{
    size_t coded = 0;
    for (uint32_t i = 0; i < c->in->count; i++)
        coded += c->coders[i].coded;
    return coded;
}

/* Code the blocks, which outlive the work on them. */
static int code_blocks(const struct options *w, struct local_lane *l, struct archive_blocks *b)
{
    const struct job_kind *kind = w->restores ? &job_kind_decompress : &job_kind_compress;
    struct error err;
    const int code = local_lane_submit(l, code_begin(l->job, kind, b, &err));
    if (code != CLI_OK)
        return code;
    struct cli_progress progress = cli_progress_begin(b->text_bytes);
    for (bool goes_on = true; goes_on;) {
        goes_on = local_lane_step(l);
        cli_progress_show(&progress, count_coded(code_job_of(l->job)), w->restores ? "restored" : "compressed");
    }
    cli_progress_end(&progress);
    return local_lane_end(l);
}

/* Write what came of the blocks. */
static int write_coded(const struct options *w, const struct archive_blocks *b, const struct archive *archive,
                       const struct model_identity *ours)
{
    struct error err;
    uint8_t *made = NULL;
    size_t size = 0;
    if (w->restores)
        return archive_check_text(archive, b->text, &err) == OK ? write_out(w, b->text, b->text_bytes)
                                                                : fail_file(w, &err);
    if (archive_make(&made, &size, b, ours, &err) != OK)
        return fail_file(w, &err);
    const int code = write_out(w, made, size);
    free(made);
    return code;
}

static int compress_run(const struct options *w, const uint8_t *bytes, size_t size)
{
    struct archive archive;
    struct archive_blocks b = {0};
    struct local_lane l = {.model = NULL};
    struct model_identity ours;
    uint8_t digest[PRECISION_DIGEST_BYTES];
    struct error err;
    if (make_blocks(&b, &archive, w, bytes, size, &err) != OK)
        return fail_file(w, &err);
    const uint32_t streams = b.count < 1 ? 1 : b.count < STREAMS_MAX ? b.count : STREAMS_MAX;
    int code = local_lane_open(&l, w->remote.model, TASK_TEXT_GENERATION, &w->with, streams, false);
    if (code == CLI_OK && precision_digest(digest, cli_model_dir(), &err) != OK)
        code = cli_fail_error(&err);
    if (code == CLI_OK)
        model_identity_init(&ours, digest, engine_info(l.model->engine));
    if (code == CLI_OK && w->restores && model_identity_check(&ours, &archive.id, "the archive", "body", &err) != OK)
        code = fail_file(w, &err);
    if (code == CLI_OK && b.count > 0)
        code = code_blocks(w, &l, &b);
    if (code == CLI_OK)
        code = write_coded(w, &b, &archive, &ours);
    local_lane_close(&l);
    archive_blocks_clear(&b);
    return code;
}

/* ---- by a daemon ------------------------------------------------------------------------------------------------ */

static int compress_ask(const struct options *w, const uint8_t *bytes, size_t size)
{
    char timeout[24];
    (void)snprintf(timeout, sizeof timeout, "%.0f", 1e3 * w->timeout_s);
    const struct remote_parameter query[] = {{"model", w->remote.model, false},
                                             {"timeout_ms", w->timeout_s > 0 ? timeout : NULL, false}};
    const struct remote_request request = {.path = w->restores ? "/v1/decompress" : "/v1/compress",
                                           .query = query,
                                           .query_count = sizeof query / sizeof query[0],
                                           .body = bytes,
                                           .size = size,
                                           .file = cli_file_name(w->file)};
    struct remote_answer answer = {0};
    int code = remote_post(&w->remote, &request, &answer);
    if (code == CLI_OK)
        code = write_out(w, answer.bytes != NULL ? answer.bytes : "", answer.size);
    free(answer.bytes);
    return code;
}

/* ---- the verbs -------------------------------------------------------------------------------------------------- */

/* CLI_OK to go on; *done: there is nothing more to do. */
static int compress_parse(struct options *w, int argc, char **argv, bool *done)
{
    const struct cli_option options[] = {
        {"output", CLI_TEXT, (void *)&w->out.path, 0, 0, "FILE", "standard output",
         "file to write, completely or not at all"},
        {"timeout", CLI_NUMBER, &w->timeout_s, 1e-3, 1e-3 * UINT32_MAX, "SECONDS", "the daemon's",
         "how long the daemon may take"},
        CLI_OUTPUT_JSON_OPTION(&w->out) CLI_ENGINE_OPTIONS(&w->with) REMOTE_OPTIONS(&w->remote){0},
    };
    int count;
    const int code = remote_parse(&w->remote, &w->with, options, argc, argv, 0, 1, &count);
    *done = code == CLI_OK && count < 0;
    if (code != CLI_OK || *done)
        return code;
    if (!w->remote.asks && w->timeout_s > 0)
        return cli_fail_usage("--timeout is for a daemon, and neither --url nor --unix names one");
    if (!w->restores && goes_to_terminal(w->out.path))
        return cli_fail_usage("an archive is not text, and standard output is a terminal: use -o FILE or a pipe");
    if (cli_output_check(&w->out) != CLI_OK)
        return CLI_USAGE;
    w->file = count > 0 ? argv[1] : "-";
    return CLI_OK;
}

static int compress(bool restores, int argc, char **argv)
{
    struct options w = {.restores = restores, .out = {.path = "-"}};
    bool done;
    uint8_t *bytes = NULL;
    size_t size = 0;
    int code = compress_parse(&w, argc, argv, &done);
    if (code != CLI_OK || done)
        return code;
    code = cli_read(&bytes, &size, w.file, restores ? ARCHIVE_BYTES_MAX : COMPRESS_BYTES_MAX);
    if (code != CLI_OK)
        return code;
    w.file_bytes = size;
    code = w.remote.asks ? compress_ask(&w, bytes, size) : compress_run(&w, bytes, size);
    free(bytes);
    return code;
}

int cli_compress(int argc, char **argv)
{
    return compress(false, argc, argv);
}

int cli_decompress(int argc, char **argv)
{
    return compress(true, argc, argv);
}
