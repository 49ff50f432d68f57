/* scarce_memory.h - what scarce_memory.c, in the daemon, and the test that preloads it share: a file that both have
 * mapped. */
#ifndef TESTS_PRELOAD_SCARCE_MEMORY_H
#define TESTS_PRELOAD_SCARCE_MEMORY_H

#include <stdatomic.h>

#define SCARCE_MEMORY_VARIABLE "SCARCE_MEMORY" /* of the environment: the file's path */

struct scarce_memory {
    char thread[16];   /* the name of the threads that are short of memory; set before `until` */
    atomic_long until; /* their so-manyth allocation from now fails, and no other; 0 and less: none */
    atomic_long live;  /* allocations that are not freed, of all threads */
};

#endif
