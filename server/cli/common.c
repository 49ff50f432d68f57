/* common.c - what the verbs share, see cli.h: messages, the command line, reading files. Single threaded; the state is
 * the verb's name for messages, and who answers --help. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/media/picture.h"

const struct cli_verb cli_verbs[] = {
#define X(verb, name, arguments, help) {name, arguments, help, cli_##verb},
    CLI_VERBS(X)
#undef X
};
const size_t cli_verb_count = sizeof cli_verbs / sizeof cli_verbs[0];

enum { HELP_COLUMN = 27 }; /* where the explanation of an option starts */

static const char *current = "";

void cli_set_verb(const char *verb)
{
    current = verb;
}

/* What every message begins with; there is no verb yet while --help or --version is answered. */
static void print_program(void)
{
    (void)fprintf(stderr, "aft%s%s: ", current[0] != '\0' ? " " : "", current);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fflush(stdout);
    print_program();
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    return CLI_FAILED;
}

int cli_fail_error(const struct error *err)
{
    return cli_fail("%s", err->message);
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

void cli_warn(const char *message)
{
    print_program();
    (void)fprintf(stderr, "warning: %s\n", message);
}

bool cli_check_logits(const float *logits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(logits[i])) {
            (void)cli_fail("the model's logit %zu is %g, expected a finite number: its weights overflow on this input",
                           i, (double)logits[i]);
            return false;
        }
    return true;
}

double cli_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

int cli_fail_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_program();
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "; aft %s --help lists what there is\n", current);
    va_end(args);
    return CLI_USAGE;
}

static const char *dashes(const struct cli_option *o)
{
    return o->name[1] == '\0' ? "-" : "--";
}

static void print_help(const struct cli_verb *verb, const struct cli_option *options)
{
    (void)printf("usage: aft %s %s%s\n%s\n", verb->name, verb->arguments, options->name != NULL ? " [OPTIONS]" : "",
                 verb->help);
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        const int used = printf("  %s%s%s%s", dashes(o), o->name, o->argument != NULL ? " " : "",
                                o->argument != NULL ? o->argument : "");
        (void)printf("%*s%s\n", used < HELP_COLUMN - 1 ? HELP_COLUMN - used : 1, "", o->help);
    }
}

static cli_help *answer_help = print_help;

void cli_set_help(cli_help *help)
{
    answer_help = help;
}

bool cli_read_digits(uint64_t *ret, const char **at)
{
    char *end = NULL;
    if (**at < '0' || **at > '9') /* strtoull would take a sign or blanks */
        return false;
    errno = 0;
    const unsigned long long value = strtoull(*at, &end, 10);
    if (errno != 0)
        return false;
    *ret = value;
    *at = end;
    return true;
}

static int set_unsigned(const struct cli_option *o, const char *value)
{
    const uint64_t min = (uint64_t)o->min, max = (uint64_t)o->max;
    const char *end = value;
    uint64_t number = 0;
    if (!cli_read_digits(&number, &end) || *end != '\0' || number < min || number > max)
        return cli_fail_usage("--%s is \"%s\", expected a whole number from %" PRIu64 " to %" PRIu64, o->name, value,
                              min, max);
    *(uint64_t *)o->value = number;
    return CLI_OK;
}

static int set_number(const struct cli_option *o, const char *value)
{
    const bool decimal = value[0] != '\0' && value[strspn(value, "0123456789+-.eE")] == '\0'; /* no inf, nan, 0x */
    char *end = NULL;
    const double number = strtod(value, &end);
    if (!decimal || *end != '\0' || !(number >= o->min && number <= o->max))
        return cli_fail_usage("--%s is \"%s\", expected a number from %g to %g", o->name, value, o->min, o->max);
    *(double *)o->value = number;
    return CLI_OK;
}

static int add_text(const struct cli_option *o, const char *value)
{
    struct cli_texts *texts = o->value;
    if (texts->count == CLI_TEXTS_MAX)
        return cli_fail_usage("--%s is given more than %d times", o->name, CLI_TEXTS_MAX);
    texts->at[texts->count++] = value;
    return CLI_OK;
}

/* "f32|bf16|auto" -> "f32, bf16 or auto" */
static void list_words(const char *words, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (const char *at = words; *at != '\0' && used < size;) {
        const size_t length = strcspn(at, "|");
        const char *before = at == words ? "" : at[length] == '\0' ? " or " : ", ";
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", before, (int)length, at);
        at += length + (at[length] == '|' ? 1 : 0);
    }
}

