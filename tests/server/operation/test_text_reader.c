/* test_text_reader.c - the texts of a job as its client gets them: whole characters whatever the pieces, the prompt in
 * front of each text, what is told of each byte. The test plays the engine thread. */
#include "server/operation/text_reader.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/json_memory.h"
#include "config/utf8.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/registry.h"
#include "server/operation/stops.h"
#include "server/request/job.h"
#include "tests/support/job_party.h"
#include "tests/support/random.h"

enum { RING_BYTES = 8192, LATER_S = 1000, TOLD_MAX = 4096 };

#define REPLACED "\xef\xbf\xbd" /* U+FFFD */

/* A job that is submitted and read, and what was read of it so far. */
struct scene {
    struct queue *queue;
    struct hosted_model *model;
    struct job *job;
    struct text_reader *reader;
    char told[TOLD_MAX];
};

static void ignore(void *arg)
{
    (void)arg;
}

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_int_equal(queue_create(&s->queue, 1, 4), OK);
    s->model = party_text_model();
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    job_detach(s->job);
    job_release(s->job);
    hosted_model_release(s->model);
    queue_free(s->queue);
    free(s);
    return 0;
}

/* Prompts with '|' between them. */
static void set_prompts(struct generate_input *in, const char *prompts)
{
    in->prompt = malloc(strlen(prompts) + 1);
    assert_non_null(in->prompt);
    in->prompt_count = 0;
    for (const char *at = prompts; at != NULL; in->prompt_count++) {
        const size_t size = strcspn(at, "|");
        memcpy(in->prompt + in->prompt_bytes, at, size);
        in->prompt_bytes += size;
        in->ends[in->prompt_count] = in->prompt_bytes;
        at = at[size] == '|' ? at + size + 1 : NULL;
    }
}

static void submit(struct scene *s, const struct generate_input *in, bool echo)
{
    const struct job_waiter waiter = {ignore, ignore, NULL};
    s->job = party_generate(s->model, in, RING_BYTES);
    struct error err;
    assert_int_equal(text_reader_create(&s->reader, s->job, echo, &err), OK);
    job_attach(s->job, &waiter);
    assert_int_equal(job_submit(s->job, s->queue, 0, clock_now_ns() + LATER_S * CLOCK_NS_PER_S), OK);
}

static void start_job(struct scene *s)
{
    struct queue_item *item = queue_pop(s->queue, 0);
    assert_non_null(item);
    job_start(job_of_item(item), clock_now_ns());
}

/* One sample of each prompt, or n, that runs. */
static void begin(struct scene *s, const char *prompts, uint32_t n, bool echo)
{
    struct generate_input in = {.n = n, .max_tokens = RING_BYTES, .stream = true};
    set_prompts(&in, prompts);
    submit(s, &in, echo);
    start_job(s);
}

static void emit_byte(struct scene *s, uint32_t sample, uint8_t byte)
{
    const struct generate_rows row = {.bytes = &byte};
    assert_int_not_equal(generate_emit(generate_job_of(s->job), sample, &row, 0, clock_now_ns()), GENERATE_OVERRUN);
}

static void emit(struct scene *s, uint32_t sample, const char *bytes)
{
    for (; *bytes != '\0'; bytes++)
        emit_byte(s, sample, (uint8_t)*bytes);
}

/* Into `out`, SIZE bytes with a NUL: "SAMPLE@OFFSET text" of a piece, with "+GENERATED/SIZE" where it is not as long as
 * its text or has some of the prompt; "SAMPLE finish" of an end; the names of other events. */
static void describe(char *out, size_t size, enum job_event event, const struct text_piece *p)
{
    if (event == JOB_EVENT_BYTES && p->generated == p->size && p->size == p->text_bytes)
        (void)snprintf(out, size, "%u@%zu %.*s", p->sample, p->offset, (int)p->text_bytes, p->text);
    else if (event == JOB_EVENT_BYTES)
        (void)snprintf(out, size, "%u@%zu+%zu/%zu %.*s", p->sample, p->offset, p->generated, p->size,
                       (int)p->text_bytes, p->text);
    else if (event == JOB_EVENT_SAMPLE_END)
        (void)snprintf(out, size, "%u %s", p->sample, job_finish_words[p->finish]);
    else
        (void)snprintf(out, size, "%s", event == JOB_EVENT_PING ? "ping" : event == JOB_EVENT_END ? "end" : "later");
}

