/* service_manager.c - see service_manager.h. `manager` is constant once service_manager_take is done; a message is one
 * datagram, so those of several threads do not mix. */
#include "server/core/service_manager.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/digits.h"
#include "server/core/clock.h"
#include "server/core/log.h"

enum {
    FIRST_FD = 3,    /* of those that are passed */
    READY_MAX_S = 5, /* for a manager that does not read at the moment to take the one message that must arrive */
    MESSAGE_MAX = 512,
};

static struct {
    int fd; /* -1: nobody listens */
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t watchdog_ns;
} manager = {.fd = -1};

/* ---- the environment ------------------------------------------------------------------------------------------- */

/* A whole number above 0 and at most `max`; 0: it is none. */
static uint64_t read_number(const char *text, uint64_t max)
{
    uint64_t value = 0;
    return text != NULL && digits_read(&value, &text) && *text == '\0' && value <= max ? value : 0;
}

static bool is_this_process(const char *text)
{
    return read_number(text, INT32_MAX) == (uint64_t)getpid();
}

/* A path, or after @ a name in the abstract namespace. */
static void take_notify_socket(void)
{
    const char *name = getenv("NOTIFY_SOCKET");
    const struct timeval limit = {.tv_sec = READY_MAX_S};
    if (name == NULL)
        return;
    const size_t size = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || size < 2 || size >= sizeof manager.address.sun_path) {
        log_warning("NOTIFY_SOCKET is ignored: expected an absolute path, or @ and a name, of at most %zu bytes",
                    sizeof manager.address.sun_path - 1);
        return;
    }
    manager.address.sun_family = AF_UNIX;
    memcpy(manager.address.sun_path, name, size);
    if (name[0] == '@')
        manager.address.sun_path[0] = '\0';
    /* An abstract name has no end but that of the address. */
    manager.address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (name[0] == '/'));
    manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (manager.fd < 0)
        log_warning("the service manager cannot be told anything: %s", strerror(errno));
    else
        (void)setsockopt(manager.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void take_watchdog(void)
{
    const char *pid = getenv("WATCHDOG_PID");
    const uint64_t usec = read_number(getenv("WATCHDOG_USEC"), UINT64_MAX / CLOCK_NS_PER_US);
    manager.watchdog_ns = pid == NULL || is_this_process(pid) ? usec * CLOCK_NS_PER_US : 0;
}

/* `names` are separated by colons; there may be none at all. */
static enum status take_sockets(struct service_sockets *s, const char *count, const char *names, struct error *err)
{
    s->count = read_number(count, LISTENERS_MAX);
    if (s->count == 0)
        return error_set_param(err, ERR_CONFIG, "LISTEN_FDS",
                               "LISTEN_FDS = \"%.80s\": expected the number of passed sockets, from 1 to %d", count,
                               LISTENERS_MAX);
    for (size_t i = 0; i < s->count; i++) {
        const int fd = s->all[i].fd = FIRST_FD + (int)i, flags = fcntl(fd, F_GETFD);
        if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0)
            return error_set_param(err, ERR_CONFIG, "LISTEN_FDS", "LISTEN_FDS = %zu, but descriptor %d is not open",
                                   s->count, fd);
        const size_t size = names != NULL ? strcspn(names, ":") : 0;
        if (size > SERVICE_SOCKET_NAME_MAX)
            return error_set_param(err, ERR_CONFIG, "LISTEN_FDNAMES",
                                   "LISTEN_FDNAMES: expected names of at most %d bytes", SERVICE_SOCKET_NAME_MAX);
        (void)snprintf(s->all[i].name, sizeof s->all[i].name, "%.*s", size > 0 ? (int)size : (int)strlen("unknown"),
                       size > 0 ? names : "unknown");
        if (names != NULL)
            names = names[size] == ':' ? names + size + 1 : NULL;
    }
    return OK;
}

enum status service_manager_take(struct service_sockets *ret, struct error *err)
{
    static const char *const ours[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                       "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES"};
    struct service_sockets s = {.count = 0};
    const char *count = getenv("LISTEN_FDS");
    enum status st = OK;
    take_notify_socket();
    take_watchdog();
    if (count != NULL && is_this_process(getenv("LISTEN_PID"))) /* else they were for one of its parents */
        st = take_sockets(&s, count, getenv("LISTEN_FDNAMES"), err);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        (void)unsetenv(ours[i]);
    if (st == OK)
        *ret = s;
    return st;
}

bool service_manager_listens(void)
{
    return manager.fd >= 0;
}

uint64_t service_manager_watchdog_ns(void)
{
    return manager.fd >= 0 ? manager.watchdog_ns : 0;
}

/* ---- messages: sd_notify(3) ------------------------------------------------------------------------------------ */

static void service_manager_tell(int flags, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `flags` are MSG_DONTWAIT for what may get lost: a manager that does not read must not stop the daemon. */
static void service_manager_tell(int flags, const char *format, ...)
{
    char message[MESSAGE_MAX];
    va_list args;
    if (manager.fd < 0)
        return;
    va_start(args, format);
    const int size = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (size > 0 && sendto(manager.fd, message, (size_t)size < sizeof message ? (size_t)size : sizeof message - 1,
                           MSG_NOSIGNAL | flags, (const struct sockaddr *)(const void *)&manager.address,
                           manager.address_bytes) < 0)
        log_debug("the service manager was not told \"%s\": %s", message, strerror(errno));
}

void service_manager_ready(void)
{
    service_manager_tell(0, "READY=1");
}

/* The time tells the manager which of its orders this answers. */
void service_manager_reloading(void)
{
    service_manager_tell(MSG_DONTWAIT, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / CLOCK_NS_PER_US);
}

void service_manager_stopping(uint64_t within_ms)
{
    service_manager_tell(MSG_DONTWAIT, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64, within_ms * 1000);
}

void service_manager_starting(uint64_t within_ms, const char *what)
{
    service_manager_tell(MSG_DONTWAIT, "STATUS=%.256s\nEXTEND_TIMEOUT_USEC=%" PRIu64, what, within_ms * 1000);
}

void service_manager_alive(void)
{
    service_manager_tell(MSG_DONTWAIT, "WATCHDOG=1");
}

void service_manager_status(const char *line)
{
    service_manager_tell(MSG_DONTWAIT, "STATUS=%s", line);
}
