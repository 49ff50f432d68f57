/* stream_shares.c - see stream_shares.h. Shares are counted anew for each decision: some hundred comparisons, and only
 * while somebody waits. */
#include "server/operation/stream_shares.h"

#include "config/limits.h"
#include "server/operation/stream_slots.h"
#include "server/request/job.h"

/* The first job of that client, of those in the first `end` places of jobs; `end`: it has none there. */
static uint32_t stream_shares_find(const struct stream_slots *p, const struct client_id *client, uint32_t end)
{
    uint32_t at = 0;
    while (at < end &&
           (p->jobs[at].job == NULL || p->jobs[at].first != at || !client_id_is_same(p->jobs[at].share.client, client)))
        at++;
    return at;
}

void stream_shares_count(struct stream_shares *s, struct stream_slots *p, uint64_t now_ns)
{
    *s = (struct stream_shares){.slots = p, .now_ns = now_ns, .most = INT64_MAX};
    for (uint32_t i = 0, seen = 0; seen < p->job_count; i++) {
        struct lane_job *j = &p->jobs[i];
        if (j->job == NULL)
            continue;
        seen++;
        s->end = i + 1;
        j->first = stream_shares_find(p, &j->job->item.client, i);
        struct stream_share *share = &p->jobs[j->first].share;
        if (j->first == i)
            *share = (struct stream_share){.client = &j->job->item.client};
        share->running += j->running;
        share->parked += j->parked;
    }
}

/* Of a client that need not be in the lane. */
static struct stream_share share_of(const struct stream_shares *s, const struct client_id *client)
{
    const uint32_t at = stream_shares_find(s->slots, client, s->end);
    return at < s->end ? s->slots->jobs[at].share : (struct stream_share){.client = client};
}

static const struct stream_share *share_of_job(const struct stream_shares *s, uint32_t owner)
{
    return &s->slots->jobs[s->slots->jobs[owner].first].share;
}

uint32_t stream_shares_fewest(const struct stream_shares *s)
{
    uint32_t fewest = UINT32_MAX;
    for (uint32_t rank = 0; rank < s->slots->running; rank++) {
        const uint32_t running = share_of_job(s, s->slots->owner[s->slots->order[rank]])->running;
        fewest = running < fewest ? running : fewest;
    }
    return fewest;
}

/* ---- who comes first ------------------------------------------------------------------------------------------- */

/* Does a sample of job `a` come before one of `b`? Those of the client with fewest, then of its job with fewest, then
 * of the oldest job. */
static bool comes_before(const struct stream_shares *s, uint32_t a, uint32_t b)
{
    const struct lane_job *of_a = &s->slots->jobs[a], *of_b = &s->slots->jobs[b];
    const uint32_t clients_a = share_of_job(s, a)->running, clients_b = share_of_job(s, b)->running;
    if (clients_a != clients_b)
        return clients_a < clients_b;
    if (of_a->running != of_b->running)
        return of_a->running < of_b->running;
    return of_a->number < of_b->number;
}

/* Does the stream in `slot` give way before the one in `other`? The last to come, and of a job its last sample. */
static bool gives_way_before(const struct stream_shares *s, uint32_t slot, uint32_t other)
{
    const struct stream_slots *p = s->slots;
    const uint32_t a = p->owner[slot], b = p->owner[other];
    return a != b ? comes_before(s, b, a) : p->slot[slot].sample > p->slot[other].sample;
}

/* ---- whose slot ------------------------------------------------------------------------------------------------ */

/* The slot for a stream of `mine`, whose job has `running` slots, when none is free. */
static int slot_to_take(const struct stream_shares *s, const struct stream_share *mine, uint32_t running)
{
    const struct stream_slots *p = s->slots;
    int best = STREAM_NONE;
    for (uint32_t rank = 0; rank < p->running; rank++) {
        const uint32_t slot = p->order[rank];
        const struct stream_share *theirs = share_of_job(s, p->owner[slot]);
        const bool is_own = client_id_is_same(theirs->client, mine->client);
        const bool has_more =
            is_own ? p->jobs[p->owner[slot]].running >= running + 2 : theirs->running >= mine->running + 2;
        if (has_more && stream_slots_can_park(p, slot) &&
            (best == STREAM_NONE || gives_way_before(s, slot, (uint32_t)best)))
            best = (int)slot;
    }
    return best;
}

