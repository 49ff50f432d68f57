/* metrics_text.c - what /metrics answers: the series of metrics.c in Prometheus's text format.
 * Any thread; takes the lock of the labels, which is a leaf. A histogram's count is the sum of its buckets, so what is
 * shown is consistent in itself although updates go on meanwhile; its sum may be an observation ahead or behind. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/core/metrics_inner.h"

#define X(constant, word) word,
static const char *const reason_words[] = {METRICS_REASONS(X)};
#undef X

enum { VALUE_TEXT_MAX = 40 }; /* two numbers of 20 digits */

/* Exact, and independent of the locale, which printf's %f is not: nanoseconds as 1.5, 0.0001, 60. */
static void format_value(char out[VALUE_TEXT_MAX], enum unit unit, uint64_t value)
{
    const uint64_t second = UINT64_C(1000000000);
    uint64_t rest = value % second;
    int digits = 9;
    if (unit == UNIT_COUNT) {
        (void)snprintf(out, VALUE_TEXT_MAX, "%" PRIu64, value);
        return;
    }
    if (rest == 0) {
        (void)snprintf(out, VALUE_TEXT_MAX, "%" PRIu64, value / second);
        return;
    }
    for (; rest % 10 == 0; digits--)
        rest /= 10;
    (void)snprintf(out, VALUE_TEXT_MAX, "%" PRIu64 ".%0*" PRIu64, value / second, digits, rest);
}

/* What is being written. What each call returns counts: glibc's memory streams neither know ferror, nor does their
 * fclose tell, that there was no memory. After a failure nothing is tried any more. */
struct page {
    FILE *stream;
    bool failed;
};

static void __attribute__((format(printf, 2, 3))) print(struct page *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    to->failed = to->failed || vfprintf(to->stream, format, args) < 0;
    va_end(args);
}

static void print_character(struct page *to, char c)
{
    to->failed = to->failed || fputc(c, to->stream) == EOF;
}

static void print_label(struct page *to, bool *first, const char *name, const char *value)
{
    print(to, "%c%s=\"", *first ? '{' : ',', name);
    *first = false;
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            print_character(to, '\\');
        print_character(to, *value == '\n' ? 'n' : *value);
    }
    print_character(to, '"');
}

static const char *endpoint_word(size_t i)
{
    return i < metrics_labels.endpoint_count ? metrics_labels.endpoints[i] : "other";
}

static const char *model_word_locked(size_t i)
{
    if (i == METRICS_MODEL_NONE)
        return "none";
    return i == METRICS_MODEL_OTHER ? "other" : metrics_labels.models[i - METRICS_MODEL_FIRST].name;
}

static void print_endpoint_model_locked(struct page *to, bool *first, size_t pair)
{
    print_label(to, first, "endpoint", endpoint_word(pair / METRICS_MODEL_LABELS));
    print_label(to, first, "model", model_word_locked(pair % METRICS_MODEL_LABELS));
}

static void print_request_labels_locked(struct page *to, bool *first, size_t series)
{
    char code[16] = "other";
    const size_t status = series % STATUS_LABELS;
    if (status < STATUS_OTHER)
        (void)snprintf(code, sizeof code, "%u", metrics_status_codes[status]);
    print_endpoint_model_locked(to, first, series / STATUS_LABELS);
    print_label(to, first, "status", code);
}

static void print_model_info_labels_locked(struct page *to, bool *first, const struct metrics_model_labels *model)
{
    print_label(to, first, "model", model->name);
    print_label(to, first, "task", model->task);
    print_label(to, first, "mixer", model->mixer);
    print_label(to, first, "precision", model->precision);
    print_label(to, first, "precision_by", model->precision_by);
}

/* Print the labels of a series except a histogram's `le`; `first` becomes false once one is printed. */
static void print_labels_locked(struct page *to, bool *first, const struct metrics_row *row, size_t series)
{
    switch (row->labels) {
    case LABELS_NONE:
    case LABELS_IF_TOLD:
        break;
    case LABELS_ENDPOINT_MODEL:
        print_endpoint_model_locked(to, first, series);
        break;
    case LABELS_MODEL:
        print_label(to, first, "model", model_word_locked(series));
        break;
    case LABELS_KEY:
        print_label(to, first, "key", series < metrics_labels.key_count ? metrics_labels.keys[series] : "other");
        break;
    case LABELS_REASON:
        print_label(to, first, "reason", reason_words[series]);
        break;
    case LABELS_REQUEST:
        print_request_labels_locked(to, first, series);
        break;
    case LABELS_MODEL_INFO:
        print_model_info_labels_locked(to, first, &metrics_labels.models[series - METRICS_MODEL_FIRST]);
        break;
    case LABELS_BUILD_INFO:
        print_label(to, first, "version", metrics_labels.build.version);
        print_label(to, first, "revision", metrics_labels.build.revision);
        print_label(to, first, "isa", metrics_labels.build.isa);
        print_label(to, first, "blas", metrics_labels.build.blas);
        break;
    }
}

