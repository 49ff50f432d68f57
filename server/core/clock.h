/* clock.h - the clock of the server: monotonic, in nanoseconds, so that deadlines, timings and metrics agree and a
 * change of the wall clock moves none of them. Any thread; no state. */
#ifndef SERVER_CORE_CLOCK_H
#define SERVER_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_US UINT64_C(1000)
#define CLOCK_NS_PER_MS UINT64_C(1000000)
#define CLOCK_NS_PER_S UINT64_C(1000000000)

static inline uint64_t clock_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
    return (uint64_t)t.tv_sec * CLOCK_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The wall clock, for people and for other programs: Unix time. */
static inline uint64_t clock_unix_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec > 0 ? (uint64_t)t.tv_sec * CLOCK_NS_PER_S + (uint64_t)t.tv_nsec : 0;
}

/* A time of clock_now_ns as the kernel and pthread_cond_clockwait take it. */
static inline struct timespec clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / CLOCK_NS_PER_S), .tv_nsec = (long)(ns % CLOCK_NS_PER_S)};
}

/* Milliseconds from `from_ns` to `to_ns`, 0 if either did not happen or they are in the other order. */
static inline double clock_ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns <= from_ns ? 0.0 : (double)(to_ns - from_ns) / (double)CLOCK_NS_PER_MS;
}

#endif
