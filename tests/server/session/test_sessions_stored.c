/* test_sessions_stored.c - sessions that outlast what keeps them: written, dropped from memory, read again, by another
 * that begins where the first was left; bounds, and who has to go; files that were damaged, and names that come back.
 * No daemon, no engine's pass. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/core/metrics.h"
#include "server/core/watcher.h"
#include "server/models/hosted_model.h"
#include "server/session/sessions.h"
#include "server/session/store_dir.h"
#include "tests/support/random.h"
#include "tests/support/session_scene.h"
#include "tests/support/temp_dir.h"

enum { IN_MEMORY = 3, STORED = 8, MUTATIONS = 5000, FILES_MAX = 64 };

static const struct client_id alice = {CLIENT_KEY, "alice"}, bob = {CLIENT_KEY, "bob"},
                              anybody = {CLIENT_IPV4, {127, 0, 0, 1}};

static struct settings settings;
static struct watcher *watcher;
static struct sessions *sessions;
static struct hosted_model *hosted;
static char dir[PATH_MAX];

static void set_dir(const char *path)
{
    assert_true(strlen(path) < sizeof settings.sessions_dir);
    memcpy(settings.sessions_dir, path, strlen(path) + 1);
}

/* ---- scenes ----------------------------------------------------------------------------------------------------- */

static void begin_again(void)
{
    struct error err = {.message = ""};
    sessions_free(sessions);
    sessions = NULL;
    if (sessions_create(&sessions, &settings, watcher, &err) != OK)
        fail_msg("%s", err.message);
}

static int start(void **state)
{
    (void)state;
    if (session_scene_begin(&settings, &watcher, &hosted) != 0)
        return -1;
    settings.sessions_max = IN_MEMORY;
    settings.sessions_stored_max = STORED;
    settings.session_ttl_s = 600;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return session_scene_end(watcher, hosted);
}

static int set_up(void **state)
{
    char path[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "sessions");
    set_dir(path);
    begin_again();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sessions_free(sessions);
    sessions = NULL;
    temp_dir_remove(dir);
    return 0;
}

static struct stream_snapshot snapshot_of(uint64_t draws)
{
    struct stream_snapshot s;
    assert_true(session_scene_state(&s, draws));
    return s;
}

static enum status try_add(const struct client_id *who, const char *id, uint64_t draws, char out[SESSION_ID_BYTES],
                           struct error *err)
{
    struct stream_snapshot s = snapshot_of(draws);
    struct session_info made;
    enum status st = sessions_add(sessions, who, id, hosted, &s, &made, err);
    if (st != OK) {
        stream_snapshot_clear(&s);
        return st;
    }
    st = sessions_write_new(sessions, &made, 1, err);
    if (st != OK)
        return st;
    (void)snprintf(out, SESSION_ID_BYTES, "%s", made.head.id);
    sessions_end(sessions, &made);
    return OK;
}

static void add(const struct client_id *who, const char *id, uint64_t draws, char out[SESSION_ID_BYTES])
{
    struct error err;
    if (try_add(who, id, draws, out, &err) != OK)
        fail_msg("%s", err.message);
}

static enum status find(const struct client_id *who, const char *id, struct session_info *ret, struct error *err)
{
    enum status st = sessions_find(sessions, who, id, ret, err);
    if (st == OK && ret->state == NULL) {
        st = sessions_fetch(sessions, ret, err);
        if (st != OK)
            session_info_clear(ret);
    }
    return st;
}

static void assert_found(const struct client_id *who, const char *id, uint64_t draws)
{
    struct session_info i;
    struct error err;
    if (find(who, id, &i, &err) != OK)
        fail_msg("%s", err.message);
    assert_true(session_scene_is_at(&i.snapshot, draws));
    session_info_clear(&i);
}

static void assert_gone(const struct client_id *who, const char *id)
{
    struct session_info i;
    assert_int_equal(find(who, id, &i, NULL), ERR_NOT_FOUND);
}

