/* generate_remote.c - aft generate with a daemon's URL or socket: the events of its stream become the text. Where the
 * connection breaks, or the daemon drains and says "moved", the same request is sent again, with the id of the last
 * event, so that no byte is missing and none comes twice: to the daemon behind the same address then. A seed is always
 * sent, so a text of which nothing has come yet can begin anew. Single threaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "config/json.h"
#include "server/cli/cli.h"
#include "server/cli/generate.h"
#include "server/cli/remote.h"
#include "server/cli/text_output.h"

enum { RETRIES = 8, RETRY_FIRST_MS = 200, RETRY_MOST_MS = 5000 };

/* ---- events ----------------------------------------------------------------------------------------------------- */

/* What receives the events of a daemon. */
struct listener {
    struct text_output out;
    struct generate_ending end; /* of the last event */
    int code;
    bool begun, moved;            /* something came; the last event said that it goes on elsewhere */
    char id[REMOTE_ID_BYTES];     /* of the last event; empty: there was none with an id */
    struct cli_progress progress; /* counts bytes of the text */
    size_t seen;
};

static bool fail_listener(struct listener *l, const char *what)
{
    text_output_end(&l->out);
    l->code = cli_fail("%s", what);
    return false;
}

/* Bytes as they were drawn, which need not be UTF-8, in base64. */
static bool on_bytes(struct listener *l, const json_t *base64)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (base64 == NULL)
        return true;
    if (!remote_read_base64(&bytes, &size, base64))
        return fail_listener(l, "the daemon's answer has an event whose bytes are not base64");
    l->code = text_output_bytes(&l->out, bytes, size);
    l->seen += size;
    cli_progress_show(&l->progress, l->seen < l->progress.total ? l->seen : l->progress.total, "generated");
    free(bytes);
    return l->code == CLI_OK;
}

static bool on_event(void *arg, json_t *event)
{
    static const char *const words[] = {"length", "stop", "context", "timeout", "cancelled"};
    struct listener *l = arg;
    const char *finish = json_string_value(json_object_get(event, "finish_reason")), *message = NULL, *model = NULL;
    l->begun = true;
    l->moved = finish != NULL && strcmp(finish, "moved") == 0;
    if (json_unpack(event, "{s:{s:s}}", "error", "message", &message) == 0)
        return fail_listener(l, message);
    for (size_t i = 0; finish != NULL && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(finish, words[i]) == 0)
            l->end.finish = words[i];
    (void)json_unpack(event, "{s:{s:I, s:I}}", "usage", "prompt_tokens_dropped", &l->end.dropped, "completion_tokens",
                      &l->end.generated);
    if (json_unpack(event, "{s:s, s:I}", "model", &model, "seed", &l->end.seed) == 0)
        (void)snprintf(l->end.model, sizeof l->end.model, "%s", model);
    return on_bytes(l, json_object_get(event, "bytes_base64"));
}

/* ---- the request ------------------------------------------------------------------------------------------------ */

/* NULL: there are none. All are UTF-8, as read_stops has seen. */
static json_t *describe_stops(const struct cli_texts *texts)
{
    json_t *list = texts->count > 0 ? json_array() : NULL;
    for (size_t i = 0; i < texts->count; i++)
        json_append(list, json_string(texts->at[i]));
    return list;
}

