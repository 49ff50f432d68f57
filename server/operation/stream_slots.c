/* stream_slots.c - see stream_slots.h. */
#include "server/operation/stream_slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/settings.h"
#include "engine/engine.h"
#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_kind.h"
#include "server/operation/stream_prefix.h"
#include "server/request/job.h"

enum { ROOM_ALIGN = 4096 };

/* ---- life ------------------------------------------------------------------------------------------------------ */

/* Nothing of it is resident before it is written. */
static void map_rooms(struct stream_slots *p, const struct settings *s)
{
    const size_t state_bytes = engine_info(p->shape.engine)->stream_bytes, bytes = (size_t)s->parking_mb << 20;
    const size_t states = p->model->ahead_rows_max > 0 ? 2 : 1;
    p->room_bytes = (states * state_bytes + p->shape.window_size + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
    const size_t rooms = bytes / p->room_bytes;
    p->parked_max = rooms < PARKED_STREAMS_MAX ? (uint32_t)rooms : PARKED_STREAMS_MAX;
    if (p->parked_max == 0)
        return;
    void *memory = mmap(NULL, p->parked_max * p->room_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    p->memory = memory != MAP_FAILED ? memory : NULL;
}

enum status stream_slots_create(struct stream_slots **ret, struct hosted_model *model, const struct settings *s,
                                struct error *err)
{
    struct stream_slots *p = calloc(1, sizeof *p);
    if (p == NULL)
        goto no_memory;
    p->model = model;
    p->shape = stream_model_of(model->engine, model->model->config.context);
    p->slots_max = s->streams_max;
    map_rooms(p, s);
    if (p->parked_max > 0 && p->memory == NULL)
        goto no_memory;
    p->jobs_max = p->slots_max + p->parked_max;
    p->order = calloc(p->slots_max, sizeof *p->order);
    p->slot = calloc(p->slots_max, sizeof *p->slot);
    p->owner = calloc(p->slots_max, sizeof *p->owner);
    p->taken_ns = calloc(p->slots_max, sizeof *p->taken_ns);
    p->windows = calloc(p->slots_max, p->shape.window_size);
    p->jobs = calloc(p->jobs_max, sizeof *p->jobs);
    p->parked = calloc(p->parked_max + 1, sizeof *p->parked);
    p->rooms = calloc(p->parked_max + 1, sizeof *p->rooms);
    if (p->order == NULL || p->slot == NULL || p->owner == NULL || p->taken_ns == NULL || p->windows == NULL ||
        p->jobs == NULL || p->parked == NULL || p->rooms == NULL)
        goto no_memory;
    const enum status st = stream_prefixes_create(&p->prefixes, model, &p->shape, s, err);
    if (st != OK) {
        stream_slots_free(p);
        return st;
    }
    for (uint32_t i = 0; i < p->slots_max; i++) {
        p->order[i] = i;
        p->slot[i].index = i;
        p->slot[i].window = (struct stream_window){.model = &p->shape,
                                                   .stream = i,
                                                   .ahead = p->slots_max + i,
                                                   .elements = p->windows + (size_t)i * p->shape.window_size};
    }
    for (uint32_t i = 0; i < p->parked_max; i++)
        p->rooms[i] = i;
    *ret = p;
    return OK;
no_memory:
    stream_slots_free(p);
    return error_set(err, ERR_NOMEM, "%s: no memory for %u streams", model->model->name, s->streams_max);
}

void stream_slots_free(struct stream_slots *p)
{
    if (p == NULL)
        return;
    assert(p->job_count == 0 && p->running == 0 && p->parked_count == 0);
    stream_prefixes_free(p->prefixes);
    if (p->memory != NULL)
        (void)munmap(p->memory, p->parked_max * p->room_bytes);
    free(p->rooms);
    free(p->parked);
    free(p->jobs);
    free(p->windows);
    free(p->taken_ns);
    free(p->owner);
    free(p->slot);
    free(p->order);
    free(p);
}

/* ---- slots ----------------------------------------------------------------------------------------------------- */

uint32_t stream_slots_enter(struct stream_slots *p, struct job *j)
{
    uint32_t at = 0;
    while (p->jobs[at].job != NULL) /* each in the lane has a sample in a slot or parked, so one is free */
        at++;
    assert(at < p->jobs_max);
    p->jobs[at] = (struct lane_job){.job = j, .samples = j->samples > 0 ? j->samples : 1, .number = p->numbers++};
    p->job_count++;
    p->unbegun++;
    return at;
}

static uint32_t take_slot(struct stream_slots *p, uint32_t owner, uint64_t now_ns)
{
    assert(p->running < p->slots_max);
    const uint32_t slot = p->order[p->running++];
    p->owner[slot] = owner;
    p->taken_ns[slot] = now_ns;
    p->jobs[owner].running++;
    metrics_gauge_add(METRIC_STREAMS_RUNNING, p->model->metrics_label, 1);
    return slot;
}

/* Begin a sample in its slot, or let it wait for one that feeds the same prompt. */
static void begin_sample(struct stream_slots *p, uint32_t slot, uint32_t sample)
{
    struct stream_slot *s = &p->slot[slot];
    struct job *j = p->jobs[p->owner[slot]].job;
    *s = (struct stream_slot){.window = s->window, .index = slot, .job = j, .sample = sample};
    j->kind->stream->begin(s);
    for (uint32_t rank = 0; rank < p->running; rank++)
        if (p->order[rank] != slot && stream_slot_follow(s, &p->slot[p->order[rank]]))
            break;
    const size_t skipped = stream_prefix_begin(p->prefixes, s);
    if (s->cached != NULL)
        *s->cached += (uint32_t)skipped;
}

void stream_slots_begin(struct stream_slots *p, uint32_t owner, uint64_t now_ns)
{
    struct lane_job *j = &p->jobs[owner];
    assert(j->begun < j->samples);
    const uint32_t slot = take_slot(p, owner, now_ns);
    if (++j->begun == j->samples)
        p->unbegun--;
    begin_sample(p, slot, j->begun - 1);
}

/* The slot is free from now on. */
static void give_up_slot(struct stream_slots *p, uint32_t slot)
{
    uint32_t rank = 0;
    while (p->order[rank] != slot)
        rank++;
    p->slot[slot].job = NULL;
    p->running--;
    memmove(p->order + rank, p->order + rank + 1, (p->running - rank) * sizeof *p->order);
    p->order[p->running] = slot;
    p->jobs[p->owner[slot]].running--;
    metrics_gauge_add(METRIC_STREAMS_RUNNING, p->model->metrics_label, -1);
}

static void drop_job(struct stream_slots *p, uint32_t owner)
{
    struct lane_job *j = &p->jobs[owner];
    if (j->begun < j->samples)
        p->unbegun--;
    *j = (struct lane_job){.job = NULL};
    p->job_count--;
}

void stream_slots_leave(struct stream_slots *p, uint32_t slot)
{
    const uint32_t owner = p->owner[slot];
    const struct lane_job *j = &p->jobs[owner];
    give_up_slot(p, slot);
    if (j->running == 0 && j->parked == 0 && j->begun == j->samples)
        drop_job(p, owner);
}

/* ---- parking --------------------------------------------------------------------------------------------------- */

/* In a room: the state, that of what was fed ahead, the window. */
static uint8_t *room_of(const struct stream_slots *p, const struct parked_sample *x)
{
    return p->memory + x->room * p->room_bytes;
}

static uint8_t *ahead_of(const struct stream_slots *p, const struct parked_sample *x)
{
    return room_of(p, x) + engine_info(p->shape.engine)->stream_bytes;
}

/* Take it out of the list; its room is free. */
static void remove_parked(struct stream_slots *p, uint32_t at)
{
    p->jobs[p->parked[at].owner].parked--;
    const uint32_t room = p->parked[at].room;
    p->parked_count--;
    memmove(p->parked + at, p->parked + at + 1, (p->parked_count - at) * sizeof *p->parked);
    p->rooms[p->parked_count] = room;
    if (p->parked_count == 0)
        (void)madvise(p->memory, p->parked_max * p->room_bytes, MADV_DONTNEED);
    metrics_gauge_add(METRIC_STREAMS_PARKED, p->model->metrics_label, -1);
}

bool stream_slots_can_park(const struct stream_slots *p, uint32_t slot)
{
    return p->parked_count < p->parked_max && p->slot[slot].followers == 0;
}

void stream_slots_park(struct stream_slots *p, uint32_t slot)
{
    struct stream_slot *s = &p->slot[slot];
    struct parked_sample *x = &p->parked[p->parked_count];
    assert(stream_slots_can_park(p, slot));
    *x = (struct parked_sample){
        .owner = p->owner[slot], .is_retained = !s->follows, .room = p->rooms[p->parked_count], .slot = *s};
    if (x->is_retained) {
        const struct stream_window *w = &s->window;
        x->position = engine_stream_position(p->shape.engine, w->stream);
        if (x->position > 0)
            engine_stream_save(p->shape.engine, w->stream, room_of(p, x));
        if (w->ahead_fed > 0)
            engine_stream_save(p->shape.engine, w->ahead, ahead_of(p, x));
        memcpy(room_of(p, x) + p->room_bytes - p->shape.window_size, w->elements, w->length);
    } else {
        p->slot[s->leader].followers--;
    }
    p->parked_count++;
    p->jobs[x->owner].parked++;
    give_up_slot(p, slot);
    metrics_gauge_add(METRIC_STREAMS_PARKED, p->model->metrics_label, 1);
    metrics_counter_add(METRIC_STREAM_PARKINGS, p->model->metrics_label, 1);
}

void stream_slots_return(struct stream_slots *p, uint32_t parked, uint64_t now_ns)
{
    const struct parked_sample *x = &p->parked[parked];
    const uint32_t slot = take_slot(p, x->owner, now_ns);
    struct stream_slot *s = &p->slot[slot];
    struct stream_window w = s->window;
    if (!x->is_retained) {
        begin_sample(p, slot, x->slot.sample);
        remove_parked(p, parked);
        return;
    }
    *s = x->slot;
    w.fed = s->window.fed;
    w.length = s->window.length;
    w.ahead_fed = s->window.ahead_fed;
    s->window = w;
    s->index = slot;
    memcpy(w.elements, room_of(p, x) + p->room_bytes - p->shape.window_size, w.length);
    if (x->position > 0)
        engine_stream_restore(p->shape.engine, w.stream, x->position, room_of(p, x));
    else
        engine_stream_reset(p->shape.engine, w.stream);
    if (w.ahead_fed > 0)
        engine_stream_restore(p->shape.engine, w.ahead, w.ahead_fed, ahead_of(p, x));
    stream_prefix_forget(p->prefixes, s);
    remove_parked(p, parked);
}

void stream_slots_leave_all(struct stream_slots *p, uint32_t owner)
{
    for (uint32_t i = 0; i < p->parked_count;)
        if (p->parked[i].owner == owner)
            remove_parked(p, i);
        else
            i++;
    for (uint32_t rank = 0; rank < p->running;)
        if (p->owner[p->order[rank]] == owner)
            give_up_slot(p, p->order[rank]);
        else
            rank++;
    drop_job(p, owner);
}
