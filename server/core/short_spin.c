/* short_spin.c - see short_spin.h. */
#include "server/core/short_spin.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* Iterations of libgomp's spin loop, some tens of microseconds. Of 100, 300, 1,000 and 300,000, this one was as fast as
 * the longest on an idle machine, and the fastest overall through HTTP on two cores. */
#define SPINS "1000"

void short_spin_reexec(char *const argv[])
{
    char self[PATH_MAX];
    if (getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL)
        return;
    /* The file's own name rather than /proc/self/exe, which ps and pgrep would show. */
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || setenv("GOMP_SPINCOUNT", SPINS, 1) != 0)
        return;
    self[length] = '\0';
    (void)execv(self, argv);
}