static char *generate_remote_describe(const struct generate_options *r, const char *model, const uint8_t *prompt,
                                      size_t size)
{
    const struct sampler_options *s = &r->sampler;
    json_t *object =
        json_pack("{s:b, s:b, s:b, s:s, s:o, s:I, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:b, s:I, s:o*, s:s*}", "stream",
                  1, "moves", 1, "bytes_base64", 1, "context_overflow", r->shift ? "shift" : "stop", "prompt_base64",
                  remote_base64(prompt, size), "max_tokens", (json_int_t)r->max_tokens, "temperature",
                  (double)s->temperature, "top_k", (int)s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p,
                  "repetition_penalty", (double)s->repetition_penalty, "presence_penalty", (double)s->presence_penalty,
                  "frequency_penalty", (double)s->frequency_penalty, "utf8", (int)s->utf8, "seed", (json_int_t)s->seed,
                  "stop", describe_stops(&r->stop_texts), "model", model);
    char *text = object != NULL ? json_print(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

/* What is to be said once the events are over. */
static int conclude(struct listener *l, const struct generate_options *r, size_t size)
{
    text_output_end(&l->out);
    if (l->end.finish == NULL)
        return cli_fail("the daemon's answer ends in the middle");
    const int code = generate_conclude(r, &l->out, size, &l->end);
    if (strcmp(l->end.finish, "timeout") == 0 || strcmp(l->end.finish, "cancelled") == 0)
        return cli_fail("the daemon cut the text off: %s", l->end.finish);
    return code;
}

/* ---- going on --------------------------------------------------------------------------------------------------- */

/* Between 1/2 and 1 of `ms`, so that clients which were cut together do not come back together. */
static void pause_about(unsigned ms)
{
    uint16_t chance = 0;
    if (getrandom(&chance, sizeof chance, 0) != (ssize_t)sizeof chance)
        chance = 0;
    const unsigned half = ms / 2, wait_ms = half + half * chance / UINT16_MAX;
    const struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L};
    (void)nanosleep(&wait, NULL);
}

/* How a text goes on that was cut off. */
struct attempts {
    uint64_t left, most; /* without a byte more */
    size_t seen;         /* bytes of the text when the last one began */
    unsigned pause_ms;
    bool told;
};

/* The text has not ended; `trouble`: why the latest answer did not come to its end, if it was an error. Wait, and true:
 * ask again. */
static bool try_again(struct attempts *a, struct listener *l, const struct remote_trouble *trouble)
{
    const char *why = l->moved          ? "the daemon drains"
                      : trouble->passes ? trouble->message
                                        : "the daemon's answer ends in the middle";
    if (!l->begun || (l->seen > 0 && l->id[0] == '\0')) /* nothing says where to go on */
        return false;
    if (l->seen > a->seen) {
        a->left = a->most;
        a->pause_ms = RETRY_FIRST_MS;
    }
    a->seen = l->seen;
    if (a->left == 0)
        return false;
    a->left--;
    if (!a->told) {
        cli_progress_end(&l->progress);
        (void)fprintf(stderr, "%saft generate: %s; resuming\n", l->out.terminal ? "\n" : "", why);
    }
    a->told = true;
    pause_about(a->pause_ms);
    a->pause_ms = 2 * a->pause_ms < RETRY_MOST_MS ? 2 * a->pause_ms : RETRY_MOST_MS;
    return true;
}

/* Ask until the text has ended, or cannot go on. */
static int listen_to(const struct remote *remote, const struct generate_options *r, const char *body,
                     struct listener *l)
{
    struct remote_trouble trouble;
    struct attempts attempts = {.pause_ms = RETRY_FIRST_MS};
    const struct remote_request request = {.path = "/generate",
                                           .type = "application/json",
                                           .body = body,
                                           .size = strlen(body),
                                           .on_event = on_event,
                                           .arg = l,
                                           .id = l->id,
                                           .trouble = &trouble};
    attempts.left = attempts.most = r->retries != UINT64_MAX ? r->retries : RETRIES;
    for (;;) {
        struct remote_answer answer = {0};
        trouble = (struct remote_trouble){.passes = false};
        const int code = remote_post(remote, &request, &answer);
        free(answer.bytes);
        if (l->end.finish != NULL && code == CLI_OK)
            return CLI_OK;
        if (code != CLI_OK && !trouble.passes) /* it was printed */
            return l->code != CLI_OK ? l->code : code;
        if (!try_again(&attempts, l, &trouble))
            return trouble.passes ? cli_fail("%s", trouble.message) : CLI_OK;
    }
}

int generate_by_daemon(const struct remote *remote, const struct generate_options *r, uint8_t *prompt, size_t size)
{
    struct listener l = {.out = text_output_begin(r->json), .progress = generate_progress(r)};
    char *body = generate_remote_describe(r, remote->model, prompt, size);
    int code = body != NULL ? CLI_OK : cli_fail("out of memory");
    if (code == CLI_OK && r->echo)
        code = text_output_bytes(&l.out, prompt, size);
    free(prompt);
    if (code == CLI_OK)
        code = listen_to(remote, r, body, &l);
    cli_progress_end(&l.progress);
    free(body);
    if (code == CLI_OK)
        code = conclude(&l, r, size);
    text_output_clear(&l.out);
    return code;
}
