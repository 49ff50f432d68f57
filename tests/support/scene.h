/* scene.h - everything that a daemon is asked: small models of each kind, a request of each route, and how to see that
 * the daemon is well. For tests that take from it what it needs. One thread; uses administration.h's daemon and
 * folder. */
#ifndef TESTS_SUPPORT_SCENE_H
#define TESTS_SUPPORT_SCENE_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/support/client.h"

/* Models "picture", "pixels", "text", "text-chat" and "words", in models_folder. */
void scene_put_models(void);

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* A request of each kind, of the clients' APIs and then of the administrators'; scene_begin fills in ports and
 * pictures, once the daemon runs. */
extern struct request scene_requests[];
extern const size_t scene_request_count, scene_client_request_count;
void scene_begin(void);
void scene_end(void); /* frees the pictures */

/* What two answers to the same request have in common: an answer without times and ids, nothing of an event stream or
 * of metrics; free it. */
char *scene_essence(const struct reply *r);

/* Visits: first all requests, then a whole session - made, written in, forked, fetched, put back and deleted. */
#define SCENE_VISITS (scene_request_count + 1)
const char *scene_visit_name(size_t visit);
/* The status of the answer; of several, the first that is not 2xx. 0: the connection was refused or cut. The test fails
 * if an error does not say what is wrong, or a client is told that a fault of the daemon's is its own. */
long scene_visit(size_t visit);
/* Have all models loaded again, after visits that changed that and failed. */
void scene_restore(void);

/* ---- is all well? ----------------------------------------------------------------------------------------------- */

/* Note what the daemon holds and writes now, after it was asked everything once. */
void scene_learn(void);
/* It answers as it did, and holds no more descriptors and threads than then. */
void scene_assert_serves(const char *after);
/* The same, and besides: a deadline is kept, a client that leaves is noticed, and then the daemon rests. */
void scene_assert_well(const char *after);

/* For teardowns: if a test has left the daemon behind, say how it is and what it said last. */
void scene_tell(void);

/* ---- how much --------------------------------------------------------------------------------------------------- */

/* Does a test go through everything (`make torture`), rather than a part that is the same each time? */
bool scene_is_long(void);
/* How far from one of `count` points to the next, so that no more than `most` are tried in the short form. */
long scene_step(long count, long most);

#endif
