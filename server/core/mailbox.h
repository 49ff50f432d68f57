/* mailbox.h - tells the threads that serve connections which connections have news: a mailbox for each thread, which
 * holds the items that were posted to it.
 * Posting costs no system call and wakes nobody. mailbox_notify wakes each thread whose mailbox has received something
 * since the last notification, once: so a step of the engine that has news for many connections of a thread wakes that
 * thread only once. The lock of a mailbox is a leaf: no other lock is taken under it, and no system call is made. */
#ifndef SERVER_CORE_MAILBOX_H
#define SERVER_CORE_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "config/status.h"

struct mailboxes;

/* Embedded in what is posted; zeroed before its first use. Its fields belong to the mailbox. */
struct mailbox_item {
    TAILQ_ENTRY(mailbox_item) link;
    bool is_put;
};

/* *ret is set only on OK; free with mailbox_free, when all mailboxes are empty. Errors: ERR_NOMEM, ERR_IO. */
enum status mailbox_create(struct mailboxes **ret, uint32_t boxes);
void mailbox_free(struct mailboxes *n); /* NULL is a no-op */

/* ---- any thread ------------------------------------------------------------------------------------------------ */

/* Post an item to a mailbox; one that is already there keeps its place. Whoever posts calls mailbox_notify afterwards;
 * the engine does so with no lock held. */
void mailbox_post(struct mailboxes *n, uint32_t box, struct mailbox_item *item);
void mailbox_notify(struct mailboxes *n);
/* Wake the thread of one mailbox, whether or not it has mail. */
void mailbox_wake(struct mailboxes *n, uint32_t box);

/* ---- the mailbox's own thread ---------------------------------------------------------------------------------- */

/* A descriptor that is readable from mailbox_notify or mailbox_wake until mailbox_take. */
int mailbox_fd(const struct mailboxes *n, uint32_t box);
/* Empty the mailbox and return all items, linked by `link`, in the order in which they were posted; NULL if there were
 * none. */
struct mailbox_item *mailbox_take(struct mailboxes *n, uint32_t box);
/* Take an item out of the mailbox, if it is there. */
void mailbox_remove(struct mailboxes *n, uint32_t box, struct mailbox_item *item);

#endif
