/* test_queue.c - bounded FIFOs: order, the common bound, taking out of turn, clients' shares, closing, many threads. */
#include <ctype.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/core/clock.h"
#include "server/core/queue.h"

enum { LANES = 2, ITEMS_MAX = 4 };

static struct queue *make(void)
{
    struct queue *q = NULL;
    assert_int_equal(queue_create(&q, LANES, ITEMS_MAX), OK);
    return q;
}

static void each_lane_is_first_in_first_out(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[4] = {0};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(queue_push(q, i % LANES, &items[i]), OK);
    assert_ptr_equal(queue_pop(q, 1), &items[1]);
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    assert_ptr_equal(queue_pop(q, 0), &items[2]);
    assert_null(queue_pop(q, 0));
    assert_ptr_equal(queue_pop(q, 1), &items[3]);
    assert_null(queue_pop(q, 1));
    queue_free(q);
}

static void those_of_a_kind_overtake_the_others(void **state)
{
    (void)state;
    static const uint64_t kinds[ITEMS_MAX] = {7, 9, 7, UINT64_C(7) << 32};
    struct queue *q = make();
    struct queue_item items[ITEMS_MAX] = {0};
    for (uint32_t i = 0; i < ITEMS_MAX; i++) {
        items[i].kind = kinds[i];
        assert_int_equal(queue_push(q, 0, &items[i]), OK);
    }
    assert_null(queue_pop_kind(q, 0, 8));
    assert_null(queue_pop_kind(q, 1, 7));
    assert_ptr_equal(queue_pop_kind(q, 0, 9), &items[1]);
    assert_null(queue_pop_kind(q, 0, 9));
    assert_int_equal(queue_look(q, 0).lane_count, 3);
    assert_ptr_equal(queue_pop_kind(q, 0, kinds[3]), &items[3]);
    assert_ptr_equal(queue_pop(q, 0), &items[0]); /* the others kept their order */
    assert_false(queue_remove(q, &items[1]));
    assert_ptr_equal(queue_pop_kind(q, 0, 7), &items[2]);
    assert_int_equal(queue_count(q), 0);
    queue_free(q);
}

static void the_bound_is_of_all_lanes_together(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[ITEMS_MAX + 1] = {0};
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        assert_int_equal(queue_push(q, i == 0, &items[i]), OK);
    assert_int_equal(queue_count(q), ITEMS_MAX);
    assert_int_equal(queue_push(q, 1, &items[ITEMS_MAX]), ERR_FULL);
    assert_int_equal(queue_look(q, 1).lane_count, 1);
    assert_ptr_equal(queue_pop(q, 0), &items[1]);
    assert_int_equal(queue_push(q, 1, &items[ITEMS_MAX]), OK);
    for (uint32_t lane = 0; lane < LANES; lane++)
        while (queue_pop(q, lane) != NULL)
            ;
    assert_int_equal(queue_count(q), 0);
    queue_free(q);
}

static void an_item_is_removed_from_anywhere_once(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 3; victim++) {
        struct queue *q = make();
        struct queue_item items[3] = {0};
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(queue_push(q, 0, &items[i]), OK);
        assert_true(queue_remove(q, &items[victim]));
        assert_false(queue_remove(q, &items[victim]));
        for (uint32_t i = 0; i < 3; i++)
            if (i != victim)
                assert_ptr_equal(queue_pop(q, 0), &items[i]);
        assert_null(queue_pop(q, 0));
        assert_int_equal(queue_push(q, 1, &items[victim]), OK); /* it may come again */
        assert_ptr_equal(queue_pop(q, 1), &items[victim]);
        assert_false(queue_remove(q, &items[victim]));
        queue_free(q);
    }
}

static void it_tells_how_long_items_wait(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[2] = {0};
    const struct timespec pause = {.tv_nsec = 2000000};
    assert_int_equal(queue_look(q, 0).waiting_since_ns, 0);
    assert_int_equal(queue_look(q, 0).lane_oldest_ns, 0);
    const uint64_t before_ns = clock_now_ns();
    assert_int_equal(queue_push(q, 0, &items[0]), OK);
    const uint64_t after_ns = clock_now_ns();
    (void)nanosleep(&pause, NULL);
    assert_int_equal(queue_push(q, 0, &items[1]), OK);
    const uint64_t oldest_ns = queue_look(q, 0).lane_oldest_ns;
    assert_in_range(oldest_ns, before_ns, after_ns);
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    assert_true(queue_look(q, 0).lane_oldest_ns > oldest_ns);
    assert_int_equal(queue_look(q, 0).waiting_since_ns, oldest_ns); /* something has waited all the time */
    assert_ptr_equal(queue_pop(q, 0), &items[1]);
    assert_int_equal(queue_look(q, 0).waiting_since_ns, 0);
    queue_free(q);
}

