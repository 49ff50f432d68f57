/* session_scene.h - what sessions stand on in a daemon, and states to put into them: each says how often its text went
 * on, by its number of draws and by each of its bytes. No engine's pass. */
#ifndef TESTS_SUPPORT_SESSION_SCENE_H
#define TESTS_SUPPORT_SESSION_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/settings.h"
#include "server/core/watcher.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_snapshot.h"

/* The defaults but for threads, for the caller to change, a watcher and a text model. -1 as cmocka's fixtures have it:
 * that failed, and was printed. */
int session_scene_begin(struct settings *settings, struct watcher **watcher, struct hosted_model **hosted);
int session_scene_end(struct watcher *watcher, struct hosted_model *hosted);

/* False: out of memory. */
bool session_scene_state(struct stream_snapshot *ret, uint64_t draws);
bool session_scene_is_at(const struct stream_snapshot *s, uint64_t draws);

#endif
