/* common.c - what the verbs share, see cli.h: messages and reading files. Single threaded; the state is the verb's name
 * for messages. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/logits.h"
#include "server/cli/cli.h"
#include "server/cli/held.h"
#include "server/core/clock.h"
#include "server/media/explanation.h"
#include "server/media/picture.h"
#include "server/media/picture_fit.h"

static const char *current = "";

void cli_set_verb(const char *verb)
{
    current = verb;
}

const char *cli_verb_name(void)
{
    return current;
}

/* What every message begins with; there is no verb yet while --help or --version is answered. */
static void print_program(const char *color)
{
    const bool colored = cli_has_colors(STDERR_FILENO);
    cli_progress_wipe();
    (void)fprintf(stderr, "%saft%s%s:%s ", colored ? color : "", current[0] != '\0' ? " " : "", current,
                  colored ? CLI_PLAIN : "");
}

/* Names of files that it tells of may hold anything. */
static void print_fault(const char *format, va_list args)
{
    char *text;
    print_program(CLI_RED);
    if (vasprintf(&text, format, args) < 0)
        return;
    cli_print_field(stderr, text);
    free(text);
}

/* Any thread: pictures may be read by several. */
int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fflush(stdout);
    flockfile(stderr);
    print_fault(format, args);
    (void)fprintf(stderr, "\n");
    funlockfile(stderr);
    va_end(args);
    return CLI_FAILED;
}

int cli_fail_error(const struct error *err)
{
    return cli_fail("%s", err->message);
}

int cli_fail_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_fault(format, args);
    (void)fprintf(stderr, "; see aft %s --help\n", current);
    va_end(args);
    return CLI_USAGE;
}

int cli_flush(void)
{
    const bool lost = ferror(stdout) != 0; /* by an earlier write, whose errno is gone */
    errno = 0;
    if (fflush(stdout) == 0 && !lost)
        return CLI_OK;
    const int why = errno;
    clearerr(stdout);
    return cli_fail("cannot write to standard output%s%s", why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
}

void cli_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_program(CLI_YELLOW);
    (void)fprintf(stderr, "warning: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
}

int cli_check_logits(const float *logits, size_t n)
{
    return logits_are_finite(logits, n) ? CLI_OK : cli_fail("the model gave a logit that is not a number");
}

double cli_now(void)
{
    return 1e-9 * (double)clock_now_ns();
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

const char *cli_file_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int cli_read(uint8_t **ret, size_t *size, const char *path, size_t max)
{
    const bool standard = strcmp(path, "-") == 0;
    const char *name = cli_file_name(path);
    enum status st = OK;
    struct error err;
    struct held held = {.bytes = NULL};
    char bytes[65536];
    ssize_t n = -1;
    const int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    while (st == OK && fd >= 0 && (n = read(fd, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno != EINTR)
            break;
        if (!held_add(&held, bytes, n < 0 ? 0 : (size_t)n, SIZE_MAX - 1))
            st = error_set(&err, ERR_NOMEM, "%s: out of memory", name);
        else if (held.size > max)
            st = error_set(&err, ERR_TOO_LARGE, "%s: larger than %zu bytes", name, max);
    }
    if (n < 0)
        st = error_set(&err, ERR_IO, "%s: %s", name, strerror(errno));
    if (!standard && fd >= 0)
        (void)close(fd);
    if (st == OK && held.bytes == NULL && !held_add(&held, "", 0, 0)) /* an empty file */
        st = error_set(&err, ERR_NOMEM, "%s: out of memory", name);
    if (st != OK) {
        free(held.bytes);
        return cli_fail_error(&err);
    }
    *ret = (uint8_t *)held.bytes;
    *size = held.size;
    return CLI_OK;
}

int cli_read_text(uint8_t **ret, size_t *size, const char *text, const char *path, size_t max)
{
    if (path == NULL && text != NULL && strcmp(text, "-") == 0)
        path = text;
    if (path != NULL)
        return cli_read(ret, size, path, max);
    *size = text != NULL ? strlen(text) : 0;
    *ret = (uint8_t *)strdup(text != NULL ? text : "");
    return *ret != NULL ? CLI_OK : cli_fail("out of memory");
}

int cli_read_picture(struct picture *ret, const char *path, const struct picture_options *options)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct error why, err;
    const int code = cli_read(&bytes, &size, path, HTTP_BODY_MAX);
    if (code != CLI_OK)
        return code;
    const enum status st = picture_decode(ret, bytes, size, options, &why);
    free(bytes);
    if (st == OK)
        return CLI_OK;
    (void)error_set(&err, st, "%s: %s", path, why.message);
    return cli_fail_error(&err);
}

int cli_read_pixels(uint8_t **ret, const char *path, const struct model_config *c, const struct picture_fit *fit)
{
    const struct picture_fit trained = {.resize_to = c->resize_to, .height = c->size[0], .width = c->size[1]};
    fit = fit != NULL ? fit : &trained;
    const struct picture_options options = {.shorter = fit->resize_to};
    struct picture picture = {0};
    struct error err;
    int code = cli_read_picture(&picture, path, &options);
    if (code == CLI_OK && picture_fit_apply(ret, fit, &picture, c, &err) != OK)
        code = cli_fail_error(&err);
    picture_clear(&picture);
    return code;
}

int cli_see_picture(struct picture_fit *fit, struct engine *e, const struct model *m, const char *size,
                    const struct picture *p, const char *path, const struct explanation *what, float **maps)
{
    struct error err;
    uint8_t *pixels = NULL;
    enum status st = picture_fit_choose(fit, size, p, m, e, &err);
    if (st == OK)
        st = picture_fit_apply(&pixels, fit, p, &m->config, &err);
    if (st != OK)
        return cli_fail("%s: %s", path, err.message);
    struct engine_map wanted;
    size_t values = 0;
    if (what != NULL) {
        const size_t patches = (size_t)(fit->height / m->config.patch[0]) * (fit->width / m->config.patch[1]);
        st = explain_maps(&wanted, &values, what, patches, &err);
        if (st == OK)
            *maps = wanted.out = calloc(values, sizeof *wanted.out);
        if (st != OK || *maps == NULL) {
            free(pixels);
            return st != OK ? cli_fail("%s: %s", path, err.message) : cli_fail("out of memory");
        }
    }
    engine_pictures_begin(e, &(const uint8_t *){pixels}, 1, fit->height, fit->width);
    free(pixels);
    if (what != NULL)
        engine_batch_want_map(e, 0, &wanted);
    cli_wait_begin("looking at", path); /* which takes long only if the picture is shown at its own size */
    while (!engine_batch_step(e))
        ;
    cli_wait_end();
    return cli_check_logits(engine_batch_logits(e, 0), m->config.classes);
}
