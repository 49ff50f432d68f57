/* api_request.h - what the APIs know about a request beyond HTTP: exchange.api, from its first line to its end. Only
 * its connection's HTTP thread touches it. */
#ifndef SERVER_API_API_REQUEST_H
#define SERVER_API_API_REQUEST_H

#include <jansson.h>
#include <stdbool.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/access/api_kind.h"
#include "server/access/auth.h"
#include "server/core/client_id.h"
#include "server/http/http.h"

struct hosted_model;

struct api_request {
    /* routes.c's: which endpoint it is for */
    bool is_routed; /* routes.c has looked */
    enum api_kind kind;
    bool is_below_v2;  /* its path is: errors have the Open Inference Protocol's form, whatever the API */
    unsigned endpoint; /* the path's metrics label */
    const char *route; /* the path as the table has it; NULL: none of them */
    char segments[HTTP_SEGMENTS_MAX][HTTP_SEGMENT_MAX]; /* what the path has in place of each {} */
    json_t *query; /* the query's parameters, for fields_read; NULL where the route takes none */

    /* authorise.c's */
    struct auth_grant grant; /* the key that let it in, if keys are required */
    struct client_id client; /* who is behind it: that key or, where none is required, an address */

    /* request_model.c's: the model */
    struct hosted_model *hosted; /* the model that the request uses; a reference. NULL: none yet */
    unsigned model;              /* its metrics label */

    uint32_t timeout_ms;    /* that it asks for; 0: what the settings say */
    uint64_t picture_bytes; /* that its pictures count towards the key's rate, beyond those of the body */

    /* of the answer, for the log */
    enum status error;           /* of an error answer; OK otherwise */
    double queue_ms, compute_ms; /* for Server-Timing too */

    /* the endpoint's own */
    void *state;
    void (*state_free)(void *); /* called at the end, if there is a state */
};

#endif
