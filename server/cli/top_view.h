/* top_view.h - what aft top shows: two samples of a daemon's figures, and the tables made of them. Single threaded. */
#ifndef SERVER_CLI_TOP_VIEW_H
#define SERVER_CLI_TOP_VIEW_H

#include <jansson.h>
#include <stdio.h>

#include "server/cli/remote.h"

/* The daemon at one moment; zeroed is none. */
struct top_sample {
    double when_s;                /* cli_now */
    json_t *requests, *models;    /* GET /admin/requests, GET /admin/models */
    struct remote_answer metrics; /* GET /metrics */
};

/* CLI_OK, or it is cleared and why is printed. */
int top_sample_take(struct top_sample *ret, const struct remote *r);
void top_sample_clear(struct top_sample *s); /* and zeroes it */

/* The sum of the series of a metric; those of one model if `model` is given. Other labels mean nothing, and what cannot
 * be read counts as nothing. `text` may be NULL. */
double top_metric(const char *text, const char *name, const char *model);

/* `now`, with rates since `before`, and all requests that the daemon lists, as one object; NULL: out of memory. */
json_t *top_view_describe(const char *daemon, const struct top_sample *before, const struct top_sample *now);
/* The tables of such an object; of the requests as many as `lines` have room for. */
void top_view_print(FILE *to, const json_t *told, size_t lines);

#endif
