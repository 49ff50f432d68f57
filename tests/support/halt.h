/* halt.h - stops one thread of the daemon under test while the others go on, so that what waits for it is sure to wait:
 * by ptrace, as a debugger does. One thread, the test's main one. A failing step ends the test. */
#ifndef TESTS_SUPPORT_HALT_H
#define TESTS_SUPPORT_HALT_H

#include <sys/types.h>

#include "tests/support/daemon.h"

struct halt {
    pid_t thread; /* 0: none is halted */
};

/* Halt the thread of that name, the first where there are several: "engine", "loader", "watcher". Skips the running
 * test, saying why, where processes may not be traced. */
void halt_begin(struct halt *h, const struct daemon *d, const char *name);
/* Let it go on until it is about to open a file whose path ends with the given text; there it stops again. Only the
 * time limit of the test bounds the wait. Skips the running test if that cannot be observed. */
void halt_at_open(const struct halt *h, const char *path_end);
/* Let it go on. Zeroed is fine; the daemon may have ended. */
void halt_end(struct halt *h);

#endif
