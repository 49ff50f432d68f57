/* store_redis.c - see store_redis.h. A call takes a connection that is idle, or makes one, and leaves it behind; so
 * there are as many as threads have called at a time. One more is for what must not wait, holding on and letting go,
 * whose answers nobody reads. What the server does is a script in Lua, which changes all that it changes at once, and
 * stands with the function that calls it.
 *
 * One lock, a leaf, which is never held while something is waited for. */
#include "server/session/store_redis.h"

#include <inttypes.h>
#include <nettle/base16.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "config/limits.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/session/store_redis_link.h"

/* A token's first part is the daemon's, drawn when it opens the store, the rest a number that rises. */
enum { DAEMON_TEXT = 32, KEY_TEXT_MAX = STORE_PREFIX_MAX + SESSION_KEY_TEXT + 8, NUMBER_TEXT_MAX = 24 };

struct store_redis {
    struct session_store store; /* first */
    struct redis_address address;
    struct redis_password password;
    uint32_t timeout_ms;
    atomic_uint_fast64_t tokens; /* handed out */
    char daemon[DAEMON_TEXT + 1];
    char url[SETTING_TEXT_MAX + 1], prefix[STORE_PREFIX_MAX + 1], name[STORE_NAME_MAX + 1];
    char ttl_ms[NUMBER_TEXT_MAX], lease_ms[NUMBER_TEXT_MAX];
    pthread_mutex_t lock;
    /* under the lock */
    int idle[SESSION_STORE_THREADS]; /* connections [idle_count] */
    size_t idle_count;
    int telling;                /* the one for redis_link_tell; -1: none */
    bool is_greeted;            /* it was told who we are */
    struct redis_peer peer;     /* where the server was last */
    uint64_t away_ns, again_ns; /* since when it is away; 0: it is not; when it is tried again; UINT64_MAX: it is now */
    char cause[sizeof((struct error *)NULL)->message]; /* of being away */
};

static struct store_redis *whole_of(struct session_store *s)
{
    return (struct store_redis *)(void *)s;
}

/* ---- connections, away and back --------------------------------------------------------------------------------- */

static void close_idle_locked(struct store_redis *s)
{
    while (s->idle_count > 0)
        (void)close(s->idle[--s->idle_count]);
}

static void close_telling_locked(struct store_redis *s)
{
    if (s->telling >= 0)
        (void)close(s->telling);
    s->telling = -1;
    s->is_greeted = false;
}

/* Without waiting, so that it may not be there yet when this returns. */
static void keep_telling_locked(struct store_redis *s)
{
    if (s->telling >= 0 && !redis_link_drain(s->telling))
        close_telling_locked(s);
    if (s->telling < 0 && s->peer.size > 0)
        s->telling = redis_link_begin(&s->peer, s->timeout_ms);
}

/* What needs no answer, without waiting. False: that cannot be now. */
static bool store_redis_tell(struct store_redis *s, const struct redis_command *c)
{
    (void)pthread_mutex_lock(&s->lock);
    keep_telling_locked(s);
    if (s->telling >= 0 && !s->is_greeted)
        s->is_greeted = redis_link_tell_greeting(s->telling, &s->address, &s->password);
    const bool is_told = s->is_greeted && redis_link_tell(s->telling, c);
    (void)pthread_mutex_unlock(&s->lock);
    return is_told;
}

/* -1: one is to be made. *tries: the server is away, and nobody else tries it until judge() is told. Errors: ERR_STORE:
 * it is away. */
static enum status take_idle(struct store_redis *s, int *ret, bool *tries, struct error *err)
{
    const uint64_t now_ns = clock_now_ns();
    enum status st = OK;
    (void)pthread_mutex_lock(&s->lock);
    *tries = s->away_ns != 0 && now_ns >= s->again_ns;
    if (*tries)
        s->again_ns = UINT64_MAX; /* however long that takes */
    else if (s->away_ns != 0)
        st = error_set(err, ERR_STORE, "is away, as it %s; try again later", s->cause);
    if (s->idle_count > 0 && redis_link_is_stale(s->idle[s->idle_count - 1]))
        close_idle_locked(s); /* most likely the server has closed all that were idle */
    *ret = st == OK && s->idle_count > 0 ? s->idle[--s->idle_count] : -1;
    (void)pthread_mutex_unlock(&s->lock);
    return st;
}

