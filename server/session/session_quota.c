/* session_quota.c - see session_quota.h. */
#include "server/session/session_quota.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "config/limits.h"

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Of sessions of that size. */
static uint64_t room_for(const struct session_use *room, uint64_t bytes)
{
    return lesser(room->count, room->bytes / bytes);
}

enum session_answer session_quota_ask(const struct session_quota *r, const struct session_use *used,
                                      const struct session_use *has, uint64_t count, uint64_t bytes)
{
    const struct session_use *most = &r->most;
    if (r->most_of_client > 0 && has->count + count > r->most_of_client)
        return SESSION_QUOTA_OF_CLIENT;
    if (used->count + count > most->count)
        return SESSION_QUOTA_TOO_MANY;
    if (bytes * count > most->bytes || used->bytes > most->bytes - bytes * count)
        return SESSION_QUOTA_TOO_LARGE;
    if (r->most_of_client > 0 || has->count + count == 1)
        return SESSION_QUOTA_FITS;
    const struct session_use left = {most->count - used->count - count, most->bytes - used->bytes - bytes * count};
    const uint64_t all = room_for(most, bytes), little = all / SESSIONS_LITTLE_PART;
    const bool has_little = has->count + count <= little && has->bytes + bytes * count <= little * bytes;
    return has_little || room_for(&left, bytes) >= all / SESSIONS_KEPT_PART ? SESSION_QUOTA_FITS
                                                                            : SESSION_QUOTA_KEPT_BACK;
}

/* ---- who has what ----------------------------------------------------------------------------------------------- */

static size_t chain_of(const struct client_id *client)
{
    uint32_t hash = client->kind;
    for (size_t i = 0; i < sizeof client->bytes; i++)
        hash = (hash ^ client->bytes[i]) * 16777619U; /* FNV-1a */
    return hash % SESSION_QUOTA_CHAINS;
}

struct session_holder *session_quota_find(const struct session_quota *r, const struct client_id *client)
{
    struct session_holder *h = r->chains[chain_of(client)];
    while (h != NULL && !client_id_is_same(&h->client, client))
        h = h->next;
    return h;
}

struct session_use session_quota_use(const struct session_quota *r, const struct client_id *client)
{
    const struct session_holder *h = session_quota_find(r, client);
    return h != NULL ? h->has : (struct session_use){0};
}

enum status session_quota_check(const struct session_quota *r, const struct client_id *client, uint64_t count,
                                uint64_t bytes, struct error *err)
{
    const struct session_use *most = &r->most, *used = &r->used, has = session_quota_use(r, client);
    const char *who = client->kind == CLIENT_KEY ? "the key" : "the client's address";
    switch (session_quota_ask(r, used, &has, count, bytes)) {
    case SESSION_QUOTA_FITS:
        break;
    case SESSION_QUOTA_OF_CLIENT:
        return error_set(err, ERR_RATE,
                         "%s has %" PRIu64 " of at most %" PRIu64 " sessions, and asks for %" PRIu64 " more", who,
                         has.count, r->most_of_client, count);
    case SESSION_QUOTA_TOO_MANY:
        return error_set(err, ERR_SESSIONS,
                         "there are %" PRIu64 " of at most %" PRIu64 " sessions, and the request asks for %" PRIu64
                         " more",
                         used->count, most->count, count);
    case SESSION_QUOTA_TOO_LARGE:
        return error_set(err, ERR_SESSIONS,
                         "sessions take %" PRIu64 " of at most %" PRIu64 " bytes, and the request asks for %" PRIu64
                         " more of %" PRIu64 " bytes each",
                         used->bytes, most->bytes, count, bytes);
    case SESSION_QUOTA_KEPT_BACK:
        return error_set(err, ERR_SESSIONS,
                         "%s has %" PRIu64 " of %" PRIu64 " sessions and asks for %" PRIu64
                         " more; the last quarter of the room is kept for clients with at most a %dth of it",
                         who, has.count, used->count, count, SESSIONS_LITTLE_PART);
    }
    return OK;
}

struct session_holder *session_quota_take(struct session_quota *r, const struct client_id *client, uint64_t count,
                                          uint64_t bytes)
{
    struct session_holder *h = session_quota_find(r, client);
    if (h == NULL) {
        struct session_holder **chain = &r->chains[chain_of(client)];
        h = calloc(1, sizeof *h);
        if (h == NULL)
            return NULL;
        h->client = *client;
        h->next = *chain;
        *chain = h;
    }
    h->has.count += count;
    h->has.bytes += count * bytes;
    r->used.count += count;
    r->used.bytes += count * bytes;
    return h;
}

void session_quota_give(struct session_quota *r, struct session_holder *holder, uint64_t bytes)
{
    assert(holder->has.count > 0 && holder->has.bytes >= bytes);
    r->used.count--;
    r->used.bytes -= bytes;
    holder->has.count--;
    holder->has.bytes -= bytes;
    if (holder->has.count > 0)
        return;
    struct session_holder **at = &r->chains[chain_of(&holder->client)];
    while (*at != holder)
        at = &(*at)->next;
    *at = holder->next;
    free(holder);
}

void session_quota_mark(struct session_quota *r, bool (*stays)(void *arg, const struct client_id *client), void *arg)
{
    for (size_t i = 0; i < SESSION_QUOTA_CHAINS; i++)
        for (struct session_holder *h = r->chains[i]; h != NULL; h = h->next)
            h->is_marked = !stays(arg, &h->client);
}
