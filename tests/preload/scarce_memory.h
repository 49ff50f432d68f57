/* scarce_memory.h - what scarce_memory.c, in the daemon, and the test that preloads it share: a file that both have
 * mapped. */
#ifndef TESTS_PRELOAD_SCARCE_MEMORY_H
#define TESTS_PRELOAD_SCARCE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>

#define SCARCE_MEMORY_VARIABLE "SCARCE_MEMORY" /* of the environment: the file's path */

struct scarce_memory {
    char thread[16];     /* the name of the threads that are short of memory, "": all; set before `until` */
    atomic_bool lasts;   /* what comes after that allocation fails too */
    atomic_long until;   /* their so-manyth allocation from now fails; 0: none. Lasting, it stays at 1 */
    atomic_long refused; /* how many have failed */
    atomic_long live;    /* allocations that are not freed, of all threads */
};

#endif
