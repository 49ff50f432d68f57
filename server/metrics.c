/* metrics.c - the series behind the table METRICS, their updates and their text.
 * Updates: any thread, relaxed atomics, no lock. Registering a model and rendering take `lock`, which is a leaf; no
 * update ever does. A histogram's count is the sum of its buckets, so what is shown is consistent in itself although
 * updates go on meanwhile; its sum may be an observation ahead or behind. */
#include "server/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/process_stats.h"

/* ---- tables ---------------------------------------------------------------------------------------------------- */

enum type { TYPE_COUNTER, TYPE_GAUGE, TYPE_HISTOGRAM };
enum unit { UNIT_COUNT, UNIT_SECONDS };
enum labels {
    LABELS_NONE,
    LABELS_ENDPOINT,
    LABELS_MODEL,
    LABELS_KEY,
    LABELS_KIND,
    LABELS_REASON,
    LABELS_REQUEST,
    LABELS_MODEL_INFO,
    LABELS_BUILD_INFO
};

/* HTTP codes: those of status.h, by the first row that has the code, and what is none of them. */
#define X(name, http, type, code) LABEL_##name,
enum { STATUSES(X) STATUS_OTHER, STATUS_LABELS };
#undef X
enum { ENDPOINT_OTHER = METRICS_ENDPOINTS_MAX, ENDPOINT_LABELS };
enum { MODEL_LABELS = METRICS_MODEL_FIRST + METRICS_MODELS_MAX };

/* How many series a set of labels can have. */
enum {
    SERIES_NONE = 1,
    SERIES_ENDPOINT = ENDPOINT_LABELS,
    SERIES_MODEL = MODEL_LABELS,
    SERIES_KEY = METRICS_KEYS_MAX + 1,
    SERIES_KIND = METRICS_KIND_COUNT,
    SERIES_REASON = METRICS_REASON_COUNT,
    SERIES_REQUEST = ENDPOINT_LABELS * MODEL_LABELS * STATUS_LABELS,
    SERIES_MODEL_INFO = MODEL_LABELS,
    SERIES_BUILD_INFO = 1
};

/* Upper bounds of buckets, ascending, 0 after the last: nanoseconds, or whole things. */
enum { BUCKETS_MAX = 24 };
#define US UINT64_C(1000)
#define MS (1000 * US)
#define S (1000 * MS)
static const uint64_t bounds_LONG[BUCKETS_MAX] = {1 * MS,   2500 * US, 5 * MS,   10 * MS, 25 * MS,   50 * MS,
                                                  100 * MS, 250 * MS,  500 * MS, 1 * S,   2500 * MS, 5 * S,
                                                  10 * S,   30 * S,    60 * S,   300 * S, 600 * S};
static const uint64_t bounds_FINE[BUCKETS_MAX] = {
    100 * US,  150 * US, 200 * US, 300 * US, 500 * US, 750 * US, 1 * MS,   1500 * US, 2 * MS, 3 * MS,   5 * MS,
    7500 * US, 10 * MS,  15 * MS,  25 * MS,  50 * MS,  100 * MS, 250 * MS, 500 * MS,  1 * S,  2500 * MS};
static const uint64_t bounds_SIZES[BUCKETS_MAX] = {1,  2,  3,  4,  6,   8,   12,  16,   24,
                                                   32, 48, 64, 96, 128, 256, 512, 1024, 4096};
#undef US
#undef MS
#undef S

struct histogram {
    _Atomic uint64_t sum;
    _Atomic uint64_t counts[BUCKETS_MAX + 1]; /* [i]: above bound i - 1, at most bound i; the last: above all */
};

#define SIMPLE(constant, name, unit, labels, help) static _Atomic uint64_t values_##constant[SERIES_##labels];
#define HISTOGRAM(constant, name, unit, labels, buckets, help) \
    static struct histogram histograms_##constant[SERIES_##labels];
METRICS(SIMPLE, SIMPLE, HISTOGRAM)
#undef SIMPLE
#undef HISTOGRAM

