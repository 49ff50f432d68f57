/* job_party.c - see job_party.h. */
#include "tests/support/job_party.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/models/hosted_model.h"

enum { PATIENCE_S = 20 };

void party_init(struct party *p)
{
    *p = (struct party){0};
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->changed, NULL);
}

void party_clear(struct party *p)
{
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_mutex_destroy(&p->lock);
}

static void suspend(void *arg)
{
    struct party *p = arg;
    (void)pthread_mutex_lock(&p->lock);
    assert_false(p->suspended);
    p->suspended = true;
    p->suspends++;
    (void)pthread_mutex_unlock(&p->lock);
}

static void resume(void *arg)
{
    struct party *p = arg;
    (void)pthread_mutex_lock(&p->lock);
    assert_true(p->suspended);
    p->suspended = false;
    p->resumes++;
    (void)pthread_cond_signal(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

struct job_waiter party_waiter(struct party *p)
{
    return (struct job_waiter){suspend, resume, p};
}

static void sleep_until_resumed(struct party *p)
{
    struct timespec end;
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    int code = 0;
    (void)pthread_mutex_lock(&p->lock);
    while (p->suspended && code == 0)
        code = pthread_cond_timedwait(&p->changed, &p->lock, &end);
    (void)pthread_mutex_unlock(&p->lock);
    assert_int_equal(code, 0);
}

void party_await(struct party *p, struct job *j)
{
    while (!job_ready_or_suspend(j))
        sleep_until_resumed(p);
}

size_t party_read(struct party *p, struct job *j, uint8_t *out, size_t size_max)
{
    size_t used = 0;
    for (;;) {
        struct generate_reading r = {.to.bytes = out + used, .size_max = size_max - used};
        switch (generate_read(j, &r)) {
        case JOB_EVENT_BYTES:
            used += r.size;
            assert_true(used < size_max);
            break;
        case JOB_EVENT_SAMPLE_END:
        case JOB_EVENT_PING:
            break;
        case JOB_EVENT_LATER:
            sleep_until_resumed(p);
            break;
        case JOB_EVENT_END:
            return used;
        }
    }
}

struct hosted_model *party_model(void)
{
    struct hosted_model *e = calloc(1, sizeof *e);
    assert_non_null(e);
    hosted_model_reference(e);
    return e;
}

struct hosted_model *party_text_model(void)
{
    const struct found_model found = {.name = "text", .path = "tests/data/golden/lm-local-8"};
    struct settings settings;
    struct hosted_model *e;
    struct error err = {.message = ""};
    settings_init(&settings);
    settings.threads = 1;
    if (hosted_model_load(&e, &found, &settings, &err) != OK)
        fail_msg("%s", err.message);
    return e;
}

struct job *party_generate(struct hosted_model *model, const struct generate_input *in, size_t ring_bytes)
{
    struct job *j = job_create(sizeof *j);
    struct error err;
    assert_non_null(j);
    hosted_model_reference(model);
    job_take_model(j, model);
    assert_int_equal(generate_begin(j, in, ring_bytes, &err), OK);
    return j;
}
