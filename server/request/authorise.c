/* authorise.c - see authorise.h. */
#include "server/request/authorise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/access/auth.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/request/job.h"
#include "server/request/request.h"
#include "server/request/service.h"

enum { KEY_TEXT_MAX = 512 }; /* longer texts are not even hashed; keys have KEY_TEXT_BYTES */

/* The key after "Bearer "; NULL: the credentials are of another kind. */
static const char *key_of_bearer(const char *value)
{
    static const char scheme[] = "Bearer ";
    if (strncasecmp(value, scheme, strlen(scheme)) != 0)
        return NULL;
    value += strlen(scheme);
    return value + strspn(value, " ");
}

/* The key that the headers give; else NULL, and *why says what is wrong with them. Only one key may be given, and only
 * once: what two readers could understand differently is refused. */
static const char *key_of_headers(const struct request *x, const char **why)
{
    const char *bearer = NULL, *plain = NULL;
    const size_t bearers = request_headers(x, "Authorization", &bearer),
                 plains = request_headers(x, "X-API-Key", &plain);
    *why = "a key is needed; expected the header Authorization: Bearer KEY";
    if (bearers + plains == 0)
        return NULL;
    *why = "more than one key is given; expected Authorization or X-API-Key, once";
    if (bearers + plains > 1)
        return NULL;
    *why = "the credentials are of an unknown kind; expected Authorization: Bearer KEY";
    return bearers > 0 ? key_of_bearer(bearer) : plain;
}

static enum status refuse_key(struct request *x, const char *why, bool was_given, struct error *err)
{
    request_add_header(x, "WWW-Authenticate",
                       was_given ? "Bearer realm=\"aftd\", error=\"invalid_token\"" : "Bearer realm=\"aftd\"");
    return error_set(err, ERR_KEY, "%s", why);
}

static enum status refuse_rate(struct request *x, double wait_s, struct error *err)
{
    metrics_counter_add(METRIC_KEY_LIMITED, auth_metrics_label(&x->grant), 1);
    (void)error_set(err, ERR_RATE, "the key \"%s\" has reached its rate limit; retry in %.3g s", auth_name(&x->grant),
                    fmax(wait_s, 1e-3));
    error_retry_after(err, (unsigned)fmin(fmax(ceil(wait_s), 1.0), HTTP_RETRY_AFTER_MAX_S));
    return ERR_RATE;
}

enum status authorise(struct request *x, struct error *err)
{
    struct auth *keys = x->service->keys;
    const char *why;
    double wait_s;
    if (keys == NULL)
        return OK;
    const char *text = key_of_headers(x, &why);
    if (text == NULL)
        return refuse_key(x, why, false, err);
    const size_t size = strlen(text);
    if (size > KEY_TEXT_MAX || !auth_find(keys, text, size, &x->grant))
        return refuse_key(x, "the key is not known here", true, err);
    metrics_counter_add(METRIC_KEY_REQUESTS, auth_metrics_label(&x->grant), 1);
    if (!auth_may_call(&x->grant, x->kind))
        return error_set(err, ERR_FORBIDDEN, "the key \"%s\" may not use the API \"%s\"", auth_name(&x->grant),
                         key_api_word(x->kind));
    if (auth_take_request(&x->grant, clock_now_ns(), &wait_s) != OK)
        return refuse_rate(x, wait_s, err);
    x->client = auth_client_id(&x->grant);
    return OK;
}

static uint64_t generated_of(void *job, bool *ended)
{
    const struct job_look look = job_look(job);
    *ended = look.state == JOB_DONE;
    return look.generated;
}

void authorise_no_job(struct request *x)
{
    x->picture_bytes = 0;
    auth_use_end(&x->grant, clock_now_ns(), x->body.received);
}

void authorise_end(struct request *x, uint64_t bytes)
{
    if (x->grant.key == NULL)
        return;
    metrics_counter_add(METRIC_KEY_BYTES, auth_metrics_label(&x->grant), bytes);
    auth_use_end(&x->grant, clock_now_ns(), bytes + x->picture_bytes);
    auth_release(&x->grant);
}

enum status authorise_model(const struct request *x, const char *name, const char *asked, struct error *err)
{
    if (auth_may_use(&x->grant, name))
        return OK;
    return error_set_param(err, ERR_FORBIDDEN, "model", "the key \"%s\" may not use the model \"%s\"",
                           auth_name(&x->grant), json_quote(asked).text);
}

int32_t authorise_priority_max(const struct request *x)
{
    const struct key *k = x->grant.key;
    return k != NULL ? k->priority_max : (int32_t)x->service->settings->priority_max;
}

enum status authorise_priority(const struct request *x, int32_t priority, struct error *err)
{
    const struct auth_grant *g = &x->grant;
    const int32_t most = authorise_priority_max(x);
    char who[KEY_NAME_MAX + sizeof "the key \"\""] = "a request without a key";
    if (priority <= most)
        return OK;
    if (g->key != NULL)
        (void)snprintf(who, sizeof who, "the key \"%s\"", g->key->name);
    return error_set_param(err, ERR_FORBIDDEN, "priority", "%s may ask for a priority of at most %d, not %d", who, most,
                           priority);
}

enum status authorise_job(struct request *x, struct error *err)
{
    double wait_s = 0.0;
    const enum status st = authorise_priority(x, x->job.item.priority, err);
    if (st != OK)
        return st;
    x->grant.use.so_far = generated_of;
    x->grant.use.arg = &x->job;
    x->grant.use.most = x->job.max_output;
    if (auth_use_begin(&x->grant, clock_now_ns(), x->body.received + x->picture_bytes, &wait_s) == OK)
        return OK;
    return refuse_rate(x, wait_s, err);
}