/* `peer`: of a connection that is new. */
static void leave_idle(struct store_redis *s, int fd, const struct redis_peer *peer)
{
    (void)pthread_mutex_lock(&s->lock);
    if (peer->size > 0 && (peer->size != s->peer.size || memcmp(&peer->name, &s->peer.name, peer->size) != 0)) {
        s->peer = *peer;
        close_telling_locked(s);
    }
    keep_telling_locked(s);
    const bool is_retained = s->idle_count < SESSION_STORE_THREADS;
    if (is_retained)
        s->idle[s->idle_count++] = fd;
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_retained)
        (void)close(fd);
}

/* What a call has come to says whether the server is there. */
static void judge(struct store_redis *s, enum status st, const char *cause, bool has_tried)
{
    const bool is_away = st == ERR_UNAVAILABLE || st == ERR_FORMAT || st == ERR_CONFIG;
    const bool is_there = st == OK || st == ERR_STORE; /* neither: there is no memory here */
    const uint64_t now_ns = clock_now_ns();
    (void)pthread_mutex_lock(&s->lock);
    const uint64_t away_ns = s->away_ns;
    if (has_tried || (is_away && away_ns == 0)) /* what was asked before it went away ends at any time */
        s->again_ns = now_ns + (is_away ? STORE_AWAY_MS * CLOCK_NS_PER_MS : 0);
    if (is_away && away_ns == 0) {
        s->away_ns = now_ns;
        (void)snprintf(s->cause, sizeof s->cause, "%s", cause);
        close_idle_locked(s);
    } else if (is_there) {
        s->away_ns = 0;
    }
    if (is_away || is_there)
        metrics_gauge_set(METRIC_STORE_UP, 0, is_there ? 1 : 0);
    (void)pthread_mutex_unlock(&s->lock);
    if (is_away && away_ns == 0)
        log_warning("session store: %s is away: it %s", s->url, cause);
    else if (is_there && away_ns != 0)
        log_info("session store: %s is back after %.1f s", s->url, clock_ms_between(away_ns, now_ns) / 1e3);
}

