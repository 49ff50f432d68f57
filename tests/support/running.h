/* running.h - what a daemon with an admin listener says that it is working on, and cancelling that. One thread. A
 * failing step ends the test. */
#ifndef TESTS_SUPPORT_RUNNING_H
#define TESTS_SUPPORT_RUNNING_H

#include <jansson.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"

/* What a test's clients say, which no list may show. */
#define RUNNING_PROMPT "a prompt that nobody else may read"

/* GET /admin/requests; json_decref. */
json_t *running_list(const struct daemon *d);
/* Wait until it lists these, as "first:streaming second:queued", and return it; json_decref. */
json_t *running_await(const struct daemon *d, const char *expected);
/* A member of a request in it: a text, "null" if it is none; a number, 0 if it is none. */
const char *running_text(const json_t *request, const char *member);
double running_number(const json_t *request, const char *member);

/* DELETE /admin/requests/ID; reply_clear. */
void running_cancel(const struct daemon *d, const char *id, struct reply *ret);
/* The same, and it says that these were cancelled. */
void running_cancel_well(const struct daemon *d, const char *id, const char *expected);

#endif
