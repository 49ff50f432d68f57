/* test_resume.c - streams of /generate whose connection breaks: a client that asks again with the id of the last event
 * that it has gets the rest, from the same daemon, another one or one that was started anew, and has the bytes of the
 * undisturbed text in the end. Real daemons with small models, which write bytes that are and are not UTF-8. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/event_text.h"
#include "tests/support/generation.h"
#include "tests/support/model_folder.h"
#include "tests/support/model_variants.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, STREAMS = 500, BROKEN_MAX = 3, DAEMONS = 2 };

static struct daemon daemons[DAEMONS];
static char folder[PATH_MAX];

static void start_one(size_t i)
{
    char models[PATH_MAX + 20];
    (void)snprintf(models, sizeof models, "--models-dir=%s", folder);
    daemon_start(&daemons[i], (const char *const[]){models, "--default-models=local", NULL});
}

static int start(void **state)
{
    (void)state;
    temp_dir_create(folder);
    model_folder_put(folder, "local", "tests/data/golden/lm-local-8");
    model_folder_put(folder, "conv", "tests/data/golden/lm-conv-heads4-k5");
    model_folder_put(folder, "attention", "tests/data/golden/lm-attention");
    model_variants_write_starting(folder);
    for (size_t i = 0; i < DAEMONS; i++)
        start_one(i);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (size_t i = 0; i < DAEMONS; i++)
        daemon_stop(&daemons[i]);
    temp_dir_remove(folder);
    return 0;
}

/* ---- texts that are cut ----------------------------------------------------------------------------------------- */

/* What a request can have that changes its text or its events. */
static const char *const variants[] = {
    "\"max_tokens\": 140",
    "\"max_tokens\": 140, \"utf8\": true",
    "\"max_tokens\": 160, \"utf8\": true, \"model\": \"attention\", \"bytes_base64\": true",
    "\"max_tokens\": 30, \"echo\": true, \"prompt\": \"Caf\u00e9 \u2014 \U0001F600 and more\"",
    "\"max_tokens\": 30, \"echo\": true, \"logprobs\": 2, \"prompt\": \"\u0436\u0438\u0432\u0438\"",
    "\"max_tokens\": 20, \"echo\": true, \"bytes_base64\": true, \"prompt_base64\": \"4oKs4oL/gEE=\"",
    "\"max_tokens\": 190, \"prompt\": \"longer than the context, which has room for forty-eight bytes\"",
    "\"max_tokens\": 190, \"context_overflow\": \"stop\"",
    "\"max_tokens\": 200, \"stop\": [\"a\", \"ee\", \"\u00e9\"], \"allowed_bytes\": \"aeiou \u00e9\u00e8\"",
    "\"max_tokens\": 140, \"logprobs\": 0, \"bytes_base64\": true, \"model\": \"conv\"",
    "\"max_tokens\": 140, \"temperature\": 0.5, \"top_k\": 20, \"repetition_penalty\": 1.3, \"model\": \"conv\"",
    "\"max_tokens\": 140, \"logit_bias\": {\"226\": 5, \"130\": 5}, \"presence_penalty\": 1, \"prompt\": \"\u20ac\"",
    "\"max_tokens\": 1",
    "\"max_tokens\": 140, \"model\": \"starting\", \"min_p\": 0.01, \"prompt\": \"\"",
};

struct broken {
    char body[1024];
    struct event_text got;
    size_t cuts; /* that are left */
};

/* Half of them do not name a seed, which only the ids tell then. */
static void print_body(char out[1024], size_t i, const json_t *seed)
{
    const char *variant = variants[i % ARRAY_LEN(variants)];
    char said[64] = "";
    if (seed != NULL || i % 2 == 0)
        (void)snprintf(said, sizeof said, ", \"seed\": %lld",
                       seed != NULL ? (long long)json_integer_value(seed) : (long long)i);
    assert_true(snprintf(out, 1024, "{\"stream\": true, %s%s}", variant, said) < 1024);
}

/* Ask for what is missing, of which `most` bytes of the answer are read. */
static void go_on(struct broken *b, uint16_t port, size_t most)
{
    const long status = event_text_ask(&b->got, port, "/generate", b->body, most);
    if (status != 200 && (status != 0 || most > 12))
        fail_msg("%s: %ld %s", b->body, status, b->got.answer);
}