/* What there is to be read, up to "later" or "end", is told in these lines. */
static void expect(struct scene *s, const char *want)
{
    enum job_event event;
    s->told[0] = '\0';
    do {
        struct text_piece p;
        const size_t used = strlen(s->told);
        event = text_reader_next(s->reader, &p);
        describe(s->told + used, sizeof s->told - used, event, &p);
        strncat(s->told, "\n", sizeof s->told - strlen(s->told) - 1);
    } while (event != JOB_EVENT_LATER && event != JOB_EVENT_END);
    if (strcmp(s->told, want) != 0)
        fail_msg("read:\n%sexpected:\n%s", s->told, want);
}

static void finish(struct scene *s)
{
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
}

/* ---- characters ------------------------------------------------------------------------------------------------- */

static void bytes_become_pieces_as_they_come(void **state)
{
    struct scene *s = *state;
    begin(s, "prompt", 1, false);
    expect(s, "later\n");
    emit(s, 0, "abc");
    expect(s, "0@0 abc\nlater\n");
    emit(s, 0, "d");
    expect(s, "0@3 d\nlater\n");
    finish(s);
    expect(s, "0 length\nend\n");
    expect(s, "end\n");
}

static void a_character_is_said_when_it_is_whole(void **state)
{
    struct scene *s = *state;
    begin(s, "", 1, false);
    emit(s, 0, "\xc3");
    expect(s, "later\n");
    emit(s, 0, "\xa4");
    expect(s, "0@0 \xc3\xa4\nlater\n");
    emit(s, 0, "x\xf0");
    expect(s, "0@2 x\nlater\n");
    emit(s, 0, "\x9f");
    expect(s, "later\n");
    emit(s, 0, "\x98");
    expect(s, "later\n");
    emit(s, 0, "\x80y");
    expect(s, "0@3 \xf0\x9f\x98\x80y\nlater\n");
    finish(s);
    expect(s, "0 length\nend\n");
}

static void what_cannot_become_a_character_is_replaced(void **state)
{
    struct scene *s = *state;
    begin(s, "", 1, false);
    emit(s, 0, "\xff");
    expect(s, "0@0+1/1 " REPLACED "\nlater\n"); /* nothing can follow it */
    emit(s, 0, "\xe2\x82");
    expect(s, "later\n");
    emit(s, 0, "x");
    expect(s, "0@1+3/3 " REPLACED "x\nlater\n"); /* both bytes of the part are one */
    finish(s);
    expect(s, "0 length\nend\n");
}

static void what_is_left_at_the_end_is_said_before_it(void **state)
{
    struct scene *s = *state;
    begin(s, "", 1, false);
    emit(s, 0, "a\xe2\x82");
    expect(s, "0@0 a\nlater\n");
    finish(s);
    expect(s, "0@1+2/2 " REPLACED "\n0 length\nend\n");
}

static void with_utf8_an_unfinished_character_is_left_out(void **state)
{
    struct scene *s = *state;
    struct generate_input in = {.n = 1, .max_tokens = RING_BYTES, .stream = true, .sampler.utf8 = true};
    set_prompts(&in, "");
    submit(s, &in, false);
    start_job(s);
    emit(s, 0, "a\xe2\x82");
    expect(s, "0@0 a\nlater\n");
    finish(s);
    expect(s, "0@1+2/2 \n0 length\nend\n"); /* its bytes are told, and no text */
}