static int set_choice(const struct cli_option *o, const char *value)
{
    char expected[128];
    for (const char *at = o->argument; value[0] != '\0' && at != NULL; at = strchr(at, '|')) {
        at += *at == '|' ? 1 : 0;
        if (strcspn(at, "|") == strlen(value) && strncmp(at, value, strlen(value)) == 0) {
            *(const char **)o->value = value;
            return CLI_OK;
        }
    }
    list_words(o->argument, expected, sizeof expected);
    return cli_fail_usage("--%s is \"%s\", expected %s", o->name, value, expected);
}

static int set_option(const struct cli_option *o, const char *value)
{
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->value = true;
        return CLI_OK;
    case CLI_TEXT:
        *(const char **)o->value = value;
        return CLI_OK;
    case CLI_TEXTS:
        return add_text(o, value);
    case CLI_CHOICE:
        return set_choice(o, value);
    case CLI_UNSIGNED:
        return set_unsigned(o, value);
    case CLI_NUMBER:
        return set_number(o, value);
    }
    return CLI_USAGE;
}

/* argv[*at] begins with "-": find its option and set it, moving *at over a value of its own. */
static int take_option(const struct cli_option *options, int argc, char **argv, int *at)
{
    const bool is_short = argv[*at][1] != '-';
    const char *name = argv[*at] + (is_short ? 1 : 2), *equals = is_short ? NULL : strchr(name, '=');
    const size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    for (const struct cli_option *o = options; o->name != NULL; o++) {
        if (strlen(o->name) != length || strncmp(o->name, name, length) != 0 || is_short != (o->name[1] == '\0'))
            continue;
        if (o->kind == CLI_FLAG && equals != NULL)
            return cli_fail_usage("--%s takes no value", o->name);
        if (o->kind == CLI_FLAG || equals != NULL)
            return set_option(o, equals != NULL ? equals + 1 : "");
        if (*at + 1 >= argc)
            return cli_fail_usage("%s%s needs a value", dashes(o), o->name);
        return set_option(o, argv[++*at]);
    }
    return cli_fail_usage("unknown option \"%s\"", argv[*at]);
}

int cli_parse(const struct cli_option *options, int argc, char **argv, int min, int max, int *count)
{
    int others = 0;
    bool only_others = false;
    for (int i = 1; i < argc; i++) {
        if (!only_others && strcmp(argv[i], "--") == 0) {
            only_others = true;
        } else if (!only_others && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            for (size_t v = 0; v < cli_verb_count; v++)
                if (strcmp(cli_verbs[v].name, current) == 0)
                    answer_help(&cli_verbs[v], options);
            *count = -1;
            return CLI_OK;
        } else if (!only_others && argv[i][0] == '-' && argv[i][1] != '\0') {
            const int code = take_option(options, argc, argv, &i);
            if (code != CLI_OK)
                return code;
        } else {
            argv[1 + others++] = argv[i];
        }
    }
    if (others < min)
        return cli_fail_usage("too few arguments");
    if (others > max)
        return cli_fail_usage("\"%s\" is one argument too many", argv[1 + max]);
    *count = others;
    return CLI_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

enum status cli_read(uint8_t **ret, size_t *size, const char *path, size_t max, struct error *err)
{
    const bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    enum status st = OK;
    uint8_t *bytes = NULL;
    size_t used = 0, room = 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_IO, "%s: %s", name, strerror(errno));
    for (;;) {
        if (used == room) {
            room = room == 0 ? 65536 : 2 * room;
            uint8_t *more = realloc(bytes, room);
            if (more == NULL) {
                st = error_set(err, ERR_NOMEM, "%s: cannot allocate %zu bytes", name, room);
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
            st = error_set(err, ERR_IO, "%s: %s", name, strerror(errno));
            goto done;
        }
        used += (size_t)n;
        if (used > max) {
            st = error_set(err, ERR_TOO_LARGE, "%s: larger than %zu bytes", name, max);
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

enum status cli_read_picture(struct picture *ret, const char *path, const struct picture_wish *wish, struct error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct error why;
    enum status st = cli_read(&bytes, &size, path, HTTP_BODY_MAX, err);
    if (st != OK)
        return st;
    st = picture_decode_as(ret, bytes, size, wish, &why);
    if (st != OK)
        (void)error_set(err, st, "%s: %s", path, why.message);
    free(bytes);
    return st;
}
