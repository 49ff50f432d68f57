/* scarcity.h - a daemon under test that is refused the allocation that the test chooses (tests/preload). One thread. A
 * failing step ends the test. */
#ifndef TESTS_SUPPORT_SCARCITY_H
#define TESTS_SUPPORT_SCARCITY_H

#include "tests/preload/scarce_memory.h"

/* The threads of that name ("http", "loader"; the main one is "aftd") of a daemon that is started between
 * scarcity_enter and scarcity_leave will be short of memory. The file that it shares with the test is in FOLDER. Skips
 * the running test, saying why, with sanitizers. Valid until scarcity_end. */
struct scarce_memory *scarcity_begin(const char *folder, const char *thread);
void scarcity_enter(void);
void scarcity_leave(void);
void scarcity_end(struct scarce_memory *s); /* leaves; NULL is fine */

/* Wait until no more than `most` allocations are left: the last of a request's are freed a moment after its answer. */
void scarcity_await(const struct scarce_memory *s, long most, const char *after);

#endif
