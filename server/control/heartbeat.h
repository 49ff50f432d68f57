/* heartbeat.h - what the service manager is told at intervals: that the daemon makes progress, for its watchdog, and in
 * a line what the daemon is doing. The watchdog sees what /healthz sees: work that waits while no step of the engine
 * ends is no life. Main thread, which so shows that it lives too. */
#ifndef SERVER_CONTROL_HEARTBEAT_H
#define SERVER_CONTROL_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

struct settings;

struct batcher;
struct requests;
struct registry;

enum { HEARTBEAT_STATUS_BYTES = 128 };

struct heartbeat {
    const struct settings *settings;
    const struct batcher *batcher;
    struct registry *registry;
    const struct requests *all;
    bool ends, is_late;                  /* the daemon is stopping; the watchdog is not being fed */
    uint64_t alive_ns, status_ns;        /* when each is due; 0: never */
    uint64_t looked_ns, requests;        /* when the requests were last counted, and how many they were */
    char status[HEARTBEAT_STATUS_BYTES]; /* as last told */
};

/* The members before `ends` are set; they are borrowed until the last heartbeat_beat. */
void heartbeat_begin(struct heartbeat *h);
/* From now on the line says what there is left to do. */
void heartbeat_end(struct heartbeat *h);
/* Do what is due. Returns in how many milliseconds there will be more; -1: never. */
int heartbeat_beat(struct heartbeat *h);

#endif
