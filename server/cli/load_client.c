/* load_client.c - see load_client.h. */
#include "server/cli/load_client.h"

#include <stdlib.h>
#include <string.h>

/* ---- what all requests have -------------------------------------------------------------------------------------- */

int load_target_init(struct load_target *t, enum load_kind kind, const struct load_options *o,
                     const struct load_bodies *bodies)
{
    static const char *const paths[LOAD_KINDS] = {[LOAD_CLASSIFY] = "/classify", [LOAD_GENERATE] = "/generate"};
    static const char *const types[LOAD_KINDS] = {
        [LOAD_CLASSIFY] = "Content-Type: application/octet-stream", [LOAD_GENERATE] = "Content-Type: application/json"};
    const char *model = o->models[kind];
    t->bodies = bodies;
    if (kind == LOAD_CLASSIFY && model != NULL) { /* for a text it is in the body */
        char *escaped = curl_easy_escape(NULL, model, 0), *query = NULL;
        query = escaped != NULL ? load_join(paths[kind], "?model=", escaped) : NULL;
        t->url = query != NULL ? load_join(o->to.url, query, "") : NULL;
        free(query);
        curl_free(escaped);
    } else {
        t->url = load_join(o->to.url, paths[kind], "");
    }
    /* "Expect:" keeps libcurl from asking for permission, and waiting for it, before it sends a large body */
    if (t->url == NULL || !load_add_header(&t->headers, types[kind]) || !load_add_header(&t->headers, "Expect:") ||
        !load_add_headers(&t->headers, o))
        return cli_fail("out of memory");
    return CLI_OK;
}

void load_target_clear(struct load_target *t)
{
    free(t->url);
    curl_slist_free_all(t->headers);
    memset(t, 0, sizeof *t);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static long status_of(const struct load_client *c)
{
    long status = 0;
    (void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
    struct load_client *c = arg;
    const long status = status_of(c);
    if (status < 200 || status > 299)
        c->answer.form = LOAD_FORM_ERROR;
    const uint64_t tokens = load_answer_take(&c->answer, bytes, one * n, cli_now());
    if (c->shared->in_window)
        c->shared->tallies[c->kind].window_bytes += tokens;
    return one * n;
}

bool load_client_init(struct load_client *c, struct load_shared *shared)
{
    memset(c, 0, sizeof *c);
    c->shared = shared;
    c->easy = curl_easy_init();
    if (c->easy == NULL)
        return false;
    load_set_common(c->easy, shared->o);
    (void)curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->why);
    return curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c) == CURLE_OK;
}

void load_client_clear(struct load_client *c)
{
    curl_easy_cleanup(c->easy);
    load_answer_clear(&c->answer);
    memset(c, 0, sizeof *c);
}

void load_client_begin(struct load_client *c, enum load_kind kind, double due_s, double now_s, bool measured)
{
    struct load_target *target = &c->shared->targets[kind];
    struct load_tally *tally = &c->shared->tallies[kind];
    const struct load_body *body = &target->bodies->at[target->next];
    target->next = (target->next + 1) % target->bodies->count;
    const enum load_form text = c->shared->o->whole ? LOAD_FORM_TEXT : LOAD_FORM_EVENTS;
    load_answer_begin(&c->answer, kind == LOAD_GENERATE ? text : LOAD_FORM_OPAQUE,
                      measured ? &tally->times[LOAD_EVENT_GAP] : NULL, measured ? &tally->times[LOAD_BYTE_GAP] : NULL);
    c->kind = kind;
    c->busy = true;
    c->measured = measured;
    c->due_s = due_s;
    c->why[0] = '\0';
    (void)curl_easy_setopt(c->easy, CURLOPT_URL, target->url);
    const bool goes_on = kind == LOAD_GENERATE && c->session != NULL;
    (void)curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, goes_on ? c->session->headers : target->headers);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    (void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, (const char *)body->bytes);
    if (measured) {
        tally->requests++;
        tally->sent++;
        load_histogram_add_s(&tally->times[LOAD_DELAY], now_s - due_s, 1);
    }
}

void load_client_end(struct load_client *c, CURLcode code, double now_s)
{
    char fault[32] = "";
    struct load_answer *a = &c->answer;
    struct load_tally *tally = &c->shared->tallies[c->kind];
    const long status = status_of(c);
    const bool refused = status < 200 || status > 299;
    if (refused)
        a->form = LOAD_FORM_ERROR; /* also one without a body */
    const uint64_t tokens = code == CURLE_OK ? load_answer_end(a) : 0;
    if (c->shared->in_window)
        tally->window_bytes += tokens;
    if (code != CURLE_OK)
        (void)snprintf(fault, sizeof fault, "curl %d", (int)code);
    else if (refused)
        (void)snprintf(fault, sizeof fault, "HTTP %ld", status);
    const char *why = c->why[0] != '\0' ? c->why : curl_easy_strerror(code);
    const struct load_outcome outcome = {.due_s = c->due_s,
                                         .first_s = a->first_s > 0.0 ? a->first_s : now_s,
                                         .end_s = now_s,
                                         .longest_gap_s = a->longest_gap_s,
                                         .bytes = a->bytes,
                                         .measured = c->measured,
                                         .in_window = c->shared->in_window,
                                         .fault = fault[0] != '\0' ? fault : a->fault,
                                         .detail = code != CURLE_OK ? why : a->detail};
    load_tally_add(tally, c->shared->o, &outcome);
    c->busy = false;
    /* A session is in use until the daemon has noticed that its client left. An open loop does not pause: its requests
     * stay due when they are due. */
    const bool is_lost = c->session != NULL && c->kind == LOAD_GENERATE && (code != CURLE_OK || refused);
    const bool rests = (code != CURLE_OK && status == 0) || is_lost;
    c->is_doubtful = is_lost;
    c->rest_until_s = rests && c->shared->o->rate <= 0.0 ? now_s + LOAD_PAUSE_S : 0.0;
}

void load_client_abort(struct load_client *c)
{
    struct load_tally *tally = &c->shared->tallies[c->kind];
    c->busy = false;
    if (!c->measured)
        return;
    tally->aborted++;
    tally->bytes += c->answer.bytes;
}
