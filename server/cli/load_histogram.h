/* load_histogram.h - how often each length of time occurred, in a fixed amount of memory however many there are.
 * Buckets grow with the time: those below 256 ns have one each, and every doubling beyond is cut into 128, so that a
 * bucket's middle is within 0.4 % of whatever lies in it. Single threaded. */
#ifndef SERVER_CLI_LOAD_HISTOGRAM_H
#define SERVER_CLI_LOAD_HISTOGRAM_H

#include <stdint.h>

#define LOAD_HISTOGRAM_BITS 7
#define LOAD_HISTOGRAM_BUCKETS ((64 - LOAD_HISTOGRAM_BITS + 1) << LOAD_HISTOGRAM_BITS)

/* All zero: empty. */
struct load_histogram {
    uint64_t count;  /* of all */
    double sum;      /* ns; exact as far as a double goes */
    uint64_t max_ns; /* exact */
    uint64_t counts[LOAD_HISTOGRAM_BUCKETS];
};

/* Add `count` times of so many ns. */
void load_histogram_add(struct load_histogram *h, uint64_t ns, uint64_t count);
/* The same of seconds, where less than 0 is 0. */
void load_histogram_add_s(struct load_histogram *h, double seconds, uint64_t count);

/* Both 0 where nothing was added. The mean is exact; a quantile, 0 < q <= 1, is the least time that a share q of all
 * times does not exceed (the nearest rank), to 0.4 %, and never more than the largest. */
double load_histogram_mean_ns(const struct load_histogram *h);
double load_histogram_quantile_ns(const struct load_histogram *h, double q);

#endif
