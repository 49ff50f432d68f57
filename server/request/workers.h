/* workers.h - pools of threads for what is done for a job beside the engine and takes more than a moment: pictures are
 * decoded and fitted before it, drawn and encoded after it, so that neither the threads that serve connections nor the
 * engine's do that; and sessions are read and written where they are kept, in a pool of its own.
 *
 *     workers_submit -> waits -> preprocess -> engine's queue -> engine -> job_finish -> waits -> postprocess -> done
 *
 * What is quickly done is preprocessed at once by the thread that submits. All memory for pixels comes out of one
 * budget, pictures_memory_max_mb. A worker begins to preprocess a job only when there is room in it and when the engine
 * will soon want the job: while no more than three batches of its model are ready. So what waits before that holds its
 * file and no pixels. What is to be postprocessed comes first, because it gives memory back.
 *
 * Jobs wait in queues of their own, as many as may wait for the engine, in a lane for each model; lanes take turns. In
 * a lane those clients come first that have fewest threads at work, then those whose turn it is (queue.h), by how long
 * their jobs take. Where there are several threads, no client has all of them: however long what one sends may take,
 * another's next job finds a thread. */
#ifndef SERVER_REQUEST_WORKERS_H
#define SERVER_REQUEST_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "server/core/metrics.h"
#include "server/request/job.h"

struct mailboxes;
struct settings;
struct workers;

/* What takes no longer than this is done by the thread that has it: handing it over would take as long. */
#define WORKERS_AT_ONCE_NS UINT64_C(1000000)

/* What the threads of a pool are for. */
struct workers_purpose {
    uint32_t threads;
    uint32_t postprocess_max;          /* jobs that may wait to be postprocessed: as many as the engine may end */
    const char *name, *work, *setting; /* of the threads; what they do; what says how many there are, for messages */
    int nice;                          /* added to the process's: above 0 is below the threads that stream and answer */
    enum metric preprocess, postprocess; /* histograms of how long that takes */
};

/* Start the threads. `s` and `mailboxes`, which are notified of jobs that end, are borrowed until workers_free. *ret is
 * set only on OK. Errors: ERR_NOMEM: memory, or a thread, cannot be had. */
enum status workers_start(struct workers **ret, const struct workers_purpose *p, const struct settings *s,
                          struct mailboxes *mailboxes, struct error *err);
/* Refuse new jobs, and end all that wait, now or later, with ERR_UNAVAILABLE. Any thread. */
void workers_cancel(struct workers *w);
/* The same, and join the threads: no job is with them any more, nor will be. NULL is a no-op. */
void workers_stop(struct workers *w);
/* After workers_stop, when all jobs are freed. NULL is a no-op. */
void workers_free(struct workers *w);

/* Of pictures: whatever was preprocessed ahead may come to be postprocessed, as nothing else is preprocessed that will
 * be. */
uint32_t workers_ahead(const struct settings *s);

/* Submit a job that has work to do, in place of job_submit: preprocess it, then put it into that lane of the engine's
 * queue; with `engine` NULL, postprocess it, and that is all. HTTP threads. Errors: ERR_FULL, ERR_UNAVAILABLE (closed);
 * and with *err set ERR_PICTURE (more memory than the budget has at all), and what `preprocess` says if it ran at once:
 * the job is the caller's alone. */
enum status workers_submit(struct workers *w, struct job *j, struct queue *engine, uint32_t lane, uint64_t deadline_ns,
                           struct error *err);
/* Of a job that is done: postprocess it, if that was left because it takes no time. HTTP threads. Errors: as
 * `postprocess`. */
enum status workers_postprocess(struct job *j, struct error *err);
/* What the job kept is freed. Any thread; a job without work is fine. */
void workers_give_back(struct job *j);

/* Jobs that no thread has taken up yet, for tests to wait for. Any thread. */
uint32_t workers_waiting(struct workers *w);
/* Bring the gauges of pictures up to date, for the pool that works for these. Any thread. */
void workers_measure(struct workers *w);

/* Of a job that needs no engine: workers postprocess it. */
extern const struct job_kind job_kind_work;

#endif