/* One line: name, suffix, labels, value. `le` NULL: the line is not a bucket's. */
static void print_sample_locked(struct page *to, const struct metrics_row *row, const char *suffix, size_t series,
                                const char *le, enum unit unit, uint64_t value)
{
    char text[VALUE_TEXT_MAX];
    bool first = true;
    print(to, "%s%s", row->name, suffix);
    print_labels_locked(to, &first, row, series);
    if (le != NULL)
        print_label(to, &first, "le", le);
    format_value(text, unit, value);
    print(to, "%s %s\n", first ? "" : "}", text);
}

static void print_histogram_locked(struct page *to, const struct metrics_row *row, size_t series,
                                   const uint64_t values[HISTOGRAM_VALUES])
{
    const uint64_t *counts = values + HISTOGRAM_COUNTS;
    char le[VALUE_TEXT_MAX];
    uint64_t total = 0;
    size_t b = 0;
    for (; row->bounds[b] != 0; b++) {
        total += counts[b];
        format_value(le, row->unit, row->bounds[b]);
        print_sample_locked(to, row, "_bucket", series, le, UNIT_COUNT, total);
    }
    total += counts[b];
    print_sample_locked(to, row, "_bucket", series, "+Inf", UNIT_COUNT, total);
    print_sample_locked(to, row, "_sum", series, NULL, row->unit, values[HISTOGRAM_SUM]);
    print_sample_locked(to, row, "_count", series, NULL, UNIT_COUNT, total);
}

static uint64_t value_at(enum metric m, size_t i)
{
    return atomic_load_explicit(&metrics_rows[m].values[i], memory_order_relaxed);
}

/* Series that always exist are shown from the start; those of requests once they have counted something. */
static bool is_shown_locked(enum metric m, size_t series, bool counted)
{
    const struct metrics_row *row = &metrics_rows[m];
    switch (row->labels) {
    case LABELS_MODEL: /* gauges exist while their model is loaded, or while its last streams still run or wait */
        if (series >= METRICS_MODEL_FIRST && row->type == TYPE_GAUGE)
            return value_at(METRIC_MODEL_INFO, series) != 0 ||
                   (counted && (m == METRIC_STREAMS_RUNNING || m == METRIC_QUEUE_DEPTH));
        if (row->type == TYPE_HISTOGRAM) /* a score of lines each: for what a model does, not for what it could */
            return counted;
        return counted || (series >= METRICS_MODEL_FIRST && series - METRICS_MODEL_FIRST < metrics_labels.model_count);
    case LABELS_KEY:
        return counted || series < metrics_labels.key_count;
    case LABELS_NONE:
    case LABELS_REASON:
        return true;
    default:
        return counted;
    }
}

/* HELP and TYPE come before a metric's first series, and are left out if it has none. */
static void print_series_locked(struct page *to, enum metric m, size_t series, bool *headed)
{
    static const char *const type_words[] = {"counter", "gauge", "histogram"};
    const struct metrics_row *row = &metrics_rows[m];
    uint64_t values[HISTOGRAM_VALUES] = {0};
    bool counted = false;
    for (size_t i = 0; i < row->width; i++) {
        values[i] = value_at(m, series * row->width + i);
        counted |= values[i] != 0;
    }
    if (!is_shown_locked(m, series, counted))
        return;
    if (!*headed)
        print(to, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, type_words[row->type]);
    *headed = true;
    if (row->type == TYPE_HISTOGRAM)
        print_histogram_locked(to, row, series, values);
    else
        print_sample_locked(to, row, "", series, NULL, row->unit, values[0] - (row->labels == LABELS_IF_TOLD ? 1 : 0));
}

enum status metrics_render(char **ret, size_t *size, struct error *err)
{
    char *text = NULL;
    size_t text_size = 0;
    struct page page = {.stream = open_memstream(&text, &text_size)};
    if (page.stream == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the metrics");
    (void)pthread_mutex_lock(&metrics_labels.lock);
    metrics_update_process();
    for (enum metric m = 0; m < METRIC_COUNT; m++) {
        bool headed = false;
        for (size_t series = 0; series < metrics_rows[m].series && !page.failed; series++)
            print_series_locked(&page, m, series, &headed);
    }
    (void)pthread_mutex_unlock(&metrics_labels.lock);
    /* glibc's fclose gives the text its last size, and says nothing where that finds no memory: then there is none. */
    if (fclose(page.stream) != 0 || page.failed || text == NULL) {
        free(text);
        return error_set(err, ERR_NOMEM, "out of memory for the metrics");
    }
    *ret = text;
    *size = text_size;
    return OK;
}