/* Ask for a text of which so many bytes of the answer are read, or fewer: how many events it has depends on how fast it
 * is written, and it shall not come whole. */
static void begin_broken(struct broken *b, size_t most)
{
    for (;; most -= most / 8) {
        event_text_init(&b->got);
        go_on(b, daemons[0].port, most);
        if (b->got.last == NULL)
            return;
        event_text_clear(&b->got);
    }
}

/* The whole text, from a daemon that is left alone. */
static void assert_whole(const struct broken *b, size_t i)
{
    struct broken whole = {.cuts = 0};
    print_body(whole.body, i, json_object_get(b->got.last, "seed"));
    event_text_init(&whole.got);
    go_on(&whole, daemons[1].port, SIZE_MAX);
    event_text_assert_same(whole.body, &whole.got, &b->got);
    event_text_clear(&whole.got);
}

static void a_text_that_was_cut_anywhere_is_the_undisturbed_text(void **state)
{
    static struct broken all[STREAMS];
    struct random random = {20};
    unsigned resumed = 0;
    (void)state;
    for (size_t i = 0; i < STREAMS; i++) { /* cut once, and some of them on */
        struct broken *b = &all[i];
        print_body(b->body, i, NULL);
        begin_broken(b, 300 + random_below(&random, 2000));
        for (b->cuts = random_below(&random, BROKEN_MAX); b->cuts > 0 && b->got.last == NULL; b->cuts--) {
            resumed += b->got.events > 0;
            go_on(b, daemons[random_below(&random, DAEMONS)].port, 300 + random_below(&random, 1000));
        }
    }
    daemon_stop(&daemons[0]);
    start_one(0);
    for (size_t i = 0; i < STREAMS; i++) { /* the rest, from that which was started anew or the other */
        if (all[i].got.last == NULL) {
            resumed += all[i].got.events > 0;
            go_on(&all[i], daemons[random_below(&random, DAEMONS)].port, SIZE_MAX);
        }
        assert_whole(&all[i], i);
        event_text_clear(&all[i].got);
    }
    assert_true(resumed > STREAMS / 2); /* or they were too short for this test */
}

/* After each of its events. */
static void a_text_goes_on_after_each_of_its_events(void **state)
{
    (void)state;
    for (size_t v = 0; v < ARRAY_LEN(variants); v++) {
        struct broken whole = {.cuts = 0};
        event_text_init(&whole.got);
        print_body(whole.body, 2 * v, NULL);
        (void)snprintf(whole.body, sizeof whole.body, "{\"stream\": true, \"seed\": 9, %s}", variants[v]);
        go_on(&whole, daemons[0].port, SIZE_MAX);
        size_t most = 0;
        for (unsigned events = 0; events < whole.got.events; events++) {
            struct broken b = {.cuts = 0};
            memcpy(b.body, whole.body, sizeof b.body);
            event_text_init(&b.got);
            while (b.got.events <= events && b.got.last == NULL) { /* a longer beginning each time */
                event_text_clear(&b.got);
                event_text_init(&b.got);
                go_on(&b, daemons[0].port, most += 20);
            }
            if (b.got.last == NULL)
                go_on(&b, daemons[1].port, SIZE_MAX);
            event_text_assert_same(b.body, &whole.got, &b.got);
            event_text_clear(&b.got);
        }
        event_text_clear(&whole.got);
    }
}

/* ---- what cannot go on ------------------------------------------------------------------------------------------ */

#define BODY "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7}"

/* The first id of the text of a body. */
static void first_id(const char *body, char id[256])
{
    struct broken b = {.cuts = 0};
    event_text_init(&b.got);
    for (size_t most = 300; b.got.events == 0; most += 20) {
        const long status = event_text_ask(&b.got, daemons[0].port, "/generate", body, most);
        if (status != 200)
            fail_msg("%s: %ld %s", body, status, b.got.answer);
    }
    memcpy(id, b.got.id, 256);
    event_text_clear(&b.got);
}

