/* load_client.h - one client: a connection that carries one request after the other, by libcurl. One thread. */
#ifndef SERVER_CLI_LOAD_CLIENT_H
#define SERVER_CLI_LOAD_CLIENT_H

#include <curl/curl.h>

#include "server/cli/load.h"
#include "server/cli/load_answer.h"
#include "server/cli/load_ask.h"

/* Where requests of a kind go, and with what. Headers are shared by all clients. */
struct load_target {
    char *url;
    struct curl_slist *headers;
    const struct load_bodies *bodies;
    size_t next; /* the body whose turn it is */
};

/* What clients need to know of the run; borrowed by them. */
struct load_shared {
    const struct load_options *o;
    struct load_target targets[LOAD_KINDS];
    struct load_tally *tallies; /* [LOAD_KINDS] */
    bool in_window;             /* now, as of the event loop's last look at the clock */
};

struct load_client {
    struct load_shared *shared;
    CURL *easy;
    const struct load_session *session; /* that its texts go on with; NULL: with none */
    struct load_answer answer;
    enum load_kind kind;
    bool busy, measured; /* a request is under way; it counts */
    double due_s;
    bool is_doubtful; /* its last request failed, and the next one may for the same reason: its session is not there */
    double rest_until_s; /* of a closed loop: after a failure that would repeat itself at once */
    char why[CURL_ERROR_SIZE];
};

/* Prints why and returns CLI_FAILED; clear it in any case, zeroed is fine. */
int load_target_init(struct load_target *t, enum load_kind kind, const struct load_options *o,
                     const struct load_bodies *bodies);
void load_target_clear(struct load_target *t);

/* False: out of memory. */
bool load_client_init(struct load_client *c, struct load_shared *shared);
void load_client_clear(struct load_client *c); /* its request must have ended; zeroed is fine */

/* Set up the next request; the caller hands c->easy to libcurl. */
void load_client_begin(struct load_client *c, enum load_kind kind, double due_s, double now_s, bool measured);
/* The request is over, and was removed from libcurl: count it. */
void load_client_end(struct load_client *c, CURLcode code, double now_s);
/* The request was given up when the run was interrupted. */
void load_client_abort(struct load_client *c);

#endif