static void a_closed_queue_gives_what_it_has_and_takes_no_more(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[2] = {0};
    assert_int_equal(queue_push(q, 0, &items[0]), OK);
    queue_close(q);
    assert_int_equal(queue_push(q, 0, &items[1]), ERR_UNAVAILABLE);
    assert_true(queue_wait(q));
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    assert_false(queue_wait(q));
    queue_free(q);
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

enum { MANY = 64 };

static struct client_id client(uint8_t number)
{
    return (struct client_id){.kind = CLIENT_IPV4, .bytes = {10, 0, 0, number}};
}

/* Push one item for each letter, whose client it is; capitals cost four times as much. */
static void push_for(struct queue *q, struct queue_item items[], const char *letters)
{
    for (size_t i = 0; letters[i] != '\0'; i++) {
        const int letter = tolower((unsigned char)letters[i]);
        items[i] = (struct queue_item){.client = client((uint8_t)letter), .cost = letters[i] == letter ? 1 : 4};
        assert_int_equal(queue_push(q, 0, &items[i]), OK);
    }
}

/* Pop so many, as the letters of their clients. */
static const char *pop_some(struct queue *q, uint32_t count)
{
    static char letters[MANY + 1];
    uint32_t n = 0;
    for (const struct queue_item *item; n < count && (item = queue_pop(q, 0)) != NULL; n++)
        letters[n] = (char)item->client.bytes[3];
    letters[n] = '\0';
    return letters;
}

static struct queue *make_large(void)
{
    struct queue *q = NULL;
    assert_int_equal(queue_create(&q, LANES, MANY), OK);
    return q;
}

static void clients_are_served_in_turn(void **state)
{
    (void)state;
    struct queue *q = make_large();
    struct queue_item items[MANY];
    push_for(q, items, "aaaaaabbc");
    assert_string_equal(pop_some(q, 3), "abc");
    push_for(q, items + 9, "dda"); /* who comes begins where the others are, whatever those had before */
    assert_string_equal(pop_some(q, MANY), "dabdaaaaa");
    queue_free(q);
}

static void a_clients_share_is_what_its_items_cost(void **state)
{
    (void)state;
    struct queue *q = make_large();
    struct queue_item items[MANY];
    push_for(q, items, "AAAbbbbbbbbb");
    assert_string_equal(pop_some(q, MANY), "abbbbabbbbab");
    queue_free(q);
}

static void priority_counts_among_the_items_of_one_client(void **state)
{
    (void)state;
    struct queue *q = make_large();
    struct queue_item items[4] = {{.client = client('a')},
                                  {.client = client('a'), .priority = QUEUE_PRIORITY_MAX},
                                  {.client = client('b')},
                                  {.client = client('a'), .priority = QUEUE_PRIORITY_MAX}};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(queue_push(q, 0, &items[i]), OK);
    assert_ptr_equal(queue_pop(q, 0), &items[1]);
    assert_ptr_equal(queue_pop(q, 0), &items[2]); /* though a's other is urgent */
    assert_ptr_equal(queue_pop(q, 0), &items[3]);
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    queue_free(q);
}

/* What the clients have: arg is 26 numbers, one for each letter. */
static int64_t load_of(void *arg, const struct client_id *who)
{
    return ((const int64_t *)arg)[who->bytes[3] - 'a'];
}

static void the_client_that_has_least_comes_first(void **state)
{
    (void)state;
    struct queue *q = make_large();
    struct queue_item items[MANY];
    int64_t loads[26] = {2, 1, 1, -1};
    push_for(q, items, "dabbcb");
    assert_ptr_equal(queue_pop_least(q, 0, load_of, loads), &items[2]); /* b */
    assert_ptr_equal(queue_pop_least(q, 0, load_of, loads), &items[4]); /* c has as much, and was not served yet */
    assert_ptr_equal(queue_pop_least(q, 0, load_of, loads), &items[3]); /* b */
    loads[1] = 3;
    assert_ptr_equal(queue_pop_least(q, 0, load_of, loads), &items[1]); /* a */
    assert_ptr_equal(queue_pop_least(q, 0, load_of, loads), &items[5]); /* b */
    assert_null(queue_pop_least(q, 0, load_of, loads));                 /* d can be given nothing now */
    assert_null(queue_pop_least(q, 1, load_of, loads));
    assert_int_equal(queue_count(q), 1);
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    queue_free(q);
}

static void the_client_with_most_makes_room_with_its_newest(void **state)
{
    (void)state;
    struct queue *q = make(); /* of four */
    struct queue_item items[ITEMS_MAX], other = {.client = client('c')};
    const struct client_id a = client('a'), b = client('b');
    assert_null(queue_make_room(q, &a)); /* nobody has anything */
    assert_true(queue_has_room(q, &a));
    push_for(q, items, "aaba");
    assert_int_equal(queue_push(q, 0, &other), ERR_FULL);
    assert_null(queue_make_room(q, &a)); /* not for itself */
    assert_false(queue_has_room(q, &a));
    assert_true(queue_has_room(q, &other.client));
    assert_ptr_equal(queue_make_room(q, &other.client), &items[3]);
    assert_int_equal(queue_push(q, 1, &other), OK);
    assert_null(queue_make_room(q, &b)); /* with a's it would only change places */
    assert_null(queue_make_room(q, &a));
    const struct client_id d = client('d');
    assert_ptr_equal(queue_make_room(q, &d), &items[1]);
    assert_null(queue_make_room(q, &d)); /* all have one: first come, first served */
    assert_string_equal(pop_some(q, MANY), "ab");
    assert_ptr_equal(queue_pop(q, 1), &other);
    queue_free(q);
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

enum { PUSHERS = 3, PUSHES = 3000 };

struct pusher {
    struct queue *queue;
    struct queue_item items[PUSHES];
    uint32_t pushed, removed;
};

/* Push all, spinning while the queue is full, and take every seventh back where the other side was not faster. */
static void *push_all(void *arg)
{
    struct pusher *p = arg;
    for (uint32_t i = 0; i < PUSHES; i++) {
        while (queue_push(p->queue, i % LANES, &p->items[i]) == ERR_FULL)
            ;
        p->pushed++;
        p->removed += i % 7 == 0 && queue_remove(p->queue, &p->items[i]);
    }
    return NULL;
}

struct popper {
    struct queue *queue;
    uint32_t popped;
};

static void *pop_all(void *arg)
{
    struct popper *p = arg;
    while (queue_wait(p->queue))
        for (uint32_t lane = 0; lane < LANES; lane++)
            while (queue_pop(p->queue, lane) != NULL)
                p->popped++;
    return NULL;
}

static void every_item_is_popped_or_removed_once(void **state)
{
    (void)state;
    static struct pusher pushers[PUSHERS];
    pthread_t threads[PUSHERS], popper;
    uint32_t pushed = 0, removed = 0;
    struct queue *q = make();
    struct popper pops = {.queue = q};
    assert_int_equal(pthread_create(&popper, NULL, pop_all, &pops), 0);
    for (int i = 0; i < PUSHERS; i++) {
        pushers[i].queue = q;
        assert_int_equal(pthread_create(&threads[i], NULL, push_all, &pushers[i]), 0);
    }
    for (int i = 0; i < PUSHERS; i++) {
        (void)pthread_join(threads[i], NULL);
        pushed += pushers[i].pushed;
        removed += pushers[i].removed;
    }
    queue_close(q);
    (void)pthread_join(popper, NULL);
    assert_int_equal(pushed, PUSHERS * PUSHES);
    assert_int_equal(pops.popped + removed, pushed);
    queue_free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lane_is_first_in_first_out),
        cmocka_unit_test(those_of_a_kind_overtake_the_others),
        cmocka_unit_test(the_bound_is_of_all_lanes_together),
        cmocka_unit_test(an_item_is_removed_from_anywhere_once),
        cmocka_unit_test(it_tells_how_long_items_wait),
        cmocka_unit_test(a_closed_queue_gives_what_it_has_and_takes_no_more),
        cmocka_unit_test(clients_are_served_in_turn),
        cmocka_unit_test(a_clients_share_is_what_its_items_cost),
        cmocka_unit_test(priority_counts_among_the_items_of_one_client),
        cmocka_unit_test(the_client_that_has_least_comes_first),
        cmocka_unit_test(the_client_with_most_makes_room_with_its_newest),
        cmocka_unit_test(every_item_is_popped_or_removed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
