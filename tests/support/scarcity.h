/* scarcity.h - a daemon under test that is refused the allocation, or the system call, that the test chooses
 * (tests/preload). One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_SCARCITY_H
#define TESTS_SUPPORT_SCARCITY_H

#include "tests/preload/failing_calls.h"
#include "tests/preload/scarce_memory.h"

/* The threads of that name ("http", "loader"; the main one is "aftd"; "": all) of a daemon that is started between
 * scarcity_enter and scarcity_leave will be short of memory. The file that it shares with the test is in FOLDER. Skips
 * the running test, saying why, with sanitizers. Valid until scarcity_end. */
struct scarce_memory *scarcity_begin(const char *folder, const char *thread);
void scarcity_enter(void);
void scarcity_leave(void);
void scarcity_end(struct scarce_memory *s); /* leaves; NULL is fine */

/* The same for system calls, of all its threads. Skips the running test, saying why, where that is not possible. Valid
 * until failing_calls_end. */
struct failing_calls *failing_calls_begin(const char *folder);
void failing_calls_enter(void);
void failing_calls_leave(void);
void failing_calls_end(struct failing_calls *f);

/* Wait until no more than `most` allocations are left: the last of a request's are freed a moment after its answer. */
void scarcity_await(const struct scarce_memory *s, long most, const char *after);

#endif
