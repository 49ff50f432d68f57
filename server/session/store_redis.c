/* store_redis.c - see store_redis.h. What is asked of the server is in store_redis_scripts.c, how in
 * store_redis_pool.c. */
#include "server/session/store_redis.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/core/log.h"
#include "server/session/store_redis_leases.h"
#include "server/session/store_redis_pool.h"
#include "server/session/store_redis_scripts.h"

enum { KEY_TEXT_MAX = STORE_PREFIX_MAX + SESSION_KEY_TEXT + 8, NUMBER_TEXT_MAX = 24 };

struct store_redis {
    struct session_store store; /* first */
    struct redis_pool *pool;
    struct redis_leases leases;
    struct redis_script scripts[REDIS_SCRIPTS];
    atomic_uint_fast64_t tokens;        /* handed out */
    char daemon[REDIS_DAEMON_TEXT + 1]; /* what the tokens begin with */
    char prefix[STORE_PREFIX_MAX + 1], name[STORE_NAME_MAX + 1];
    char ttl_ms[NUMBER_TEXT_MAX], lease_ms[NUMBER_TEXT_MAX];
    char renewed[2 * STORE_RENEWED_AT_A_TIME][KEY_TEXT_MAX]; /* keys: the renewing thread's */
};

/* What a call is given that is made for it. */
struct texts {
    char record[KEY_TEXT_MAX], lease[KEY_TEXT_MAX];
    char number[NUMBER_TEXT_MAX], most[NUMBER_TEXT_MAX];
    char token[REDIS_TOKEN_TEXT + 1];
};

