/* test_archive.c - the format of compressed text, byte by byte: what is written, what is read back, and what is refused
 * in which words. The "code" of a block is made up here: no model computes. */
#include "server/operation/archive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { HEADER = 24 + MODEL_DIGEST_BYTES, NAME = 3, BLOCKS = HEADER + NAME, BLOCK = ARCHIVE_BLOCK_BYTES };

static struct model_identity identity(void)
{
    struct model_identity id = {.arithmetic = "abc"};
    for (size_t i = 0; i < MODEL_DIGEST_BYTES; i++)
        id.digest[i] = (uint8_t)(0xa0 + i);
    return id;
}

static uint8_t *text_of(size_t size)
{
    uint8_t *text = malloc(size + 1);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = (uint8_t)('a' + i % 23);
    return text;
}

/* An archive of a text of at most three blocks, of which block i has code_bytes[i] bytes of code, all 'C'; as many as
 * the block or more: it is stored. */
static uint8_t *make(size_t text_bytes, const uint32_t code_bytes[3], size_t *size)
{
    const struct model_identity id = identity();
    struct archive_blocks b = {.count = 0};
    uint8_t *text = text_of(text_bytes), *bytes = NULL;
    assert_int_equal(archive_split(&b, text, text_bytes, NULL), OK);
    for (uint32_t i = 0; i < b.count && i < 3; i++) {
        b.blocks[i].is_stored = code_bytes[i] >= b.blocks[i].text_bytes;
        b.blocks[i].code_bytes = code_bytes[i];
        if (!b.blocks[i].is_stored)
            memset(b.blocks[i].code, 'C', code_bytes[i]);
    }
    assert_int_equal(archive_make(&bytes, size, &b, &id, NULL), OK);
    archive_blocks_clear(&b);
    free(text);
    return bytes;
}

/* As `printf abc | sha256sum` says of the eight bytes. */
static void an_archive_is_as_it_is_described(void **state)
{
    static const uint8_t want[] = {
        'a',  'f',  't',  'z',  2,    3,    0,    0,    3,    0,    0,    0,    0,    0,    0,    0,
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
        0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, 'a',  'b',  'c',  2,    0,    'C',  'C',
    };
    size_t size;
    (void)state;
    uint8_t *bytes = make(3, (const uint32_t[3]){2}, &size);
    assert_int_equal(size, sizeof want);
    assert_memory_equal(bytes, want, sizeof want);
    free(bytes);
}

static void texts_are_split_into_blocks(void **state)
{
    static const struct {
        size_t text_bytes;
        uint32_t count, last; /* blocks to code, bytes of the last of these */
    } cases[] = {
        {0, 0, 0},         {1, 0, 0}, /* one byte is stored as it is */
        {2, 1, 2},         {BLOCK - 1, 1, BLOCK - 1},
        {BLOCK, 1, BLOCK}, {BLOCK + 1, 1, BLOCK},
        {BLOCK + 2, 2, 2}, {(size_t)3 * BLOCK, 3, BLOCK},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct archive_blocks b;
        uint8_t *text = text_of(cases[i].text_bytes);
        size_t used = 0;
        assert_int_equal(archive_split(&b, text, cases[i].text_bytes, NULL), OK);
        assert_int_equal(b.count, cases[i].count);
        assert_int_equal(b.text_bytes, cases[i].text_bytes);
        for (uint32_t k = 0; k < b.count; k++) {
            assert_ptr_equal(b.blocks[k].text, b.text + used);
            assert_memory_equal(b.blocks[k].text, text + used, b.blocks[k].text_bytes);
            used += b.blocks[k].text_bytes;
        }
        if (b.count > 0)
            assert_int_equal(b.blocks[b.count - 1].text_bytes, cases[i].last);
        archive_blocks_clear(&b);
        assert_null(b.text);
        archive_blocks_clear(&b);
        free(text);
    }
}