/* What goes on with a text that ended with `tail`, with `utf8` or without, gets these bytes. */
static void go_on_after(struct scene *s, bool before, bool after, const char *tail, const char *bytes, size_t skipped,
                        const char *want)
{
    struct generate_input in = {.n = 1, .max_tokens = RING_BYTES, .stream = true, .sampler.utf8 = before};
    struct error err;
    set_prompts(&in, tail + strlen(tail) - 1); /* which is pending */
    assert_int_equal(stream_snapshot_create(&in.from, 0, 1, 0, &err), OK);
    sampler_init(&in.from.sampler, &in.sampler);
    for (const char *at = tail; *at != '\0'; at++)
        sampler_accept(&in.from.sampler, (uint8_t)*at);
    in.sampler.utf8 = after;
    submit(s, &in, false);
    start_job(s);
    if (skipped > 0)
        text_reader_skip(s->reader, skipped);
    emit(s, 0, bytes);
    expect(s, want);
    finish(s);
}

static void an_unfinished_character_comes_with_what_goes_on(void **state)
{
    go_on_after(*state, true, true, "xy\xf0\x9f", "\x98\x80z", 0, "0@0+3/3 \xf0\x9f\x98\x80z\nlater\n");
}

static void a_whole_character_comes_once(void **state)
{
    go_on_after(*state, true, true, "x\xc3\xa4", "bc", 0, "0@0 bc\nlater\n");
}

static void who_has_the_character_does_not_get_its_beginning_again(void **state)
{
    go_on_after(*state, true, true, "xy\xf0\x9f", "\x98\x80z", 2, "0@2 z\nlater\n");
}

static void what_goes_on_without_utf8_has_it_too(void **state)
{
    go_on_after(*state, true, false, "xy\xf0\x9f", "\x98\x80z", 0, "0@0+3/3 \xf0\x9f\x98\x80z\nlater\n");
}

static void what_was_said_for_an_unfinished_character_is_not_said_again(void **state)
{
    go_on_after(*state, false, true, "xy\xf0\x9f", "\x98\x80z", 0, "0@0+3/3 " REPLACED REPLACED "z\nlater\n");
}

static void each_sample_waits_for_its_own_character(void **state)
{
    struct scene *s = *state;
    begin(s, "", 3, false);
    emit(s, 0, "\xc3");
    emit(s, 1, "\xe2\x82");
    emit(s, 2, "c");
    expect(s, "2@0 c\nlater\n");
    emit(s, 1, "\xac");
    expect(s, "1@0 \xe2\x82\xac\nlater\n");
    generate_end_sample(generate_job_of(s->job), 0, FINISH_STOP);
    expect(s, "0@0+1/1 " REPLACED "\n0 stop\nlater\n");
    emit(s, 2, "d");
    expect(s, "2@1 d\nlater\n");
    finish(s);
    expect(s, "1 length\n2 length\nend\n");
}

/* A stream that withholds, or not, is ended in the middle of what may be a stop string, behind a part of a
 * character. */
static void stop_in_the_middle(struct scene *s, bool hold_partial_stop, enum status reason, const char *want)
{
    struct generate_input in = {
        .n = 1, .max_tokens = RING_BYTES, .stream = true, .resumable = true, .hold_partial_stop = hold_partial_stop};
    set_prompts(&in, "");
    assert_true(stop_set_add(&in.stops, "no!", 3));
    submit(s, &in, false);
    start_job(s);
    emit(s, 0, "a\xe2\x82no");
    expect(s, "0@0 a\nlater\n");
    job_cancel(s->job, reason);
    job_abort(s->job, reason, NULL, clock_now_ns());
    expect(s, want);
}

static void what_comes_elsewhere_is_not_said_here(void **state)
{
    stop_in_the_middle(*state, true, ERR_UNAVAILABLE, "0 moved\nend\n");
}

static void what_comes_nowhere_else_is_said(void **state)
{
    stop_in_the_middle(*state, false, ERR_UNAVAILABLE, "0@1+4/4 " REPLACED "no\n0 moved\nend\n");
}

