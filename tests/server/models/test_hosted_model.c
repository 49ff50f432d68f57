/* test_hosted_model.c - who holds a hosted model: users are counted apart from the registry and the lane, the lane is
 * woken when it is left alone, and the last one frees it (what is not freed, asan finds). No engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/models/registry.h"
#include "tests/support/job_party.h"

enum { PATIENCE_S = 20 };

/* A model whose lane waits at a queue, as batcher_serve leaves it. The caller is its user. */
static struct hosted_model *served(struct queue *q)
{
    struct hosted_model *e = party_model();
    hosted_model_hold(e, HOSTED_BY_LANE);
    e->queue = q;
    return e;
}

static struct queue *new_queue(void)
{
    struct queue *q = NULL;
    assert_int_equal(queue_create(&q, 1, 1), OK);
    return q;
}

/* What has woken it so far is forgotten. */
static void forget_wakes(struct queue *q)
{
    struct queue_item item = {0};
    assert_int_equal(queue_push(q, 0, &item), OK);
    assert_true(queue_wait(q));
    assert_ptr_equal(queue_pop(q, 0), &item);
}

static void users_are_counted_apart_from_registry_and_lane(void **state)
{
    struct queue *q = new_queue();
    struct hosted_model *e = served(q);
    (void)state;
    assert_int_equal(hosted_model_users(e), 1);
    hosted_model_hold(e, HOSTED_BY_REGISTRY);
    hosted_model_reference(e);
    assert_int_equal(hosted_model_users(e), 2);
    hosted_model_release(e);
    hosted_model_release(e);
    assert_int_equal(hosted_model_users(e), 0);
    assert_false(hosted_model_is_abandoned(e)); /* it is still to be found */
    hosted_model_let_go(e, HOSTED_BY_REGISTRY);
    assert_true(hosted_model_is_abandoned(e));
    hosted_model_let_go(e, HOSTED_BY_LANE);
    queue_free(q);
}

static void the_lane_is_woken_when_it_is_left_alone(void **state)
{
    struct queue *q = new_queue();
    struct hosted_model *e = served(q);
    (void)state;
    hosted_model_hold(e, HOSTED_BY_REGISTRY);
    hosted_model_let_go(e, HOSTED_BY_REGISTRY); /* replaced, while a request runs */
    assert_false(hosted_model_is_abandoned(e));
    forget_wakes(q);
    hosted_model_release(e);
    (void)alarm(PATIENCE_S); /* which ends the test */
    assert_true(queue_wait(q));
    (void)alarm(0);
    assert_true(hosted_model_is_abandoned(e));
    hosted_model_let_go(e, HOSTED_BY_LANE);
    queue_free(q);
}

static void a_user_may_outlive_the_lane(void **state)
{
    struct queue *q = new_queue();
    struct hosted_model *e = served(q);
    (void)state;
    hosted_model_let_go(e, HOSTED_BY_LANE);
    assert_int_equal(hosted_model_users(e), 1);
    assert_false(hosted_model_is_abandoned(e)); /* there is no lane to be left alone */
    hosted_model_release(e);
    queue_free(q);
}

/* What an administrator reads: whether a request holds it, not that the listing does. */
static void a_copied_row_tells_whether_the_model_had_users(void **state)
{
    static const struct found_model found = {.name = "m", .path = "m"};
    struct registry *r = NULL;
    struct registry_model *first, *second, *third;
    size_t count;
    struct queue *q = new_queue();
    struct hosted_model *e = served(q);
    (void)state;
    assert_int_equal(registry_create(&r), OK);
    assert_int_equal(registry_put(r, &found, MODEL_LOADED, TASK_TEXT_GENERATION, e, NULL), OK);
    assert_int_equal(registry_models(r, &first, &count), OK);
    assert_int_equal(count, 1);
    assert_false(first[0].in_use);
    registry_models_free(first, count);
    struct hosted_model *used = NULL;
    assert_int_equal(registry_acquire(r, "m", REGISTRY_ANY_TASK, NULL, &used, NULL), OK);
    assert_ptr_equal(used, e);
    assert_int_equal(registry_models(r, &second, &count), OK);
    assert_true(second[0].in_use);
    registry_models_free(second, count);
    hosted_model_release(used);
    assert_int_equal(registry_models(r, &third, &count), OK);
    assert_false(third[0].in_use);
    registry_models_free(third, count);
    registry_free(r);
    assert_true(hosted_model_is_abandoned(e));
    hosted_model_let_go(e, HOSTED_BY_LANE);
    queue_free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_are_counted_apart_from_registry_and_lane),
        cmocka_unit_test(the_lane_is_woken_when_it_is_left_alone),
        cmocka_unit_test(a_user_may_outlive_the_lane),
        cmocka_unit_test(a_copied_row_tells_whether_the_model_had_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
