/* administration.h - a daemon with an admin listener over a folder of models of its own, and requests to both sides.
 * Every function fails the test if the daemon does not do as it is told. */
#ifndef TESTS_SUPPORT_ADMINISTRATION_H
#define TESTS_SUPPORT_ADMINISTRATION_H

#include <jansson.h>
#include <limits.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"

extern struct daemon administered;
extern char models_folder[PATH_MAX]; /* empty after administration_set_up */

/* Before and after each test. */
int administration_set_up(void **state);
int administration_tear_down(void **state);
/* Start the daemon; `flag` and `other` may be NULL. */
void administration_start(const char *flag, const char *other);

/* ---- the admin listener ---------------------------------------------------------------------------------------- */

void admin_post(const char *path, const char *body, struct reply *ret);
/* The result is for json_decref. */
json_t *admin_get(const char *path);
/* {"action": ACTION} to a model; the status must be `status`. */
void admin_act(const char *model, const char *action, long status, struct reply *ret);
void admin_act_well(const char *model, const char *action);
void admin_act_badly(const char *model, const char *action, long status, const char *code, const char *says);
/* The state of a model, such as "loaded"; "" if it is not known. Static memory. */
const char *admin_state_of(const char *model);
/* Does a request have it? */
bool admin_is_in_use(const char *model);
/* Why it could not be loaded when that was last tried; "" if it could. Static memory. */
const char *admin_failure_of(const char *model);
/* What a reload reports: "loaded a, failed b". Static memory. */
const char *admin_reload(void);

/* ---- the others ------------------------------------------------------------------------------------------------- */

/* Ask a model for a text, always the same. */
void model_ask(const char *model, struct reply *ret);
void model_assert_error(const char *model, long status, const char *code, const char *says);
/* The text that the model writes; free it. */
char *model_text(const char *model);
void model_assert_writes(const char *model, const char *expected);

#endif
