/* auth_scene.h - keys in force from a file of the test's own, and requests that use them at times that the test
 * chooses. A failing step ends the test. One thread. */
#ifndef TESTS_SUPPORT_AUTH_SCENE_H
#define TESTS_SUPPORT_AUTH_SCENE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/access/auth.h"

enum { AUTH_SCENE_KEYS = 3 };

/* A file with the keys "a", "b" and "c", which are in force from auth_scene_begin on. */
struct auth_scene {
    char dir[PATH_MAX], path[PATH_MAX];
    struct keys_file file;
    char texts[AUTH_SCENE_KEYS][KEY_TEXT_BYTES + 1];
    struct auth *auth;
};

/* For cmocka; *state is the scene. */
int auth_scene_set_up(void **state);
int auth_scene_tear_down(void **state);

/* Write the file and take its keys. */
void auth_scene_begin(struct auth_scene *s);
/* The same, but the first key has these rates. */
void auth_scene_begin_with(struct auth_scene *s, double requests_per_s, double bytes_per_s);
/* Write the file again and put its keys into force. */
void auth_scene_reload(struct auth_scene *s);
/* Is the key of that number, 0 to 2, in force? Then *g is its grant. */
bool auth_scene_find(struct auth_scene *s, int key, struct auth_grant *g);

/* The time `seconds` after the scene's beginning, in nanoseconds. */
uint64_t auth_scene_at(double seconds);
/* Ask for a request, or begin to use bytes, and expect to have to wait for want_s seconds; 0: not at all. */
void auth_scene_request(const struct auth_grant *g, double seconds, double want_s);
void auth_scene_use(struct auth_grant *g, double seconds, uint64_t received, double want_s);

/* What a request has generated. */
struct auth_progress {
    uint64_t bytes;
    bool ended;
    unsigned calls; /* how often it was asked */
};
/* Call before auth_scene_use: the request generates what `p` says, and at most `most` bytes. */
void auth_scene_generates(struct auth_grant *g, struct auth_progress *p, uint64_t most);

#endif
