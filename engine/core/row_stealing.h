/* row_stealing.h - how the threads of a team share the rows of a pass, each of which goes through all blocks by itself.
 * Every thread begins with the same number. What else runs on the machine delays one thread more than another; the one
 * that finishes first waits, and one that is still busy gives it half of its rows at the next half of a block (work
 * stealing). Rows do not depend on each other, nor do their bits depend on which thread computes them or beside which
 * other rows (gemm.h).
 * Waiting threads sleep: their processor may have other things to do. The lock is a leaf. */
#ifndef ENGINE_CORE_ROW_STEALING_H
#define ENGINE_CORE_ROW_STEALING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"

#define ROW_STEALING_MIN 12 /* fewest rows worth a thread: fewer make poor use of the weights that it reads */

/* Rows [first, first + count) that have passed `halves` halves of blocks: one half up to the mixer's end, one from
 * there. */
struct row_range {
    size_t first, count;
    uint32_t halves;
};

struct row_stealing {
    atomic_uint wanted; /* threads that wait and were offered nothing yet; written under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t left;      /* rows that have not passed all blocks */
    uint32_t offered; /* never more than there are waiting threads */
    struct row_range offers[ENGINE_THREADS_MAX];
};

void row_stealing_open(struct row_stealing *s);
void row_stealing_close(struct row_stealing *s);

/* Called by one thread, before the team has its first rows of a pass. */
void row_stealing_begin(struct row_stealing *s, size_t rows);
/* Between two halves of blocks: give half of *r to a thread that waits, if one does. */
void row_stealing_offer(struct row_stealing *s, struct row_range *r);
/* `count` rows have passed all blocks. Waits for more, *r; returns false when all rows of the pass have. */
bool row_stealing_next(struct row_stealing *s, size_t count, struct row_range *r);

#endif
