/* common.c - see cli.h. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/cli.h"

const struct cli_verb cli_verbs[] = {
#define X(verb, arguments, help) {#verb, arguments, help, cli_##verb},
    CLI_VERBS(X)
#undef X
};
const size_t cli_verb_count = sizeof cli_verbs / sizeof cli_verbs[0];

static const char *current = "";

void cli_set_verb(const char *verb)
{
    current = verb;
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fflush(stdout);
    (void)fprintf(stderr, "aft %s: ", current);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    return CLI_FAILED;
}

int cli_fail_error(const struct error *err)
{
    return cli_fail("%s", err->message);
}

double cli_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "aft %s: ", current);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "; aft %s --help lists what there is\n", current);
    va_end(args);
    return CLI_USAGE;
}

static void print_help(const struct cli_option *options)
{
    for (size_t i = 0; i < cli_verb_count; i++)
        if (strcmp(cli_verbs[i].name, current) == 0)
            (void)printf("usage: aft %s %s [OPTIONS]\n%s\n", current, cli_verbs[i].arguments, cli_verbs[i].help);
    for (const struct cli_option *o = options; o->name != NULL; o++)
        (void)printf("  --%-20s %s\n", o->name, o->help);
}

static int set_option(const struct cli_option *o, const char *value)
{
    char *end = NULL;
    double number = 0.0;
    if (o->kind == CLI_TEXT) {
        *(const char **)o->value = value;
        return CLI_OK;
    }
    errno = 0;
    number = strtod(value, &end);
    const bool whole = o->kind != CLI_UNSIGNED || floor(number) == number;
    if (end == value || *end != '\0' || errno != 0 || !whole || !(number >= o->min && number <= o->max))
        return usage_error("--%s is \"%s\", expected %s from %.15g to %.15g", o->name, value,
                           o->kind == CLI_UNSIGNED ? "a whole number" : "a number", o->min, o->max);
    if (o->kind == CLI_UNSIGNED)
        *(uint64_t *)o->value = (uint64_t)number; /* at most 2^53: exact */
    else
        *(double *)o->value = number;
    return CLI_OK;
}

/* argv[*at] begins with "--": find its option and set it, moving *at over a value of its own. */
static int take_option(const struct cli_option *options, int argc, char **argv, int *at)
{
    const char *name = argv[*at] + 2, *equals = strchr(name, '=');
    const size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        if (strlen(o->name) != length || strncmp(o->name, name, length) != 0)
            continue;
        if (o->kind == CLI_FLAG) {
            if (equals != NULL)
                return usage_error("--%s takes no value", o->name);
            *(bool *)o->value = true;
            return CLI_OK;
        }
        if (equals != NULL)
            return set_option(o, equals + 1);
        if (*at + 1 >= argc)
            return usage_error("--%s needs a value", o->name);
        return set_option(o, argv[++*at]);
    }
    return usage_error("unknown option \"%s\"", argv[*at]);
}

int cli_parse(const struct cli_option *options, int argc, char **argv, int min, int max, int *count)
{
    int others = 0;
    bool only_others = false;
    for (int i = 1; i < argc; i++) {
        if (!only_others && strcmp(argv[i], "--") == 0) {
            only_others = true;
        } else if (!only_others && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            print_help(options);
            *count = -1;
            return CLI_OK;
        } else if (!only_others && argv[i][0] == '-' && argv[i][1] != '\0') {
            const int code = argv[i][1] == '-' ? take_option(options, argc, argv, &i)
                                               : usage_error("unknown option \"%s\"", argv[i]);
            if (code != CLI_OK)
                return code;
        } else {
            argv[1 + others++] = argv[i];
        }
    }
    if (others < min)
        return usage_error("too few arguments");
    if (others > max)
        return usage_error("\"%s\" is one argument too many", argv[1 + max]);
    *count = others;
    return CLI_OK;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void warn(void *arg, const char *message)
{
    (void)arg;
    (void)fprintf(stderr, "aft %s: warning: %s\n", current, message);
}

static bool is_model_dir(char *out, size_t size, const char *parent, const char *name)
{
    char file[4096];
    struct stat st;
    const int n = parent == NULL ? snprintf(out, size, "%s", name) : snprintf(out, size, "%s/%s", parent, name);
    if (n < 0 || (size_t)n >= size || snprintf(file, sizeof file, "%s/config.json", out) >= (int)sizeof file)
        return false;
    return stat(file, &st) == 0;
}

struct model *cli_load_model(const char *name, const enum model_task *task)
{
    const char *const parents[] = {NULL, getenv("AFTD_MODELS_DIR"), "weights/models", AFTD_DATADIR "/models"};
    char path[4000];
    struct model *m = NULL;
    struct error err;
    for (size_t i = 0; i < sizeof parents / sizeof parents[0]; i++) {
        if (i > 0 && (parents[i] == NULL || strchr(name, '/') != NULL))
            continue;
        if (!is_model_dir(path, sizeof path, parents[i], name))
            continue;
        if (model_load(&m, path, warn, NULL, &err) != OK) {
            (void)cli_fail_error(&err);
        } else if (task != NULL && m->config.task != *task) {
            (void)cli_fail("%s is a model for %s, expected one for %s", m->name, model_task_name(m->config.task),
                           model_task_name(*task));
            model_free(m);
            m = NULL;
        }
        return m;
    }
    (void)cli_fail("no model \"%s\": expected a folder with a config.json, or the name of one under weights/models",
                   name);
    return NULL;
}

struct engine *cli_open_engine(const struct model *m, struct engine_options *o)
{
    struct engine *e = NULL;
    struct error err;
    o->isa = getenv("AFTD_ISA");
    if (engine_open(&e, m, o, &err) != OK)
        (void)cli_fail_error(&err);
    return e;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

enum status cli_read(uint8_t **ret, size_t *size, const char *path, size_t max, struct error *err)
{
    const bool standard = strcmp(path, "-") == 0;
    enum status st = OK;
    uint8_t *bytes = NULL;
    size_t used = 0, room = 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    for (;;) {
        if (used == room) {
            room = room == 0 ? 65536 : 2 * room;
            uint8_t *more = realloc(bytes, room);
            if (more == NULL) {
                st = error_set(err, ERR_NOMEM, "%s: cannot allocate %zu bytes", path, room);
                goto done;
            }
            bytes = more;
        }
        const ssize_t n = read(fd, bytes + used, room - used);
        if (n == 0)
            break;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            st = error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
            goto done;
        }
        used += (size_t)n;
        if (used > max) {
            st = error_set(err, ERR_TOO_LARGE, "%s: larger than %zu bytes", path, max);
            goto done;
        }
    }
    *ret = bytes;
    *size = used;
    bytes = NULL;
done:
    free(bytes);
    if (!standard)
        (void)close(fd);
    return st;
}
