/* test_prefix_cache.c - states of prompts' beginnings within a bound of memory: what is found is what was kept of that
 * owner's very bytes, the least recently used goes first, the bound holds at every moment; against a plain twin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/operation/prefix_cache.h"
#include "tests/support/random.h"

enum { BOUND = 150000, STATE_MAX = 30000, PIECE = 4, BYTES_MAX = 64, TWIN_MAX = 64, ROUNDS = 60000 };

static struct prefix_cache *make(uint64_t bytes)
{
    struct prefix_cache *c = NULL;
    struct error err;
    assert_int_equal(prefix_cache_create(&c, bytes, STATE_MAX, &err), OK);
    return c;
}

static const struct client_id everybody, anne = {CLIENT_KEY, "anne, all of it"}, anna = {CLIENT_KEY, "anne, all of iT"},
                                         lodger = {CLIENT_IPV6, "anne, all of it"}, bob = {CLIENT_KEY, "bob"};

/* Of its whole pieces and of what is left. */
static struct prefix_hash hash_of(const struct prefix_cache *c, const struct client_id *owner, const void *bytes,
                                  size_t size)
{
    struct prefix_hash h;
    prefix_cache_hash_begin(c, owner, &h);
    for (size_t at = 0; at < size; at += PIECE)
        prefix_cache_hash_add(&h, (const uint8_t *)bytes + at, size - at < PIECE ? size - at : PIECE);
    return h;
}

static struct prefix_hash of_text(const struct prefix_cache *c, const struct client_id *owner, const char *text)
{
    return hash_of(c, owner, text, strlen(text));
}

/* State number `seed`. */
static void fill(uint8_t *out, size_t size, uint64_t seed)
{
    struct random r = {seed};
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)random_next(&r);
}

static bool put(struct prefix_cache *c, const struct prefix_hash *p, size_t state_bytes, uint64_t seed)
{
    fill(prefix_cache_state(c), state_bytes, seed);
    return prefix_cache_put(c, p, state_bytes);
}

static void assert_kept(struct prefix_cache *c, const struct prefix_hash *p, size_t state_bytes, uint64_t seed)
{
    static uint8_t want[STATE_MAX];
    fill(want, state_bytes, seed);
    memset(prefix_cache_state(c), 0, STATE_MAX);
    assert_true(prefix_cache_has(c, p));
    assert_int_equal(prefix_cache_get(c, p), state_bytes);
    assert_memory_equal(prefix_cache_state(c), want, state_bytes);
}

/* ---- by hand --------------------------------------------------------------------------------------------------- */

static void what_was_kept_is_found(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        1,    PREFIX_CHUNK_BYTES - 1, PREFIX_CHUNK_BYTES, PREFIX_CHUNK_BYTES + 1, (size_t)2 * PREFIX_CHUNK_BYTES, 9999,
        20000};
    struct prefix_cache *c = make(BOUND);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "text %zu", i);
        const struct prefix_hash p = of_text(c, &anne, text);
        assert_false(prefix_cache_has(c, &p));
        assert_true(put(c, &p, sizes[i], i));
        assert_true(prefix_cache_has(c, &p));
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "text %zu", i);
        const struct prefix_hash p = of_text(c, &anne, text);
        assert_kept(c, &p, sizes[i], i);
    }
    prefix_cache_free(c);
}

/* By all of their bytes: anna is anne but for the last one, and another kind of client is somebody else. */
static void an_owner_finds_his_own_alone(void **state)
{
    (void)state;
    struct prefix_cache *c = make(BOUND);
    const struct prefix_hash hers = of_text(c, &anne, "Rome"), nobodys = of_text(c, &everybody, "Rome"),
                             his = of_text(c, &bob, "Rome"), annas = of_text(c, &anna, "Rome"),
                             lodgers = of_text(c, &lodger, "Rome");
    assert_true(put(c, &hers, 100, 1));
    assert_false(prefix_cache_has(c, &annas));
    assert_false(prefix_cache_has(c, &lodgers));
    assert_false(prefix_cache_has(c, &nobodys));
    assert_false(prefix_cache_has(c, &his));
    assert_true(put(c, &his, 100, 2));
    assert_true(put(c, &nobodys, 100, 3));
    assert_kept(c, &hers, 100, 1);
    assert_kept(c, &his, 100, 2);
    assert_kept(c, &nobodys, 100, 3);
    prefix_cache_free(c);
}

