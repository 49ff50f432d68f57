/* failing_calls.h - what failing_calls.c, in the daemon, and the test that preloads it share: a file that both have
 * mapped. */
#ifndef TESTS_PRELOAD_FAILING_CALLS_H
#define TESTS_PRELOAD_FAILING_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>

#define FAILING_CALLS_VARIABLE "FAILING_CALLS" /* of the environment: the file's path */
#define FAILING_PTHREAD_CREATE 1023            /* its number here; the others have the kernel's */
#define FAILING_CALLS 1024
#define FAILING_SHORT (-1) /* instead of an error: one byte is read or written, and no more */

struct failing_calls {
    char thread[16];    /* the name of the threads whose calls fail; "": of all. Set before `until`, as what follows */
    atomic_int call;    /* which one */
    atomic_int error;   /* what it fails with, or FAILING_SHORT */
    atomic_bool lasts;  /* those that come after it fail too */
    atomic_long until;  /* the so-manyth from now fails; 0: none */
    atomic_long failed; /* how many have */
    atomic_long made[FAILING_CALLS]; /* how often each was made by those threads */
};

#endif