static struct store_redis *whole_of(struct session_store *s)
{
    return (struct store_redis *)(void *)s;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void print_keys(const struct store_redis *s, const struct session_key *key, char record[KEY_TEXT_MAX],
                       char lease[KEY_TEXT_MAX])
{
    char hex[SESSION_KEY_TEXT];
    session_key_print(key, hex);
    (void)snprintf(record, KEY_TEXT_MAX, "%s%s", s->prefix, hex);
    (void)snprintf(lease, KEY_TEXT_MAX, "%s%s:lease", s->prefix, hex);
}

static void begin(struct store_redis *s, struct redis_call *c, struct texts *t, enum redis_script_name script,
                  const struct session_key *key)
{
    redis_call_init(c, &s->scripts[script]);
    print_keys(s, key, t->record, t->lease);
    redis_call_add_text(c, t->record);
    redis_call_add_text(c, t->lease);
    c->keys = 2;
}

static void add_number(struct redis_call *c, char out[NUMBER_TEXT_MAX], uint64_t number)
{
    (void)snprintf(out, NUMBER_TEXT_MAX, "%" PRIu64, number);
    redis_call_add_text(c, out);
}

static void make_token(struct store_redis *s, char out[REDIS_TOKEN_TEXT + 1])
{
    (void)snprintf(out, REDIS_TOKEN_TEXT + 1, "%s%016" PRIx64, s->daemon, (uint64_t)atomic_fetch_add(&s->tokens, 1));
}

/* A call whose answer is one letter, into *said. */
static enum status call_for_letter(struct store_redis *s, const struct redis_call *c, const char *letters, char *said,
                                   struct error *err)
{
    struct redis_reply reply;
    enum status st = redis_pool_call(s->pool, c, &reply, err);
    if (st != OK)
        return st;
    if (reply.size == 1 && strchr(letters, reply.text[0]) != NULL)
        *said = reply.text[0];
    else
        st = redis_pool_reply_is_wrong(err);
    redis_reply_clear(&reply);
    return st;
}

/* A record of this size would be refused when it is read. */
static enum status check_size(const struct session_bytes *record, struct error *err)
{
    if (record->size <= STORE_RECORD_BYTES_MAX)
        return OK;
    return error_set(err, ERR_STORE, "the session takes %zu bytes, the session store at most %u", record->size,
                     STORE_RECORD_BYTES_MAX);
}

/* What take and look have answered: S, or R, and w behind it. *ret is its record, if it is R. */
static enum status read_record(const struct redis_reply *reply, struct session_bytes *ret, struct error *err)
{
    const size_t head = 1 + REDIS_TOKEN_TEXT;
    *ret = (struct session_bytes){.bytes = NULL};
    if (reply->size < head || (reply->text[0] == 'S' ? reply->size != head : reply->text[0] != 'R'))
        return redis_pool_reply_is_wrong(err);
    if (reply->text[0] == 'S')
        return OK;
    ret->size = reply->size - head;
    ret->bytes = malloc(ret->size + 1); /* not NULL if it is empty */
    if (ret->bytes == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for a session");
    memcpy(ret->bytes, reply->text + head, ret->size);
    return OK;
}

static enum status read_refusal(const struct redis_reply *reply, struct error *err)
{
    const char letter = reply->size > 0 ? reply->text[0] : '\0';
    if (letter == 'N')
        return error_set(err, ERR_NOT_FOUND, "the session store has no such session");
    if (letter == 'C')
        return error_set(err, ERR_CONFLICT, "another request has the session, in the daemon \"%.*s\"", STORE_NAME_MAX,
                         reply->text + 1);
    if (letter == 'B')
        return error_set(err, ERR_STORE, "the session store has a record of more than %u bytes of the session",
                         STORE_RECORD_BYTES_MAX);
    return OK;
}

/* ---- the functions of a store ------------------------------------------------------------------------------------ */

static enum status add(struct session_store *store, const struct session_key *key, uint64_t turn,
                       const struct session_bytes *record, struct error *err)
{
    struct store_redis *s = whole_of(store);
    struct redis_call c;
    struct texts t;
    char said = '\0';
    enum status st = check_size(record, err);
    if (st != OK)
        return st;
    begin(s, &c, &t, REDIS_ADD, key);
    make_token(s, t.token);
    redis_call_add_text(&c, t.token);
    add_number(&c, t.number, turn);
    redis_call_add_text(&c, s->ttl_ms);
    redis_call_add(&c, record->bytes, record->size);
    st = call_for_letter(s, &c, "KX", &said, err);
    if (st == OK && said == 'X')
        st = error_set(err, ERR_CONFLICT, "the session store has such a session already");
    return st;
}

/* Give back what was taken; a failure has no effect but that it takes until the lease expires. */
static enum status end_lease(struct store_redis *s, const struct redis_lease *lease, uint64_t turn,
                             const struct session_bytes *record, struct error *err)
{
    struct redis_call c;
    struct texts t;
    char said = '\0';
    begin(s, &c, &t, REDIS_GIVE, &lease->key);
    redis_call_add_text(&c, lease->token);
    redis_call_add_text(&c, lease->w);
    redis_call_add_text(&c, s->ttl_ms);
    if (record != NULL) {
        add_number(&c, t.number, turn);
        redis_call_add(&c, record->bytes, record->size);
    }
    const enum status st = call_for_letter(s, &c, "KNL", &said, err);
    if (st != OK || said == 'K')
        return st;
    return error_set(err, ERR_CONFLICT,
                     said == 'N' ? "the session was removed meanwhile"
                                 : "another daemon has gone on with the session meanwhile, since this one could not "
                                   "reach the session store");
}

static enum status take(struct session_store *store, const struct session_key *key, uint64_t turn,
                        struct session_bytes *ret, struct error *err)
{
    struct store_redis *s = whole_of(store);
    struct redis_call c;
    struct redis_reply reply;
    struct redis_lease lease;
    struct session_bytes record;
    struct texts t;
    make_token(s, t.token);
    if (!redis_leases_ask(&s->leases, key, t.token))
        return error_set(err, ERR_NOMEM, "out of memory for a session");
    begin(s, &c, &t, REDIS_TAKE, key);
    redis_call_add_text(&c, t.token);
    add_number(&c, t.number, turn);
    redis_call_add_text(&c, s->ttl_ms);
    redis_call_add_text(&c, s->lease_ms);
    redis_call_add_text(&c, s->name);
    add_number(&c, t.most, STORE_RECORD_BYTES_MAX);
    c.reply_max = STORE_RECORD_BYTES_MAX + STORE_REPLY_BYTES_MAX;
    enum status st = redis_pool_call(s->pool, &c, &reply, err);
    if (st != OK) {
        (void)redis_leases_end(&s->leases, key, NULL);
        return st;
    }
    st = read_refusal(&reply, err);
    if (st == OK) {
        st = read_record(&reply, &record, err);
        if (reply.size > REDIS_TOKEN_TEXT)
            redis_leases_hold(&s->leases, key, reply.text + 1);
    }
    redis_reply_clear(&reply);
    if (st == OK)
        *ret = record;
    else if (redis_leases_end(&s->leases, key, &lease) && lease.state == REDIS_LEASE_HELD)
        (void)end_lease(s, &lease, 0, NULL, NULL);
    return st;
}

static enum status give(struct session_store *store, const struct session_key *key, uint64_t turn,
                        const struct session_bytes *record, struct error *err)
{
    struct store_redis *s = whole_of(store);
    struct redis_lease lease;
    if (!redis_leases_end(&s->leases, key, &lease))
        return error_set(err, ERR_CONFLICT, "the session was removed or given back meanwhile, or never taken");
    const enum status st = record != NULL ? check_size(record, err) : OK;
    if (st == OK)
        return end_lease(s, &lease, turn, record, err);
    (void)end_lease(s, &lease, 0, NULL, NULL);
    return st;
}

static void let_go(struct session_store *store, const struct session_key *key)
{
    struct store_redis *s = whole_of(store);
    if (redis_leases_leave(&s->leases, key))
        redis_pool_work(s->pool);
}

/* The keeper's. If this daemon has taken one anew meanwhile, the token tells the server that the lease is another. */
static void end_left(void *arg)
{
    struct store_redis *s = arg;
    struct redis_lease lease;
    struct error err;
    while (redis_leases_next_left(&s->leases, &lease)) {
        const enum status st = end_lease(s, &lease, 0, NULL, &err);
        if (st != OK && st != ERR_CONFLICT)
            log_warning("a session is kept from other daemons until its lease ends: %s", err.message);
    }
}

static enum status look(struct session_store *store, const struct session_key *key, uint64_t turn,
                        struct session_bytes *ret, struct error *err)
{
    struct store_redis *s = whole_of(store);
    struct redis_call c;
    struct redis_reply reply;
    struct session_bytes record;
    struct texts t;
    begin(s, &c, &t, REDIS_LOOK, key);
    add_number(&c, t.number, turn);
    add_number(&c, t.most, STORE_RECORD_BYTES_MAX);
    c.reply_max = STORE_RECORD_BYTES_MAX + STORE_REPLY_BYTES_MAX;
    enum status st = redis_pool_call(s->pool, &c, &reply, err);
    if (st != OK)
        return st;
    st = read_refusal(&reply, err);
    if (st == OK)
        st = read_record(&reply, &record, err);
    redis_reply_clear(&reply);
    if (st == OK)
        *ret = record;
    return st;
}

static enum status remove_session(struct session_store *store, const struct session_key *key, struct error *err)
{
    struct store_redis *s = whole_of(store);
    struct redis_call c;
    struct texts t;
    char said;
    begin(s, &c, &t, REDIS_REMOVE, key);
    redis_call_add_text(&c, s->daemon);
    const enum status st = call_for_letter(s, &c, "K", &said, err);
    if (st == OK)
        (void)redis_leases_end(&s->leases, key, NULL);
    return st;
}

static void set_aside(struct session_store *store, const struct session_key *key)
{
    struct store_redis *s = whole_of(store);
    struct redis_call c;
    struct error err;
    struct texts t;
    char said, hex[SESSION_KEY_TEXT], count[KEY_TEXT_MAX], places[KEY_TEXT_MAX];
    (void)redis_leases_end(&s->leases, key, NULL);
    session_key_print(key, hex);
    (void)snprintf(count, sizeof count, "%saside:count", s->prefix);
    (void)snprintf(places, sizeof places, "%saside:", s->prefix);
    begin(s, &c, &t, REDIS_ASIDE, key);
    redis_call_add_text(&c, count);
    c.keys++;
    redis_call_add_text(&c, s->daemon);
    redis_call_add_text(&c, hex);
    redis_call_add_text(&c, places);
    add_number(&c, t.number, STORE_ASIDE_MAX);
    add_number(&c, t.most, UINT64_C(1000) * STORE_ASIDE_S);
    if (call_for_letter(s, &c, "K", &said, &err) != OK)
        log_warning("session store: a record that is of no use could not be set aside: %s", err.message);
}

static void touch(struct session_store *store, const struct session_key *key, uint32_t ttl_s)
{
    struct store_redis *s = whole_of(store);
    struct redis_call c;
    struct texts t;
    char said;
    begin(s, &c, &t, REDIS_TOUCH, key);
    add_number(&c, t.number, UINT64_C(1000) * ttl_s);
    (void)call_for_letter(s, &c, "K", &said, NULL);
}

/* ---- renewing ---------------------------------------------------------------------------------------------------- */

/* Returns how many are lost, or -1 if the server did not say. */
static int renew(struct store_redis *s, const struct redis_lease some[], size_t count)
{
    struct redis_call c;
    struct redis_reply reply;
    int lost = 0;
    redis_call_init(&c, &s->scripts[REDIS_RENEW]);
    c.is_keepers = true;
    for (size_t i = 0; i < count; i++) {
        print_keys(s, &some[i].key, s->renewed[2 * i], s->renewed[2 * i + 1]);
        redis_call_add_text(&c, s->renewed[2 * i]);
        redis_call_add_text(&c, s->renewed[2 * i + 1]);
    }
    c.keys = c.count;
    redis_call_add_text(&c, s->ttl_ms);
    redis_call_add_text(&c, s->lease_ms);
    redis_call_add_text(&c, s->name);
    for (size_t i = 0; i < count; i++) {
        redis_call_add_text(&c, some[i].token);
        redis_call_add_text(&c, some[i].w);
    }
    if (redis_pool_call(s->pool, &c, &reply, NULL) != OK)
        return -1;
    for (size_t i = 0; i < count && reply.size == count; i++)
        if (reply.text[i] != 'K' && redis_leases_lose(&s->leases, &some[i]) && reply.text[i] == 'L')
            lost++;
    redis_reply_clear(&reply);
    return lost;
}

static void renew_all(void *arg)
{
    struct store_redis *s = arg;
    struct redis_lease some[STORE_RENEWED_AT_A_TIME];
    int lost = 0, more = 0;
    size_t count;
    for (size_t before = SIZE_MAX;
         more >= 0 && (count = redis_leases_copy(&s->leases, &before, some, STORE_RENEWED_AT_A_TIME)) > 0; lost += more)
        more = renew(s, some, count);
    if (lost > 0)
        log_warning("session store: other daemons have gone on with %d sessions that requests here are using, since "
                    "the store could not be reached for longer than session leases last; what these add is lost",
                    lost);
}

/* ---- start and end ----------------------------------------------------------------------------------------------- */

static void free_store(struct session_store *store)
{
    struct store_redis *s = whole_of(store);
    redis_pool_free(s->pool);
    redis_leases_clear(&s->leases);
    free(s);
}

static const struct session_store_kind kind = {
    .is_shared = true,
    .add = add,
    .take = take,
    .give = give,
    .let_go = let_go,
    .look = look,
    .remove = remove_session,
    .set_aside = set_aside,
    .touch = touch,
    .free = free_store,
};

/* Visible ASCII, of at most that many bytes: it goes into names of keys and into messages. */
static bool is_plain(const char *text, size_t most)
{
    const size_t size = strlen(text);
    for (size_t i = 0; i < size; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return size <= most;
}

enum status store_redis_check(const struct store_redis_options *o, struct error *err)
{
    struct redis_address address;
    struct redis_password password;
    if (strlen(o->url) > SETTING_TEXT_MAX)
        return error_set(err, ERR_CONFIG, "the URL of the session store is longer than %d bytes", SETTING_TEXT_MAX);
    if (!is_plain(o->prefix, STORE_PREFIX_MAX))
        return error_set(err, ERR_CONFIG,
                         "the prefix of the session store's keys is \"%.200s\", expected at most %d "
                         "characters of ASCII without spaces",
                         o->prefix, STORE_PREFIX_MAX);
    if (!is_plain(o->name, STORE_NAME_MAX) || o->name[0] == '\0')
        return error_set(err, ERR_CONFIG,
                         "the daemon's name in the session store is \"%.200s\", expected 1 to %d "
                         "characters of ASCII without spaces",
                         o->name, STORE_NAME_MAX);
    if (o->lease_ms < STORE_LEASE_MIN_MS)
        return error_set(err, ERR_CONFIG, "leases of the session store last %u ms, expected %d or more",
                         (unsigned)o->lease_ms, STORE_LEASE_MIN_MS);
    if (o->timeout_ms == 0 || o->ttl_s == 0 || o->threads == 0 || o->threads > STORE_CONNECTIONS_MAX)
        return error_set(err, ERR_CONFIG,
                         "the session store has a time limit of %u ms, keeps sessions %u s and has %u "
                         "connections, expected more than 0 of each, and at most %d connections",
                         (unsigned)o->timeout_ms, (unsigned)o->ttl_s, (unsigned)o->threads, STORE_CONNECTIONS_MAX);
    enum status st = redis_address_read(&address, o->url, err);
    if (st == OK)
        st = redis_password_read(&password, o->password_file, err);
    explicit_bzero(&password, sizeof password);
    return st;
}

static bool draw_daemon(char out[REDIS_DAEMON_TEXT + 1])
{
    uint8_t random[REDIS_DAEMON_TEXT / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", (unsigned)random[i]);
    return true;
}

enum status store_redis_open(struct session_store **ret, const struct store_redis_options *o, struct error *err)
{
    enum status st = store_redis_check(o, err);
    if (st != OK)
        return st;
    struct store_redis *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the session store");
    const uint64_t ttl_ms = UINT64_C(1000) * o->ttl_s;
    char probe_key[KEY_TEXT_MAX];
    const struct redis_pool_options options = {
        .url = o->url,
        .password_file = o->password_file,
        .timeout_ms = o->timeout_ms,
        .connections = o->threads,
        .probe = &s->scripts[REDIS_PROBE],
        .probe_key = probe_key,
        .ticks = {.tick = renew_all, .work = end_left, .arg = s, .tick_ms = o->lease_ms / 3},
    };
    s->store.kind = &kind;
    redis_leases_init(&s->leases);
    for (size_t i = 0; i < REDIS_SCRIPTS; i++)
        redis_script_init(&s->scripts[i], redis_script_texts[i]);
    (void)snprintf(s->prefix, sizeof s->prefix, "%s", o->prefix);
    (void)snprintf(s->name, sizeof s->name, "%s", o->name);
    /* one that is held stays, renewed as often as leases are */
    (void)snprintf(s->ttl_ms, sizeof s->ttl_ms, "%" PRIu64, ttl_ms > o->lease_ms ? ttl_ms : o->lease_ms);
    (void)snprintf(s->lease_ms, sizeof s->lease_ms, "%u", (unsigned)o->lease_ms);
    (void)snprintf(probe_key, sizeof probe_key, "%sprobe", o->prefix);
    if (draw_daemon(s->daemon))
        st = redis_pool_open(&s->pool, &options, err);
    else
        st = error_set(err, ERR_IO, "the system has no random numbers for the session store");
    if (st != OK) {
        redis_leases_clear(&s->leases);
        free(s);
        return st;
    }
    *ret = &s->store;
    return OK;
}