/* What lies in one bucket is told apart by all of the hash, and another cache's salt gives other hashes. */
static void hashes_that_differ_late_are_not_taken_for_each_other(void **state)
{
    (void)state;
    struct prefix_cache *c = make(BOUND), *another = make(BOUND);
    const struct prefix_hash rome = of_text(c, &anne, "Rome"), theirs = of_text(another, &anne, "Rome");
    struct prefix_hash other = rome;
    other.bytes[sizeof other.bytes - 1] ^= 1;
    assert_memory_not_equal(rome.bytes, theirs.bytes, sizeof rome.bytes);
    assert_true(put(c, &rome, 100, 1));
    assert_false(prefix_cache_has(c, &other));
    assert_true(put(c, &other, 200, 2)); /* both stay */
    assert_kept(c, &rome, 100, 1);
    assert_kept(c, &other, 200, 2);
    prefix_cache_free(another);
    prefix_cache_free(c);
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    static const char *const texts[] = {"a", "b", "c", "d"};
    struct prefix_cache *c = make(BOUND);
    struct prefix_hash p[4];
    for (size_t i = 0; i < 4; i++) {
        p[i] = of_text(c, &everybody, texts[i]);
        assert_true(put(c, &p[i], STATE_MAX, i));
        assert_int_equal(prefix_cache_use(c).evicted, i == 3 ? 1 : 0); /* there is room for three */
    }
    assert_false(prefix_cache_has(c, &p[0]));
    assert_true(prefix_cache_has(c, &p[2])); /* a look is no use */
    assert_kept(c, &p[1], STATE_MAX, 1);
    assert_true(put(c, &p[0], STATE_MAX, 0));
    assert_false(prefix_cache_has(c, &p[2]));
    assert_true(put(c, &p[2], STATE_MAX, 2));
    assert_false(prefix_cache_has(c, &p[3]));
    assert_kept(c, &p[1], STATE_MAX, 1);
    assert_int_equal(prefix_cache_use(c).states, 3);
    assert_int_equal(prefix_cache_use(c).evicted, 3);
    prefix_cache_free(c);
}

static void what_never_fits_changes_nothing(void **state)
{
    (void)state;
    struct prefix_cache *c = make(STATE_MAX + 5 * PREFIX_CHUNK_BYTES); /* four chunks, with what they take besides */
    const struct prefix_hash small = of_text(c, &everybody, "small"), large = of_text(c, &everybody, "large");
    assert_int_equal(prefix_cache_room(c, STATE_MAX), 0);
    assert_int_equal(prefix_cache_room(c, 100), 4);
    assert_true(put(c, &small, 100, 1));
    assert_false(put(c, &large, STATE_MAX, 2));
    assert_int_equal(prefix_cache_use(c).states, 1);
    assert_int_equal(prefix_cache_use(c).evicted, 0);
    assert_kept(c, &small, 100, 1);
    prefix_cache_free(c);
    assert_null(make(STATE_MAX)); /* no room for any */
    assert_null(make(0));
    prefix_cache_free(NULL);
}

/* ---- against a plain twin --------------------------------------------------------------------------------------- */

struct twin {
    struct {
        struct client_id owner;
        uint8_t bytes[BYTES_MAX];
        size_t size, state_bytes;
        uint64_t seed;
    } kept[TWIN_MAX]; /* by use, the oldest first */
    size_t count, chunk_count;
    uint64_t evicted;
};

static size_t twin_chunks(const struct twin *t, size_t i)
{
    return (t->kept[i].state_bytes + PREFIX_CHUNK_BYTES - 1) / PREFIX_CHUNK_BYTES;
}

static size_t twin_used(const struct twin *t)
{
    size_t used = 0;
    for (size_t i = 0; i < t->count; i++)
        used += twin_chunks(t, i);
    return used;
}

