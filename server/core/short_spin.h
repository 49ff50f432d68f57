/* short_spin.h - how long OpenMP's threads wait for each other before they sleep. Called first thing in main, by both
 * programs. */
#ifndef SERVER_CORE_SHORT_SPIN_H
#define SERVER_CORE_SHORT_SPIN_H

/* By default libgomp's threads spin for milliseconds at a barrier. Alone on the machine that is fast; beside any other
 * busy process, one that waits takes the processor from the one it waits for, and a step takes a hundred times as long.
 * A short spin costs next to nothing when alone and a fraction of that otherwise.
 *
 * libgomp reads the number from the environment before main runs, so this sets GOMP_SPINCOUNT and executes the program
 * again, in the same process and with the same arguments. It returns if that has already been done, if the user has set
 * GOMP_SPINCOUNT or OMP_WAIT_POLICY, or if it is not possible. */
void short_spin_reexec(char *const argv[]);

#endif