static void what_an_administrator_ends_comes_nowhere_else(void **state)
{
    stop_in_the_middle(*state, true, ERR_CANCELLED_BY_ADMIN, "0@1+4/4 " REPLACED "no\n0 cancelled\nend\n");
}

/* The daemon stops while the last byte is made. */
static void a_text_that_comes_to_its_end_is_said_whole(void **state)
{
    struct scene *s = *state;
    struct generate_input in = {
        .n = 1, .max_tokens = RING_BYTES, .stream = true, .resumable = true, .hold_partial_stop = true};
    set_prompts(&in, "");
    assert_true(stop_set_add(&in.stops, "no!", 3));
    submit(s, &in, false);
    start_job(s);
    emit(s, 0, "a\xe2\x82no");
    job_cancel(s->job, ERR_UNAVAILABLE);
    finish(s);
    expect(s, "0@0+5/5 a" REPLACED "no\n0 length\nend\n");
}

/* Whatever the pieces: all bytes, and the text that they make as a whole. */
static void pieces_make_up_the_text(void **state)
{
    static const char alphabet[] = "ab\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\x80\xff\xc3\xe2";
    enum { SAMPLES = 3, BYTES = 2000 };
    struct scene *s = *state;
    static uint8_t bytes[SAMPLES][BYTES], got[SAMPLES][BYTES];
    static char text[SAMPLES][UTF8_GROWTH * BYTES], want[UTF8_GROWTH * BYTES];
    size_t emitted[SAMPLES] = {0}, size[SAMPLES] = {0}, text_bytes[SAMPLES] = {0}, want_bytes;
    struct random random = {.state = 5};
    struct text_piece p;
    for (size_t i = 0; i < (size_t)SAMPLES * BYTES; i++)
        bytes[i / BYTES][i % BYTES] = (uint8_t)alphabet[random_below(&random, sizeof alphabet - 1)];
    begin(s, "", SAMPLES, false);
    for (bool over = false; !over;) {
        const uint32_t sample = (uint32_t)random_below(&random, SAMPLES);
        if (emitted[sample] == BYTES)
            continue; /* no news: a reader that waits is not to read again */
        for (size_t n = 1 + random_below(&random, 8); n > 0 && emitted[sample] < BYTES; n--)
            emit_byte(s, sample, bytes[sample][emitted[sample]++]);
        if (emitted[0] + emitted[1] + emitted[2] == (size_t)SAMPLES * BYTES)
            finish(s);
        enum job_event event;
        while ((event = text_reader_next(s->reader, &p)) == JOB_EVENT_BYTES || event == JOB_EVENT_SAMPLE_END) {
            if (event == JOB_EVENT_SAMPLE_END)
                continue;
            assert_int_equal(p.offset, size[p.sample]);
            memcpy(got[p.sample] + size[p.sample], p.bytes, p.size);
            memcpy(text[p.sample] + text_bytes[p.sample], p.text, p.text_bytes);
            size[p.sample] += p.size;
            text_bytes[p.sample] += p.text_bytes;
        }
        over = event == JOB_EVENT_END;
    }
    for (int i = 0; i < SAMPLES; i++) {
        assert_int_equal(size[i], BYTES);
        assert_memory_equal(got[i], bytes[i], BYTES);
        assert_int_equal(utf8_repair(want, &want_bytes, bytes[i], BYTES, true), BYTES);
        assert_int_equal(text_bytes[i], want_bytes);
        assert_memory_equal(text[i], want, want_bytes);
    }
}

/* ---- news beside the text --------------------------------------------------------------------------------------- */

static void bytes_of_a_stop_string_are_never_said(void **state)
{
    struct scene *s = *state;
    struct generate_input in = {.n = 1, .max_tokens = RING_BYTES, .stream = true};
    set_prompts(&in, "");
    assert_true(stop_set_add(&in.stops, "\xa4!", 2)); /* within a character */
    submit(s, &in, false);
    start_job(s);
    emit(s, 0, "a\xc3\xa4");
    expect(s, "0@0 a\nlater\n");
    emit(s, 0, "b\xc3\xa4!");
    expect(s, "0@1 \xc3\xa4"
              "b\nlater\n");
    generate_end_sample(generate_job_of(s->job), 0, FINISH_STOP);
    job_finish(s->job, FINISH_STOP, clock_now_ns());
    expect(s, "0@4+1/1 " REPLACED "\n0 stop\nend\n");
}

