/* auth_scene.c - see auth_scene.h. */
#include "tests/support/auth_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

enum { START_S = 1000 };

uint64_t auth_scene_at(double seconds)
{
    return (uint64_t)((START_S + seconds) * 1e9 + 0.5);
}

int auth_scene_set_up(void **state)
{
    struct auth_scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    temp_dir_create(s->dir);
    temp_path(s->path, s->dir, "keys.json");
    for (int i = 0; i < AUTH_SCENE_KEYS; i++) {
        struct key k = {.name = {(char)('a' + i)}, .apis = APIS_USUAL};
        assert_int_equal(key_make(&k, s->texts[i], NULL), OK);
        assert_int_equal(keys_file_add(&s->file, &k, NULL), OK);
    }
    *state = s;
    return 0;
}

int auth_scene_tear_down(void **state)
{
    struct auth_scene *s = *state;
    auth_free(s->auth);
    keys_file_clear(&s->file);
    temp_dir_remove(s->dir);
    free(s);
    return 0;
}

void auth_scene_begin(struct auth_scene *s)
{
    struct error err;
    assert_int_equal(keys_file_write(&s->file, s->path, NULL), OK);
    if (auth_create(&s->auth, s->path, &err) != OK)
        fail_msg("%s", err.message);
}

void auth_scene_begin_with(struct auth_scene *s, double requests_per_s, double bytes_per_s)
{
    s->file.keys[0].requests_per_s = requests_per_s;
    s->file.keys[0].bytes_per_s = bytes_per_s;
    auth_scene_begin(s);
}

void auth_scene_reload(struct auth_scene *s)
{
    struct auth_table *t;
    size_t count;
    struct error err;
    assert_int_equal(keys_file_write(&s->file, s->path, NULL), OK);
    if (auth_read(s->auth, &t, &count, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(count, s->file.count);
    auth_put(s->auth, t);
}

bool auth_scene_find(struct auth_scene *s, int key, struct auth_grant *g)
{
    *g = (struct auth_grant){0};
    return auth_find(s->auth, s->texts[key], KEY_TEXT_BYTES, g);
}

static void expect_wait(enum status st, double got, double want_s)
{
    if (st != (want_s > 0.0 ? ERR_RATE : OK) || (st != OK && !(got > want_s - 1e-6 && got < want_s + 1e-6)))
        fail_msg("%s, wait %g s, expected %g s", status_name(st), st != OK ? got : 0.0, want_s);
}

void auth_scene_request(const struct auth_grant *g, double seconds, double want_s)
{
    double wait_s = 0.0;
    const enum status st = auth_take_request(g, auth_scene_at(seconds), &wait_s);
    expect_wait(st, wait_s, want_s);
}

void auth_scene_use(struct auth_grant *g, double seconds, uint64_t received, double want_s)
{
    double wait_s = 0.0;
    const enum status st = auth_use_begin(g, auth_scene_at(seconds), received, &wait_s);
    expect_wait(st, wait_s, want_s);
}

static uint64_t look_at(void *arg, bool *ended)
{
    struct auth_progress *p = arg;
    p->calls++;
    *ended = p->ended;
    return p->bytes;
}

void auth_scene_generates(struct auth_grant *g, struct auth_progress *p, uint64_t most)
{
    g->use = (struct auth_use){.so_far = look_at, .arg = p, .most = most};
}