/* The slot whose stream has run longest, and long enough, of `mine` or, if that has none, of anybody. */
static int slot_in_turn(const struct stream_shares *s, const struct stream_share *mine)
{
    const struct stream_slots *p = s->slots;
    int best = STREAM_NONE;
    for (uint32_t rank = 0; rank < p->running; rank++) {
        const uint32_t slot = p->order[rank];
        const bool is_own = client_id_is_same(share_of_job(s, p->owner[slot])->client, mine->client);
        if ((mine->running == 0 || is_own) && s->now_ns - p->taken_ns[slot] >= STREAM_TURN_NS &&
            stream_slots_can_park(p, slot) && (best == STREAM_NONE || p->taken_ns[slot] < p->taken_ns[best]))
            best = (int)slot;
    }
    return best;
}

/* May a stream that has not begun take the slot of another, which is parked for it? The last room is for those that
 * change places. */
static bool may_come(const struct stream_shares *s, const struct stream_share *mine)
{
    const struct stream_slots *p = s->slots;
    const uint32_t left = p->slots_max + p->parked_max - p->running - p->parked_count,
                   theirs = mine->running + mine->parked;
    return p->parked_count + 2 <= p->parked_max && (theirs == 0 || theirs < left);
}

/* ---- who is next ----------------------------------------------------------------------------------------------- */

int stream_shares_slot_for(const struct stream_shares *s, const struct client_id *client)
{
    const struct stream_share mine = share_of(s, client);
    if (!may_come(s, &mine))
        return STREAM_NONE;
    const int slot = slot_to_take(s, &mine, 0);
    return slot != STREAM_NONE || mine.running + mine.parked > 0 ? slot : slot_in_turn(s, &mine);
}

uint32_t stream_shares_running(const struct stream_shares *s, const struct client_id *client)
{
    return share_of(s, client).running;
}

void stream_shares_put_first(struct stream_shares *s, const struct stream_move *next)
{
    s->most = (int64_t)share_of_job(s, next->owner)->running - (s->slots->jobs[next->owner].running > 0 ? 0 : 1);
}

int64_t stream_shares_load(void *shares, const struct client_id *client)
{
    const struct stream_shares *s = shares;
    const struct stream_slots *p = s->slots;
    const uint32_t running = stream_shares_running(s, client);
    if (p->job_count == p->jobs_max || running > s->most)
        return -1;
    if (p->running == p->slots_max && stream_shares_slot_for(s, client) == STREAM_NONE)
        return -1;
    return running;
}

/* The one of the job's that was parked first; STREAM_NONE: none is. */
static int first_parked(const struct stream_slots *p, uint32_t owner)
{
    for (uint32_t i = 0; i < p->parked_count; i++)
        if (p->parked[i].owner == owner)
            return (int)i;
    return STREAM_NONE;
}

bool stream_shares_next(const struct stream_shares *s, struct stream_move *ret)
{
    const struct stream_slots *p = s->slots;
    bool found = false;
    for (uint32_t i = 0, seen = 0; seen < p->job_count; i++) {
        const struct lane_job *j = &p->jobs[i];
        if (j->job == NULL)
            continue;
        seen++;
        if ((j->parked == 0 && j->begun == j->samples) || (found && !comes_before(s, i, ret->owner)))
            continue;
        struct stream_move m = {.owner = i, .parked = first_parked(p, i), .slot = STREAM_NONE};
        if (p->running == p->slots_max) {
            if (m.parked == STREAM_NONE && !may_come(s, share_of_job(s, i)))
                continue;
            m.slot = slot_to_take(s, share_of_job(s, i), j->running);
            if (m.slot == STREAM_NONE)
                continue;
        }
        *ret = m;
        found = true;
    }
    return found;
}

bool stream_shares_turn(const struct stream_shares *s, struct stream_move *ret)
{
    const struct stream_slots *p = s->slots;
    for (uint32_t i = 0; i < p->parked_count; i++) {
        const uint32_t owner = p->parked[i].owner;
        const int slot = slot_in_turn(s, share_of_job(s, owner));
        if (slot == STREAM_NONE)
            continue;
        *ret = (struct stream_move){.owner = owner, .parked = (int)i, .slot = slot};
        return true;
    }
    return false;
}
