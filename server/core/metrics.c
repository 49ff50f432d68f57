/* metrics.c - the series behind the table METRICS, and their updates. metrics_text.c writes them as text.
 * Updates: any thread, relaxed atomics, no lock. Registering a model or a key takes the lock of the labels, which is a
 * leaf; no update ever does. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "server/core/clock.h"
#include "server/core/metrics_inner.h"

/* ---- tables ---------------------------------------------------------------------------------------------------- */

/* Upper bounds of buckets: in nanoseconds, or counts. */
#define US UINT64_C(1000)
#define MS (1000 * US)
#define S (1000 * MS)
static const uint64_t bounds_LONG[BUCKETS_MAX] = {1 * MS,   2500 * US, 5 * MS,   10 * MS, 25 * MS,   50 * MS,
                                                  100 * MS, 250 * MS,  500 * MS, 1 * S,   2500 * MS, 5 * S,
                                                  10 * S,   30 * S,    60 * S,   120 * S, 300 * S,   600 * S};
static const uint64_t bounds_FINE[BUCKETS_MAX] = {
    100 * US,  150 * US, 200 * US, 300 * US, 500 * US, 750 * US, 1 * MS,   1500 * US, 2 * MS, 3 * MS,   5 * MS,
    7500 * US, 10 * MS,  15 * MS,  25 * MS,  50 * MS,  100 * MS, 250 * MS, 500 * MS,  1 * S,  2500 * MS};
static const uint64_t bounds_SIZES[BUCKETS_MAX] = {1,  2,  3,  4,  6,   8,   12,  16,   24,
                                                   32, 48, 64, 96, 128, 256, 512, 1024, 4096};
#undef US
#undef MS
#undef S

#define SIMPLE(constant, name, unit, labels, help) static _Atomic uint64_t values_##constant[SERIES_##labels];
#define HISTOGRAM(constant, name, unit, labels, buckets, help) \
    static _Atomic uint64_t values_##constant[SERIES_##labels * HISTOGRAM_VALUES];
METRICS(SIMPLE, SIMPLE, HISTOGRAM)
#undef SIMPLE
#undef HISTOGRAM