static void move_to(const struct client_id *who, const char *id, uint64_t draws)
{
    struct session_info held;
    struct stream_snapshot s = snapshot_of(draws);
    struct error err;
    assert_int_equal(sessions_begin(sessions, who, id, &held, &err), OK);
    if (sessions_write(sessions, &held, &s, &err) != OK)
        fail_msg("%s", err.message);
    sessions_end(sessions, &held);
}

/* The names in the folder that end so. */
static size_t files(char out[][PATH_MAX], const char *end)
{
    DIR *d = opendir(settings.sessions_dir);
    size_t count = 0;
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d)) != NULL;) {
        const size_t length = strlen(f->d_name);
        if (length > strlen(end) && strcmp(f->d_name + length - strlen(end), end) == 0 && count < FILES_MAX)
            temp_path(out[count++], settings.sessions_dir, f->d_name);
    }
    (void)closedir(d);
    return count;
}

static size_t count_files(const char *end)
{
    static char names[FILES_MAX][PATH_MAX];
    return files(names, end);
}

/* ---- what is kept ----------------------------------------------------------------------------------------------- */

static void what_was_written_is_there_after_an_end(void **state)
{
    char one[SESSION_ID_BYTES], two[SESSION_ID_BYTES];
    struct session_info i;
    (void)state;
    add(&alice, NULL, 7, one);
    add(&anybody, NULL, 8, two);
    move_to(&alice, one, 9);
    begin_again();
    assert_int_equal(sessions_find(sessions, &alice, one, &i, NULL), OK);
    assert_null(i.state); /* it is read when it is asked for */
    assert_true(i.head.turn == 2 && i.head.state.position + i.head.state.pending_count == 5 && i.head.state.seed == 77);
    assert_string_equal(i.head.model, "text");
    assert_true(i.expires_in_s > 590 && i.expires_in_s <= 600);
    session_info_clear(&i);
    assert_found(&alice, one, 9);
    assert_found(&anybody, two, 8);
    assert_gone(&bob, one);
    assert_gone(&anybody, one);
    move_to(&alice, one, 10);
    begin_again();
    assert_found(&alice, one, 10);
}

static void a_session_that_is_not_in_memory_is_moved_on(void **state)
{
    char ids[IN_MEMORY + 2][SESSION_ID_BYTES];
    (void)state;
    for (uint64_t i = 0; i < IN_MEMORY + 2; i++)
        add(&alice, NULL, i, ids[i]);
    for (uint64_t i = 0; i < IN_MEMORY + 2; i++)
        move_to(&alice, ids[i], 100 + i);
    for (uint64_t i = 0; i < IN_MEMORY + 2; i++)
        assert_found(&alice, ids[i], 100 + i);
    begin_again();
    for (uint64_t i = 0; i < IN_MEMORY + 2; i++)
        assert_found(&alice, ids[i], 100 + i);
}

static void memory_is_bounded_and_given_to_whoever_needs_it(void **state)
{
    char ids[IN_MEMORY + 1][SESSION_ID_BYTES];
    struct session_info held[IN_MEMORY], other;
    struct error err;
    (void)state;
    for (uint64_t i = 0; i < IN_MEMORY + 1; i++)
        add(&alice, NULL, i, ids[i]);
    assert_int_equal(sessions_find(sessions, &alice, ids[0], &other, NULL), OK);
    assert_null(other.state); /* the oldest gave way */
    session_info_clear(&other);
    for (size_t i = 0; i < IN_MEMORY; i++)
        assert_int_equal(sessions_begin(sessions, &alice, ids[i], &held[i], NULL), OK);
    assert_int_equal(sessions_begin(sessions, &alice, ids[IN_MEMORY], &other, &err), ERR_SESSIONS);
    assert_non_null(strstr(err.message, "in use"));
    sessions_end(sessions, &held[0]);
    assert_int_equal(sessions_begin(sessions, &alice, ids[IN_MEMORY], &other, &err), OK);
    sessions_end(sessions, &other);
    for (size_t i = 1; i < IN_MEMORY; i++)
        sessions_end(sessions, &held[i]);
    for (uint64_t i = 0; i < IN_MEMORY + 1; i++)
        assert_found(&alice, ids[i], i);
}

