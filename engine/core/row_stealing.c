/* row_stealing.c - see row_stealing.h. */
#include "engine/core/row_stealing.h"

#include <assert.h>

void row_stealing_open(struct row_stealing *s)
{
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
}

void row_stealing_close(struct row_stealing *s)
{
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
}

void row_stealing_begin(struct row_stealing *s, size_t rows)
{
    assert(s->left == 0 && s->offered == 0);
    s->left = rows;
}

void row_stealing_offer(struct row_stealing *s, struct row_range *r)
{
    if (r->count < (size_t)2 * ROW_STEALING_MIN || atomic_load_explicit(&s->wanted, memory_order_relaxed) == 0)
        return;
    (void)pthread_mutex_lock(&s->lock);
    const uint32_t wanted = atomic_load_explicit(&s->wanted, memory_order_relaxed);
    if (wanted > 0) {
        const size_t given = r->count / 2;
        r->count -= given;
        s->offers[s->offered++] = (struct row_range){r->first + r->count, given, r->halves};
        atomic_store_explicit(&s->wanted, wanted - 1, memory_order_relaxed);
        (void)pthread_cond_signal(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

/* A thread that finds an offer takes it, whether it has waited or not: the one that it was meant for keeps waiting. */
bool row_stealing_next(struct row_stealing *s, size_t count, struct row_range *r)
{
    (void)pthread_mutex_lock(&s->lock);
    s->left -= count;
    if (s->left == 0)
        (void)pthread_cond_broadcast(&s->changed);
    atomic_fetch_add_explicit(&s->wanted, 1, memory_order_relaxed);
    while (s->left > 0 && s->offered == 0)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    const bool more = s->offered > 0;
    if (more)
        *r = s->offers[--s->offered];
    else
        atomic_fetch_sub_explicit(&s->wanted, 1, memory_order_relaxed);
    (void)pthread_mutex_unlock(&s->lock);
    return more;
}
