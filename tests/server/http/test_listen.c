/* test_listen.c - one listening socket: which addresses there are, what its connections get, whose file a Unix socket's
 * is, and what is said where it cannot be had. */
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define SETTING "listen_address"
#define UNIX_SETTING "listen_unix"

static char dir[PATH_MAX], path[PATH_MAX], before[PATH_MAX];

/* In the folder: so that a path's length does not depend on where temporary folders are. */
static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(dir), 0);
    (void)snprintf(path, sizeof path, "socket");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(chdir(before), 0);
    temp_dir_remove(dir);
    return 0;
}

/* Take an address and listen on it. */
static enum status begin(int *ret, uint16_t *bound, const char *address, uint16_t port, bool only_v6,
                         const char *setting, struct error *err)
{
    int fd;
    const enum status st = listen_open(&fd, bound, address, port, only_v6, setting, err);
    if (st != OK)
        return st;
    assert_int_equal(listen_begin(fd, address, err), OK);
    *ret = fd;
    return OK;
}

/* As a machine without IPv6 has none. */
static bool has_v6(void)
{
    int fd;
    uint16_t port;
    struct error err;
    if (begin(&fd, &port, "::1", 0, false, SETTING, &err) == OK) {
        (void)close(fd);
        return true;
    }
    print_message("skipped: there is no IPv6 here (%s)\n", err.message);
    return false;
}

static bool connects(const char *address, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const bool is_v6 = inet_pton(AF_INET6, address, &v6.sin6_addr) == 1;
    assert_true(is_v6 || inet_pton(AF_INET, address, &v4.sin_addr) == 1);
    const int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const bool there =
        (is_v6 ? connect(fd, (struct sockaddr *)&v6, sizeof v6) : connect(fd, (struct sockaddr *)&v4, sizeof v4)) == 0;
    (void)close(fd);
    return there;
}

static bool connects_to_unix(const char *file)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%s", file);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const bool there = connect(fd, (struct sockaddr *)&name, sizeof name) == 0;
    (void)close(fd);
    return there;
}

static int open_unix(struct stat *id, mode_t mode)
{
    int fd = -1;
    struct error err;
    if (listen_open_unix(&fd, id, path, mode, UNIX_SETTING, &err) != OK || listen_begin(fd, path, &err) != OK)
        fail_msg("%s", err.message);
    return fd;
}

static void expect_unix_refusal(const char *file, enum status want, const char *says)
{
    int fd = -1;
    struct stat id;
    struct error err = {.message = ""};
    const enum status st = listen_open_unix(&fd, &id, file, 0600, UNIX_SETTING, &err);
    if (st != want || strcmp(err.message, says) != 0 || strcmp(err.param, UNIX_SETTING) != 0)
        fail_msg("%s \"%s\" of \"%s\", expected \"%s\"", status_name(st), err.message, err.param, says);
    assert_int_equal(fd, -1);
}

static int send_buffer_of(int fd)
{
    int bytes = 0;
    socklen_t size = sizeof bytes;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
    return bytes;
}

static mode_t mode_of(const char *file)
{
    struct stat there;
    assert_int_equal(lstat(file, &there), 0);
    return there.st_mode & 07777;
}

/* ---- TCP -------------------------------------------------------------------------------------------------------- */

/* A loopback address of this process: on 127.0.0.2 another test may have the port that is free on 127.0.0.1. */
static const char *own_address(void)
{
    static char text[sizeof "127.1.255.255"];
    (void)snprintf(text, sizeof text, "127.1.%u.%u", (unsigned)getpid() >> 8 & 255, (unsigned)getpid() & 255);
    return text;
}