static void the_one_not_used_for_longest_goes_of_those_who_have_most(void **state)
{
    char of_alice[STORED + 2][SESSION_ID_BYTES], of_bob[SESSION_ID_BYTES];
    (void)state;
    add(&bob, NULL, 50, of_bob);
    for (uint64_t i = 0; i < STORED + 1; i++)
        add(&alice, NULL, i, of_alice[i]);
    assert_found(&bob, of_bob, 50); /* although it is the oldest */
    assert_gone(&alice, of_alice[0]);
    assert_gone(&alice, of_alice[1]);
    assert_found(&alice, of_alice[2], 2);
    assert_int_equal(count_files(".session"), STORED);
    settings.sessions_stored_max = STORED - 2; /* from the next beginning on */
    begin_again();
    settings.sessions_stored_max = STORED;
    assert_int_equal(count_files(".session"), STORED - 2);
}

static void forks_are_written_and_draw_for_themselves(void **state)
{
    char id[SESSION_ID_BYTES];
    struct session_info of, forks[2];
    struct error err;
    uint32_t samples[4] = {0};
    (void)state;
    add(&alice, NULL, 3, id);
    for (size_t round = 0; round < 2; round++) {
        assert_int_equal(find(&alice, id, &of, &err), OK);
        assert_int_equal(sessions_fork(sessions, &alice, &of, 2, forks, &err), OK);
        assert_int_equal(sessions_write_new(sessions, forks, 2, &err), OK);
        for (size_t i = 0; i < 2; i++) {
            assert_true(session_scene_is_at(&forks[i].snapshot, 3));
            samples[2 * round + i] = forks[i].snapshot.sampler.options.sample;
            sessions_end(sessions, &forks[i]);
        }
        session_info_clear(&of);
        begin_again();
    }
    assert_int_equal(count_files(".session"), 5);
    assert_int_equal(samples[0] + samples[1], 1 + 2);
    for (size_t i = 0; i < 4; i++) /* those of the second round, whose numbers are drawn, too */
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(samples[i], samples[k]);
}

/* Both have read it themselves, as it was not in memory. */
static void forks_of_two_requests_at_once_differ(void **state)
{
    char id[SESSION_ID_BYTES];
    struct session_info of[2], forks[2];
    struct error err;
    (void)state;
    add(&alice, NULL, 3, id);
    begin_again();
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sessions_find(sessions, &alice, id, &of[i], &err), OK);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sessions_fetch(sessions, &of[i], &err), OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(sessions_fork(sessions, &alice, &of[i], 1, &forks[i], &err), OK);
        assert_int_equal(sessions_write_new(sessions, &forks[i], 1, &err), OK);
        assert_true(session_scene_is_at(&forks[i].snapshot, 3));
    }
    assert_int_not_equal(forks[0].snapshot.sampler.options.sample, forks[1].snapshot.sampler.options.sample);
    for (size_t i = 0; i < 2; i++) {
        sessions_end(sessions, &forks[i]);
        session_info_clear(&of[i]);
    }
}

static void one_that_was_never_written_is_not_there(void **state)
{
    char id[SESSION_ID_BYTES];
    struct error err;
    (void)state;
    for (unsigned i = 0; i < 2 * IN_MEMORY; i++) { /* it takes no room either */
        struct stream_snapshot s = snapshot_of(i);
        struct session_info made;
        assert_int_equal(sessions_add(sessions, &alice, "chat", hosted, &s, &made, &err), OK);
        sessions_end(sessions, &made); /* its request ended before it was written */
        assert_gone(&alice, "chat");
    }
    add(&alice, "chat", 7, id);
    assert_found(&alice, "chat", 7);
}

