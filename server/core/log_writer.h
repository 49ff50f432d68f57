/* log_writer.h - takes whole lines to standard error without ever holding up those who log.
 *
 * Before log_writer_start, and in programs that do not call it, a line is written at once, by its caller. Afterwards a
 * thread writes, and lines wait for it in a ring of LOG_RING_BYTES. The older half of them, where a new one needs room,
 * and those that standard error does not take, are dropped, counted in aftd_log_lines_dropped_total, and told by a
 * warning at the very place in the log where they are missing.
 *
 * A process that ends otherwise than through log_writer_stop (a signal, a failed assertion, abort) loses what the
 * thread has not written yet: with a reader that keeps up, the lines of the last moment. What libraries and assertions
 * write to standard error themselves does not go through here: it is not held back, and waits for a reader. */
#ifndef SERVER_CORE_LOG_WRITER_H
#define SERVER_CORE_LOG_WRITER_H

#include <stddef.h>

#include "config/limits.h"
#include "config/status.h"

/* `line` ends in a newline, its only one; 0 < size <= LOG_LINE_MAX. Any thread, under any lock. errno is kept. */
void log_writer_put(const char *line, size_t size);

/* Start the thread, after metrics_init. Main thread, with the signals blocked that it shall not get. Descriptors 0 to 2
 * that are closed are occupied, so that no file or socket opened later becomes standard error. Errors: ERR_NOMEM. */
enum status log_writer_start(struct error *err);
/* Write what is left, for at most LOG_STOP_MS; then lines are written at once again, or dropped if standard error takes
 * nothing. Without a thread a no-op. */
void log_writer_stop(void);

#endif