static void the_kernel_chooses_for_port_0(void **state)
{
    int a, b;
    uint16_t port_a = 0, port_b = 0;
    (void)state;
    assert_int_equal(begin(&a, &port_a, "127.0.0.1", 0, false, SETTING, NULL), OK);
    assert_int_equal(begin(&b, &port_b, "127.0.0.1", 0, false, SETTING, NULL), OK);
    assert_true(port_a != 0 && port_b != 0 && port_a != port_b);
    assert_true(connects("127.0.0.1", port_a));
    assert_true(connects("127.0.0.1", port_b));
    assert_false(connects(own_address(), port_a)); /* that address alone */
    assert_true((fcntl(a, F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(a, F_GETFD) & FD_CLOEXEC) != 0);
    (void)close(a);
    assert_false(connects("127.0.0.1", port_a));
    (void)close(b);
}

/* As a daemon that is started again, whose connections of before the kernel still remembers. */
static void a_port_is_free_at_once(void **state)
{
    int fd;
    uint16_t port, same = 0;
    struct error err;
    (void)state;
    assert_int_equal(begin(&fd, &port, "127.0.0.1", 0, false, SETTING, NULL), OK);
    assert_true(connects("127.0.0.1", port));
    const int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    (void)close(fd);
    if (begin(&fd, &same, "127.0.0.1", port, false, SETTING, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(same, port);
    (void)close(fd);
    (void)close(accepted);
}

/* The kernel reports twice what it was asked for: so much for what it keeps beside. */
static void connections_hold_little_unread(void **state)
{
    int fd;
    uint16_t port;
    (void)state;
    assert_int_equal(begin(&fd, &port, "127.0.0.1", 0, false, SETTING, NULL), OK);
    assert_true(connects("127.0.0.1", port));
    const int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    assert_int_equal(send_buffer_of(accepted), 2 * HTTP_SEND_BYTES_MAX);
    (void)close(accepted);
    (void)close(fd);
}

static void a_port_is_taken_once(void **state)
{
    int fd, other = -1;
    uint16_t port, bound = 77;
    struct error err;
    char want[128];
    (void)state;
    assert_int_equal(begin(&fd, &port, "127.0.0.1", 0, false, SETTING, NULL), OK);
    (void)snprintf(want, sizeof want, "cannot listen on 127.0.0.1 port %u: Address already in use; `ss -ltnp`", port);
    assert_int_equal(begin(&other, &bound, "127.0.0.1", port, false, SETTING, &err), ERR_IO);
    assert_ptr_equal(strstr(err.message, want), err.message);
    assert_non_null(strstr(err.message, "-port chooses another"));
    assert_string_equal(err.param, SETTING);
    assert_true(other == -1 && bound == 77);
    assert_int_equal(begin(&other, &bound, own_address(), port, false, SETTING, NULL), OK);
    (void)close(other);
    (void)close(fd);
}

/* What is taken is not served yet: clients are refused rather than left waiting. */
static void nobody_connects_before_it_begins(void **state)
{
    int fd;
    uint16_t port;
    struct stat id;
    (void)state;
    assert_int_equal(listen_open(&fd, &port, "127.0.0.1", 0, false, SETTING, NULL), OK);
    assert_false(connects("127.0.0.1", port));
    assert_int_equal(listen_begin(fd, "here", NULL), OK);
    assert_true(connects("127.0.0.1", port));
    (void)close(fd);
    assert_int_equal(listen_open_unix(&fd, &id, path, 0600, UNIX_SETTING, NULL), OK);
    assert_false(connects_to_unix(path));
    assert_int_equal(listen_begin(fd, path, NULL), OK);
    assert_true(connects_to_unix(path));
    listen_remove_unix(path, &id);
    (void)close(fd);
}

static void an_address_of_another_machine_is_refused(void **state)
{
    int fd = -1;
    uint16_t port;
    struct error err;
    (void)state;
    assert_int_equal(begin(&fd, &port, "192.0.2.1", 8080, false, SETTING, &err), ERR_IO);
    assert_string_equal(err.message, "cannot listen on 192.0.2.1 port 8080: Cannot assign requested address");
    assert_int_equal(fd, -1);
}

static void what_is_no_numeric_address_is_said(void **state)
{
    static const char *const cases[] = {
        "",    "localhost", "127.0.0.1:80", "127.0.0.1 ",     "256.0.0.1", "1.2.3.4.5",
        "::g", "[::1]",     "1:2:3:4:5:6",  "127.0.0.1, ::1", "/tmp/x",    "off",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = -1;
        uint16_t port;
        struct error err = {.message = ""};
        char want[256];
        (void)snprintf(want, sizeof want, SETTING ": \"%s\": expected a numeric IPv4 or IPv6 address, or localhost (",
                       cases[i]);
        const enum status st = listen_open(&fd, &port, cases[i], 0, false, SETTING, &err);
        if (st != ERR_CONFIG || strncmp(err.message, want, strlen(want)) != 0 || strcmp(err.param, SETTING) != 0)
            fail_msg("%s: %s %s", cases[i], status_name(st), err.message);
        assert_int_equal(fd, -1);
    }
}

static void ipv6_leaves_the_port_of_ipv4_free_where_that_is_asked(void **state)
{
    int six, four = -1;
    uint16_t port, same = 0;
    (void)state;
    if (!has_v6())
        return;
    /* The system chooses a port that is free for IPv6; another program may have it for IPv4. */
    for (int tries = 0; four < 0 && tries < 20; tries++) {
        assert_int_equal(begin(&six, &port, "::", 0, true, SETTING, NULL), OK);
        assert_true(connects("::1", port));
        if (begin(&four, &same, "0.0.0.0", port, true, SETTING, NULL) != OK)
            (void)close(six);
    }
    assert_true(four >= 0);
    assert_int_equal(same, port);
    assert_true(connects("127.0.0.1", port));
    (void)close(four);
    (void)close(six);
}

/* ---- Unix sockets ----------------------------------------------------------------------------------------------- */

static void a_unix_socket_has_the_mode_asked_for_whatever_the_umask(void **state)
{
    static const mode_t modes[] = {0600, 0660, 0666, 0777, 0};
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(modes); i++) {
        struct stat id;
        const mode_t mode = modes[i / 2], mask = umask(i % 2 == 0 ? 0 : 0777);
        const int fd = open_unix(&id, mode);
        (void)umask(mask);
        assert_int_equal(mode_of(path), mode);
        assert_true(S_ISSOCK(id.st_mode));
        assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
        assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        listen_remove_unix(path, &id);
        assert_int_not_equal(access(path, F_OK), 0);
        (void)close(fd);
    }
}

static void its_connections_hold_little_unread_as_well(void **state)
{
    struct stat id;
    (void)state;
    const int fd = open_unix(&id, 0600);
    assert_true(connects_to_unix(path));
    const int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    listen_bound_sending(accepted);
    assert_int_equal(send_buffer_of(accepted), 2 * HTTP_SEND_BYTES_MAX);
    (void)close(accepted);
    (void)close(fd);
}

static void a_socket_is_replaced_once_nobody_listens(void **state)
{
    struct stat id;
    (void)state;
    const int fd = open_unix(&id, 0600);
    expect_unix_refusal(path, ERR_IO, "cannot listen on socket: another process does");
    assert_true(connects_to_unix(path));
    (void)close(fd); /* as a daemon that was killed leaves it */
    assert_int_equal(access(path, F_OK), 0);
    assert_false(connects_to_unix(path));
    const int next = open_unix(&id, 0600);
    assert_true(connects_to_unix(path));
    (void)close(next);
}

/* A daemon whose clients wait to be accepted refuses others: it is there nevertheless. */
static void a_busy_socket_is_not_replaced(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int clients[8], count = 0;
    (void)state;
    assert_true(strlen(path) < sizeof name.sun_path);
    memcpy(name.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(fd, 0), 0);
    do {
        assert_true(count < (int)ARRAY_LEN(clients));
        clients[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    } while (connect(clients[count++], (struct sockaddr *)&name, sizeof name) == 0);
    assert_int_equal(errno, EAGAIN);
    expect_unix_refusal(path, ERR_IO, "cannot listen on socket: another process does");
    assert_int_equal(access(path, F_OK), 0);
    while (count > 0)
        (void)close(clients[--count]);
    (void)close(fd);
}

static void nothing_else_is_replaced(void **state)
{
    size_t size;
    (void)state;
    temp_write("file", "precious", strlen("precious"));
    expect_unix_refusal("file", ERR_IO, UNIX_SETTING ": file exists and is not a socket");
    char *text = temp_read("file", &size);
    assert_string_equal(text, "precious");
    free(text);
    assert_int_equal(mkdir("folder", 0700), 0);
    expect_unix_refusal("folder", ERR_IO, UNIX_SETTING ": folder exists and is not a socket");
    assert_int_equal(symlink("nowhere", "link"), 0); /* and none is followed */
    expect_unix_refusal("link", ERR_IO, UNIX_SETTING ": link exists and is not a socket");
    expect_unix_refusal("no/such/folder", ERR_IO, "cannot listen on no/such/folder: No such file or directory");
}

static void a_path_is_as_long_as_the_kernel_takes_it(void **state)
{
    struct sockaddr_un name;
    char long_path[sizeof name.sun_path + 1], want[256];
    struct stat id;
    int fd = -1;
    (void)state;
    memset(long_path, 'x', sizeof long_path);
    long_path[sizeof name.sun_path] = '\0';
    (void)snprintf(want, sizeof want, UNIX_SETTING " = \"%s\": expected a path of at most 107 bytes", long_path);
    expect_unix_refusal(long_path, ERR_CONFIG, want);
    long_path[sizeof name.sun_path - 1] = '\0';
    assert_int_equal(listen_open_unix(&fd, &id, long_path, 0600, UNIX_SETTING, NULL), OK);
    assert_int_equal(listen_begin(fd, long_path, NULL), OK);
    assert_true(connects_to_unix(long_path));
    listen_remove_unix(long_path, &id);
    (void)close(fd);
}

static void only_the_own_file_is_removed(void **state)
{
    struct stat id;
    (void)state;
    const int fd = open_unix(&id, 0600);
    assert_int_equal(unlink(path), 0);
    listen_remove_unix(path, &id); /* nothing there is fine */
    temp_write(path, "another's", strlen("another's"));
    listen_remove_unix(path, &id);
    assert_int_equal(access(path, F_OK), 0);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_chooses_for_port_0),
        cmocka_unit_test(a_port_is_free_at_once),
        cmocka_unit_test(connections_hold_little_unread),
        cmocka_unit_test(a_port_is_taken_once),
        cmocka_unit_test_setup_teardown(nobody_connects_before_it_begins, set_up, tear_down),
        cmocka_unit_test(an_address_of_another_machine_is_refused),
        cmocka_unit_test(what_is_no_numeric_address_is_said),
        cmocka_unit_test(ipv6_leaves_the_port_of_ipv4_free_where_that_is_asked),
        cmocka_unit_test_setup_teardown(a_unix_socket_has_the_mode_asked_for_whatever_the_umask, set_up, tear_down),
        cmocka_unit_test_setup_teardown(its_connections_hold_little_unread_as_well, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_socket_is_replaced_once_nobody_listens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_busy_socket_is_not_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_else_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_path_is_as_long_as_the_kernel_takes_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_own_file_is_removed, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