/* ---- ids -------------------------------------------------------------------------------------------------------- */

static void each_key_has_ids_of_its_own(void **state)
{
    char id[SESSION_ID_BYTES];
    struct error err;
    (void)state;
    add(&alice, "chat-1", 1, id);
    assert_string_equal(id, "chat-1");
    add(&bob, "chat-1", 2, id);
    add(&anybody, "chat-1", 3, id);
    assert_int_equal(try_add(&alice, "chat-1", 4, id, &err), ERR_CONFLICT);
    assert_string_equal(err.param, "session");
    begin_again();
    assert_found(&alice, "chat-1", 1);
    assert_found(&bob, "chat-1", 2);
    assert_found(&anybody, "chat-1", 3);
    assert_int_equal(try_add(&alice, "chat-1", 4, id, &err), ERR_CONFLICT);
}

static void a_removed_session_is_not_there_after_an_end(void **state)
{
    char id[SESSION_ID_BYTES];
    struct session_info held;
    struct stream_snapshot s = snapshot_of(6);
    struct error err;
    (void)state;
    add(&alice, "a", 1, id);
    add(&alice, "b", 2, id);
    assert_int_equal(sessions_remove(sessions, &alice, "a", NULL), OK);
    assert_int_equal(sessions_begin(sessions, &alice, "b", &held, NULL), OK);
    assert_int_equal(sessions_remove(sessions, &alice, "b", NULL), OK);
    assert_int_equal(count_files(".session"), 0);
    assert_int_equal(try_add(&alice, "b", 3, id, &err), ERR_CONFLICT); /* its request may still write it */
    assert_int_equal(sessions_write(sessions, &held, &s, &err), OK);
    assert_int_equal(count_files(".session"), 0);
    sessions_end(sessions, &held);
    add(&alice, "a", 4, id);
    add(&alice, "b", 5, id);
    begin_again();
    assert_found(&alice, "a", 4);
    assert_found(&alice, "b", 5);
}

/* ---- what is wrong ---------------------------------------------------------------------------------------------- */

/* A bit, a byte, some bytes, the length. */
static size_t mutate(uint8_t *bytes, size_t size, struct random *random)
{
    const uint64_t how = random_next(random) % 5, at = random_next(random) % size;
    switch (how) {
    case 0:
        bytes[at] ^= (uint8_t)(1U << random_next(random) % 8);
        return size;
    case 1:
        bytes[at] = (uint8_t)(bytes[at] + 1 + random_next(random) % 255);
        return size;
    case 2:
        return at;
    case 3:
        bytes[at % 76] ^= 0x80; /* the header */
        return size;
    default:
        bytes[size] = (uint8_t)random_next(random);
        return size + 1;
    }
}

/* Whatever is done to one file, the other is there; nothing that was changed is taken for a session. */
static void damaged_files_are_refused_and_stay(void **state)
{
    static char names[FILES_MAX][PATH_MAX];
    char id[SESSION_ID_BYTES], good[SESSION_ID_BYTES];
    size_t size;
    struct random random = {18};
    (void)state;
    add(&alice, NULL, 5, id);
    assert_int_equal(files(names, ".session"), 1);
    char path[PATH_MAX];
    memcpy(path, names[0], sizeof path);
    char *bytes = temp_read(path, &size);
    uint8_t *changed = malloc(size + 1);
    assert_non_null(changed);
    add(&bob, NULL, 6, good);
    for (int i = 0; i < MUTATIONS; i++) {
        struct session_info info;
        struct error err = {.message = ""};
        memcpy(changed, bytes, size);
        temp_write(path, changed, mutate(changed, size, &random));
        begin_again();
        const enum status st = find(&alice, id, &info, &err);
        if (st != ERR_NOT_FOUND)
            fail_msg("mutation %d: status %d, \"%s\"", i, st, err.message);
        assert_found(&bob, good, 6);
        assert_int_equal(count_files(".session"), 2);
    }
    add(&alice, id, 7, id); /* its id is free */
    begin_again();
    assert_found(&alice, id, 7);
    temp_write(path, bytes, size);
    begin_again();
    assert_found(&alice, id, 5);
    temp_write(path, changed, 1);
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    begin_again();
    assert_int_equal(count_files(".session"), 1); /* its time is over */
    free(changed);
    free(bytes);
}