static void a_ping_is_passed_on(void **state)
{
    struct scene *s = *state;
    begin(s, "Hi", 1, true);
    emit(s, 0, "\xc3");
    expect(s, "0@0+0/2 Hi\nlater\n");
    job_ping(s->job);
    expect(s, "ping\nlater\n");
    emit(s, 0, "\xa4");
    expect(s, "0@2 \xc3\xa4\nlater\n");
    finish(s);
}

/* A job that has not begun can still be refused, and is answered with an error then: no echo comes before. */
static void of_a_job_that_waits_nothing_is_said(void **state)
{
    struct scene *s = *state;
    struct generate_input in = {.n = 1, .max_tokens = RING_BYTES, .stream = true};
    set_prompts(&in, "Hi ");
    submit(s, &in, true);
    expect(s, "later\n");
    job_cancel(s->job, ERR_TIMEOUT);
    assert_int_equal(job_result(s->job)->status, ERR_TIMEOUT);
}

/* ---- the prompt in front ---------------------------------------------------------------------------------------- */

static void an_echo_comes_before_the_first_news(void **state)
{
    struct scene *s = *state;
    begin(s, "Hi ", 1, true);
    expect(s, "later\n"); /* it could still be refused */
    emit(s, 0, "x");
    expect(s, "0@0+0/3 Hi \n0@3 x\nlater\n");
    emit(s, 0, "y");
    expect(s, "0@4 y\nlater\n");
    finish(s);
    expect(s, "0 length\nend\n");
}

static void a_character_may_begin_in_the_prompt(void **state)
{
    struct scene *s = *state;
    begin(s, "a\xe2\x82", 1, true);
    emit(s, 0, "\xac!");
    expect(s, "0@0+0/1 a\n0@1+2/4 \xe2\x82\xac!\nlater\n");
    finish(s);
    expect(s, "0 length\nend\n");
}

static void a_prompt_that_is_cut_is_replaced_at_the_end(void **state)
{
    struct scene *s = *state;
    begin(s, "\xe2", 1, true);
    emit(s, 0, "\x82");
    expect(s, "later\n");
    finish(s);
    expect(s, "0@0+1/2 " REPLACED "\n0 length\nend\n");
}

static void each_sample_has_the_echo_of_its_prompt(void **state)
{
    struct scene *s = *state;
    begin(s, "A||CC", 2, true); /* the second is empty */
    for (uint32_t sample = 0; sample < 6; sample++)
        emit(s, sample, "x");
    expect(s, "0@0+0/1 A\n0@1 x\n1@0+0/1 A\n1@1 x\n2@0 x\n3@0 x\n4@0+0/2 CC\n4@2 x\n5@0+0/2 CC\n5@2 x\nlater\n");
    finish(s);
    expect(s, "0 length\n1 length\n2 length\n3 length\n4 length\n5 length\nend\n");
}

static void a_sample_without_bytes_has_its_echo(void **state)
{
    struct scene *s = *state;
    begin(s, "Hi", 1, true);
    finish(s);
    expect(s, "0@0+0/2 Hi\n0 length\nend\n");
}

static void a_long_prompt_comes_in_pieces_of_whole_characters(void **state)
{
    struct scene *s = *state;
    static char prompt[STREAM_EVENT_BYTES_MAX + 3];
    struct text_piece p;
    memset(prompt, 'a', STREAM_EVENT_BYTES_MAX - 1);
    memcpy(prompt + STREAM_EVENT_BYTES_MAX - 1, "\xc3\xa4z", sizeof "\xc3\xa4z");
    begin(s, prompt, 1, true);
    emit(s, 0, "!");
    assert_int_equal(text_reader_next(s->reader, &p), JOB_EVENT_BYTES);
    assert_int_equal(p.text_bytes, STREAM_EVENT_BYTES_MAX - 1);
    assert_memory_equal(p.text, prompt, p.text_bytes);
    assert_true(p.generated == 0 && p.offset == 0);
    expect(s, "0@4095+0/3 \xc3\xa4z\n0@4098 !\nlater\n");
    finish(s);
}

