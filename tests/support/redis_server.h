/* redis_server.h - a real Redis or Valkey server as a child process, on a Unix socket and a port of its own: start it,
 * end it in any way, ask it directly. One thread, the test's main one: the child is
 * killed when that ends. A failing step ends the test. */
#ifndef TESTS_SUPPORT_REDIS_SERVER_H
#define TESTS_SUPPORT_REDIS_SERVER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct redis_server {
    pid_t pid;          /* 0: it does not run */
    char dir[PATH_MAX]; /* its data and its socket; room for the test's own files; "": there is none */
    char socket[108];
    char url[128]; /* "unix:SOCKET" */
    uint16_t port; /* on 127.0.0.1; 0: none */
    bool keeps;
};

/* Start one with an empty folder. `keeps`: what it has acknowledged, it has written; `listens`: on a port as well,
 * which another process may take while it does not run. Skips the running test, saying why, where none is installed. */
void redis_server_begin(struct redis_server *r, bool keeps, bool listens);
/* Start it again, with what it has kept; returns once it answers. */
void redis_server_start(struct redis_server *r);
/* SIGKILL; returns once it is gone. */
void redis_server_kill(struct redis_server *r);
/* SIGSTOP, SIGCONT. */
void redis_server_halt(struct redis_server *r);
void redis_server_go_on(struct redis_server *r);
/* Kill it and remove its folder; zeroed is fine. */
void redis_server_end(struct redis_server *r);

/* What it answers to a command of words without spaces in them, as it is sent: ":1\r\n". Static memory. */
const char *redis_server_ask(const struct redis_server *r, const char *command);
/* A number that it answers with. */
long redis_server_number(const struct redis_server *r, const char *command);

#endif
