/* mailbox.h - tells the threads that serve connections which of them have something to say: a box for each thread, and
 * in it the items that somebody has put there. Putting costs no system call and wakes nobody. A ring wakes the threads
 * whose boxes have got something since the last one, each once: so a step of the engine that has news for many
 * connections wakes a thread once for all of its own. The lock of a box is a leaf: nothing else is taken under it, and
 * no system call is made. */
#ifndef SERVER_CORE_MAILBOX_H
#define SERVER_CORE_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"

struct mailboxes;

/* Embedded in what has news; zeroed before its first use. Its fields are the box's. */
struct mailbox_item {
    struct mailbox_item *next, *previous;
    bool is_put;
};

/* *ret is set only on OK; free with mailbox_free, when nothing is in any box. Errors: ERR_NOMEM, ERR_IO. */
enum status mailbox_create(struct mailboxes **ret, uint32_t boxes);
void mailbox_free(struct mailboxes *n); /* NULL is a no-op */

/* ---- any thread ------------------------------------------------------------------------------------------------ */

/* Into a box; where it is already there it stays. Who puts rings afterwards, the engine with no lock held. */
void mailbox_post(struct mailboxes *n, uint32_t box, struct mailbox_item *item);
void mailbox_notify(struct mailboxes *n);
/* Wake the thread of one box in any case. */
void mailbox_wake(struct mailboxes *n, uint32_t box);

/* ---- the box's own thread -------------------------------------------------------------------------------------- */

/* A descriptor that is readable from a ring or a knock until mailbox_take. */
int mailbox_fd(const struct mailboxes *n, uint32_t box);
/* Empty the box: all items, linked by `next`, in the order they came; NULL if there were none. */
struct mailbox_item *mailbox_take(struct mailboxes *n, uint32_t box);
/* Out of the box again, if it is there. */
void mailbox_remove(struct mailboxes *n, uint32_t box, struct mailbox_item *item);

#endif
