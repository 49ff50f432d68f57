/* stream_lane.c - continuous batching. See stream_lane.h.
 *
 * A prompt, an element just drawn and a context that starts again are the same thing: elements of a slot that are not
 * yet fed (stream_slot.h), except for those that a cached state replaces (stream_prefix.h). When all are fed, the
 * logits of the last one choose the next. The kind of its job says what a slot is given and what becomes of the logits
 * (stream_kind.h). A job may have several samples, each in a slot of its own; they get slots by its client's share
 * (stream_shares.h), and what ends the job ends them all.
 *
 * A pass gives one row to each stream that has one element to feed, so decoding never waits for a prompt, and shares
 * pass_rows_max rows evenly among the others, so that a short prompt does not wait for a long one. If there are only
 * streams with more to feed, no stream would be delayed by them, and they get all rows that a pass has. What streams
 * will need once their contexts have ended is fed ahead, beside all that (stream_ahead.h).
 *
 * A pass takes as long as all of its rows do, so a client with one stream would wait for another's sixty at each of its
 * bytes. While clients have very different numbers of streams, those of the ones with many take turns, some in each
 * pass (limit_clients). */
#include "server/operation/stream_lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "engine/engine.h"
#include "engine/logits.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_ahead.h"
#include "server/operation/stream_kind.h"
#include "server/operation/stream_prefix.h"
#include "server/operation/stream_shares.h"
#include "server/operation/stream_slots.h"
#include "server/request/job.h"

#define DRAWS_TO_SHARE 8            /* fewer streams are drawn faster on one thread than it takes to start others */
#define MOVES_MAX 4                 /* streams that change places before one pass, while all slots are taken */
#define SETTLE_NS UINT64_C(1000000) /* between two looks at who should run, while all slots are taken */
/* Streams of one client in a pass beside a client with few: so many, or so many times what that one has. A pass of
 * eight takes little longer than one of a single stream. */
#define ROWS_BESIDE_OTHERS 8
#define ROWS_TIMES_OTHERS 4