static void what_was_made_is_read(void **state)
{
    static const struct {
        size_t text_bytes;
        uint32_t code_bytes[3];
        uint32_t to_decode;
    } cases[] = {
        {0, {0}, 0},
        {1, {0}, 0},
        {2, {1}, 1},
        {2, {0}, 1}, /* no code at all */
        {2, {2}, 0},
        {BLOCK, {BLOCK - 1}, 1},
        {BLOCK, {BLOCK}, 0},
        {BLOCK + 1, {10}, 1},
        {2 * BLOCK + 5, {7, BLOCK, 3}, 2},
        {2 * BLOCK + 5, {BLOCK, 9, 5}, 1},
    };
    const struct model_identity id = identity();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct archive a;
        struct archive_blocks b;
        struct error err;
        size_t size;
        uint8_t *bytes = make(cases[i].text_bytes, cases[i].code_bytes, &size);
        uint8_t *text = text_of(cases[i].text_bytes);
        if (archive_read(&a, bytes, size, &err) != OK)
            fail_msg("case %zu: %s", i, err.message);
        assert_memory_equal(&a.id, &id, sizeof id);
        assert_int_equal(a.text_bytes, cases[i].text_bytes);
        assert_int_equal(archive_open(&b, &a, NULL), OK);
        free(bytes); /* what was opened is a copy */
        assert_int_equal(b.count, cases[i].to_decode);
        for (uint32_t k = 0; k < b.count; k++) {
            for (uint32_t n = 0; n < b.blocks[k].code_bytes; n++)
                assert_int_equal(b.blocks[k].code[n], 'C');
            const size_t at = (size_t)(b.blocks[k].text - b.text);
            memcpy(b.blocks[k].text, text + at, b.blocks[k].text_bytes); /* as a decoder */
        }
        assert_memory_equal(b.text, text, cases[i].text_bytes);
        assert_int_equal(archive_check_text(&a, b.text, NULL), OK);
        archive_blocks_clear(&b);
        free(text);
    }
}

static void another_text_is_noticed(void **state)
{
    struct archive a;
    struct error err;
    size_t size;
    (void)state;
    uint8_t *bytes = make(100, (const uint32_t[3]){5}, &size), *text = text_of(100);
    assert_int_equal(archive_read(&a, bytes, size, NULL), OK);
    assert_int_equal(archive_check_text(&a, text, NULL), OK);
    text[99] ^= 1;
    assert_int_equal(archive_check_text(&a, text, &err), ERR_ARGUMENT);
    assert_string_equal(err.message, "the archive does not give the text that was compressed: it was changed, or the "
                                     "model computes differently here than where it was made");
    assert_string_equal(err.param, "body");
    free(bytes);
    free(text);
}

/* An archive of BLOCK + 1 bytes: a block with 5 of code, and a stored byte. */
static uint8_t *make_sound(size_t *size)
{
    uint8_t *bytes = make(BLOCK + 1, (const uint32_t[3]){5}, size);
    assert_int_equal(*size, BLOCKS + 2 + 5 + 2 + 1);
    return bytes;
}

static void expect_refusal(const char *name, const uint8_t *bytes, size_t size, const char *says)
{
    struct archive a;
    struct error err = {.message = ""};
    uint8_t *copy = malloc(size > 0 ? size : 1); /* of its own, so that a read beyond it is seen */
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    const enum status st = archive_read(&a, copy, size, &err);
    if (st != ERR_ARGUMENT || strcmp(err.message, says) != 0 || strcmp(err.param, "body") != 0)
        fail_msg("%s: %s \"%s\", expected \"%s\"", name, status_name(st), st != OK ? err.message : "", says);
    free(copy);
}