static void what_else_lies_there_is_left_alone(void **state)
{
    char id[SESSION_ID_BYTES], other[PATH_MAX], leftover[PATH_MAX], folder[PATH_MAX];
    (void)state;
    add(&alice, NULL, 1, id);
    temp_path(other, settings.sessions_dir, "notes.txt");
    temp_path(leftover, settings.sessions_dir, "0123456789abcdef0123456789abcdef.new");
    temp_path(folder, settings.sessions_dir, "0123456789abcdef0123456789abcdef.session");
    temp_write(other, "x", 1);
    temp_write(leftover, "x", 1);
    assert_int_equal(mkdir(folder, 0700), 0);
    begin_again();
    assert_found(&alice, id, 1);
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(access(leftover, F_OK), -1);
    assert_int_equal(access(folder, F_OK), 0);
}

/* Killed between two steps of writing: a file for each state in which that can leave the folder. */
static void what_was_being_written_is_settled(void **state)
{
    static char names[FILES_MAX][PATH_MAX];
    char id[SESSION_ID_BYTES], aside[PATH_MAX];
    size_t old_size, new_size;
    (void)state;
    add(&alice, "a", 1, id);
    assert_int_equal(files(names, ".session"), 1);
    char *old = temp_read(names[0], &old_size);
    move_to(&alice, "a", 2);
    char *new = temp_read(names[0], &new_size);
    (void)snprintf(aside, sizeof aside, "%.*s.new", (int)(strlen(names[0]) - strlen(".session")), names[0]);
    temp_write(names[0], old, old_size); /* not yet whole, and the one before is there */
    temp_write(aside, new, new_size / 2);
    begin_again();
    assert_found(&alice, "a", 1);
    assert_int_equal(count_files(".new"), 0);
    temp_write(aside, new, new_size); /* whole, and the one before is there: nobody was answered */
    begin_again();
    assert_found(&alice, "a", 1);
    temp_write(aside, new, new_size); /* the one before was removed */
    assert_int_equal(unlink(names[0]), 0);
    begin_again();
    assert_found(&alice, "a", 2);
    assert_int_equal(sessions_remove(sessions, &alice, "a", NULL), OK);
    temp_write(aside, new, new_size / 2); /* the first of a session, not whole */
    begin_again();
    assert_int_equal(count_files(".new") + count_files(".session"), 0);
    assert_gone(&alice, "a");
    new[8] ^= 0x7F; /* of another version, which may be all that there is of it */
    temp_write(aside, new, new_size);
    begin_again();
    assert_int_equal(count_files(".new"), 0);
    assert_int_equal(count_files(".session"), 1);
    add(&alice, "a", 3, id);
    free(new);
    free(old);
}

static void what_cannot_be_read_takes_no_place(void **state)
{
    static char names[FILES_MAX][PATH_MAX];
    char id[SESSION_ID_BYTES];
    const struct timespec before[2] = {{.tv_sec = time(NULL) - 10}, {.tv_sec = time(NULL) - 10}};
    (void)state;
    add(&alice, NULL, 1, id);
    assert_int_equal(files(names, ".session"), 1);
    assert_int_equal(utimensat(AT_FDCWD, names[0], before, 0), 0);
    char *end = strrchr(names[0], '.') - 2;
    for (unsigned i = 0; i <= STORED; i++) { /* newer ones */
        char beside[PATH_MAX], last[3];
        memcpy(last, end, 2);
        last[2] = '\0';
        const unsigned byte = (unsigned)(strtoul(last, NULL, 16) + 1 + i) % 256;
        memcpy(beside, names[0], sizeof beside);
        (void)snprintf(beside + (end - names[0]), 16, "%02x.session", byte);
        temp_write(beside, "?", 1);
    }
    begin_again();
    assert_found(&alice, id, 1);
}