static void ask(const struct daemon *d, const char *body, const char *id, struct reply *ret)
{
    char header[300];
    (void)snprintf(header, sizeof header, "Last-Event-ID: %s", id);
    const char *const headers[] = {header, NULL};
    struct request r = generate_request(body);
    r.headers = headers;
    client_call(d, &r, ret);
}

static void assert_refused(const char *body, const char *id, long status, const char *says)
{
    struct reply r;
    ask(&daemons[1], body, id, &r);
    reply_assert_error(&r, status, status == 409 ? "conflict" : "invalid_value", "Last-Event-ID", says);
    reply_clear(&r);
}

static void another_request_does_not_go_on(void **state)
{
    static const char *const others[] = {
        "{\"stream\": true, \"prompt\": \"y\", \"max_tokens\": 30, \"seed\": 7}",
        "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 31, \"seed\": 7}",
        "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"temperature\": 0.5}",
        "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"stop\": \"z\"}",
        "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"echo\": true}",
        "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"context_overflow\": \"stop\"}",
        "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"logit_bias\": {\"65\": 1}}",
        "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"utf8\": true}",
    };
    char id[256];
    struct reply r;
    (void)state;
    first_id(BODY, id);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_refused(others[i], id, 409, "another request's");
    assert_refused("{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 8}", id, 409,
                   "\"seed\" is 8, and the text of \"Last-Event-ID\" has the seed 7");
    assert_refused("{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"model\": \"conv\"}", id,
                   409, "another model's");
    ask(&daemons[1], "{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"logprobs\": 1, \"priority\": -5}", id,
        &r); /* what does not change the text may differ */
    assert_int_equal(r.status, 200);
    reply_clear(&r);
}

static void what_is_no_id_is_refused(void **state)
{
    static const char *const wrong[] = {"x",
                                        "1",
                                        "1.7",
                                        "2.7.0000000000000000.00000000.0000000000000000.0.0",
                                        "1.7.0000000000000000.00000000.0000000000000000.0.0.0",
                                        "1.7.0000000000000000.00000000.0000000000000000.0.0.z.z",
                                        "1.7.0000000000000000.00000000.0000000000000000.0.0.",
                                        "1.7.0000000000000000.00000000.0000000000000000.0.",
                                        "1.7.0000000000000000.00000000.0000000000000000.0.g",
                                        "1.20000000000000.0000000000000000.00000000.0000000000000000.0.0",
                                        "1.fffffffffffffff.0000000000000000.00000000.0000000000000000.0.0",
                                        "1.7.0000000000000000.00000000.0000000000000000.0.-1",
                                        "1.7.0000000000000000.00000000.0000000000000000.0.F",
                                        "0123456789abcdef0123456789abcdef"};
    char id[256];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_refused(BODY, wrong[i], 400, wrong[i]);
    first_id(BODY, id);
    char *last = strrchr(id, '.');
    (void)snprintf(last, sizeof id - (size_t)(last - id), ".1f"); /* more bytes than there can be */
    assert_refused(BODY, id, 400, "after 31 bytes of a text that has at most 30");
    assert_refused("{\"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7}", id, 400, "\"stream\": true");
    first_id("{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"n\": 2}", id);
    assert_refused("{\"stream\": true, \"prompt\": \"x\", \"max_tokens\": 30, \"seed\": 7, \"n\": 2}", id, 400,
                   "a stream of several cannot go on");
    assert_refused(BODY, id, 400, "a stream of several cannot go on");
}

static void a_daemon_of_another_precision_does_not_go_on(void **state)
{
    struct daemon other = {.pid = 0};
    char models[PATH_MAX + 20], id[256];
    struct reply r;
    (void)state;
    (void)snprintf(models, sizeof models, "--models-dir=%s", folder);
    first_id(BODY, id);
    daemon_start(&other, (const char *const[]){models, "--default-models=local", "--precision=int8", NULL});
    ask(&other, BODY, id, &r);
    reply_assert_error(&r, 409, "conflict", "Last-Event-ID", "cannot be continued bit for bit here");
    reply_clear(&r);
    daemon_stop(&other);
}

/* ---- the field, the end, the session ---------------------------------------------------------------------------- */