/* ---- what is told of each byte ---------------------------------------------------------------------------------- */

enum { NUMBERS = 2 }; /* of a byte: its own, and of one that is the likeliest */

/* Byte number i of what the model sees: -i and -i - 0.5, and 'A' + i. */
static void numbers_of(int i, float logprobs[NUMBERS], uint8_t *likeliest)
{
    logprobs[0] = (float)-i;
    logprobs[1] = (float)-i - 0.5f;
    *likeliest = (uint8_t)('A' + i);
}

static void emit_with_numbers(struct scene *s, const char *bytes, int first)
{
    for (int i = 0; bytes[i] != '\0'; i++) {
        float logprobs[NUMBERS];
        uint8_t byte = (uint8_t)bytes[i], likeliest;
        const struct generate_rows row = {&byte, logprobs, &likeliest, NUMBERS};
        numbers_of(first + i, logprobs, &likeliest);
        (void)generate_emit(generate_job_of(s->job), 0, &row, 0, clock_now_ns());
    }
}

/* The next piece has this text and the numbers of these bytes. */
static void expect_numbers(struct scene *s, const char *text, int first, size_t count)
{
    struct text_piece p;
    assert_int_equal(text_reader_next(s->reader, &p), JOB_EVENT_BYTES);
    assert_int_equal(p.text_bytes, strlen(text));
    assert_memory_equal(p.text, text, p.text_bytes);
    assert_int_equal(p.size, count);
    for (size_t i = 0; i < count; i++) {
        float logprobs[NUMBERS];
        uint8_t likeliest;
        numbers_of(first + (int)i, logprobs, &likeliest);
        assert_memory_equal(p.logprobs + i * NUMBERS, logprobs, sizeof logprobs);
        assert_int_equal(p.likeliest[i], likeliest);
    }
}

static void numbers_wait_with_their_bytes(void **state)
{
    struct scene *s = *state;
    struct generate_input in = {.n = 1, .max_tokens = RING_BYTES, .stream = true, .logprobs = NUMBERS};
    set_prompts(&in, "");
    submit(s, &in, false);
    start_job(s);
    emit_with_numbers(s, "a\xe2\x82", 0);
    expect_numbers(s, "a", 0, 1);
    expect(s, "later\n");
    emit_with_numbers(s, "\xac\xc3", 3);
    expect_numbers(s, "\xe2\x82\xac", 1, 3);
    finish(s);
    expect_numbers(s, REPLACED, 4, 1);
    expect(s, "0 length\nend\n");
}

static void numbers_of_the_prompt_come_with_its_echo(void **state)
{
    struct scene *s = *state;
    struct generate_input in = {
        .n = 1, .max_tokens = RING_BYTES, .stream = true, .logprobs = NUMBERS, .prompt_logprobs = true};
    set_prompts(&in, "ab\xc3");
    submit(s, &in, true);
    start_job(s);
    for (int i = 0; i < 3; i++) /* as the engine's side does */
        numbers_of(i, generate_job_of(s->job)->prompt_logprobs + (ptrdiff_t)i * NUMBERS,
                   generate_job_of(s->job)->prompt_likeliest + i);
    emit_with_numbers(s, "\xa4", 3);
    expect_numbers(s, "ab", 0, 2);
    expect_numbers(s, "\xc3\xa4", 2, 2);
    finish(s);
    expect(s, "0 length\nend\n");
}