static void twin_take_out(struct twin *t, size_t i)
{
    t->count--;
    memmove(&t->kept[i], &t->kept[i + 1], (t->count - i) * sizeof t->kept[0]);
}

/* TWIN_MAX: it is not there. */
static size_t twin_find(const struct twin *t, const struct client_id *owner, const uint8_t *bytes, size_t size)
{
    size_t i = 0;
    while (i < t->count && !(client_id_is_same(&t->kept[i].owner, owner) && t->kept[i].size == size &&
                             memcmp(t->kept[i].bytes, bytes, size) == 0))
        i++;
    return i < t->count ? i : TWIN_MAX;
}

/* It is the newest now, and there. */
static size_t twin_use(struct twin *t, size_t i)
{
    t->kept[t->count] = t->kept[i];
    t->count++;
    twin_take_out(t, i);
    return t->count - 1;
}

static bool twin_put(struct twin *t, const struct client_id *owner, const uint8_t *bytes, size_t size,
                     size_t state_bytes, uint64_t seed)
{
    const size_t at = t->count;
    t->kept[at].owner = *owner;
    memcpy(t->kept[at].bytes, bytes, size);
    t->kept[at].size = size;
    t->kept[at].state_bytes = state_bytes;
    t->kept[at].seed = seed;
    if (twin_chunks(t, at) > t->chunk_count)
        return false;
    t->count++;
    while (twin_used(t) > t->chunk_count) {
        twin_take_out(t, 0);
        t->evicted++;
    }
    return true;
}

static void random_operations_do_as_the_twin_does(void **state)
{
    (void)state;
    static const struct client_id *const owners[] = {&everybody, &anne, &bob};
    static struct twin t;
    struct prefix_cache *c = make(BOUND);
    struct random r = {20};
    unsigned found = 0;
    t.chunk_count = prefix_cache_room(c, 1);
    assert_in_range(t.chunk_count, 2, TWIN_MAX - 1);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint8_t bytes[BYTES_MAX];
        const size_t size = random_below(&r, 8) == 0 ? random_below(&r, BYTES_MAX) : 1 + random_below(&r, 4);
        for (size_t k = 0; k < size; k++)
            bytes[k] = (uint8_t)('a' + random_below(&r, 2));
        const struct client_id *owner = owners[random_below(&r, 3)];
        const struct prefix_hash p = hash_of(c, owner, bytes, size);
        size_t at = twin_find(&t, owner, bytes, size);
        const size_t state_bytes = 1 + (size_t)random_below(&r, random_below(&r, 4) == 0 ? STATE_MAX : 5000);
        assert_int_equal(prefix_cache_has(c, &p), at < TWIN_MAX);
        found += at < TWIN_MAX;
        if (at < TWIN_MAX && i % 4 == 0) {
            at = twin_use(&t, at);
            assert_kept(c, &p, t.kept[at].state_bytes, t.kept[at].seed);
        }
        if (at == TWIN_MAX && random_below(&r, 2) == 0) {
            const uint64_t seed = i << 8;
            assert_int_equal(put(c, &p, state_bytes, seed), twin_put(&t, owner, bytes, size, state_bytes, seed));
        }
        const struct prefix_cache_use use = prefix_cache_use(c);
        assert_true(use.bytes <= BOUND - STATE_MAX);
        assert_int_equal(use.states, t.count);
        assert_int_equal(use.evicted, t.evicted);
        assert_true(use.bytes >= twin_used(&t) * PREFIX_CHUNK_BYTES);
        assert_true(use.bytes <= twin_used(&t) * (PREFIX_CHUNK_BYTES + 96));
    }
    assert_in_range(found, ROUNDS / 20, ROUNDS);
    assert_true(t.evicted > ROUNDS / 20);
    prefix_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_kept_is_found),
        cmocka_unit_test(an_owner_finds_his_own_alone),
        cmocka_unit_test(hashes_that_differ_late_are_not_taken_for_each_other),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(what_never_fits_changes_nothing),
        cmocka_unit_test(random_operations_do_as_the_twin_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
