/* metrics_inner.h - what metrics.c records, process_stats.c asks of the kernel and metrics_text.c writes: the rows of
 * METRICS with their series, and the words of their labels. For these files only. A new metric needs a row in METRICS
 * (metrics.h) and nothing here; a new label needs its constant and its number of series here, and its word in
 * metrics_text.c. */
#ifndef SERVER_CORE_METRICS_INNER_H
#define SERVER_CORE_METRICS_INNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "server/core/metrics.h"

enum type { TYPE_COUNTER, TYPE_GAUGE, TYPE_HISTOGRAM };
enum unit { UNIT_COUNT, UNIT_SECONDS };
enum labels {
    LABELS_NONE,
    LABELS_IF_TOLD,
    LABELS_ENDPOINT_MODEL,
    LABELS_MODEL,
    LABELS_KEY,
    LABELS_REASON,
    LABELS_REQUEST,
    LABELS_MODEL_INFO,
    LABELS_BUILD_INFO
};

/* HTTP status codes: those of status.h (the first row that has a code counts), those of answers that are not errors,
 * and one for all others. */
#define SUCCESSES(X)         \
    X(LABEL_CREATED, 201)    \
    X(LABEL_ACCEPTED, 202)   \
    X(LABEL_NO_CONTENT, 204) \
    X(LABEL_NOT_MODIFIED, 304)
#define X(name, http, type, code) LABEL_##name,
#define SUCCESS(label, http) label,
enum { STATUSES(X) SUCCESSES(SUCCESS) STATUS_OTHER, STATUS_LABELS };
#undef X
#undef SUCCESS
enum { ENDPOINT_OTHER = METRICS_ENDPOINTS_MAX, ENDPOINT_LABELS };

/* How many series a set of labels can have. A page of memory is taken by the first of them that counts: the megabytes
 * of {endpoint,model} are mostly never there: a model is asked for at the endpoints of its task. */
enum {
    SERIES_NONE = 1,
    SERIES_IF_TOLD = 1,
    SERIES_ENDPOINT_MODEL = ENDPOINT_LABELS * METRICS_MODEL_LABELS,
    SERIES_MODEL = METRICS_MODEL_LABELS,
    SERIES_KEY = METRICS_KEYS_MAX + 1,
    SERIES_REASON = METRICS_REASON_COUNT,
    SERIES_REQUEST = ENDPOINT_LABELS * METRICS_MODEL_LABELS * STATUS_LABELS,
    SERIES_MODEL_INFO = METRICS_MODEL_LABELS,
    SERIES_BUILD_INFO = 1
};

enum { BUCKETS_MAX = 24 };
/* The values of one series of a histogram; another metric's has one. */
enum { HISTOGRAM_SUM, HISTOGRAM_COUNTS, HISTOGRAM_VALUES = HISTOGRAM_COUNTS + BUCKETS_MAX };

struct metrics_row {
    const char *name, *help;
    /* [series][width]. IF_TOLD: 1 more than the value, 0: none was told. Of a histogram's counts, [i] is of what is
     * above bound i - 1 and at most bound i; that of bound 0, of what is above all. */
    _Atomic uint64_t *values;
    const uint64_t *bounds; /* ascending, 0 after the last; NULL but for histograms */
    size_t series, width;
    enum type type;
    enum unit unit;
    enum labels labels;
};

extern const struct metrics_row metrics_rows[METRIC_COUNT];
extern const unsigned metrics_status_codes[STATUS_OTHER];

struct metrics_model_labels {
    char name[MODEL_NAME_MAX + 1];
    char task[METRICS_TEXT_MAX + 1];
    char mixer[METRICS_TEXT_MAX + 1];
    char precision[METRICS_TEXT_MAX + 1];
    char precision_by[METRICS_TEXT_MAX + 1];
};

/* Label values that are not listed in the tables. */
struct metrics_labels {
    /* Written before other threads exist. */
    const char *endpoints[METRICS_ENDPOINTS_MAX];
    size_t endpoint_count;
    struct {
        char version[METRICS_TEXT_MAX + 1], revision[METRICS_TEXT_MAX + 1], isa[METRICS_TEXT_MAX + 1],
            blas[METRICS_TEXT_MAX + 1];
    } build;

    pthread_mutex_t lock; /* models, keys and their counts; one rendering at a time */
    struct metrics_model_labels models[METRICS_MODELS_MAX];
    size_t model_count;
    char keys[METRICS_KEYS_MAX][KEY_NAME_MAX + 1];
    size_t key_count;
};
extern struct metrics_labels metrics_labels;

/* process_stats.c: set what the kernel knows of this process. Any thread. */
void metrics_update_process(void);

#endif
