/* row_stealing.h - how the threads of a team share the rows of a pass, each of which goes through all blocks by itself.
 * Every thread begins with as many. What else runs on the machine takes more of one thread than of another; who is
 * through first then waits, and those that are still on the way give it half of their rows at the next half of a
 * block. Rows do not depend on each other, nor their bits on who computes them with what others (gemm.h).
 * Threads wait asleep: their processor may have other things to do. The lock is a leaf. */
#ifndef ENGINE_CORE_ROW_STEALING_H
#define ENGINE_CORE_ROW_STEALING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"

#define ROW_STEALING_MIN 12 /* rows that are worth a thread: fewer use the weights that it reads badly */

/* Rows [first, first + count) that are through so many halves of blocks: up to the mixer's end, and from there. */
struct row_range {
    size_t first, count;
    uint32_t halves;
};

struct row_stealing {
    atomic_uint wanted; /* threads that wait and were offered nothing yet; written under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t left;      /* rows that are not through all blocks */
    uint32_t offered; /* never more than threads wait */
    struct row_range offers[ENGINE_THREADS_MAX];
};

void row_stealing_open(struct row_stealing *s);
void row_stealing_close(struct row_stealing *s);

/* Before the team has its first rows of a pass, by one thread. */
void row_stealing_begin(struct row_stealing *s, size_t rows);
/* Between two halves of blocks: give half of *r to a thread that waits, if one does. */
void row_stealing_offer(struct row_stealing *s, struct row_range *r);
/* `count` rows are through. Returns false when all of the pass are, and before that waits for more: *r. */
bool row_stealing_next(struct row_stealing *s, size_t count, struct row_range *r);

#endif
