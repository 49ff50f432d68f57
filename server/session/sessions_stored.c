/* sessions_stored.c - sessions.h with a store: what it has when the daemon begins, which states are in memory besides,
 * and what is read and written. A session's record is written before it is where the record says, and its key is used
 * by one at a time: by whoever holds the session, or fetches it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/session/session_record.h"
#include "server/session/sessions_inner.h"

enum { TOUCHED_PART = 16 }; /* a store may think that a session was last used that part of session_ttl_s earlier */

/* ---- which are in memory ---------------------------------------------------------------------------------------- */

static void sessions_stored_show(const struct sessions *s)
{
    metrics_gauge_set(METRIC_SESSIONS_LOADED_BYTES, 0, s->loaded.bytes);
}

void sessions_unload_locked(struct sessions *s, struct session *one)
{
    if (!one->is_counted)
        return;
    one->is_counted = false;
    s->loaded.count--;
    s->loaded.bytes -= one->head.memory_bytes;
    sessions_stored_show(s);
}

enum status sessions_load_locked(struct sessions *s, struct session *one, struct error *err)
{
    if (s->store == NULL || one->is_counted)
        return OK;
    while (s->loaded.count + 1 > s->loaded_max.count ||
           s->loaded.bytes + one->head.memory_bytes > s->loaded_max.bytes) {
        struct session *cold = TAILQ_FIRST(&s->warm);
        if (cold == NULL) {
            (void)error_set(err, ERR_SESSIONS, "all sessions that are in memory are in use; try again soon");
            error_retry_after(err, 1);
            return ERR_SESSIONS;
        }
        sessions_unwarm_locked(s, cold);
        session_state_release(cold->state);
        cold->state = NULL;
        sessions_unload_locked(s, cold);
    }
    one->is_counted = true;
    s->loaded.count++;
    s->loaded.bytes += one->head.memory_bytes;
    sessions_stored_show(s);
    return OK;
}

void sessions_warm_locked(struct sessions *s, struct session *one)
{
    if (s->store == NULL || one->state == NULL || !one->is_stored || one->is_warm)
        return;
    one->is_warm = true;
    TAILQ_INSERT_TAIL(&s->warm, one, warm);
}

void sessions_unwarm_locked(struct sessions *s, struct session *one)
{
    if (!one->is_warm)
        return;
    one->is_warm = false;
    TAILQ_REMOVE(&s->warm, one, warm);
}

