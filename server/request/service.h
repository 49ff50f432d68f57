/* service.h - what the endpoints work with: the parts of the daemon that a request reaches. HTTP threads. */
#ifndef SERVER_REQUEST_SERVICE_H
#define SERVER_REQUEST_SERVICE_H

#include <stdatomic.h>

struct auth;
struct batcher;
struct hosts;
struct loader;
struct queue;
struct registry;
struct reload;
struct routes;
struct sessions;
struct settings;
struct workers;

/* Constant while requests are served, except for atomic members. */
struct service {
    const struct routes *routes;
    const struct settings *settings;
    struct batcher *batcher;
    struct queue *queue; /* the batcher's */
    struct workers *workers;
    struct workers *keepers; /* for stored sessions; NULL: there is no store */
    struct registry *registry;
    struct loader *loader;
    struct reload *reload;
    struct sessions *sessions;
    atomic_bool draining; /* /readyz says so */
    struct auth *keys;    /* NULL: none are required */
    const struct hosts *hosts;
};

#endif