struct row {
    const char *name, *help;
    _Atomic uint64_t *values;     /* [series]; NULL for histograms */
    struct histogram *histograms; /* [series]; NULL for others */
    const uint64_t *bounds;
    size_t series;
    enum type type;
    enum unit unit;
    enum labels labels;
};

#define SIMPLE(constant, name, unit, labels, help, type) \
    {name, help, values_##constant, NULL, NULL, SERIES_##labels, type, UNIT_##unit, LABELS_##labels},
#define COUNTER(constant, name, unit, labels, help) SIMPLE(constant, name, unit, labels, help, TYPE_COUNTER)
#define GAUGE(constant, name, unit, labels, help) SIMPLE(constant, name, unit, labels, help, TYPE_GAUGE)
#define HISTOGRAM(constant, name, unit, labels, buckets, help)                                              \
    {name,           help,        NULL,           histograms_##constant, bounds_##buckets, SERIES_##labels, \
     TYPE_HISTOGRAM, UNIT_##unit, LABELS_##labels},
static const struct row rows[METRIC_COUNT] = {METRICS(COUNTER, GAUGE, HISTOGRAM)};
#undef SIMPLE
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM

#define X(constant, word) word,
static const char *const kind_words[] = {METRICS_KINDS(X)};
static const char *const reason_words[] = {METRICS_REASONS(X)};
#undef X

#define X(name, http, type, code) http,
static const unsigned status_codes[] = {STATUSES(X)};
#undef X

/* ---- labels' values -------------------------------------------------------------------------------------------- */

struct model_labels {
    char name[MODEL_NAME_MAX + 1];
    char task[METRICS_TEXT_MAX + 1];
    char mixer[METRICS_TEXT_MAX + 1];
    char precision[METRICS_TEXT_MAX + 1];
    char precision_by[METRICS_TEXT_MAX + 1];
    bool loaded;
};

/* Written by metrics_init and metrics_build_set only. */
static const char *endpoints[METRICS_ENDPOINTS_MAX];
static size_t endpoint_count;
static struct {
    char version[METRICS_TEXT_MAX + 1], isa[METRICS_TEXT_MAX + 1], blas[METRICS_TEXT_MAX + 1];
} build;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* models, keys and their counts; one rendering at a time */
static struct model_labels models[METRICS_MODELS_MAX];
static size_t model_count;
static char keys[METRICS_KEYS_MAX][KEY_NAME_MAX + 1];
static size_t key_count;

static void copy_text(char *to, size_t size, const char *from)
{
    size_t i = 0;
    for (; from[i] != '\0' && i + 1 < size; i++)
        to[i] = (char)(from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?');
    to[i] = '\0';
}

void metrics_init(const char *const names[], size_t n)
{
    assert(n <= METRICS_ENDPOINTS_MAX);
    for (size_t i = 0; i < n; i++)
        endpoints[i] = names[i];
    endpoint_count = n;
    model_count = key_count = 0;
    memset(models, 0, sizeof models);
    memset(&build, 0, sizeof build);
    for (size_t m = 0; m < METRIC_COUNT; m++) {
        for (size_t i = 0; i < rows[m].series; i++) {
            if (rows[m].type != TYPE_HISTOGRAM) {
                atomic_store_explicit(&rows[m].values[i], 0, memory_order_relaxed);
                continue;
            }
            atomic_store_explicit(&rows[m].histograms[i].sum, 0, memory_order_relaxed);
            for (size_t b = 0; b <= BUCKETS_MAX; b++)
                atomic_store_explicit(&rows[m].histograms[i].counts[b], 0, memory_order_relaxed);
        }
    }
}

void metrics_build_set(const char *version, const char *isa, const char *blas)
{
    copy_text(build.version, sizeof build.version, version);
    copy_text(build.isa, sizeof build.isa, isa);
    copy_text(build.blas, sizeof build.blas, blas);
}

unsigned metrics_model_add(const struct metrics_model *m)
{
    char label[MODEL_NAME_MAX + 1];
    unsigned index = METRICS_MODEL_OTHER;
    size_t i = 0;
    copy_text(label, sizeof label, m->name);
    (void)pthread_mutex_lock(&lock);
    while (i < model_count && strcmp(models[i].name, label) != 0)
        i++;
    if (i < METRICS_MODELS_MAX) {
        memcpy(models[i].name, label, sizeof label);
        copy_text(models[i].task, sizeof models[i].task, m->task);
        copy_text(models[i].mixer, sizeof models[i].mixer, m->mixer);
        copy_text(models[i].precision, sizeof models[i].precision, m->precision);
        copy_text(models[i].precision_by, sizeof models[i].precision_by, m->precision_by);
        models[i].loaded = true;
        model_count = i == model_count ? i + 1 : model_count;
        index = METRICS_MODEL_FIRST + (unsigned)i;
    }
    (void)pthread_mutex_unlock(&lock);
    return index;
}

void metrics_model_remove(unsigned model)
{
    if (model < METRICS_MODEL_FIRST || model >= MODEL_LABELS)
        return;
    (void)pthread_mutex_lock(&lock);
    models[model - METRICS_MODEL_FIRST].loaded = false;
    (void)pthread_mutex_unlock(&lock);
}

unsigned metrics_key_add(const char *name)
{
    unsigned i = 0;
    (void)pthread_mutex_lock(&lock);
    while (i < key_count && strcmp(keys[i], name) != 0)
        i++;
    if (i == key_count && i < METRICS_KEYS_MAX)
        copy_text(keys[key_count++], sizeof keys[0], name);
    (void)pthread_mutex_unlock(&lock);
    return i;
}

/* ---- updates --------------------------------------------------------------------------------------------------- */

/* The series of a label. A route or a model without one of its own is "other"; other lists are enums of ours. */
static size_t series_of(const struct row *row, unsigned label)
{
    if (row->labels == LABELS_ENDPOINT)
        return label < endpoint_count ? label : ENDPOINT_OTHER;
    if (row->labels == LABELS_MODEL)
        return label < MODEL_LABELS ? label : METRICS_MODEL_OTHER;
    assert(label < row->series && (row->labels == LABELS_NONE || row->labels == LABELS_KEY ||
                                   row->labels == LABELS_KIND || row->labels == LABELS_REASON));
    return label;
}

static const struct row *row_of(enum metric m, enum type type)
{
    assert((size_t)m < METRIC_COUNT && rows[m].type == type);
    (void)type;
    return &rows[m];
}

void metrics_request(unsigned endpoint, unsigned model, unsigned http_status)
{
    size_t status = 0;
    while (status < STATUS_OTHER && status_codes[status] != http_status)
        status++;
    const size_t e = endpoint < endpoint_count ? endpoint : ENDPOINT_OTHER;
    const size_t m = model < MODEL_LABELS ? model : METRICS_MODEL_OTHER;
    const size_t series = (e * MODEL_LABELS + m) * STATUS_LABELS + status;
    atomic_fetch_add_explicit(&rows[METRIC_REQUESTS].values[series], 1, memory_order_relaxed);
}

void metrics_counter_add(enum metric m, unsigned label, uint64_t n)
{
    const struct row *row = row_of(m, TYPE_COUNTER);
    atomic_fetch_add_explicit(&row->values[series_of(row, label)], n, memory_order_relaxed);
}

void metrics_gauge_set(enum metric m, unsigned label, uint64_t value)
{
    const struct row *row = row_of(m, TYPE_GAUGE);
    atomic_store_explicit(&row->values[series_of(row, label)], value, memory_order_relaxed);
}

void metrics_gauge_add(enum metric m, unsigned label, int64_t change)
{
    const struct row *row = row_of(m, TYPE_GAUGE);
    atomic_fetch_add_explicit(&row->values[series_of(row, label)], (uint64_t)change, memory_order_relaxed);
}

void metrics_histogram_observe(enum metric m, unsigned label, uint64_t value)
{
    const struct row *row = row_of(m, TYPE_HISTOGRAM);
    struct histogram *h = &row->histograms[series_of(row, label)];
    size_t bucket = 0;
    while (bucket < BUCKETS_MAX && row->bounds[bucket] != 0 && value > row->bounds[bucket])
        bucket++;
    if (bucket == BUCKETS_MAX || row->bounds[bucket] == 0)
        bucket = BUCKETS_MAX;
    atomic_fetch_add_explicit(&h->counts[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

enum { VALUE_TEXT_MAX = 40 }; /* two numbers of 20 digits */

/* Exact, and without the locale that printf's %f would ask: nanoseconds as 1.5, 0.0001, 60. */
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

static void print_label(FILE *to, bool *first, const char *name, const char *value)
{
    (void)fprintf(to, "%c%s=\"", *first ? '{' : ',', name);
    *first = false;
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            (void)fputc('\\', to);
        (void)fputc(*value == '\n' ? 'n' : *value, to);
    }
    (void)fputc('"', to);
}

static const char *endpoint_word(size_t i)
{
    return i < endpoint_count ? endpoints[i] : "other";
}

static const char *model_word_locked(size_t i)
{
    if (i == METRICS_MODEL_NONE)
        return "none";
    return i == METRICS_MODEL_OTHER ? "other" : models[i - METRICS_MODEL_FIRST].name;
}

static void print_request_labels_locked(FILE *to, bool *first, size_t series)
{
    char code[16] = "other";
    const size_t status = series % STATUS_LABELS;
    if (status < STATUS_OTHER)
        (void)snprintf(code, sizeof code, "%u", status_codes[status]);
    print_label(to, first, "endpoint", endpoint_word(series / STATUS_LABELS / MODEL_LABELS));
    print_label(to, first, "model", model_word_locked(series / STATUS_LABELS % MODEL_LABELS));
    print_label(to, first, "status", code);
}

/* The labels of a series but for a histogram's `le`; `first` says whether any was printed. */
static void print_labels_locked(FILE *to, bool *first, const struct row *row, size_t series)
{
    switch (row->labels) {
    case LABELS_NONE:
        break;
    case LABELS_ENDPOINT:
        print_label(to, first, "endpoint", endpoint_word(series));
        break;
    case LABELS_MODEL:
        print_label(to, first, "model", model_word_locked(series));
        break;
    case LABELS_KEY:
        print_label(to, first, "key", series < key_count ? keys[series] : "other");
        break;
    case LABELS_KIND:
        print_label(to, first, "kind", kind_words[series]);
        break;
    case LABELS_REASON:
        print_label(to, first, "reason", reason_words[series]);
        break;
    case LABELS_REQUEST:
        print_request_labels_locked(to, first, series);
        break;
    case LABELS_MODEL_INFO:
        print_label(to, first, "model", model_word_locked(series));
        print_label(to, first, "task", models[series - METRICS_MODEL_FIRST].task);
        print_label(to, first, "mixer", models[series - METRICS_MODEL_FIRST].mixer);
        print_label(to, first, "precision", models[series - METRICS_MODEL_FIRST].precision);
        print_label(to, first, "precision_by", models[series - METRICS_MODEL_FIRST].precision_by);
        break;
    case LABELS_BUILD_INFO:
        print_label(to, first, "version", build.version);
        print_label(to, first, "isa", build.isa);
        print_label(to, first, "blas", build.blas);
        break;
    }
}

/* One line: name, suffix, labels, value. `le` NULL: the line is no bucket. */
static void print_sample_locked(FILE *to, const struct row *row, const char *suffix, size_t series, const char *le,
                                enum unit unit, uint64_t value)
{
    char text[VALUE_TEXT_MAX];
    bool first = true;
    (void)fprintf(to, "%s%s", row->name, suffix);
    print_labels_locked(to, &first, row, series);
    if (le != NULL)
        print_label(to, &first, "le", le);
    format_value(text, unit, value);
    (void)fprintf(to, "%s %s\n", first ? "" : "}", text);
}

static void print_histogram_locked(FILE *to, const struct row *row, size_t series,
                                   const uint64_t counts[BUCKETS_MAX + 1], uint64_t sum)
{
    char le[VALUE_TEXT_MAX];
    uint64_t total = 0;
    for (size_t b = 0; b < BUCKETS_MAX && row->bounds[b] != 0; b++) {
        total += counts[b];
        format_value(le, row->unit, row->bounds[b]);
        print_sample_locked(to, row, "_bucket", series, le, UNIT_COUNT, total);
    }
    total += counts[BUCKETS_MAX];
    print_sample_locked(to, row, "_bucket", series, "+Inf", UNIT_COUNT, total);
    print_sample_locked(to, row, "_sum", series, NULL, row->unit, sum);
    print_sample_locked(to, row, "_count", series, NULL, UNIT_COUNT, total);
}

/* Series that exist whatever happens are shown from the start; those of requests once they counted something. */
static bool is_shown_locked(const struct row *row, size_t series, bool counted)
{
    const size_t model = series - METRICS_MODEL_FIRST;
    switch (row->labels) {
    case LABELS_MODEL: /* what is of a loaded model, but that its last streams still run */
        if (series >= METRICS_MODEL_FIRST && row->type == TYPE_GAUGE)
            return models[model].loaded || (counted && row == &rows[METRIC_STREAMS_RUNNING]);
        return counted || (series >= METRICS_MODEL_FIRST && model < model_count);
    case LABELS_MODEL_INFO:
        return series >= METRICS_MODEL_FIRST && models[model].loaded;
    case LABELS_KEY:
        return counted || series < key_count;
    case LABELS_ENDPOINT:
    case LABELS_REQUEST:
        return counted;
    case LABELS_NONE:
    case LABELS_KIND:
    case LABELS_REASON:
    case LABELS_BUILD_INFO:
        break;
    }
    return true;
}

/* HELP and TYPE come before a metric's first series, and not at all where it has none. */
static void print_series_locked(FILE *to, const struct row *row, size_t series, bool *headed)
{
    static const char *const type_words[] = {"counter", "gauge", "histogram"};
    uint64_t counts[BUCKETS_MAX + 1], value = 0, sum = 0;
    if (row->type == TYPE_HISTOGRAM) {
        sum = atomic_load_explicit(&row->histograms[series].sum, memory_order_relaxed);
        for (size_t b = 0; b <= BUCKETS_MAX; b++) {
            counts[b] = atomic_load_explicit(&row->histograms[series].counts[b], memory_order_relaxed);
            value += counts[b];
        }
    } else if (row->labels == LABELS_MODEL_INFO || row->labels == LABELS_BUILD_INFO) {
        value = 1;
    } else {
        value = atomic_load_explicit(&row->values[series], memory_order_relaxed);
    }
    if (!is_shown_locked(row, series, value != 0))
        return;
    if (!*headed)
        (void)fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name, type_words[row->type]);
    *headed = true;
    if (row->type == TYPE_HISTOGRAM)
        print_histogram_locked(to, row, series, counts, sum);
    else
        print_sample_locked(to, row, "", series, NULL, row->unit, value);
}

static void update_process(void)
{
    struct process_stats now;
    process_stats_read(&now);
    atomic_store_explicit(&rows[METRIC_CPU].values[0], now.cpu_ns, memory_order_relaxed); /* a total, not a step */
    metrics_gauge_set(METRIC_RESIDENT, 0, now.resident_bytes);
    metrics_gauge_set(METRIC_VIRTUAL, 0, now.virtual_bytes);
    metrics_gauge_set(METRIC_OPEN_FDS, 0, now.open_fds);
    metrics_gauge_set(METRIC_MAX_FDS, 0, now.max_fds);
    metrics_gauge_set(METRIC_START_TIME, 0, now.start_ns);
    metrics_gauge_set(METRIC_THREADS, 0, now.threads);
}

enum status metrics_render(char **ret, size_t *size, struct error *err)
{
    char *text = NULL;
    size_t text_size = 0;
    FILE *to = open_memstream(&text, &text_size);
    if (to == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the metrics");
    (void)pthread_mutex_lock(&lock);
    update_process();
    for (size_t m = 0; m < METRIC_COUNT; m++) {
        bool headed = false;
        for (size_t series = 0; series < rows[m].series; series++)
            print_series_locked(to, &rows[m], series, &headed);
    }
    (void)pthread_mutex_unlock(&lock);
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed) {
        free(text);
        return error_set(err, ERR_NOMEM, "no memory for the metrics");
    }
    *ret = text;
    *size = text_size;
    return OK;
}
