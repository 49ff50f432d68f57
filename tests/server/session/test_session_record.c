/* test_session_record.c - a record of a session that a daemon wrote, kept here: its text goes on as it did there; which
 * ids sessions may have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "server/session/session_record.h"
#include "weights/model.h"

#define LM "tests/data/golden/lm-local-8"
#define RECORD "tests/data/sessions/lm-local-8-state-5.session"

enum { RECORD_MAX = 8192, GONE_ON = 16, POSITION = 27 };

/* "The history of ", and then twelve bytes and these, always the most likely one. */
static const uint8_t went_on[GONE_ON] = {106, 229, 149, 249, 26, 153, 82, 164, 128, 149, 113, 212, 141, 106, 229, 113};

static const struct client_id nobody = {.kind = CLIENT_UNKNOWN};

static void read_file(struct session_bytes *ret, const char *path)
{
    FILE *file = fopen(path, "rb");
    ret->bytes = malloc(RECORD_MAX);
    if (file == NULL || ret->bytes == NULL)
        fail_msg("cannot read %s", path);
    ret->size = fread(ret->bytes, 1, RECORD_MAX, file);
    assert_true(ret->size < RECORD_MAX);
    (void)fclose(file);
}

static void go_on(struct stream_snapshot *s, uint8_t out[GONE_ON])
{
    const struct engine_options options = {.threads = 1, .streams_max = 1, .rows_max = 32};
    struct model *model;
    struct engine *engine;
    struct error err;
    if (model_load(&model, LM, NULL, NULL, &err) != OK || engine_open(&engine, model, &options, &err) != OK ||
        stream_snapshot_check(s, engine, &err) != OK)
        fail_msg("%s", err.message);
    engine_stream_restore(engine, 0, s->position, stream_snapshot_state(s));
    uint8_t next = *stream_snapshot_pending(s);
    for (size_t i = 0; i < GONE_ON; i++) {
        float logits[BYTE_VALUES];
        const struct engine_part part = {.count = 1, .bytes = &next, .logits = logits};
        engine_feed(engine, &part, 1);
        next = sampler_draw(&s->sampler, logits);
        out[i] = next;
    }
    engine_close(engine);
    model_free(model);
}

static void a_record_that_was_kept_goes_on(void **state)
{
    const struct session_key key = session_key_of(&nobody, "kept");
    struct session_bytes record;
    struct session_head head;
    struct stream_snapshot s;
    struct error err;
    uint8_t got[GONE_ON];
    (void)state;
    read_file(&record, RECORD);
    if (session_record_read(&head, &s, &record, &key, &err) != OK)
        fail_msg(RECORD ": %s", err.message);
    assert_string_equal(head.id, "kept");
    assert_string_equal(head.model, "lm-local-8");
    assert_int_equal(head.turn, 2);
    assert_int_equal(head.state.seed, 7);
    assert_int_equal(s.position + s.pending_count, POSITION);
    go_on(&s, got);
    assert_memory_equal(got, went_on, GONE_ON);
    stream_snapshot_clear(&s);
    free(record.bytes);
}

/* A record is refused under another key, by any other byte, and when its end is missing. */
static void what_is_not_a_record_is_refused(void **state)
{
    const struct session_key key = session_key_of(&nobody, "kept"), other = session_key_of(&nobody, "kepT");
    struct session_bytes record;
    struct session_head head;
    struct stream_snapshot s;
    struct error err;
    (void)state;
    read_file(&record, RECORD);
    assert_int_equal(session_record_read(&head, &s, &record, &other, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "another session's"));
    for (size_t i = 0; i < record.size; i++) {
        record.bytes[i] ^= 1;
        assert_int_equal(session_record_read(&head, &s, &record, &key, &err), ERR_FORMAT);
        record.bytes[i] ^= 1;
    }
    const size_t whole = record.size;
    for (record.size = 0; record.size < whole; record.size++)
        assert_int_equal(session_record_read(&head, &s, &record, &key, &err), ERR_FORMAT);
    free(record.bytes);
}

static void ids_are_letters_digits_and_few_signs(void **state)
{
    char longest[SESSION_ID_MAX + 2];
    (void)state;
    memset(longest, 'x', sizeof longest - 1);
    longest[SESSION_ID_MAX + 1] = '\0';
    assert_false(session_id_is_fine(longest));
    assert_true(session_id_is_fine(longest + 1));
    assert_true(session_id_is_fine("aZ09-._~"));
    assert_false(session_id_is_fine(""));
    assert_false(session_id_is_fine("a/b"));
    assert_false(session_id_is_fine("a b"));
    assert_false(session_id_is_fine("\xc3\xa4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_that_was_kept_goes_on),
        cmocka_unit_test(what_is_not_a_record_is_refused),
        cmocka_unit_test(ids_are_letters_digits_and_few_signs),
    };
    return cmocka_run_group_tests_name("session_record", tests, NULL, NULL);
}