struct stream_lane {
    struct hosted_model *model;
    struct queue *queue;
    struct stream_slots *slots;
    struct stream_shares shares;
    uint64_t settled_ns;                /* when it was last looked who should run */
    uint32_t threads;                   /* the engine's */
    uint32_t prompt_rows_max, rows_max; /* rows_max: of a pass without a stream that has one row to feed */
    uint32_t *taken;                    /* [streams_max] rows of the pass, by rank in the order */
    uint32_t first_prompt;              /* the place that a pass begins to share its rows for prompts at */
    uint64_t pass;                      /* its number */
    uint64_t *ran;                      /* [streams_max] the last pass in which a slot had a row */
    struct engine_part *parts;          /* [2, streams_max]: what is fed ahead comes last */
    float *logits;                      /* [rows_max, BYTE_VALUES] of the pass */
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

enum status stream_lane_create(struct stream_lane **ret, struct hosted_model *model, struct queue *q,
                               const struct settings *s, struct error *err)
{
    enum status st = ERR_NOMEM;
    struct stream_lane *l = calloc(1, sizeof *l);
    if (l == NULL)
        goto no_memory;
    l->model = model;
    l->queue = q;
    l->threads = engine_info(model->engine)->threads;
    l->rows_max = model->rows_max;
    l->prompt_rows_max =
        s->pass_rows_max < l->rows_max - s->streams_max ? s->pass_rows_max : l->rows_max - s->streams_max;
    l->taken = calloc(s->streams_max, sizeof *l->taken);
    l->parts = calloc(s->streams_max, 2 * sizeof *l->parts);
    l->ran = calloc(s->streams_max, sizeof *l->ran);
    l->logits = calloc((size_t)l->rows_max * BYTE_VALUES, sizeof *l->logits);
    if (l->taken == NULL || l->parts == NULL || l->ran == NULL || l->logits == NULL)
        goto no_memory;
    st = stream_slots_create(&l->slots, model, s, err);
    if (st != OK) {
        stream_lane_free(l);
        return st;
    }
    *ret = l;
    return OK;
no_memory:
    stream_lane_free(l);
    return error_set(err, ERR_NOMEM, "%s: no memory for %u streams", model->model->name, s->streams_max);
}

void stream_lane_free(struct stream_lane *l)
{
    if (l == NULL)
        return;
    stream_slots_free(l->slots);
    free(l->logits);
    free(l->ran);
    free(l->parts);
    free(l->taken);
    free(l);
}

uint32_t stream_lane_running(const struct stream_lane *l)
{
    return l->slots->running + l->slots->parked_count + l->slots->unbegun;
}

void stream_lane_cancel(struct stream_lane *l, enum status st)
{
    for (uint32_t i = 0; i < l->slots->jobs_max; i++)
        if (l->slots->jobs[i].job != NULL)
            job_cancel(l->slots->jobs[i].job, st);
}

/* ---- who runs -------------------------------------------------------------------------------------------------- */

static const struct stream_kind *kind_of(const struct job *j)
{
    return j->kind->stream;
}

/* Let the sample of a move run. */
static void make_move(struct stream_lane *l, const struct stream_move *m, uint64_t now_ns)
{
    if (m->slot != STREAM_NONE)
        stream_slots_park(l->slots, (uint32_t)m->slot);
    if (m->parked != STREAM_NONE)
        stream_slots_return(l->slots, (uint32_t)m->parked, now_ns);
    else
        stream_slots_begin(l->slots, m->owner, now_ns);
}

/* What its kind saves when it is cut is saved from a slot. */
static void return_parked(struct stream_lane *l, uint32_t owner, uint64_t now_ns)
{
    struct stream_slots *p = l->slots;
    for (uint32_t i = 0; i < p->parked_count; i++) {
        struct stream_move m = {.owner = owner, .parked = (int)i, .slot = STREAM_NONE};
        if (p->parked[i].owner != owner)
            continue;
        for (uint32_t rank = 0; p->running == p->slots_max && m.slot == STREAM_NONE && rank < p->running; rank++)
            if (p->owner[p->order[rank]] != owner && stream_slots_can_park(p, p->order[rank]))
                m.slot = (int)p->order[rank];
        if (p->running == p->slots_max && m.slot == STREAM_NONE)
            return;
        make_move(l, &m, now_ns);
        i--;
    }
}

/* A job ends in the middle. */
static void cut_samples(struct stream_lane *l, uint32_t owner, uint64_t now_ns)
{
    const struct stream_slots *p = l->slots;
    const struct stream_kind *kind = kind_of(p->jobs[owner].job);
    if (kind->interrupt == NULL || !p->jobs[owner].job->saves)
        return;
    return_parked(l, owner, now_ns);
    for (uint32_t rank = 0; rank < p->running; rank++)
        if (p->owner[p->order[rank]] == owner)
            kind->interrupt(&p->slot[p->order[rank]]);
}

static uint32_t stop_jobs(struct stream_lane *l, uint64_t now_ns)
{
    const struct stream_slots *p = l->slots;
    uint32_t ended = 0;
    for (uint32_t i = 0, left = p->job_count; left > 0; i++) {
        struct job *j = p->jobs[i].job;
        const enum status st = j != NULL ? job_stop_reason(j, now_ns) : OK;
        left -= j != NULL;
        if (st == OK)
            continue;
        if (st != ERR_CLIENT_GONE) /* else nobody reads what would be saved */
            cut_samples(l, i, now_ns);
        stream_slots_leave_all(l->slots, i);
        job_abort(j, st, NULL, now_ns);
        ended++;
    }
    return ended;
}

/* A job that was popped comes into the lane, unless it must stop by now. */
static bool enter_job(struct stream_lane *l, struct job *j, uint64_t now_ns)
{
    const bool is_first = stream_shares_running(&l->shares, &j->item.client) == 0;
    const int slot =
        l->slots->running < l->slots->slots_max ? STREAM_NONE : stream_shares_slot_for(&l->shares, &j->item.client);
    const enum status st = job_stop_reason(j, now_ns);
    assert(kind_of(j) != NULL); /* jobs of other kinds are for other models */
    if (st != OK) {
        job_abort(j, st, NULL, now_ns);
        return false;
    }
    job_start(j, now_ns);
    metrics_histogram_observe(METRIC_QUEUE_WAIT, l->model->metrics_label, now_ns - j->result.queued_ns);
    if (is_first)
        metrics_histogram_observe(METRIC_FIRST_SLOT_WAIT, l->model->metrics_label, now_ns - j->result.queued_ns);
    metrics_counter_add(METRIC_PROMPT_BYTES, l->model->metrics_label, j->input_len - j->dropped);
    const struct stream_move m = {.owner = stream_slots_enter(l->slots, j), .parked = STREAM_NONE, .slot = slot};
    make_move(l, &m, now_ns);
    return true;
}

/* Give slots to those that should have them: a job that waits if its client has no more than who is next in the lane,
 * for it has nothing running yet. True: somebody came or was moved; *ended counts jobs that must stop instead. */
static bool settle_one(struct stream_lane *l, uint64_t now_ns, uint32_t *ended)
{
    struct stream_move m;
    stream_shares_count(&l->shares, l->slots, now_ns);
    const bool is_next = stream_shares_next(&l->shares, &m);
    if (is_next)
        stream_shares_put_first(&l->shares, &m);
    struct queue_item *item = queue_pop_least(l->queue, l->model->lane, stream_shares_load, &l->shares);
    if (item != NULL) {
        *ended += enter_job(l, job_of_item(item), now_ns) ? 0 : 1;
        return true;
    }
    if (!is_next && !stream_shares_turn(&l->shares, &m))
        return false;
    make_move(l, &m, now_ns);
    return true;
}

/* While all slots are taken, not in every pass, and a few at a time: moving one takes as long as some bytes. */
static uint32_t settle(struct stream_lane *l, uint64_t now_ns)
{
    const struct stream_slots *p = l->slots;
    uint32_t ended = 0, moves = 0;
    if (p->parked_count == 0 && p->unbegun == 0 && queue_look(l->queue, l->model->lane).lane_count == 0)
        return 0;
    if (p->running == p->slots_max && now_ns - l->settled_ns < SETTLE_NS)
        return 0;
    l->settled_ns = now_ns;
    while (moves < MOVES_MAX) {
        moves += p->running == p->slots_max;
        if (!settle_one(l, now_ns, &ended))
            break;
    }
    return ended;
}

/* ---- a pass ---------------------------------------------------------------------------------------------------- */

/* Number of slots with a prompt to feed. *others: is there a slot with a single element to feed? */
static uint32_t count_prompts(const struct stream_lane *l, bool *others)
{
    uint32_t prompts = 0;
    *others = false;
    for (uint32_t rank = 0; rank < l->slots->running; rank++) {
        const struct stream_slot *s = &l->slots->slot[l->slots->order[rank]];
        const bool prompt = !s->follows && s->window.length - s->window.fed > 1;
        prompts += prompt;
        *others = *others || !(prompt || s->follows);
    }
    return prompts;
}

/* Share the pass's rows for prompts among the slots that have one to feed, in taken[rank]; what a slot leaves of its
 * share goes to those after it. Which one comes first changes from pass to pass, so that none goes without while others
 * always get some. */
static void share_rows(struct stream_lane *l)
{
    bool others;
    uint32_t prompts = count_prompts(l, &others);
    uint32_t rows = others ? l->prompt_rows_max : l->rows_max;
    l->first_prompt = l->first_prompt + 1 < l->slots->running ? l->first_prompt + 1 : 0;
    for (uint32_t i = 0; i < l->slots->running; i++) {
        const uint32_t rank = (l->first_prompt + i) % l->slots->running;
        const struct stream_slot *s = &l->slots->slot[l->slots->order[rank]];
        const uint32_t waiting = s->window.length - s->window.fed;
        l->taken[rank] = s->follows ? 0 : 1;
        if (s->follows || waiting <= 1)
            continue;
        assert(prompts > 0);
        const uint32_t share = (rows + prompts - 1) / prompts;
        l->taken[rank] = stream_prefix_take(l->slots->prefixes, s, waiting < share ? waiting : share);
        rows -= l->taken[rank];
        prompts--;
    }
}

#define SKIPPED UINT32_MAX /* of taken: it would have one row */

/* How many single rows of the same client's streams come before that of `rank`, since they have waited longer. */
static uint32_t rows_before(const struct stream_lane *l, uint32_t rank)
{
    const struct stream_slots *p = l->slots;
    const uint32_t slot = p->order[rank], client = p->jobs[p->owner[slot]].first;
    uint32_t before = 0;
    for (uint32_t i = 0; i < p->running; i++) {
        const uint32_t other = p->order[i];
        if ((l->taken[i] == 1 || l->taken[i] == SKIPPED) && p->jobs[p->owner[other]].first == client)
            before += l->ran[other] < l->ran[slot] || (l->ran[other] == l->ran[slot] && i < rank);
    }
    return before;
}

/* Let the streams of clients with many take turns while another client has few. */
static void limit_clients(struct stream_lane *l, uint64_t now_ns)
{
    const struct stream_slots *p = l->slots;
    if (p->job_count < 2 || p->running <= ROWS_BESIDE_OTHERS)
        return;
    stream_shares_count(&l->shares, l->slots, now_ns);
    const uint64_t times = (uint64_t)ROWS_TIMES_OTHERS * stream_shares_fewest(&l->shares);
    const uint64_t most = times > ROWS_BESIDE_OTHERS ? times : ROWS_BESIDE_OTHERS;
    for (uint32_t rank = 0; rank < p->running && most < p->running; rank++)
        if (l->taken[rank] == 1 && rows_before(l, rank) >= most)
            l->taken[rank] = SKIPPED;
}

/* Fill parts, in the slots' order; returns how many. *prompts: does one of them feed more than the element just
 * drawn? */
static uint32_t plan_pass(struct stream_lane *l, uint64_t now_ns, bool *prompts)
{
    uint32_t count = 0;
    float *logits = l->logits;
    *prompts = false;
    share_rows(l);
    limit_clients(l, now_ns);
    l->pass++;
    for (uint32_t rank = 0; rank < l->slots->running; rank++) {
        const uint32_t index = l->slots->order[rank], take = l->taken[rank];
        struct stream_slot *s = &l->slots->slot[index];
        if (take == 0 || take == SKIPPED)
            continue;
        l->ran[index] = l->pass;
        const bool chooses = s->chooses && take == s->window.length - s->window.fed && s->at == s->given_count;
        const bool wanted = s->every || chooses;
        s->choice = chooses ? logits + (size_t)(s->every ? take - 1 : 0) * BYTE_VALUES : NULL;
        *prompts = *prompts || s->drawn == 0 || take > 1;
        l->parts[count++] = (struct engine_part){
            .stream = s->window.stream,
            .count = take,
            .bytes = s->window.elements + s->window.fed,
            .every = s->every,
            .logits = wanted ? logits : NULL,
            .sums = s->sums,
        };
        logits += wanted ? (size_t)(s->every ? take : 1) * BYTE_VALUES : 0;
    }
    return count;
}

/* The slot with that stream, one of its two. */
static struct stream_slot *slot_of(const struct stream_lane *l, const struct engine_part *p)
{
    return &l->slots->slot[p->stream % l->slots->slots_max];
}

/* Add parts for the slots whose leaders have fed all that they were given; the engine does not see these. Returns the
 * new number of parts. */
static uint32_t fork_followers(struct stream_lane *l, uint32_t parts)
{
    uint32_t count = parts;
    for (uint32_t i = 0; i < parts; i++) {
        const struct engine_part *p = &l->parts[i];
        struct stream_slot *leader = slot_of(l, p);
        for (uint32_t rank = 0; leader->followers > 0 && leader->choice != NULL && rank < l->slots->running; rank++) {
            struct stream_slot *s = &l->slots->slot[l->slots->order[rank]];
            if (!s->follows || s->leader != leader->index)
                continue;
            stream_slot_fork(s, leader, p->count);
            l->parts[count++] = (struct engine_part){.stream = s->window.stream, .logits = s->choice};
        }
    }
    return count;
}

/* Look at the logits of all parts, and draw the next element where all of a slot's are fed. That takes some
 * microseconds per stream, which the engine's threads share: for many streams it would be noticeable next to a small
 * model's step. */
static void draw_all(struct stream_lane *l, uint32_t parts)
{
#pragma omp parallel for schedule(static) num_threads(l->threads) if (parts >= DRAWS_TO_SHARE)
    for (uint32_t i = 0; i < parts; i++) {
        const struct engine_part *p = &l->parts[i];
        struct stream_slot *s = slot_of(l, p);
        const struct stream_kind *kind = kind_of(s->job);
        s->rows = p->logits;
        s->fed = p->count;
        s->is_fine = p->logits == NULL || logits_are_finite(p->logits, (size_t)(p->every ? p->count : 1) * BYTE_VALUES);
        if (s->is_fine && p->logits != NULL && kind->draw != NULL)
            kind->draw(s);
    }
}

/* The logits are not numbers: the fault is the model's, unless its client has sent a state. */
static void abort_unfit(struct job *j, uint64_t now_ns)
{
    if (j->is_from_outside)
        job_abort(j, ERR_ARGUMENT,
                  "the state that was sent leads to logits that are not numbers; expected one that this model gave",
                  now_ns);
    else
        job_abort(j, ERR_INTERNAL, "the model gave a logit that is not a number", now_ns);
}

/* Use what the pass gave a slot. */
static enum stream_after use_part(struct stream_lane *l, struct stream_slot *s, struct stream_turn *turn)
{
    s->window.fed += s->fed;
    if (!s->is_fine) {
        abort_unfit(s->job, turn->now_ns);
        return STREAM_JOB_OVER;
    }
    stream_prefix_keep(l->slots->prefixes, s);
    const bool is_window_fed = s->window.fed == s->window.length;
    if ((s->chooses || s->sums != NULL) && (!is_window_fed || s->at < s->given_count)) {
        if (is_window_fed)
            stream_slot_go_on(s);
        return STREAM_GOES_ON;
    }
    return kind_of(s->job)->commit(s, turn);
}

/* Has all of a job ended but what is in this slot? */
static bool is_last(const struct stream_lane *l, uint32_t slot)
{
    const struct lane_job *of = &l->slots->jobs[l->slots->owner[slot]];
    return of->running == 1 && of->parked == 0 && of->begun == of->samples;
}

static uint32_t use_parts(struct stream_lane *l, uint32_t parts, uint64_t now_ns)
{
    uint32_t ended = 0, drawn = 0;
    draw_all(l, parts);
    for (uint32_t i = 0; i < parts; i++) {
        struct stream_slot *s = slot_of(l, &l->parts[i]);
        if (s->job == NULL) /* another sample of its job has ended the job */
            continue;
        struct stream_turn turn = {
            .now_ns = now_ns, .running = l->slots->running, .is_last = is_last(l, s->index), .finish = FINISH_STOP};
        struct job *j = s->job;
        const uint32_t before = s->drawn, owner = l->slots->owner[s->index];
        const enum stream_after after = use_part(l, s, &turn);
        drawn += s->drawn - before;
        if (after == STREAM_SAMPLE_OVER)
            stream_slots_leave(l->slots, s->index);
        if (after == STREAM_SAMPLE_OVER && turn.is_last)
            job_finish(j, turn.finish, now_ns);
        if (after == STREAM_JOB_OVER)
            stream_slots_leave_all(l->slots, owner);
        ended += after == STREAM_JOB_OVER || (after == STREAM_SAMPLE_OVER && turn.is_last);
    }
    metrics_counter_add(METRIC_GENERATED_BYTES, l->model->metrics_label, drawn);
    return ended;
}

uint32_t stream_lane_step(struct stream_lane *l)
{
    const uint64_t start_ns = clock_now_ns();
    uint32_t ended = stop_jobs(l, start_ns);
    ended += settle(l, start_ns);
    if (l->slots->running == 0)
        return ended;

    bool prompts;
    const uint32_t parts = plan_pass(l, start_ns, &prompts);
    assert(parts > 0);
    const uint32_t ahead = stream_ahead_plan(l->slots, l->taken, l->prompt_rows_max, l->parts + parts);
    engine_feed(l->model->engine, l->parts, parts + ahead);
    const uint64_t end_ns = clock_now_ns();
    metrics_histogram_observe(prompts ? METRIC_PREFILL : METRIC_DECODE, l->model->metrics_label, end_ns - start_ns);
    metrics_histogram_observe(METRIC_BATCH_SIZE, l->model->metrics_label, parts);
    return ended + use_parts(l, fork_followers(l, parts), end_ns);
}
