/* quota.c - see quota.h. What a search has looked at goes to the end of its list, of owners or of an owner's shares: so
 * each search begins where the last one ended, and those far away have their turn. */
#include "server/http/quota.h"

#include <assert.h>
#include <stdlib.h>

#include "server/core/clock.h"

enum { ENDS_MAX = 64 }; /* shares that end for one that asks */

/* A client that holds something. */
struct quota_owner {
    TAILQ_ENTRY(quota_owner) of_quota;
    LIST_ENTRY(quota_owner) of_chain;
    TAILQ_HEAD(, quota_share) shares;
    struct client_id client;
    uint64_t units; /* without those that are ending */
};

/* ---- owners ----------------------------------------------------------------------------------------------------- */

static struct quota_chain *chain_of(struct quota *r, const struct client_id *client)
{
    uint32_t hash = (2166136261U ^ client->kind) * 16777619U; /* FNV-1a */
    for (size_t i = 0; i < sizeof client->bytes; i++)
        hash = (hash ^ client->bytes[i]) * 16777619U;
    return &r->chains[hash % QUOTA_CHAINS];
}

/* A new one holds nothing. NULL: out of memory. */
static struct quota_owner *owner_of(struct quota *r, const struct client_id *client)
{
    struct quota_chain *chain = chain_of(r, client);
    struct quota_owner *h = LIST_FIRST(chain);
    while (h != NULL && !client_id_is_same(&h->client, client))
        h = LIST_NEXT(h, of_chain);
    if (h != NULL)
        return h;
    h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    h->client = *client;
    TAILQ_INIT(&h->shares);
    LIST_INSERT_HEAD(chain, h, of_chain);
    TAILQ_INSERT_TAIL(&r->owners, h, of_quota);
    return h;
}

static void drop_if_empty(struct quota *r, struct quota_owner *h)
{
    if (!TAILQ_EMPTY(&h->shares))
        return;
    LIST_REMOVE(h, of_chain);
    TAILQ_REMOVE(&r->owners, h, of_quota);
    free(h);
}

/* ---- who gives way ---------------------------------------------------------------------------------------------- */

struct search {
    struct quota *quota;
    const struct quota_owner *asker;
    uint64_t units; /* that the asker would hold */
    uint64_t now_ns;
    unsigned looks; /* that are left */
    struct quota_share *best;
    struct quota_view best_look;
};

static bool is_better(const struct search *s, const struct quota_share *p, const struct quota_view *look)
{
    if (s->best == NULL || look->ease != s->best_look.ease)
        return s->best == NULL || look->ease > s->best_look.ease;
    const uint64_t units = p->owner->units, best_units = s->best->owner->units;
    return units != best_units ? units > best_units : look->order > s->best_look.order;
}

static void quota_look_at(struct search *s, struct quota_share *p)
{
    const struct quota_owner *h = p->owner;
    const struct quota_view look = s->quota->rules.view(p, s->now_ns);
    const bool may_end = look.ease == QUOTA_IDLE || (look.ease == QUOTA_BUSY && h != s->asker && h->units > s->units);
    if (!p->is_ending && may_end && is_better(s, p, &look)) {
        s->best = p;
        s->best_look = look;
    }
}

static void look_at_places(struct search *s, struct quota_owner *h)
{
    const struct quota_share *first = TAILQ_FIRST(&h->shares);
    do {
        struct quota_share *p = TAILQ_FIRST(&h->shares);
        quota_look_at(s, p);
        TAILQ_REMOVE(&h->shares, p, of_owner);
        TAILQ_INSERT_TAIL(&h->shares, p, of_owner);
    } while (--s->looks > 0 && TAILQ_FIRST(&h->shares) != first);
}

/* NULL: nobody. */
static struct quota_share *who_gives_way(struct quota *r, const struct quota_owner *asker, uint64_t more)
{
    struct search s = {
        .quota = r, .asker = asker, .units = asker->units + more, .now_ns = clock_now_ns(), .looks = QUOTA_LOOKS_MAX};
    const struct quota_owner *first = TAILQ_FIRST(&r->owners);
    do {
        struct quota_owner *h = TAILQ_FIRST(&r->owners);
        if (!TAILQ_EMPTY(&h->shares) && (h == asker || h->units >= s.units))
            look_at_places(&s, h);
        else
            s.looks--;
        TAILQ_REMOVE(&r->owners, h, of_quota);
        TAILQ_INSERT_TAIL(&r->owners, h, of_quota);
    } while (s.looks > 0 && TAILQ_FIRST(&r->owners) != first);
    return s.best;
}

static bool make_room(struct quota *r, const struct quota_owner *asker, uint64_t more)
{
    for (unsigned ends = 0; r->used > r->rules.most - more; ends++) {
        struct quota_share *p = ends < ENDS_MAX ? who_gives_way(r, asker, more) : NULL;
        if (p == NULL || p->units > r->rules.ending_most || r->ending > r->rules.ending_most - p->units)
            return false;
        p->is_ending = true;
        p->owner->units -= p->units;
        r->used -= p->units;
        r->ending += p->units;
        r->rules.end(p);
    }
    return true;
}

/* ---- the quota --------------------------------------------------------------------------------------------------- */

void quota_init(struct quota *r, const struct quota_rules *rules)
{
    *r = (struct quota){.rules = *rules};
    TAILQ_INIT(&r->owners);
    (void)pthread_mutex_init(&r->lock, NULL);
}

void quota_clear(struct quota *r)
{
    assert(TAILQ_EMPTY(&r->owners));
    (void)pthread_mutex_destroy(&r->lock);
}

static enum quota_answer take(struct quota *r, struct quota_share *share, struct quota_owner *h, uint64_t units)
{
    const struct quota_rules *rules = &r->rules;
    const bool is_bound = rules->most_of_client > 0 && h->client.kind != CLIENT_UNIX;
    const uint64_t of_client = is_bound ? rules->most_of_client : UINT64_MAX;
    const uint64_t most = of_client < rules->most ? of_client : rules->most;
    if (units > most || share->units > most - units)
        return QUOTA_NEVER;
    if (h->units > of_client - units)
        return QUOTA_OF_CLIENT;
    if (share->is_ending || !make_room(r, h, units))
        return QUOTA_FULL;
    if (share->owner == NULL) {
        share->owner = h;
        TAILQ_INSERT_TAIL(&h->shares, share, of_owner);
    }
    share->units += units;
    h->units += units;
    r->used += units;
    return QUOTA_FITS;
}

enum quota_answer quota_take(struct quota *r, struct quota_share *share, const struct client_id *client, uint64_t units)
{
    enum quota_answer answer = QUOTA_NO_MEMORY;
    (void)pthread_mutex_lock(&r->lock);
    struct quota_owner *h = share->owner != NULL ? share->owner : owner_of(r, client);
    if (h != NULL) {
        answer = take(r, share, h, units);
        drop_if_empty(r, h);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return answer;
}

void quota_release(struct quota *r, struct quota_share *share)
{
    if (share->owner == NULL) /* set by the owner's own thread alone */
        return;
    (void)pthread_mutex_lock(&r->lock);
    struct quota_owner *h = share->owner;
    if (share->is_ending) {
        r->ending -= share->units;
    } else {
        r->used -= share->units;
        h->units -= share->units;
    }
    TAILQ_REMOVE(&h->shares, share, of_owner);
    *share = (struct quota_share){.owner = NULL};
    drop_if_empty(r, h);
    (void)pthread_mutex_unlock(&r->lock);
}