static void one_daemon_has_a_folder(void **state)
{
    struct sessions *second;
    struct error err;
    (void)state;
    assert_int_equal(sessions_create(&second, &settings, watcher, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "another daemon has it"));
    char before[SETTING_TEXT_MAX + 1], file[PATH_MAX];
    memcpy(before, settings.sessions_dir, sizeof before);
    temp_path(file, dir, "file");
    temp_write(file, "x", 1);
    set_dir(file);
    assert_int_equal(sessions_create(&second, &settings, watcher, &err), ERR_CONFIG);
    assert_string_equal(err.param, "sessions_dir");
    set_dir("/no/such/folder");
    assert_int_equal(sessions_create(&second, &settings, watcher, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "make that"));
    memcpy(settings.sessions_dir, before, sizeof before);
}

static void what_cannot_be_a_folder_is_told_before(void **state)
{
    char missing[PATH_MAX], below[PATH_MAX], file[PATH_MAX];
    struct error err;
    (void)state;
    temp_path(missing, dir, "missing");
    temp_path(below, missing, "below");
    temp_path(file, dir, "file");
    temp_write(file, "x", 1);
    assert_int_equal(store_dir_check(dir, &err), OK);
    assert_int_equal(store_dir_check(missing, &err), OK); /* it would be made */
    assert_int_equal(access(missing, F_OK), -1);
    assert_int_equal(store_dir_check("missing", &err), OK);
    assert_int_equal(store_dir_check(below, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "make that"));
    assert_int_equal(store_dir_check(file, &err), ERR_CONFIG);
    assert_string_equal(err.param, "sessions_dir");
    temp_path(below, file, "below");
    assert_int_equal(store_dir_check(below, &err), ERR_CONFIG);
    assert_int_equal(store_dir_check(settings.sessions_dir, &err), OK); /* whoever has it */
}

static void a_folder_that_is_lost_is_told(void **state)
{
    char id[SESSION_ID_BYTES], moved[PATH_MAX];
    struct session_info held;
    struct error err;
    (void)state;
    add(&alice, NULL, 1, id);
    struct stream_snapshot s = snapshot_of(2);
    assert_int_equal(sessions_begin(sessions, &alice, id, &held, &err), OK);
    temp_dir_remove(settings.sessions_dir);
    const uint64_t failures = metrics_total(METRIC_STORE_ERRORS);
    assert_int_equal(sessions_write(sessions, &held, &s, &err), ERR_STORE);
    assert_non_null(strstr(err.message, "cannot write"));
    stream_snapshot_clear(&s);
    sessions_end(sessions, &held);
    assert_found(&alice, id, 1); /* it stands where it was, in memory */
    assert_int_equal(try_add(&alice, NULL, 3, moved, &err), ERR_STORE);
    assert_true(metrics_total(METRIC_STORE_ERRORS) == failures + 2);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(what_was_written_is_there_after_an_end),
        EACH(a_session_that_is_not_in_memory_is_moved_on),
        EACH(memory_is_bounded_and_given_to_whoever_needs_it),
        EACH(the_one_not_used_for_longest_goes_of_those_who_have_most),
        EACH(forks_are_written_and_draw_for_themselves),
        EACH(forks_of_two_requests_at_once_differ),
        EACH(one_that_was_never_written_is_not_there),
        EACH(each_key_has_ids_of_its_own),
        EACH(a_removed_session_is_not_there_after_an_end),
        EACH(damaged_files_are_refused_and_stay),
        EACH(what_else_lies_there_is_left_alone),
        EACH(what_was_being_written_is_settled),
        EACH(what_cannot_be_read_takes_no_place),
        EACH(one_daemon_has_a_folder),
        EACH(what_cannot_be_a_folder_is_told_before),
        EACH(a_folder_that_is_lost_is_told),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
