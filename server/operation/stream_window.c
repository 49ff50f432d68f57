/* stream_window.c - see stream_window.h. */
#include "server/operation/stream_window.h"

#include <assert.h>
#include <string.h>

#include "server/operation/stream_snapshot.h"

struct stream_model stream_model_of(struct engine *e, uint32_t window_size)
{
    const struct engine_info *info = engine_info(e);
    return (struct stream_model){
        .engine = e, .context = info->context, .window_size = window_size, .starts = info->starts};
}

bool stream_model_is_limited(const struct stream_model *m)
{
    return m->context != ENGINE_CONTEXT_UNLIMITED;
}

uint32_t stream_model_room(const struct stream_model *m, uint32_t position)
{
    return m->context - (position == 0 && m->starts ? 1 : position);
}

void stream_window_reset(struct stream_window *w)
{
    engine_stream_reset(w->model->engine, w->stream);
    w->fed = w->length = w->ahead_fed = 0;
    if (w->model->starts)
        w->elements[w->length++] = 0;
}

void stream_window_clear(struct stream_window *w)
{
    w->fed = w->length = w->ahead_fed = 0;
}

size_t stream_window_fill(struct stream_window *w, const uint8_t *elements, size_t count)
{
    const size_t room = w->model->window_size - w->length, n = count < room ? count : room;
    if (n > 0)
        memcpy(w->elements + w->length, elements, n);
    w->length += (uint32_t)n;
    return n;
}

/* The place in a full window of what it begins with once it has shifted: what stands for the start, then all elements
 * behind that. */
static uint32_t shifted_from(const struct stream_model *m)
{
    const uint32_t keep = m->context > 1 ? m->context / 2 - 1 : 0;
    return m->context - keep - m->starts;
}

static void shift_window(struct stream_window *w)
{
    const struct stream_model *m = w->model;
    const uint32_t first = m->starts, from = shifted_from(m), stream = w->stream;
    w->length = m->context - from;
    memmove(w->elements + first, w->elements + from + first, w->length - first);
    w->fed = w->ahead_fed;
    w->ahead_fed = 0;
    if (w->fed == 0) {
        engine_stream_reset(m->engine, stream);
        return;
    }
    w->stream = w->ahead;
    w->ahead = stream;
}

struct stream_ahead stream_window_ahead(const struct stream_window *w)
{
    const struct stream_model *m = w->model;
    const uint32_t from = shifted_from(m);
    assert(stream_model_is_limited(m));
    if (from == 0) /* a context of one, where nothing would be left to feed after the shift */
        return (struct stream_ahead){.pushes = 1};
    return (struct stream_ahead){.left = m->context - from - w->ahead_fed,
                                 .known = w->length > from ? w->length - from - w->ahead_fed : 0,
                                 .pushes = m->context - w->length + 1};
}

struct engine_part stream_window_feed_ahead(struct stream_window *w, uint32_t count)
{
    const struct engine_part part = {
        .stream = w->ahead, .count = count, .bytes = w->elements + shifted_from(w->model) + w->ahead_fed};
    if (w->ahead_fed == 0)
        engine_stream_reset(w->model->engine, w->ahead);
    w->ahead_fed += count;
    return part;
}

bool stream_window_push(struct stream_window *w, uint8_t element, bool shift)
{
    if (w->length == w->model->window_size) {
        if (!stream_model_is_limited(w->model))
            stream_window_clear(w);
        else if (shift)
            shift_window(w);
        else
            return false;
    }
    if (w->length < w->model->window_size) /* a context of one has room for the start alone */
        w->elements[w->length++] = element;
    return true;
}

/* ---- snapshots ------------------------------------------------------------------------------------------------- */

size_t stream_window_restore(struct stream_window *w, const struct stream_snapshot *from, size_t given)
{
    const struct stream_model *m = w->model;
    const bool limited = stream_model_is_limited(m);
    if (from->position == 0 && (!limited || given <= stream_model_room(m, 0))) {
        stream_window_reset(w);
        return 0;
    }
    if (!limited || given <= stream_model_room(m, from->position)) {
        stream_window_clear(w);
        engine_stream_restore(m->engine, w->stream, from->position, stream_snapshot_state(from));
        if (limited) {
            memcpy(w->elements, from->memory, from->fed_count);
            w->fed = w->length = from->fed_count;
        }
        return 0;
    }
    const uint32_t first = m->starts;
    const size_t half = m->context > 1 ? m->context / 2 : 1 - first;
    const size_t text = from->fed_count > first ? from->fed_count - first : 0;
    const size_t left = given < half ? half - given : 0, tail = left < text ? left : text;
    stream_window_reset(w);
    memcpy(w->elements + w->length, from->memory + from->fed_count - tail, tail);
    w->length += (uint32_t)tail;
    return given > half ? given - half : 0;
}

void stream_window_save(const struct stream_window *w, uint8_t last, struct stream_snapshot *to)
{
    const struct stream_model *m = w->model;
    const uint32_t position = engine_stream_position(m->engine, w->stream);
    const bool is_pushed = w->length > w->fed, limited = stream_model_is_limited(m);
    const uint32_t first = position == 0 && m->starts ? 1 : w->fed; /* the start is not a byte of the text */
    assert(limited || !is_pushed || w->length - w->fed == 1);
    to->position = position;
    to->fed_count = limited ? w->fed : 0;
    to->pending_count = is_pushed ? w->length - first : 1;
    to->state_bytes = position > 0 ? engine_stream_saved_bytes(m->engine, position) : 0;
    memcpy(to->memory, w->elements, to->fed_count);
    if (is_pushed)
        memcpy(stream_snapshot_pending(to), w->elements + first, to->pending_count);
    else
        *stream_snapshot_pending(to) = last;
    if (position > 0)
        engine_stream_save(m->engine, w->stream, stream_snapshot_state(to));
}
