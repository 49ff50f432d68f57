/* bench.c - aft bench: how fast a model runs here, and how fast this machine is. The command line, what the figures
 * share, and their order. Single threaded. */
#include "server/cli/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/cli/cli.h"
#include "weights/synthetic.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

void bench_keep(struct bench *b, json_t *object, const char *key, double value)
{
    if (json_object_set_new(object, key, json_real(value)) != 0)
        b->lost = true;
}

void bench_show_run(struct bench *b)
{
    cli_progress_show(&b->progress, ++b->done, "measured");
}

void bench_say(struct bench *b, const char *format, ...)
{
    va_list args;
    if (b->json)
        return;
    cli_progress_wipe();
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)fflush(stdout);
}

static int run(struct bench *b, const struct cli_engine *with, bool limits)
{
    struct engine_options o = {.images_max = 8, .streams_max = BENCH_STREAMS_LARGE, .rows_max = BENCH_PREFILL_ROWS};
    int code = CLI_FAILED;
    b->result = json_object();
    if (b->result == NULL)
        return cli_fail("out of memory");
    b->engine = cli_open_engine(b->model, with, &o);
    if (b->engine == NULL || (limits && bench_limits_open(b) != CLI_OK))
        goto done;
    const struct engine_info *info = engine_info(b->engine);
    (void)json_object_set_new(b->result, "model", json_string(b->model->name));
    (void)json_object_set_new(b->result, "isa", json_string(info->isa));
    (void)json_object_set_new(b->result, "threads", json_integer(info->threads));
    bench_say(b, "%s: %s kernels, %s, %u thread%s, medians of %u runs\n", b->model->name, info->isa, info->precision,
              info->threads, info->threads == 1 ? "" : "s", b->runs);
    bench_limits_explain(b);
    code = bench_figures(b);
    cli_progress_end(&b->progress);
    if (code == CLI_OK && b->lost)
        code = cli_fail("a figure could not be kept: out of memory, or it is not a finite number");
    if (code == CLI_OK && b->json)
        code = cli_print_json(json_incref(b->result));
done:
    json_decref(b->result);
    engine_close(b->engine);
    roofline_close(b->roofline);
    return code;
}

/* "A,B" -> two positions of the context; NULL: the usual ones. */
static int parse_positions(const char *list, uint32_t positions[2], uint32_t context)
{
    uint64_t first = context > 64 ? 64 : context - 1, second = context > 1000 ? 1000 : context - 1;
    const char *at = list;
    if (list != NULL && !(cli_read_digits(&first, &at) && *at++ == ',' && cli_read_digits(&second, &at) &&
                          *at == '\0' && first < context && second < context))
        return cli_fail_usage("--positions is \"%s\", expected two numbers below the context of %u, as in %u,%u", list,
                              context, context / 4, context / 2);
    positions[0] = (uint32_t)first;
    positions[1] = (uint32_t)second;
    return CLI_OK;
}

/* What the command line says. */
struct arguments {
    struct cli_engine with;
    uint64_t runs;
    const char *positions, *synthetic;
    bool roofline, no_limits;
};

static struct model *make_model(const char *name)
{
    struct model *m = NULL;
    struct error err;
    if (synthetic_model(&m, name, &err) != OK)
        (void)cli_fail_error(&err);
    return m;
}

/* Check that exactly one of the three is to be measured, with no option that is no use then. */
static int check(const struct arguments *a, int count)
{
    if ((count > 0) + (a->synthetic != NULL) + a->roofline != 1)
        return cli_fail_usage("expected exactly one of MODEL, --synthetic NAME and --roofline");
    if (a->roofline && a->with.precision != NULL)
        return cli_fail_usage("--precision is about a model, and --roofline measures none");
    if (a->roofline && (a->positions != NULL || a->no_limits))
        return cli_fail_usage("--%s is about a model, and --roofline measures none",
                              a->positions != NULL ? "positions" : "no-limits");
    if (a->synthetic != NULL && !synthetic_has(a->synthetic))
        return cli_fail_usage("unknown synthetic model \"%.100s\", expected one of %s", a->synthetic,
                              synthetic_names());
    return CLI_OK;
}

static int bench_model(struct bench *b, struct model *m, const struct arguments *a)
{
    const bool generates = model_config_causal(&m->config);
    int code = CLI_OK;
    b->model = m;
    b->runs = (uint32_t)a->runs;
    if (!generates && a->positions != NULL)
        code = cli_fail_usage("--positions is for models that generate text or pictures, and %s does not", m->name);
    else if (generates)
        code = parse_positions(a->positions, b->positions, m->config.context);
    return code == CLI_OK ? run(b, &a->with, !a->no_limits) : code;
}

int cli_bench(int argc, char **argv)
{
    struct arguments a = {.runs = 51};
    struct bench b = {0};
    char names[256];
    (void)snprintf(names, sizeof names, "random weights, no MODEL: %s", synthetic_names());
    const struct cli_option options[] = {
        {"synthetic", CLI_TEXT, &a.synthetic, 0, 0, "NAME", NULL, names},
        {"roofline", CLI_FLAG, &a.roofline, 0, 0, NULL, NULL,
         "measure how fast this machine computes and reads memory, without a model"},
        CLI_ENGINE_OPTIONS(&a.with){"runs", CLI_UNSIGNED, &a.runs, 3, BENCH_RUNS_MAX, "N", "51",
                                    "number of runs; each figure is their median"},
        {"positions", CLI_TEXT, &a.positions, 0, 0, "A,B", "64,1000 or the last",
         "compare the cost of a step at these two positions"},
        {"no-limits", CLI_FLAG, &a.no_limits, 0, 0, NULL, NULL,
         "do not measure the machine's limit beside each figure"},
        {"json", CLI_FLAG, &b.json, 0, 0, NULL, NULL, "print one JSON object on one line"},
        {0},
    };
    int count;
    int code = cli_parse(options, argc, argv, 0, 1, &count);
    if (code != CLI_OK || count < 0)
        return code;
    code = check(&a, count);
    if (code != CLI_OK)
        return code;
    if (a.roofline)
        return bench_roofline((uint32_t)a.runs, (uint32_t)a.with.threads, b.json);
    struct model *m = a.synthetic != NULL ? make_model(a.synthetic) : cli_load_model(argv[1], NULL);
    if (m == NULL)
        return CLI_FAILED;
    code = bench_model(&b, m, &a);
    model_free(m);
    return code;
}
