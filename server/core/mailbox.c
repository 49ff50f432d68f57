/* mailbox.c - see mailbox.h. No item is missed: it is in its mailbox before `wake_pending` is set, whoever clears
 * `wake_pending` signals the eventfd afterwards, and the owner empties the mailbox after it has read the eventfd. */
#include "server/core/mailbox.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct box {
    int fd;                   /* an eventfd that wakes the thread */
    atomic_bool wake_pending; /* something was posted since the last notification */
    pthread_mutex_t lock;
    /* under the lock */
    TAILQ_HEAD(, mailbox_item) items;
};

struct mailboxes {
    uint32_t count;
    struct box boxes[];
};

enum status mailbox_create(struct mailboxes **ret, uint32_t boxes)
{
    struct mailboxes *n = calloc(1, sizeof *n + boxes * sizeof n->boxes[0]);
    if (n == NULL)
        return ERR_NOMEM;
    for (; n->count < boxes; n->count++) {
        struct box *b = &n->boxes[n->count];
        b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (b->fd < 0) {
            mailbox_free(n);
            return ERR_IO;
        }
        (void)pthread_mutex_init(&b->lock, NULL);
        TAILQ_INIT(&b->items);
    }
    *ret = n;
    return OK;
}

void mailbox_free(struct mailboxes *n)
{
    if (n == NULL)
        return;
    for (uint32_t i = 0; i < n->count; i++) {
        assert(TAILQ_EMPTY(&n->boxes[i].items));
        (void)close(n->boxes[i].fd);
        (void)pthread_mutex_destroy(&n->boxes[i].lock);
    }
    free(n);
}

/* ---- any thread ------------------------------------------------------------------------------------------------ */

void mailbox_post(struct mailboxes *n, uint32_t box, struct mailbox_item *item)
{
    struct box *b = &n->boxes[box];
    (void)pthread_mutex_lock(&b->lock);
    if (!item->is_put)
        TAILQ_INSERT_TAIL(&b->items, item, link);
    item->is_put = true;
    (void)pthread_mutex_unlock(&b->lock);
    atomic_store(&b->wake_pending, true);
}

void mailbox_wake(struct mailboxes *n, uint32_t box)
{
    const uint64_t one = 1;
    (void)!write(n->boxes[box].fd, &one, sizeof one);
}

void mailbox_notify(struct mailboxes *n)
{
    for (uint32_t i = 0; i < n->count; i++)
        if (atomic_load(&n->boxes[i].wake_pending) && atomic_exchange(&n->boxes[i].wake_pending, false))
            mailbox_wake(n, i);
}

/* ---- the mailbox's own thread ---------------------------------------------------------------------------------- */

int mailbox_fd(const struct mailboxes *n, uint32_t box)
{
    return n->boxes[box].fd;
}

struct mailbox_item *mailbox_take(struct mailboxes *n, uint32_t box)
{
    struct box *b = &n->boxes[box];
    uint64_t wakeups;
    (void)!read(b->fd, &wakeups, sizeof wakeups);
    (void)pthread_mutex_lock(&b->lock);
    struct mailbox_item *first = TAILQ_FIRST(&b->items), *item;
    TAILQ_FOREACH(item, &b->items, link)
    item->is_put = false;
    TAILQ_INIT(&b->items);
    (void)pthread_mutex_unlock(&b->lock);
    return first;
}

void mailbox_remove(struct mailboxes *n, uint32_t box, struct mailbox_item *item)
{
    struct box *b = &n->boxes[box];
    (void)pthread_mutex_lock(&b->lock);
    if (item->is_put)
        TAILQ_REMOVE(&b->items, item, link);
    item->is_put = false;
    (void)pthread_mutex_unlock(&b->lock);
}
