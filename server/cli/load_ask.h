/* load_ask.h - requests of aft load that are not measured, each waited for: is there a daemon, and the sessions that
 * clients go on with. And what these requests have in common with those that are measured. Single threaded. */
#ifndef SERVER_CLI_LOAD_ASK_H
#define SERVER_CLI_LOAD_ASK_H

#include <curl/curl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/cli/load.h"

/* ---- what all requests have -------------------------------------------------------------------------------------- */

/* One text out of three: free it. NULL: out of memory. */
char *load_join(const char *base, const char *path, const char *more);
/* False: out of memory. */
bool load_add_header(struct curl_slist **list, const char *line);
bool load_add_headers(struct curl_slist **list, const struct load_options *o); /* of --key and --header */
void load_set_common(CURL *easy, const struct load_options *o);

/* ---- what is asked before and after ------------------------------------------------------------------------------ */

/* Ask GET /readyz whether there is a daemon that takes requests. Prints why not and returns CLI_FAILED. */
int load_probe(const struct load_options *o);

struct load_session {
    char id[SESSION_ID_MAX + 1]; /* empty: nothing was tried */
    struct curl_slist *headers;  /* of the requests that go on with it */
};

/* Begin `count` sessions, zeroed, with one body after the other, unless *interrupted is or becomes other than 0. Prints
 * why not and returns CLI_FAILED. They are the caller's to end in any case. */
int load_sessions_begin(struct load_session *sessions, size_t count, const struct load_options *o,
                        const struct load_bodies *bodies, const volatile sig_atomic_t *interrupted);
/* End those that the daemon has, as far as it can be reached, and warn of the others; free what they hold. */
void load_sessions_end(struct load_session *sessions, size_t count, const struct load_options *o);

#endif
