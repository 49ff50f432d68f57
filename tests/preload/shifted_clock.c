/* shifted_clock.c - for LD_PRELOAD: the time of day, as a whole process sees it, is shifted by as many seconds as the
 * first eight bytes of the file in $SHIFTED_CLOCK say, which a test may change at any time. Other clocks stay as they
 * are, and so do waits for a time of day within the kernel. Any thread. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_s;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SHIFTED_CLOCK");
    const int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *file = mmap(NULL, sizeof *shift_s, PROT_READ, MAP_SHARED, fd, 0);
    if (file != MAP_FAILED)
        shift_s = file;
    (void)close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int code = (int)syscall(SYS_clock_gettime, clock, t);
    if (code == 0 && shift_s != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        t->tv_sec += *shift_s;
    return code;
}

time_t time(time_t *ret)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (ret != NULL)
        *ret = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}