void sessions_touch_locked(struct sessions *s, struct session *one)
{
    const uint64_t late_ns = s->settings->session_ttl_s * CLOCK_NS_PER_S / TOUCHED_PART;
    if (!one->is_stored || one->used_ns - one->touched_ns < late_ns)
        return;
    one->touched_ns = one->used_ns;
    (void)s->store->kind->touch(s->store, &one->key, &one->claim);
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

/* Have the store keep `one` as it is at `snapshot`. */
static enum status put_record(const struct sessions *s, const struct session *one, const struct session_claim *claim,
                              const struct session_head *head, const struct stream_snapshot *snapshot,
                              struct error *err)
{
    struct session_bytes record;
    enum status st = session_record_make(&record, head, snapshot, err);
    if (st != OK)
        return st;
    st = record.size <= STATE_BYTES_MAX ? s->store->kind->put(s->store, &one->key, claim, &record, err)
                                        : error_set(err, ERR_STORE, "the session has %zu bytes, expected at most %d",
                                                    record.size, STATE_BYTES_MAX);
    free(record.bytes);
    return st;
}

/* ---- shared ----------------------------------------------------------------------------------------------------- */

struct session_info sessions_unknown(const struct sessions *s, const struct client_id *who, const char *id)
{
    struct session_info info = {.key = session_key_of(who, id), .expires_in_s = s->settings->session_ttl_s};
    (void)snprintf(info.head.id, sizeof info.head.id, "%s", id);
    return info;
}

enum status sessions_begin_shared_locked(struct sessions *s, const struct client_id *who, const char *id,
                                         struct session_info *ret, struct error *err)
{
    if (!session_id_is_fine(id))
        return sessions_none(s, id, err);
    const struct session_key key = session_key_of(who, id);
    if (sessions_check_leaving_locked(s, &key, id, err) != OK)
        return ERR_CONFLICT;
    struct session *one = calloc(1, sizeof *one);
    if (one == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for a session; try again later");
    one->head.memory_bytes = sizeof *one; /* until it was read */
    (void)snprintf(one->head.id, sizeof one->head.id, "%s", id);
    const enum status st = sessions_put_list_locked(s, who, one, 1, ret, err);
    if (st != OK)
        free(one);
    return st;
}

/* What its record says, of one that was begun by its id alone. */
static enum status learn(struct sessions *s, struct session *one, const struct session_head *head, struct error *err)
{
    struct session *gone = sessions_enter(s);
    const bool is_there = !one->is_removed;                            /* then it has room, and a holder */
    const uint64_t more = head->memory_bytes - one->head.memory_bytes; /* than was thought; it may wrap around */
    const bool fits = is_there && s->loaded.bytes + more <= s->loaded_max.bytes;
    if (fits) {
        s->loaded.bytes += more;
        s->quota.used.bytes += more;
        one->holder->has.bytes += more;
        one->head = *head;
        sessions_stored_show(s);
    }
    sessions_leave(s, gone);
    if (!is_there)
        return sessions_none(s, one->head.id, err);
    if (fits)
        return OK;
    (void)error_set(err, ERR_SESSIONS, "sessions in use take all of sessions_memory_max_mb; try again soon");
    error_retry_after(err, 1);
    return ERR_SESSIONS;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* The record is of no use. Of a store that is shared it may be to others, as while daemons are upgraded one after the
 * other. Else nobody shall find the session any more, unless it has gone on meanwhile, or another request has it, and
 * is about to; the record stays until another takes its place, or its time is over. */
static enum status give_up(struct sessions *s, const struct session_info *i, const struct error *why, struct error *err)
{
    char text[SESSION_KEY_TEXT];
    struct session *gone = sessions_enter(s), *one = sessions_look_up_locked(s, &i->key, i->head.id);
    if (!sessions_are_shared(s) && one != NULL &&
        (one == i->held || (!one->is_held && one->head.turn == i->head.turn))) {
        one->is_stored = false;
        gone = sessions_take_out_locked(s, one, gone);
    }
    sessions_leave(s, gone);
    session_key_print(&i->key, text);
    log_warning("the session stored as %s is refused: %s", text, why->message);
    return error_set_param(err, sessions_are_shared(s) ? ERR_CONFLICT : ERR_NOT_FOUND, "session",
                           "the session \"%s\" cannot be read: %s", json_quote(i->head.id).text, why->message);
}

/* Another thread may have fetched it too, or it went on. */
static void take_state(struct sessions *s, const struct session_key *key, struct session_info *i)
{
    struct session *gone = sessions_enter(s);
    struct session *one = sessions_look_up_locked(s, key, i->head.id);
    struct session_state *unused = NULL;
    if (i->held == NULL && sessions_are_shared(s))
        i->is_busy = one != NULL;
    if (one != NULL && one->head.turn != i->head.turn)
        one = NULL;
    i->state->is_read = true;
    if (one != NULL && one->state != NULL) { /* all forks from here are numbered together */
        unused = i->state;
        i->state = session_state_reference(one->state);
        i->snapshot = i->state->snapshot;
    } else if (one != NULL && sessions_load_locked(s, one, NULL) == OK) {
        one->state = session_state_reference(i->state);
        if (!one->is_held)
            sessions_warm_locked(s, one);
    }
    sessions_leave(s, gone);
    session_state_release(unused);
}

static void set_claim(struct sessions *s, struct session *one, const struct session_claim *claim)
{
    (void)pthread_mutex_lock(&s->lock);
    one->claim = *claim;
    (void)pthread_mutex_unlock(&s->lock);
}

enum status sessions_fetch(struct sessions *s, struct session_info *i, struct error *err)
{
    const struct session_key key = i->key;
    struct session_bytes record = {.bytes = NULL};
    struct session_claim claim = {.token = ""};
    struct stream_snapshot snapshot;
    struct session_head head;
    struct error why;
    enum status st = s->store->kind->get(s->store, &key, i->held != NULL ? &claim : NULL, &record, &why);
    if (st == OK && i->held != NULL)
        set_claim(s, i->held, &claim);
    if (st == OK)
        st = session_record_read(&head, &snapshot, &record, &key, &why);
    free(record.bytes);
    if (st == ERR_FORMAT)
        return give_up(s, i, &why, err);
    if (st == ERR_NOT_FOUND)
        return sessions_none(s, i->head.id, err);
    if (st != OK) {
        (void)error_set_param(err, st, st == ERR_CONFLICT ? "session" : "", "%s", why.message);
        error_retry_after(err, st == ERR_CONFLICT ? 1 : 0); /* it is with another daemon */
        return st;
    }
    if (i->held != NULL && s->store->kind->is_shared)
        st = learn(s, i->held, &head, err);
    struct session_state *state = st == OK ? session_state_create(&snapshot) : NULL;
    if (state == NULL) {
        stream_snapshot_clear(&snapshot);
        return st != OK ? st : error_set(err, ERR_NOMEM, "out of memory for a session; try again later");
    }
    i->state = state;
    i->snapshot = snapshot;
    i->head = head;
    take_state(s, &key, i);
    i->snapshot.sampler.options.sample = head.sample;
    return OK;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* Not by whoever has put it into a store that is shared: there sessions_remove has asked for that itself, after which
 * others may have made a new one. */
void sessions_take_back(const struct sessions *s, const struct session_key *key)
{
    struct error err;
    const enum status st = s->store->kind->remove(s->store, key, &err);
    if (st != OK && st != ERR_NOT_FOUND)
        log_warning("a session that has ended is still stored: %s", err.message);
}

static bool was_removed(struct sessions *s, const struct session *one)
{
    struct session *gone = sessions_enter(s);
    const bool is_removed = one->is_removed;
    sessions_leave(s, gone);
    return is_removed;
}

enum status sessions_write(struct sessions *s, struct session_info *held, const struct stream_snapshot *snapshot,
                           struct error *err)
{
    struct session *one = held->held;
    struct session_head head = one->head;
    assert(one->is_held);
    session_head_move(&head, snapshot);
    struct session_state *state = session_state_create(snapshot), *old = NULL;
    if (state == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for a session; try again later");
    enum status st = s->store != NULL ? put_record(s, one, &one->claim, &head, snapshot, err) : OK;
    const bool is_gone = st == ERR_CONFLICT && was_removed(s, one);
    if (is_gone)
        st = OK; /* there is nothing left to move; whoever has that id by now has another session */
    if (st != OK) {
        free(state); /* the snapshot's memory is still the caller's */
        return st;
    }
    struct session *gone = sessions_enter(s);
    old = one->state;
    one->state = state;
    one->head = head;
    one->claim = (struct session_claim){.token = ""}; /* it ended with that */
    one->touched_ns = clock_now_ns();
    sessions_leave(s, gone);
    session_state_release(old);
    if (s->store != NULL && !is_gone && !sessions_are_shared(s) && was_removed(s, one))
        sessions_take_back(s, &one->key);
    return OK;
}

static enum status write_first(struct sessions *s, const struct session_info *i, struct error *err)
{
    struct session *one = i->held;
    const enum status st = put_record(s, one, NULL, &one->head, &i->snapshot, err);
    if (st == ERR_CONFLICT)
        return error_set_param(err, st, "session", "there is a session \"%s\" already", json_quote(i->head.id).text);
    if (st != OK)
        return st;
    struct session *gone = sessions_enter(s);
    one->is_stored = true;
    one->touched_ns = clock_now_ns();
    const bool is_removed = one->is_removed;
    sessions_leave(s, gone);
    if (is_removed && !sessions_are_shared(s))
        sessions_take_back(s, &one->key);
    return OK;
}

enum status sessions_write_new(struct sessions *s, struct session_info infos[], size_t count, struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < count && st == OK; i++) {
        st = write_first(s, &infos[i], err);
        infos[i].is_busy = false;
    }
    for (size_t i = 0; i < count && st != OK; i++) {
        if (infos[i].held->is_stored && sessions_are_shared(s)) /* all or none */
            sessions_take_back(s, &infos[i].held->key);
        struct session *gone = sessions_enter(s);
        if (!infos[i].held->is_removed)
            gone = sessions_take_out_locked(s, infos[i].held, gone);
        sessions_leave(s, gone);
        sessions_end(s, &infos[i]);
    }
    return st;
}
