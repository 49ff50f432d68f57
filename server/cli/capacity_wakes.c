/* capacity_wakes.c - what it takes to wake a thread here. A core that is idle is halted, and on a virtual machine it is
 * its host that has to be asked, which takes some ten microseconds of who wakes, and as much again until the other one
 * works: a good part of what a byte costs where each one is told at once. Single threaded but for the one it wakes. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/capacity.h"

#define ROUNDS 401
#define PAUSE_NS 1000000 /* until the other one sleeps, and its core */

struct sleeper {
    int fd;
    cpu_set_t all;
    _Atomic double woken_s; /* 0: not yet; < 0: it cannot be */
};

/* The calling thread, on one of the two first processors of `all`: those that share one wake each other in no time. On
 * a machine of one processor that is how it is. */
static void settle_on(const cpu_set_t *all, int which)
{
    cpu_set_t one;
    size_t cpu = 0;
    if (CPU_COUNT(all) < 2)
        return;
    while (!CPU_ISSET(cpu, all) || which-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void *sleep_until_woken(void *arg)
{
    struct sleeper *s = arg;
    uint64_t count;
    settle_on(&s->all, 1);
    for (int i = 0; i < ROUNDS; i++) {
        ssize_t size;
        do
            size = read(s->fd, &count, sizeof count);
        while (size < 0 && errno == EINTR);
        atomic_store(&s->woken_s, size > 0 ? cli_now() : -1.0);
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Not the mean: what stands still for milliseconds is seen by itself (costs.slowness). */
static double median(double times[ROUNDS])
{
    qsort(times, ROUNDS, sizeof *times, compare);
    return times[ROUNDS / 2];
}

static bool wake_again_and_again(struct sleeper *s, double waker[ROUNDS], double wake[ROUNDS])
{
    const uint64_t one = 1;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (int i = 0; i < ROUNDS; i++) {
        (void)nanosleep(&pause, NULL);
        atomic_store(&s->woken_s, 0.0);
        const double begun = cli_now();
        if (write(s->fd, &one, sizeof one) < 0)
            return false;
        waker[i] = cli_now() - begun;
        while (atomic_load(&s->woken_s) == 0.0) /* on one core it needs this thread to sleep */
            (void)nanosleep(&pause, NULL);
        if (atomic_load(&s->woken_s) < 0.0)
            return false;
        wake[i] = fmax(0.0, atomic_load(&s->woken_s) - begun - waker[i]);
    }
    return true;
}

static int measure(struct capacity_costs *c, struct sleeper *s)
{
    double waker[ROUNDS], wake[ROUNDS];
    pthread_t thread;
    const int error = pthread_create(&thread, NULL, sleep_until_woken, s);
    if (error != 0)
        return cli_fail("cannot start a thread: %s", strerror(error));
    const bool is_fine = wake_again_and_again(s, waker, wake);
    if (!is_fine)
        (void)pthread_cancel(thread); /* which may wait for what is not written */
    (void)pthread_join(thread, NULL);
    if (!is_fine)
        return cli_fail("cannot wake a thread by an eventfd");
    c->waker_s = median(waker);
    c->wake_s = median(wake);
    return CLI_OK;
}

int capacity_measure_wakes(struct capacity_costs *c)
{
    struct sleeper s = {.fd = eventfd(0, EFD_CLOEXEC)};
    if (s.fd < 0)
        return cli_fail("cannot make an eventfd: %s", strerror(errno));
    CPU_ZERO(&s.all);
    (void)sched_getaffinity(0, sizeof s.all, &s.all);
    settle_on(&s.all, 0);
    const int code = measure(c, &s);
    (void)sched_setaffinity(0, sizeof s.all, &s.all);
    (void)close(s.fd);
    return code;
}
