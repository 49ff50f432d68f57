/* work_turns.h - which job a worker does next (workers.h): the queues that jobs wait in, whose turn it is in them, and
 * how much is ready for the engine. All is called under the pool's lock; the queues have their own, and may be used by
 * any thread. */
#ifndef SERVER_JOB_WORK_TURNS_H
#define SERVER_JOB_WORK_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/core/client_id.h"
#include "server/core/queue.h"

struct job;
struct settings;

enum { WORK_AHEAD_BATCHES = 3 }; /* one runs, one is next, one is being made */

/* Lanes of `waiting`: jobs to prepare, one lane for each of the engine's, and such as are only concluded. */
enum { WORK_LANE_DRAW = BATCHER_LANES_MAX, WORK_LANES };

/* For whom a thread is at work. */
struct work_thread {
    struct client_id client;
    bool is_busy;
};

struct work_turns {
    struct queue *waiting; /* for memory, and their turn */
    struct queue *kept;    /* back from the engine, to be concluded with what they kept */
    uint32_t ahead_max;    /* pictures of a lane that may be ready for the engine before another job is prepared */
    uint32_t each_max;     /* threads that one client may have */
    uint32_t turn;         /* the lane that is next */
    uint32_t ahead[BATCHER_LANES_MAX];
    uint32_t thread_count;
    struct work_thread threads[]; /* [thread_count] */
};

/* For a pool of that many threads, in which so many jobs may wait to be concluded. *ret is set only on OK. Errors:
 * ERR_NOMEM. */
enum status work_turns_create(struct work_turns **ret, const struct settings *s, uint32_t threads, uint32_t kept_max);
/* Of pictures: whatever was prepared ahead may come to be concluded, as nothing else is prepared that will be. */
uint32_t work_turns_ahead(const struct settings *s);
void work_turns_free(struct work_turns *t); /* NULL is a no-op; the queues must be empty */

/* Take out the job whose turn it is: of those that the engine is done with; and of all others, *lane being where it
 * was, with `all` also of such as the engine does not want soon. NULL: none may be taken now. */
struct job *work_turns_pop_kept(struct work_turns *t);
struct job *work_turns_pop(struct work_turns *t, bool all, uint32_t *lane);

#endif