static void the_field_does_what_the_header_does_which_goes_before_it(void **state)
{
    char id[256], body[1024];
    struct broken whole = {.cuts = 0}, rest = {.cuts = 0};
    struct reply r;
    (void)state;
    first_id(BODY, id);
    event_text_init(&whole.got);
    event_text_init(&rest.got);
    assert_int_equal(event_text_ask(&whole.got, daemons[0].port, "/generate", BODY, SIZE_MAX), 200);
    (void)snprintf(body, sizeof body, "{\"from\": \"%s\", %s", id, BODY + 1);
    assert_int_equal(event_text_ask(&rest.got, daemons[1].port, "/generate", body, SIZE_MAX), 200);
    assert_true(rest.got.text_bytes < whole.got.text_bytes);
    assert_string_equal(whole.got.text + whole.got.text_bytes - rest.got.text_bytes, rest.got.text);
    ask(&daemons[1], body, whole.got.id, &r); /* an EventSource keeps the header up to date, not its URL */
    assert_int_equal(r.status, 204);
    reply_clear(&r);
    struct request whole_text = generate_request(
        "{\"prompt\": \"x\", \"max_tokens\": 30, \"from\": \"1.7.0000000000000000.00000000.0000000000000000.0.1\"}");
    client_call(&daemons[1], &whole_text, &r);
    reply_assert_error(&r, 400, "invalid_value", "from", "the request is for the whole text");
    reply_clear(&r);
    event_text_clear(&whole.got);
    event_text_clear(&rest.got);
}

static void after_the_end_there_is_nothing_more(void **state)
{
    struct broken b = {.cuts = 0};
    (void)state;
    event_text_init(&b.got);
    go_on(&b, daemons[0].port, 0);
    assert_int_equal(event_text_ask(&b.got, daemons[0].port, "/generate", BODY, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&b.got), "length");
    assert_string_equal(b.got.id + strlen(b.got.id) - 2, ".z");
    const double before = client_metric(&daemons[1], "aftd_generated_bytes_total");
    assert_int_equal(event_text_ask(&b.got, daemons[1].port, "/generate", BODY, SIZE_MAX), 204);
    assert_true(client_metric(&daemons[1], "aftd_generated_bytes_total") == before);
    event_text_clear(&b.got);
}

/* The client lacks the last event alone, so that all of the text is computed and left out. */
static void what_is_left_out_is_computed_and_counted(void **state)
{
    enum { LONG = 5000 };
    struct daemon own = {.pid = 0};
    struct event_text t;
    char models[PATH_MAX + 20], body[200];
    (void)state;
    (void)snprintf(models, sizeof models, "--models-dir=%s", folder);
    (void)snprintf(body, sizeof body, "{\"stream\": true, \"model\": \"local\", \"max_tokens\": %d}", LONG);
    daemon_start(&own, (const char *const[]){models, NULL});
    event_text_init(&t);
    assert_int_equal(event_text_ask(&t, own.port, "/generate", body, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&t), "length");
    json_t *usage = json_incref(json_object_get(t.last, "usage"));
    json_decref(t.last);
    t.last = NULL;
    t.id[strlen(t.id) - 2] = '\0'; /* without the mark of the end */
    const unsigned events = t.events;
    const double before = client_metric(&own, "aftd_generated_bytes_total");
    assert_int_equal(event_text_ask(&t, own.port, "/generate", body, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&t), "length");
    assert_int_equal(t.events, events + 1);
    assert_true(json_equal(json_object_get(t.last, "usage"), usage));
    assert_true(client_metric(&own, "aftd_generated_bytes_total") == before + LONG);
    json_decref(usage);
    event_text_clear(&t);
    daemon_stop(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_that_was_cut_anywhere_is_the_undisturbed_text),
        cmocka_unit_test(a_text_goes_on_after_each_of_its_events),
        cmocka_unit_test(another_request_does_not_go_on),
        cmocka_unit_test(what_is_no_id_is_refused),
        cmocka_unit_test(a_daemon_of_another_precision_does_not_go_on),
        cmocka_unit_test(the_field_does_what_the_header_does_which_goes_before_it),
        cmocka_unit_test(after_the_end_there_is_nothing_more),
        cmocka_unit_test(what_is_left_out_is_computed_and_counted),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("streams that go on", tests, start, stop);
}