static void changed_bytes_are_refused_by_what_they_say(void **state)
{
    static const struct {
        const char *name;
        size_t at;
        uint8_t byte;
        const char *says;
    } cases[] = {
        {"magic", 0, 'A', "not an aftz archive"},
        {"magic's end", 3, 'y', "not an aftz archive"},
        {"version 0", 4, 0, "the archive's version is 0, expected 2"},
        {"version 1", 4, 1, "the archive's version is 1, expected 2"},
        {"a name longer than the rest", 5, 14, "the archive has no valid name for what computed it in its header"},
        {"a name longer than any", 5, MODEL_ARITHMETIC_BYTES,
         "the archive has no valid name for what computed it in its header"},
        {"a NUL in the name", HEADER + 1, 0, "the archive has no valid name for what computed it in its header"},
        {"what is zero", 6, 1, "the archive has a byte that is not zero in the part of its header that must be zero"},
        {"what is zero, its end", 7, 1,
         "the archive has a byte that is not zero in the part of its header that must be zero"},
        {"a longer text", 8 + 2, 0x10, "the archive's text has 1056769 bytes, expected at most 1048576"},
        {"a far longer one", 8 + 7, 0x80, "the archive's text has 9223372036854784001 bytes, expected at most 1048576"},
        {"a text of more blocks", 8 + 1, 0x40, "the archive ends before the last block"},
        {"a text of fewer", 8, 0, "the archive goes on after its last block"},
        {"a code beyond the block", BLOCKS + 1, 0x21,
         "a block of 8192 bytes has 8453 bytes of code, expected at most 8192"},
        {"a code beyond the end", BLOCKS, 9, "the archive ends within a block"},
        {"a code that is shorter", BLOCKS, 4, "a block of 1 bytes has 323 bytes of code, expected 1"}, /* 67 + 256 */
        {"a byte with no code", BLOCKS + 7, 0, "a block of 1 bytes has 0 bytes of code, expected 1"},
        {"a byte with two", BLOCKS + 7, 2, "a block of 1 bytes has 2 bytes of code, expected 1"},
    };
    size_t size;
    (void)state;
    uint8_t *sound = make_sound(&size);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const uint8_t before = sound[cases[i].at];
        sound[cases[i].at] = cases[i].byte;
        expect_refusal(cases[i].name, sound, size, cases[i].says);
        sound[cases[i].at] = before;
    }
    free(sound);
}

static void an_archive_that_is_cut_anywhere_is_refused(void **state)
{
    size_t size;
    (void)state;
    uint8_t *sound = make_sound(&size);
    for (size_t n = 0; n < size; n++)
        expect_refusal("cut", sound, n,
                       n < 4            ? "not an aftz archive"
                       : n < HEADER     ? "the archive ends within its header"
                       : n < BLOCKS     ? "the archive has no valid name for what computed it in its header"
                       : n < BLOCKS + 2 ? "the archive ends before the last block"
                       : n < BLOCKS + 7 ? "the archive ends within a block"
                       : n < BLOCKS + 9 ? "the archive ends before the last block"
                                        : "the archive ends within a block");
    uint8_t *more = calloc(1, size + 1);
    assert_non_null(more);
    memcpy(more, sound, size);
    expect_refusal("a byte more", more, size + 1, "the archive goes on after its last block");
    free(more);
    free(sound);
}

static void the_largest_archive_has_its_size(void **state)
{
    struct model_identity id = identity();
    struct archive_blocks b;
    struct archive a;
    uint8_t *text = text_of(COMPRESS_BYTES_MAX), *bytes;
    size_t size;
    (void)state;
    memset(id.arithmetic, 'x', sizeof id.arithmetic - 1);
    assert_int_equal(archive_split(&b, text, COMPRESS_BYTES_MAX, NULL), OK);
    assert_int_equal(b.count, COMPRESS_BYTES_MAX / BLOCK);
    for (uint32_t i = 0; i < b.count; i++)
        b.blocks[i].is_stored = true;
    assert_int_equal(archive_make(&bytes, &size, &b, &id, NULL), OK);
    assert_int_equal(size, ARCHIVE_BYTES_MAX - 1); /* the longest name ends with a NUL, which is not written */
    assert_int_equal(archive_read(&a, bytes, size, NULL), OK);
    assert_string_equal(a.id.arithmetic, id.arithmetic);
    archive_blocks_clear(&b);
    free(bytes);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_archive_is_as_it_is_described),
        cmocka_unit_test(texts_are_split_into_blocks),
        cmocka_unit_test(what_was_made_is_read),
        cmocka_unit_test(another_text_is_noticed),
        cmocka_unit_test(changed_bytes_are_refused_by_what_they_say),
        cmocka_unit_test(an_archive_that_is_cut_anywhere_is_refused),
        cmocka_unit_test(the_largest_archive_has_its_size),
    };
    return cmocka_run_group_tests_name("archive", tests, NULL, NULL);
}
