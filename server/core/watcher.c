/* watcher.c - see watcher.h. One epoll of three kinds of descriptors: the watched sockets, a timer that is set to the
 * earliest time of the heap, and an eventfd that ends the thread.
 *
 * An event only names a descriptor's number. Between epoll_wait and the lock the watch may have been removed and the
 * number given to another socket; so, under the lock, the number is looked up and the socket is polled again.
 *
 * Invariants, under the lock: heap[1 .. count] is a binary heap by due_ns and heap[i]->heap_index == i; by_fd[fd] is
 * the list of that socket's watches, and the socket is in the epoll while it is not empty; the timer is set for
 * heap[1], or earlier. */
#include "server/core/watcher.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "server/core/clock.h"

enum {
    EVENTS_MAX = 64,        /* taken from the kernel at a time */
    ASK_AGAIN_NS = 1000000, /* what the kernel had no memory to tell */
};

struct watcher {
    pthread_t thread;
    int epoll_fd, timer_fd, stop_fd;
    pthread_mutex_t lock;
    struct watch **heap; /* [heap_size], of which [0] is not used */
    size_t count, heap_size;
    size_t watches;       /* added: the heap has room for all */
    struct watch **by_fd; /* [fds] */
    size_t fds;
    uint64_t armed_ns; /* what the timer is set to; 0: not set */
};

/* ---- the heap of times ----------------------------------------------------------------------------------------- */

static void heap_put(struct watcher *w, size_t at, struct watch *watch)
{
    w->heap[at] = watch;
    watch->heap_index = at;
}

static void heap_sift(struct watcher *w, size_t at)
{
    struct watch *moving = w->heap[at];
    for (; at > 1 && w->heap[at / 2]->due_ns > moving->due_ns; at /= 2)
        heap_put(w, at, w->heap[at / 2]);
    for (size_t child; (child = 2 * at) <= w->count; at = child) {
        if (child < w->count && w->heap[child + 1]->due_ns < w->heap[child]->due_ns)
            child++;
        if (w->heap[child]->due_ns >= moving->due_ns)
            break;
        heap_put(w, at, w->heap[child]);
    }
    heap_put(w, at, moving);
}

static void heap_remove(struct watcher *w, struct watch *watch)
{
    const size_t at = watch->heap_index;
    if (at == 0)
        return;
    struct watch *last = w->heap[w->count--];
    watch->heap_index = 0;
    if (last == watch)
        return;
    heap_put(w, at, last);
    heap_sift(w, at);
}

static void arm_timer_locked(struct watcher *w)
{
    const uint64_t due_ns = w->count > 0 ? w->heap[1]->due_ns : 0;
    if (due_ns == 0 || (w->armed_ns != 0 && w->armed_ns <= due_ns))
        return;
    const struct itimerspec at = {.it_value = clock_timespec(due_ns)};
    (void)timerfd_settime(w->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    w->armed_ns = due_ns;
}

static void set_time_locked(struct watcher *w, struct watch *watch, uint64_t due_ns)
{
    watch->due_ns = due_ns;
    if (due_ns == 0) {
        heap_remove(w, watch);
        return;
    }
    if (watch->heap_index == 0)
        heap_put(w, ++w->count, watch); /* watcher_add has made room for every watch */
    heap_sift(w, watch->heap_index);
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

/* Arm or re-arm: an event comes once, and again at once after re-arming if its cause is still there. */
static bool listen_to_client(struct watcher *w, int operation, int fd)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data = {.fd = fd}};
    return epoll_ctl(w->epoll_fd, operation, fd, &event) == 0;
}

/* False: the kernel had no memory to tell whether the client has left. It is asked again with the next event, which
 * comes at once. */
static bool handle_socket(struct watcher *w, int fd, uint64_t now_ns)
{
    struct pollfd now = {.fd = fd, .events = POLLRDHUP};
    if ((size_t)fd >= w->fds || w->by_fd[fd] == NULL)
        return true;
    const int told = poll(&now, 1, 0);
    if (told != 1 || (now.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) {
        (void)listen_to_client(w, EPOLL_CTL_MOD, fd);
        return told >= 0;
    }
    for (struct watch *watch = w->by_fd[fd]; watch != NULL; watch = watch->next) {
        if (watch->is_notified)
            continue;
        watch->is_notified = true;
        set_time_locked(w, watch, watch->notify(watch->arg, WATCH_CLIENT_LEFT, now_ns));
    }
    return true;
}

static void handle_timer(struct watcher *w, uint64_t now_ns)
{
    uint64_t expirations;
    (void)!read(w->timer_fd, &expirations, sizeof expirations);
    w->armed_ns = 0;
    while (w->count > 0 && w->heap[1]->due_ns <= now_ns) {
        struct watch *watch = w->heap[1];
        const uint64_t next_ns = watch->notify(watch->arg, WATCH_TIME, now_ns);
        set_time_locked(w, watch, next_ns != 0 && next_ns <= now_ns ? now_ns + 1 : next_ns);
    }
}

static void *watcher_thread(void *arg)
{
    struct watcher *w = arg;
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        const int n = epoll_wait(w->epoll_fd, events, EVENTS_MAX, -1);
        if (n < 0 && errno != EINTR)
            return NULL; /* cannot happen with descriptors that are ours */
        const uint64_t now_ns = clock_now_ns();
        bool stop = false, told = true;
        (void)pthread_mutex_lock(&w->lock);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == w->stop_fd)
                stop = true;
            else if (events[i].data.fd == w->timer_fd)
                handle_timer(w, now_ns);
            else if (!handle_socket(w, events[i].data.fd, now_ns))
                told = false;
        }
        arm_timer_locked(w);
        (void)pthread_mutex_unlock(&w->lock);
        if (stop)
            return NULL;
        if (!told)
            (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(const struct timespec){.tv_nsec = ASK_AGAIN_NS}, NULL);
    }
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

