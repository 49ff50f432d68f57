/* stream_slot.c - see stream_slot.h. */
#include "server/operation/stream_slot.h"

#include <assert.h>
#include <string.h>

#include "server/operation/stream_snapshot.h"

/* Append what the request gives next to the window. */
static void fill_room(struct stream_slot *s)
{
    if (s->at < s->given_count)
        s->at += stream_window_fill(&s->window, s->given + s->at, s->given_count - s->at);
}

void stream_slot_begin(struct stream_slot *s)
{
    stream_window_reset(&s->window);
    fill_room(s);
}

void stream_slot_go_on(struct stream_slot *s)
{
    stream_window_clear(&s->window);
    fill_room(s);
}

void stream_slot_resume(struct stream_slot *s, const struct stream_snapshot *from)
{
    s->at = stream_window_restore(&s->window, from, s->given_count);
    fill_room(s);
}

void stream_slot_skip(struct stream_slot *s, size_t from, size_t size, const uint8_t *state)
{
    struct stream_window *w = &s->window;
    const uint32_t position = (uint32_t)size + (w->model->starts ? 1 : 0);
    assert(w->fed == 0 && size < s->given_count - from);
    engine_stream_restore(w->model->engine, w->stream, position, state);
    if (stream_model_is_limited(w->model)) { /* the window has all of it */
        w->fed = position;
        return;
    }
    s->at = from + size;
    stream_slot_go_on(s);
}

bool stream_slot_follow(struct stream_slot *s, struct stream_slot *leader)
{
    if (leader->job != s->job || leader->prompt != s->prompt || leader->follows || leader->drawn > 0)
        return false;
    s->follows = true;
    s->leader = leader->index;
    leader->followers++;
    return true;
}

void stream_slot_fork(struct stream_slot *s, struct stream_slot *leader, uint32_t fed)
{
    struct stream_window *to = &s->window;
    const struct stream_window *from = &leader->window;
    assert(s->follows && s->leader == leader->index && leader->followers > 0);
    engine_stream_copy(from->model->engine, from->stream, to->stream);
    memcpy(to->elements, from->elements, from->length);
    to->length = from->length;
    to->fed = from->fed + fed;
    s->at = leader->at;
    s->choice = leader->choice;
    s->follows = false;
    leader->followers--;
}
