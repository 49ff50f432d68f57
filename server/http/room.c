/* room.c - see room.h. What a search has looked at goes to the end of its list, of holders or of a holder's places: so
 * each search begins where the last one ended, and those far away have their turn. */
#include "server/http/room.h"

#include <assert.h>
#include <stdlib.h>

#include "server/core/clock.h"

enum { ENDS_MAX = 64 }; /* places that end for one that asks */

/* A client that holds something. */
struct room_holder {
    TAILQ_ENTRY(room_holder) of_room;
    LIST_ENTRY(room_holder) of_chain;
    TAILQ_HEAD(, room_place) places;
    struct client_id client;
    uint64_t units; /* without those that are ending */
};

/* ---- holders ----------------------------------------------------------------------------------------------------- */

static struct room_chain *chain_of(struct room *r, const struct client_id *client)
{
    uint32_t hash = (2166136261U ^ client->kind) * 16777619U; /* FNV-1a */
    for (size_t i = 0; i < sizeof client->bytes; i++)
        hash = (hash ^ client->bytes[i]) * 16777619U;
    return &r->chains[hash % ROOM_CHAINS];
}

/* A new one holds nothing. NULL: out of memory. */
static struct room_holder *holder_of(struct room *r, const struct client_id *client)
{
    struct room_chain *chain = chain_of(r, client);
    struct room_holder *h = LIST_FIRST(chain);
    while (h != NULL && !client_id_is_same(&h->client, client))
        h = LIST_NEXT(h, of_chain);
    if (h != NULL)
        return h;
    h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    h->client = *client;
    TAILQ_INIT(&h->places);
    LIST_INSERT_HEAD(chain, h, of_chain);
    TAILQ_INSERT_TAIL(&r->holders, h, of_room);
    return h;
}

static void drop_if_empty(struct room *r, struct room_holder *h)
{
    if (!TAILQ_EMPTY(&h->places))
        return;
    LIST_REMOVE(h, of_chain);
    TAILQ_REMOVE(&r->holders, h, of_room);
    free(h);
}

/* ---- who gives way ----------------------------------------------------------------------------------------------- */

struct search {
    struct room *room;
    const struct room_holder *asker;
    uint64_t units; /* that the asker would hold */
    uint64_t now_ns;
    unsigned looks; /* that are left */
    struct room_place *best;
    struct room_look best_look;
};

static bool is_better(const struct search *s, const struct room_place *p, const struct room_look *look)
{
    if (s->best == NULL || look->ease != s->best_look.ease)
        return s->best == NULL || look->ease > s->best_look.ease;
    const uint64_t units = p->holder->units, best_units = s->best->holder->units;
    return units != best_units ? units > best_units : look->order > s->best_look.order;
}

static void look_at(struct search *s, struct room_place *p)
{
    const struct room_holder *h = p->holder;
    const struct room_look look = s->room->rules.look(p, s->now_ns);
    const bool may_end = look.ease == ROOM_IDLE || (look.ease == ROOM_BUSY && h != s->asker && h->units > s->units);
    if (!p->is_ending && may_end && is_better(s, p, &look)) {
        s->best = p;
        s->best_look = look;
    }
}

static void look_at_places(struct search *s, struct room_holder *h)
{
    const struct room_place *first = TAILQ_FIRST(&h->places);
    do {
        struct room_place *p = TAILQ_FIRST(&h->places);
        look_at(s, p);
        TAILQ_REMOVE(&h->places, p, of_holder);
        TAILQ_INSERT_TAIL(&h->places, p, of_holder);
    } while (--s->looks > 0 && TAILQ_FIRST(&h->places) != first);
}