#define ROW(constant, name, unit, labels, help, bounds, width, type) \
    {name, help, values_##constant, bounds, SERIES_##labels, width, type, UNIT_##unit, LABELS_##labels},
#define COUNTER(constant, name, unit, labels, help) ROW(constant, name, unit, labels, help, NULL, 1, TYPE_COUNTER)
#define GAUGE(constant, name, unit, labels, help) ROW(constant, name, unit, labels, help, NULL, 1, TYPE_GAUGE)
#define HISTOGRAM(constant, name, unit, labels, buckets, help) \
    ROW(constant, name, unit, labels, help, bounds_##buckets, HISTOGRAM_VALUES, TYPE_HISTOGRAM)
const struct metrics_row metrics_rows[METRIC_COUNT] = {METRICS(COUNTER, GAUGE, HISTOGRAM)};
#undef ROW
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM

#define X(name, http, type, code) http,
#define SUCCESS(label, http) http,
const unsigned metrics_status_codes[STATUS_OTHER] = {STATUSES(X) SUCCESSES(SUCCESS)};
#undef X
#undef SUCCESS

/* ---- labels' values -------------------------------------------------------------------------------------------- */

struct metrics_labels metrics_labels = {.lock = PTHREAD_MUTEX_INITIALIZER};

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
        metrics_labels.endpoints[i] = names[i];
    metrics_labels.endpoint_count = n;
    metrics_labels.model_count = metrics_labels.key_count = 0;
    memset(metrics_labels.models, 0, sizeof metrics_labels.models);
    memset(&metrics_labels.build, 0, sizeof metrics_labels.build);
    for (size_t m = 0; m < METRIC_COUNT; m++)
        for (size_t i = 0; i < metrics_rows[m].series * metrics_rows[m].width; i++)
            if (metrics_rows[m].values[i] != 0) /* what was never written is not resident, and stays so */
                metrics_rows[m].values[i] = 0;
    atomic_store_explicit(&metrics_rows[METRIC_BUILD_INFO].values[0], 1, memory_order_relaxed);
    metrics_gauge_set(METRIC_START_TIME, 0, clock_unix_ns());
}

void metrics_build_set(const char *version, const char *revision, const char *isa, const char *blas)
{
    copy_text(metrics_labels.build.version, sizeof metrics_labels.build.version, version);
    copy_text(metrics_labels.build.revision, sizeof metrics_labels.build.revision, revision);
    copy_text(metrics_labels.build.isa, sizeof metrics_labels.build.isa, isa);
    copy_text(metrics_labels.build.blas, sizeof metrics_labels.build.blas, blas);
}

unsigned metrics_model_add(const struct metrics_model *m)
{
    char label[MODEL_NAME_MAX + 1];
    unsigned index = METRICS_MODEL_OTHER;
    size_t i = 0;
    copy_text(label, sizeof label, m->name);
    (void)pthread_mutex_lock(&metrics_labels.lock);
    while (i < metrics_labels.model_count && strcmp(metrics_labels.models[i].name, label) != 0)
        i++;
    if (i < METRICS_MODELS_MAX) {
        struct metrics_model_labels *to = &metrics_labels.models[i];
        memcpy(to->name, label, sizeof label);
        copy_text(to->task, sizeof to->task, m->task);
        copy_text(to->mixer, sizeof to->mixer, m->mixer);
        copy_text(to->precision, sizeof to->precision, m->precision);
        copy_text(to->precision_by, sizeof to->precision_by, m->precision_by);
        metrics_labels.model_count = i == metrics_labels.model_count ? i + 1 : metrics_labels.model_count;
        index = METRICS_MODEL_FIRST + (unsigned)i;
        atomic_store_explicit(&metrics_rows[METRIC_MODEL_INFO].values[index], 1, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&metrics_labels.lock);
    return index;
}

void metrics_model_remove(unsigned model)
{
    if (model >= METRICS_MODEL_FIRST && model < METRICS_MODEL_LABELS)
        atomic_store_explicit(&metrics_rows[METRIC_MODEL_INFO].values[model], 0, memory_order_relaxed);
}

unsigned metrics_key_add(const char *name)
{
    unsigned i = 0;
    (void)pthread_mutex_lock(&metrics_labels.lock);
    while (i < metrics_labels.key_count && strcmp(metrics_labels.keys[i], name) != 0)
        i++;
    if (i == metrics_labels.key_count && i < METRICS_KEYS_MAX)
        copy_text(metrics_labels.keys[metrics_labels.key_count++], sizeof metrics_labels.keys[0], name);
    (void)pthread_mutex_unlock(&metrics_labels.lock);
    return i;
}

/* ---- updates --------------------------------------------------------------------------------------------------- */

/* The series of a label. A model without a series of its own counts as "other"; the other labels are enums of ours. */
static size_t series_of(const struct metrics_row *row, unsigned label)
{
    if (row->labels == LABELS_MODEL)
        return label < METRICS_MODEL_LABELS ? label : METRICS_MODEL_OTHER;
    assert(label < row->series && (row->labels == LABELS_NONE || row->labels == LABELS_IF_TOLD ||
                                   row->labels == LABELS_KEY || row->labels == LABELS_REASON));
    return label;
}

static const struct metrics_row *row_of(enum metric m, enum type type)
{
    assert((size_t)m < METRIC_COUNT && metrics_rows[m].type == type);
    (void)type;
    return &metrics_rows[m];
}

static void observe(const struct metrics_row *row, size_t series, uint64_t value)
{
    _Atomic uint64_t *values = &row->values[series * row->width];
    size_t bucket = 0;
    while (row->bounds[bucket] != 0 && value > row->bounds[bucket])
        bucket++;
    atomic_fetch_add_explicit(&values[HISTOGRAM_COUNTS + bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&values[HISTOGRAM_SUM], value, memory_order_relaxed);
}

/* The series of {endpoint,model}. */
static size_t request_pair(unsigned endpoint, unsigned model)
{
    const size_t e = endpoint < metrics_labels.endpoint_count ? endpoint : ENDPOINT_OTHER;
    return e * METRICS_MODEL_LABELS + (model < METRICS_MODEL_LABELS ? model : METRICS_MODEL_OTHER);
}

void metrics_request_end(unsigned endpoint, unsigned model, unsigned http_status, uint64_t duration_ns,
                         uint64_t received)
{
    size_t status = 0;
    while (status < STATUS_OTHER && metrics_status_codes[status] != http_status)
        status++;
    const size_t pair = request_pair(endpoint, model), series = pair * STATUS_LABELS + status;
    atomic_fetch_add_explicit(&metrics_rows[METRIC_REQUESTS].values[series], 1, memory_order_relaxed);
    observe(&metrics_rows[METRIC_REQUEST_DURATION], pair, duration_ns);
    metrics_counter_add(METRIC_RECEIVED_BYTES, 0, received);
    metrics_gauge_add(METRIC_IN_FLIGHT, 0, -1);
}

void metrics_counter_add(enum metric m, unsigned label, uint64_t n)
{
    const struct metrics_row *row = row_of(m, TYPE_COUNTER);
    atomic_fetch_add_explicit(&row->values[series_of(row, label)], n, memory_order_relaxed);
}

void metrics_gauge_set(enum metric m, unsigned label, uint64_t value)
{
    const struct metrics_row *row = row_of(m, TYPE_GAUGE);
    const uint64_t told = row->labels == LABELS_IF_TOLD ? 1 : 0;
    atomic_store_explicit(&row->values[series_of(row, label)], value + told, memory_order_relaxed);
}

void metrics_gauge_add(enum metric m, unsigned label, int64_t change)
{
    const struct metrics_row *row = row_of(m, TYPE_GAUGE);
    assert(row->labels != LABELS_IF_TOLD);
    atomic_fetch_add_explicit(&row->values[series_of(row, label)], (uint64_t)change, memory_order_relaxed);
}

uint64_t metrics_total(enum metric m)
{
    const struct metrics_row *row = &metrics_rows[m];
    uint64_t total = 0;
    assert(row->type != TYPE_HISTOGRAM && row->labels != LABELS_IF_TOLD);
    for (size_t i = 0; i < row->series; i++)
        total += atomic_load_explicit(&row->values[i], memory_order_relaxed);
    return total;
}

struct metrics_observed metrics_histogram_read(enum metric m, unsigned label)
{
    const struct metrics_row *row = row_of(m, TYPE_HISTOGRAM);
    const _Atomic uint64_t *values = &row->values[series_of(row, label) * row->width];
    struct metrics_observed all = {.sum = atomic_load_explicit(&values[HISTOGRAM_SUM], memory_order_relaxed)};
    for (size_t b = 0; b < BUCKETS_MAX; b++)
        all.count += atomic_load_explicit(&values[HISTOGRAM_COUNTS + b], memory_order_relaxed);
    return all;
}

struct metrics_answered metrics_requests_read(unsigned endpoint, unsigned model)
{
    const size_t first = request_pair(endpoint, model) * STATUS_LABELS;
    struct metrics_answered all = {0, 0};
    for (size_t status = 0; status < STATUS_LABELS; status++) {
        const uint64_t count =
            atomic_load_explicit(&metrics_rows[METRIC_REQUESTS].values[first + status], memory_order_relaxed);
        const bool is_good = status < STATUS_OTHER && metrics_status_codes[status] / 100 == 2;
        *(is_good ? &all.good : &all.others) += count;
    }
    return all;
}

void metrics_histogram_observe(enum metric m, unsigned label, uint64_t value)
{
    const struct metrics_row *row = row_of(m, TYPE_HISTOGRAM);
    observe(row, series_of(row, label), value);
}
