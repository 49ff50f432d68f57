/* session_scene.c - see session_scene.h. */
#include "tests/support/session_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sampler.h"
#include "server/core/log.h"
#include "server/core/metrics.h"

int session_scene_begin(struct settings *settings, struct watcher **watcher, struct hosted_model **hosted)
{
    static const char *const endpoints[] = {"/"};
    const struct found_model found = {.name = "text", .path = "tests/data/golden/lm-local-8"};
    struct error err = {.message = ""};
    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    metrics_init(endpoints, 1);
    settings_init(settings);
    settings->threads = 1;
    if (watcher_start(watcher, &err) == OK && hosted_model_load(hosted, &found, settings, &err) == OK)
        return 0;
    print_error("%s\n", err.message);
    return -1;
}

int session_scene_end(struct watcher *watcher, struct hosted_model *hosted)
{
    watcher_free(watcher);
    hosted_model_release(hosted);
    return 0;
}

bool session_scene_state(struct stream_snapshot *ret, uint64_t draws)
{
    if (stream_snapshot_create(ret, 4, 1, 64, NULL) != OK)
        return false;
    ret->position = 4;
    sampler_options_default(&ret->sampler.options);
    ret->sampler.options.seed = 77;
    ret->sampler.draws = draws;
    memset(ret->memory, (int)(draws & 0xFF), stream_snapshot_bytes(ret));
    return true;
}

bool session_scene_is_at(const struct stream_snapshot *s, uint64_t draws)
{
    for (size_t i = 0; i < stream_snapshot_bytes(s); i++)
        if (s->memory[i] != (draws & 0xFF))
            return false;
    return s->sampler.draws == draws;
}