static void free_parts(struct watcher *w)
{
    const int fds[] = {w->epoll_fd, w->timer_fd, w->stop_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    (void)pthread_mutex_destroy(&w->lock);
    free((void *)w->heap);
    free((void *)w->by_fd);
    free(w);
}

static bool listen_to(struct watcher *w, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    return fd >= 0 && epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

enum status watcher_start(struct watcher **ret, struct error *err)
{
    struct watcher *w = calloc(1, sizeof *w);
    if (w == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the watcher");
    (void)pthread_mutex_init(&w->lock, NULL);
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    w->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!listen_to(w, w->timer_fd) || !listen_to(w, w->stop_fd) ||
        pthread_create(&w->thread, NULL, watcher_thread, w) != 0) {
        free_parts(w);
        return error_set(err, ERR_IO, "out of memory or file descriptors for the watcher or its thread");
    }
    (void)pthread_setname_np(w->thread, "watcher");
    *ret = w;
    return OK;
}

void watcher_free(struct watcher *w)
{
    if (w == NULL)
        return;
    const uint64_t one = 1;
    (void)!write(w->stop_fd, &one, sizeof one);
    (void)pthread_join(w->thread, NULL);
    assert(w->watches == 0);
    free_parts(w);
}

/* ---- watches --------------------------------------------------------------------------------------------------- */

/* Make room for one more. Every watch has a place reserved in the heap, whether it has a time or not. */
static bool grow(struct watch ***array, size_t *size, size_t needed)
{
    if (needed <= *size)
        return true;
    const size_t larger = needed < 64 ? 64 : 2 * needed;
    struct watch **grown = (struct watch **)realloc((void *)*array, larger * sizeof(struct watch *));
    if (grown == NULL)
        return false;
    memset((void *)(grown + *size), 0, (larger - *size) * sizeof(struct watch *));
    *array = grown;
    *size = larger;
    return true;
}

static bool follow_locked(struct watcher *w, struct watch *watch)
{
    if (watch->fd < 0)
        return true;
    if (!grow(&w->by_fd, &w->fds, (size_t)watch->fd + 1))
        return false;
    struct watch **list = &w->by_fd[watch->fd];
    if (!listen_to_client(w, *list == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, watch->fd))
        return false;
    watch->next = *list;
    *list = watch;
    return true;
}

static void unfollow_locked(struct watcher *w, const struct watch *watch)
{
    if (watch->fd < 0)
        return;
    struct watch **at = &w->by_fd[watch->fd];
    while (*at != watch)
        at = &(*at)->next;
    *at = watch->next;
    if (w->by_fd[watch->fd] == NULL)
        (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

enum status watcher_add(struct watcher *w, struct watch *watch)
{
    enum status st = OK;
    (void)pthread_mutex_lock(&w->lock);
    watch->heap_index = 0;
    watch->is_notified = false;
    if (!grow(&w->heap, &w->heap_size, w->watches + 2) || !follow_locked(w, watch)) {
        st = ERR_NOMEM;
    } else {
        w->watches++;
        watch->is_added = true;
        set_time_locked(w, watch, watch->due_ns);
        arm_timer_locked(w);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return st;
}

void watcher_set_time(struct watcher *w, struct watch *watch, uint64_t due_ns)
{
    (void)pthread_mutex_lock(&w->lock);
    set_time_locked(w, watch, due_ns);
    arm_timer_locked(w);
    (void)pthread_mutex_unlock(&w->lock);
}

void watcher_remove(struct watcher *w, struct watch *watch)
{
    if (!watch->is_added)
        return;
    (void)pthread_mutex_lock(&w->lock);
    heap_remove(w, watch);
    unfollow_locked(w, watch);
    w->watches--;
    watch->is_added = false;
    (void)pthread_mutex_unlock(&w->lock);
}