/* Errors: as redis_link_ask. */
static enum status store_redis_ask(struct store_redis *s, const struct redis_command *c, redisReply **ret,
                                   struct error *err)
{
    struct redis_peer peer = {.size = 0};
    int fd;
    bool tries;
    enum status st = take_idle(s, &fd, &tries, err);
    if (st != OK)
        return st;
    if (fd < 0)
        st = redis_link_open(&fd, &peer, &s->address, &s->password, s->timeout_ms, err);
    if (st == OK)
        st = redis_link_ask(fd, c, s->timeout_ms, ret, err);
    judge(s, st, err->message, tries);
    if (st == OK || st == ERR_STORE)
        leave_idle(s, fd, &peer);
    else if (fd >= 0)
        (void)close(fd);
    return st;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* A script and what it is given; KEYS[1] is the record's key, KEYS[2] the lease's. */
struct call {
    struct redis_command command;
    char record[KEY_TEXT_MAX], lease[KEY_TEXT_MAX];
};

/* With `arguments` up to a NULL. */
static void begin(const struct store_redis *s, struct call *c, const char *script, const struct session_key *key,
                  const char *const *arguments)
{
    char hex[SESSION_KEY_TEXT];
    session_key_print(key, hex);
    (void)snprintf(c->record, sizeof c->record, "%s%s", s->prefix, hex);
    (void)snprintf(c->lease, sizeof c->lease, "%s%s:lease", s->prefix, hex);
    c->command.count = 0;
    redis_command_add_text(&c->command, "EVAL");
    redis_command_add_text(&c->command, script);
    redis_command_add_text(&c->command, "2");
    redis_command_add_text(&c->command, c->record);
    redis_command_add_text(&c->command, c->lease);
    for (; *arguments != NULL; arguments++)
        redis_command_add_text(&c->command, *arguments);
}

static void make_token(struct store_redis *s, char out[SESSION_TOKEN_TEXT + 1])
{
    (void)snprintf(out, SESSION_TOKEN_TEXT + 1, "%s%016" PRIx64, s->daemon, (uint64_t)atomic_fetch_add(&s->tokens, 1));
}

static enum status fail(enum status st, const char *why, struct error *err)
{
    if (st != ERR_NOMEM)
        metrics_counter_add(METRIC_STORE_ERRORS, 0, 1);
    return error_set(err, st == ERR_NOMEM ? st : ERR_STORE, "the session store %s", why);
}

static enum status fail_of_reply(struct error *err)
{
    return fail(ERR_STORE, "answers what was not expected: something else writes keys with the same prefix", err);
}

/* Each script returns a text, whose first letter says what it is. */
static enum status call(struct store_redis *s, const struct call *c, redisReply **ret, struct error *err)
{
    struct error why;
    const enum status st = store_redis_ask(s, &c->command, ret, &why);
    if (st != OK)
        return fail(st, why.message, err);
    if ((*ret)->str[0] == 'N') {
        freeReplyObject(*ret);
        return error_set(err, ERR_NOT_FOUND, "the session store has no such session");
    }
    return OK;
}

/* One that returns nothing but K, that letter, or N. */
static enum status call_for_letter(struct store_redis *s, const struct call *c, char other, char *said,
                                   struct error *err)
{
    redisReply *reply;
    const enum status st = call(s, c, &reply, err);
    if (st != OK)
        return st;
    *said = reply->str[0];
    const bool is_fine = reply->len == 1 && (*said == 'K' || *said == other);
    freeReplyObject(reply);
    return is_fine ? OK : fail_of_reply(err);
}

/* R, w of [SESSION_TOKEN_TEXT] into found, and the record. */
static enum status read_record(const redisReply *reply, char *found, struct session_bytes *ret, struct error *err)
{
    const size_t head = 1 + SESSION_TOKEN_TEXT;
    if (reply->len < head || reply->str[0] != 'R')
        return fail_of_reply(err);
    uint8_t *bytes = malloc(reply->len - head + 1); /* not NULL if it is empty */
    if (bytes == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for a session");
    memcpy(bytes, reply->str + head, reply->len - head);
    memcpy(found, reply->str + 1, SESSION_TOKEN_TEXT);
    *ret = (struct session_bytes){bytes, reply->len - head};
    return OK;
}

/* ---- the functions of a store ----------------------------------------------------------------------------------- */

/* Also if the lease has expired, as connections were lost, and nobody else has gone on. */
static bool touch(struct session_store *store, const struct session_key *key, const struct session_claim *claim)
{
    static const char script[] = "local lease = redis.call('GET', KEYS[2])\n"
                                 "if lease and lease:sub(1, 48) ~= ARGV[1] then return 'K' end\n"
                                 "if redis.call('HGET', KEYS[1], 'w') ~= ARGV[2] then return 'K' end\n"
                                 "redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
                                 "if redis.call('PEXPIRE', KEYS[2], ARGV[4]) == 0 then\n"
                                 "  redis.call('SET', KEYS[2], ARGV[1] .. ARGV[5], 'PX', ARGV[4])\n"
                                 "end\n"
                                 "return 'K'\n";
    struct store_redis *s = whole_of(store);
    struct call c;
    begin(s, &c, script, key, (const char *const[]){claim->token, claim->found, s->ttl_ms, s->lease_ms, s->name, NULL});
    return store_redis_tell(s, &c.command);
}

/* What is not told any more expires. */
static void let_go(struct session_store *store, const struct session_key *key, const struct session_claim *claim)
{
    static const char script[] = "local lease = redis.call('GET', KEYS[2])\n"
                                 "if lease and lease:sub(1, 48) == ARGV[1] then\n"
                                 "  redis.call('DEL', KEYS[2])\n"
                                 "  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
                                 "end\n"
                                 "return 'K'\n";
    struct store_redis *s = whole_of(store);
    struct call c;
    begin(s, &c, script, key, (const char *const[]){claim->token, s->ttl_ms, NULL});
    (void)store_redis_tell(s, &c.command);
}

/* In each script what a full server refuses comes first, so that nothing is half done. */
static enum status get(struct session_store *store, const struct session_key *key, struct session_claim *claim,
                       struct session_bytes *ret, struct error *err)
{
    /* Without a token it is but a look. A lease of this daemon's is of a take that it knows nothing of any more; or of
     * a later one, where this is a take that was given up, and comes late. */
    static const char script[] = "local w = redis.call('HGET', KEYS[1], 'w')\n"
                                 "if not w then return 'N' end\n"
                                 "if ARGV[1] ~= '' then\n"
                                 "  local lease = redis.call('GET', KEYS[2])\n"
                                 "  local daemon = ARGV[1]:sub(1, 32)\n"
                                 "  if lease and (lease:sub(1, 32) ~= daemon or lease:sub(1, 48) > ARGV[1]) then\n"
                                 "    return 'C' .. lease:sub(49)\n"
                                 "  end\n"
                                 "  redis.call('SET', KEYS[2], ARGV[1] .. ARGV[4], 'PX', ARGV[3])\n"
                                 "end\n"
                                 "redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
                                 "return 'R' .. w .. (redis.call('HGET', KEYS[1], 'r') or '')\n";
    struct store_redis *s = whole_of(store);
    struct session_claim taken = {.token = ""};
    struct call c;
    redisReply *reply;
    if (claim != NULL)
        make_token(s, taken.token);
    begin(s, &c, script, key, (const char *const[]){taken.token, s->ttl_ms, s->lease_ms, s->name, NULL});
    enum status st = call(s, &c, &reply, err);
    if (st != OK)
        return st;
    const bool is_others = claim != NULL && reply->str[0] == 'C';
    if (is_others)
        st = error_set(err, ERR_CONFLICT, "another request has the session, in the daemon \"%.*s\"", STORE_NAME_MAX,
                       reply->str + 1);
    else
        st = read_record(reply, taken.found, ret, err);
    freeReplyObject(reply);
    if (st == OK && claim != NULL)
        *claim = taken;
    else if (claim != NULL && !is_others)
        let_go(store, key, &taken);
    return st;
}

/* What is new replaces what nobody has written. */
static enum status put(struct session_store *store, const struct session_key *key, const struct session_claim *claim,
                       const struct session_bytes *record, struct error *err)
{
    static const char script[] = "local w = redis.call('HGET', KEYS[1], 'w')\n"
                                 "if (w or '') ~= ARGV[2] then return w and 'L' or 'N' end\n"
                                 "redis.call('HSET', KEYS[1], 'w', ARGV[1], 'r', ARGV[4])\n"
                                 "redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
                                 "local lease = redis.call('GET', KEYS[2])\n"
                                 "if lease and lease:sub(1, 48) == ARGV[1] then redis.call('DEL', KEYS[2]) end\n"
                                 "return 'K'\n";
    struct store_redis *s = whole_of(store);
    struct session_claim first = {.found = ""};
    const struct session_claim *as = claim != NULL ? claim : &first;
    struct call c;
    char said = '\0';
    if (claim == NULL)
        make_token(s, first.token);
    begin(s, &c, script, key, (const char *const[]){as->token, as->found, s->ttl_ms, NULL});
    redis_command_add(&c.command, record->bytes, record->size);
    const enum status st = call_for_letter(s, &c, 'L', &said, err);
    if (st == ERR_NOT_FOUND)
        return error_set(err, ERR_CONFLICT, "the session was removed meanwhile");
    if (st != OK || said != 'L')
        return st;
    return error_set(err, ERR_CONFLICT,
                     claim != NULL ? "another daemon has gone on with the session meanwhile"
                                   : "the session store has such a session already");
}

static enum status remove_session(struct session_store *store, const struct session_key *key, struct error *err)
{
    static const char script[] = "local there = redis.call('DEL', KEYS[1])\n"
                                 "redis.call('DEL', KEYS[2])\n"
                                 "return there == 1 and 'K' or 'N'\n";
    struct store_redis *s = whole_of(store);
    struct call c;
    char said;
    begin(s, &c, script, key, (const char *const[]){NULL});
    return call_for_letter(s, &c, 'K', &said, err);
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

static void free_store(struct session_store *store)
{
    struct store_redis *s = whole_of(store);
    close_idle_locked(s);
    close_telling_locked(s);
    (void)pthread_mutex_destroy(&s->lock);
    explicit_bzero(&s->password, sizeof s->password);
    free(s);
}

static const struct session_store_kind kind = {
    .is_shared = true,
    .get = get,
    .put = put,
    .remove = remove_session,
    .touch = touch,
    .let_go = let_go,
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

static enum status read_options(const struct store_redis_options *o, struct redis_address *address,
                                struct redis_password *password, struct error *err)
{
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
    const enum status st = redis_address_read(address, o->url, err);
    return st == OK ? redis_password_read(password, o->password_file, err) : st;
}

enum status store_redis_check(const struct store_redis_options *o, struct error *err)
{
    struct redis_address address;
    struct redis_password password;
    const enum status st = read_options(o, &address, &password, err);
    explicit_bzero(&password, sizeof password);
    return st;
}

static bool draw_daemon(char out[DAEMON_TEXT + 1])
{
    uint8_t random[DAEMON_TEXT / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    base16_encode_update(out, sizeof random, random);
    out[DAEMON_TEXT] = '\0';
    return true;
}

/* Does it take anything, by a script as all calls are? Away from the beginning is fine, if it is such a server; and one
 * that is full still gives and removes what it has. */
static enum status probe(struct store_redis *s, struct error *err)
{
    static const char script[] = "return redis.call('SET', KEYS[1], '1', 'PX', '1000')\n";
    struct redis_command c = {.count = 0};
    redisReply *reply = NULL;
    struct error why;
    char key[KEY_TEXT_MAX];
    (void)snprintf(key, sizeof key, "%sprobe", s->prefix);
    redis_command_add_text(&c, "EVAL");
    redis_command_add_text(&c, script);
    redis_command_add_text(&c, "1");
    redis_command_add_text(&c, key);
    const enum status st = store_redis_ask(s, &c, &reply, &why);
    const bool is_fine = st == OK
                             ? strcmp(reply->str, "OK") == 0
                             : st == ERR_UNAVAILABLE || (st == ERR_STORE && strstr(why.message, "is full") != NULL);
    if (st == OK)
        freeReplyObject(reply);
    if (is_fine)
        return OK;
    return error_set(err, st == OK || st == ERR_FORMAT ? ERR_STORE : st, "the session store at %s %s", s->url,
                     st == OK ? "does not answer as a Redis server would" : why.message);
}

enum status store_redis_open(struct session_store **ret, const struct store_redis_options *o, struct error *err)
{
    struct store_redis *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the session store");
    const uint64_t ttl_ms = UINT64_C(1000) * o->ttl_s;
    s->store.kind = &kind;
    (void)pthread_mutex_init(&s->lock, NULL);
    s->telling = -1;
    s->timeout_ms = o->timeout_ms;
    (void)snprintf(s->url, sizeof s->url, "%s", o->url);
    (void)snprintf(s->prefix, sizeof s->prefix, "%s", o->prefix);
    (void)snprintf(s->name, sizeof s->name, "%s", o->name);
    /* what is leased stays */
    (void)snprintf(s->ttl_ms, sizeof s->ttl_ms, "%" PRIu64, ttl_ms > o->lease_ms ? ttl_ms : o->lease_ms);
    (void)snprintf(s->lease_ms, sizeof s->lease_ms, "%u", (unsigned)o->lease_ms);
    enum status st = read_options(o, &s->address, &s->password, err);
    if (st == OK && !draw_daemon(s->daemon))
        st = error_set(err, ERR_IO, "the system has no random numbers for the session store");
    if (st == OK)
        st = probe(s, err);
    if (st != OK) {
        free_store(&s->store);
        return st;
    }
    *ret = &s->store;
    return OK;
}