static void without_numbers_none_are_told(void **state)
{
    struct scene *s = *state;
    struct text_piece p;
    begin(s, "", 1, false);
    emit(s, 0, "a");
    assert_int_equal(text_reader_next(s->reader, &p), JOB_EVENT_BYTES);
    assert_null(p.logprobs);
    assert_null(p.likeliest);
    finish(s);
}

/* ---- whole texts ------------------------------------------------------------------------------------------------ */

/* Lists the sizes of all pieces. */
static void list_sizes(void *arg, struct whole_text *t, const struct text_piece *p)
{
    t->told = t->told != NULL ? t->told : json_array();
    (*(int *)arg)++;
    json_append(t->told, json_integer((json_int_t)p->size));
}

static void expect_whole(const struct whole_text *t, const char *text, const char *bytes, size_t generated)
{
    assert_int_equal(t->text_bytes, strlen(text));
    assert_memory_equal(t->text, text, t->text_bytes);
    assert_int_equal(t->size, strlen(bytes));
    assert_memory_equal(t->bytes, bytes, t->size);
    assert_int_equal(t->generated, generated);
}

static void whole_texts_have_all_pieces(void **state)
{
    struct scene *s = *state;
    int pieces = 0;
    begin(s, "A|", 1, true);
    emit(s, 0, "b\xc3");
    generate_end_sample(generate_job_of(s->job), 0, FINISH_STOP);
    finish(s);
    const struct whole_text *all = text_reader_read_all(s->reader, true, list_sizes, &pieces);
    assert_non_null(all);
    expect_whole(&all[0], "Ab" REPLACED, "Ab\xc3", 2);
    assert_int_equal(all[0].finish, FINISH_STOP);
    assert_int_equal(json_integer_value(json_array_get(all[0].told, 0)), 0); /* before the first piece */
    assert_true(json_array_size(all[0].told) > 1);
    expect_whole(&all[1], "", "", 0);
    assert_int_equal(all[1].finish, FINISH_LENGTH);
    assert_int_equal(json_array_size(all[1].told), 1);
    assert_int_equal(json_array_size(all[0].told) + 1, pieces);
}

static void whole_texts_add_up_what_was_generated(void **state)
{
    struct scene *s = *state;
    struct generate_input in = {
        .n = 1, .max_tokens = RING_BYTES, .stream = true, .logprobs = NUMBERS, .prompt_logprobs = true};
    set_prompts(&in, "a");
    submit(s, &in, true);
    start_job(s);
    generate_job_of(s->job)->prompt_logprobs[0] = -100.0f;
    emit_with_numbers(s, "bcd", 1);
    finish(s);
    const struct whole_text *all = text_reader_read_all(s->reader, false, NULL, NULL);
    assert_non_null(all);
    assert_int_equal(all->text_bytes, 4);
    assert_null(all->bytes);
    assert_null(all->told);
    assert_true(all->logprob == -6.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_become_pieces_as_they_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_character_is_said_when_it_is_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_become_a_character_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_left_at_the_end_is_said_before_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(with_utf8_an_unfinished_character_is_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unfinished_character_comes_with_what_goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_whole_character_comes_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_the_character_does_not_get_its_beginning_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_goes_on_without_utf8_has_it_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_said_for_an_unfinished_character_is_not_said_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_sample_waits_for_its_own_character, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_comes_elsewhere_is_not_said_here, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_comes_nowhere_else_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_an_administrator_ends_comes_nowhere_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_text_that_comes_to_its_end_is_said_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pieces_make_up_the_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_of_a_stop_string_are_never_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_ping_is_passed_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_a_job_that_waits_nothing_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_echo_comes_before_the_first_news, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_character_may_begin_in_the_prompt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_prompt_that_is_cut_is_replaced_at_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_sample_has_the_echo_of_its_prompt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sample_without_bytes_has_its_echo, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_prompt_comes_in_pieces_of_whole_characters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_wait_with_their_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_of_the_prompt_come_with_its_echo, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_numbers_none_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whole_texts_have_all_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whole_texts_add_up_what_was_generated, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("text_reader", tests, NULL, NULL);
}