/* NULL: nobody. */
static struct room_place *who_gives_way(struct room *r, const struct room_holder *asker, uint64_t more)
{
    struct search s = {
        .room = r, .asker = asker, .units = asker->units + more, .now_ns = clock_now_ns(), .looks = ROOM_LOOKS_MAX};
    const struct room_holder *first = TAILQ_FIRST(&r->holders);
    do {
        struct room_holder *h = TAILQ_FIRST(&r->holders);
        if (!TAILQ_EMPTY(&h->places) && (h == asker || h->units >= s.units))
            look_at_places(&s, h);
        else
            s.looks--;
        TAILQ_REMOVE(&r->holders, h, of_room);
        TAILQ_INSERT_TAIL(&r->holders, h, of_room);
    } while (s.looks > 0 && TAILQ_FIRST(&r->holders) != first);
    return s.best;
}

static bool make_room(struct room *r, const struct room_holder *asker, uint64_t more)
{
    for (unsigned ends = 0; r->used > r->rules.most - more; ends++) {
        struct room_place *p = ends < ENDS_MAX ? who_gives_way(r, asker, more) : NULL;
        if (p == NULL || p->units > r->rules.ending_most || r->ending > r->rules.ending_most - p->units)
            return false;
        p->is_ending = true;
        p->holder->units -= p->units;
        r->used -= p->units;
        r->ending += p->units;
        r->rules.end(p);
    }
    return true;
}

/* ---- the room ---------------------------------------------------------------------------------------------------- */

void room_init(struct room *r, const struct room_rules *rules)
{
    *r = (struct room){.rules = *rules};
    TAILQ_INIT(&r->holders);
    (void)pthread_mutex_init(&r->lock, NULL);
}

void room_clear(struct room *r)
{
    assert(TAILQ_EMPTY(&r->holders));
    (void)pthread_mutex_destroy(&r->lock);
}

static enum room_answer take(struct room *r, struct room_place *place, struct room_holder *h, uint64_t units)
{
    const struct room_rules *rules = &r->rules;
    const bool is_bound = rules->most_of_client > 0 && h->client.kind != CLIENT_UNIX;
    const uint64_t of_client = is_bound ? rules->most_of_client : UINT64_MAX;
    const uint64_t most = of_client < rules->most ? of_client : rules->most;
    if (units > most || place->units > most - units)
        return ROOM_NEVER;
    if (h->units > of_client - units)
        return ROOM_OF_CLIENT;
    if (place->is_ending || !make_room(r, h, units))
        return ROOM_FULL;
    if (place->holder == NULL) {
        place->holder = h;
        TAILQ_INSERT_TAIL(&h->places, place, of_holder);
    }
    place->units += units;
    h->units += units;
    r->used += units;
    return ROOM_FITS;
}

enum room_answer room_take(struct room *r, struct room_place *place, const struct client_id *client, uint64_t units)
{
    enum room_answer answer = ROOM_NO_MEMORY;
    (void)pthread_mutex_lock(&r->lock);
    struct room_holder *h = place->holder != NULL ? place->holder : holder_of(r, client);
    if (h != NULL) {
        answer = take(r, place, h, units);
        drop_if_empty(r, h);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return answer;
}

void room_leave(struct room *r, struct room_place *place)
{
    if (place->holder == NULL) /* set by the owner's own thread alone */
        return;
    (void)pthread_mutex_lock(&r->lock);
    struct room_holder *h = place->holder;
    if (place->is_ending) {
        r->ending -= place->units;
    } else {
        r->used -= place->units;
        h->units -= place->units;
    }
    TAILQ_REMOVE(&h->places, place, of_holder);
    *place = (struct room_place){.holder = NULL};
    drop_if_empty(r, h);
    (void)pthread_mutex_unlock(&r->lock);
}

void room_move(struct room *r, struct room_place *from, struct room_place *to)
{
    if (from->holder == NULL)
        return;
    (void)pthread_mutex_lock(&r->lock);
    struct room_holder *h = from->holder;
    *to = *from;
    TAILQ_INSERT_TAIL(&h->places, to, of_holder);
    TAILQ_REMOVE(&h->places, from, of_holder);
    *from = (struct room_place){.holder = NULL};
    (void)pthread_mutex_unlock(&r->lock);
}
