/* archive.c - see archive.h. */
#include "server/operation/archive.h"

#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/little_endian.h"

static const char magic[4] = {'a', 'f', 't', 'z'};

enum { HEADER_BYTES = 24 + MODEL_DIGEST_BYTES, SIZE_BYTES = 2 };
_Static_assert(ARCHIVE_BLOCK_BYTES <= UINT16_MAX, "a block's size fits into two bytes");
_Static_assert(MODEL_ARITHMETIC_BYTES <= UINT8_MAX, "the size of the arithmetic's name fits into one byte");

static void checksum_of(uint8_t out[ARCHIVE_CHECKSUM_BYTES], const uint8_t *text, size_t size)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    if (size > 0)
        sha256_update(&sha, size, text);
    sha256_digest(&sha, ARCHIVE_CHECKSUM_BYTES, out);
}

static size_t count_blocks(size_t text_bytes)
{
    return (text_bytes + ARCHIVE_BLOCK_BYTES - 1) / ARCHIVE_BLOCK_BYTES;
}

/* Bytes of the block that begins at `at`. */
static uint32_t block_bytes(size_t text_bytes, size_t at)
{
    return text_bytes - at < ARCHIVE_BLOCK_BYTES ? (uint32_t)(text_bytes - at) : ARCHIVE_BLOCK_BYTES;
}

void archive_blocks_clear(struct archive_blocks *b)
{
    free(b->text);
    free(b->code);
    free(b->blocks);
    *b = (struct archive_blocks){.count = 0};
}

/* Allocate room for a text and its code. */
static enum status create_blocks(struct archive_blocks *ret, size_t text_bytes, size_t code_bytes, struct error *err)
{
    struct archive_blocks made = {
        .text = malloc(text_bytes + 1),
        .code = malloc(code_bytes + 1),
        .blocks = calloc(count_blocks(text_bytes) + 1, sizeof *made.blocks),
        .text_bytes = text_bytes,
    };
    if (made.text == NULL || made.code == NULL || made.blocks == NULL) {
        archive_blocks_clear(&made);
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    }
    *ret = made;
    return OK;
}

/* ---- compressing ------------------------------------------------------------------------------------------------ */

enum status archive_split(struct archive_blocks *ret, const uint8_t *text, size_t size, struct error *err)
{
    const enum status st = create_blocks(ret, size, size, err);
    if (st != OK)
        return st;
    if (size > 0)
        memcpy(ret->text, text, size);
    for (size_t at = 0; at < size; at += ARCHIVE_BLOCK_BYTES) {
        const uint32_t bytes = block_bytes(size, at);
        if (bytes >= 2) /* only the last may have one byte, which stays as it is */
            ret->blocks[ret->count++] =
                (struct coding_block){.text = ret->text + at, .code = ret->code + at, .text_bytes = bytes};
    }
    return OK;
}

enum status archive_make(uint8_t **ret, size_t *size, const struct archive_blocks *b, const struct model_identity *id,
                         struct error *err)
{
    const size_t name = strlen(id->arithmetic);
    const size_t most = HEADER_BYTES + name + b->text_bytes + count_blocks(b->text_bytes) * SIZE_BYTES;
    uint8_t *bytes = malloc(most), *at = bytes;
    if (bytes == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the answer; try again later");
    le_put_bytes(&at, magic, sizeof magic);
    le_put(&at, ARCHIVE_VERSION, 1);
    le_put(&at, name, 1);
    le_put(&at, 0, 2);
    le_put(&at, b->text_bytes, 8);
    checksum_of(at, b->text, b->text_bytes);
    at += ARCHIVE_CHECKSUM_BYTES;
    le_put_bytes(&at, id->digest, sizeof id->digest);
    le_put_bytes(&at, id->arithmetic, name);
    for (size_t block = 0; block < count_blocks(b->text_bytes); block++) {
        const size_t from = block * ARCHIVE_BLOCK_BYTES;
        const bool coded = block < b->count && !b->blocks[block].is_stored;
        const uint32_t n = coded ? b->blocks[block].code_bytes : block_bytes(b->text_bytes, from);
        le_put(&at, n, SIZE_BYTES);
        le_put_bytes(&at, coded ? b->blocks[block].code : b->text + from, n);
    }
    *ret = bytes;
    *size = (size_t)(at - bytes);
    return OK;
}

/* ---- restoring -------------------------------------------------------------------------------------------------- */

static enum status archive_refuse(struct error *err, const char *what)
{
    return error_set_param(err, ERR_ARGUMENT, "body", "the archive %s", what);
}

/* Does every block of the text have a size, and do the sizes add up to the rest of the archive? */
static enum status check_blocks(const struct archive *a, struct error *err)
{
    const uint8_t *at = a->blocks, *end = a->blocks + a->blocks_bytes;
    for (size_t from = 0; from < a->text_bytes; from += ARCHIVE_BLOCK_BYTES) {
        if (end - at < SIZE_BYTES)
            return archive_refuse(err, "ends before the last block");
        const size_t bytes = (size_t)le_take(&at, SIZE_BYTES);
        const uint32_t text = block_bytes(a->text_bytes, from);
        if (bytes > text || (text == 1 && bytes != 1))
            return error_set_param(err, ERR_ARGUMENT, "body",
                                   "a block of %u bytes has %zu bytes of code, expected %s%u", text, bytes,
                                   text == 1 ? "" : "at most ", text);
        if ((size_t)(end - at) < bytes)
            return archive_refuse(err, "ends within a block");
        at += bytes;
    }
    return at == end ? OK : archive_refuse(err, "goes on after its last block");
}

enum status archive_read(struct archive *ret, const uint8_t *bytes, size_t size, struct error *err)
{
    struct archive a = {.id = {.arithmetic = ""}};
    const uint8_t *at = bytes + sizeof magic;
    if (size < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0)
        return error_set_param(err, ERR_ARGUMENT, "body", "not an aftz archive");
    if (size < HEADER_BYTES)
        return archive_refuse(err, "ends within its header");
    const unsigned version = (unsigned)le_take(&at, 1);
    if (version != ARCHIVE_VERSION)
        return error_set_param(err, ERR_ARGUMENT, "body", "the archive's version is %u, expected %d", version,
                               ARCHIVE_VERSION);
    const size_t name = (size_t)le_take(&at, 1);
    if (le_take(&at, 2) != 0)
        return archive_refuse(err, "has a byte that is not zero in the part of its header that must be zero");
    const uint64_t text_bytes = le_take(&at, 8);
    if (text_bytes > COMPRESS_BYTES_MAX)
        return error_set_param(err, ERR_ARGUMENT, "body", "the archive's text has %llu bytes, expected at most %u",
                               (unsigned long long)text_bytes, COMPRESS_BYTES_MAX);
    a.text_bytes = (size_t)text_bytes;
    le_take_bytes(&at, a.checksum, sizeof a.checksum);
    le_take_bytes(&at, a.id.digest, sizeof a.id.digest);
    if (name >= sizeof a.id.arithmetic || size - HEADER_BYTES < name || memchr(at, '\0', name) != NULL)
        return archive_refuse(err, "has no valid name for what computed it in its header");
    memcpy(a.id.arithmetic, at, name);
    a.blocks = at + name;
    a.blocks_bytes = size - HEADER_BYTES - name;
    const enum status st = check_blocks(&a, err);
    if (st == OK)
        *ret = a;
    return st;
}

enum status archive_open(struct archive_blocks *ret, const struct archive *a, struct error *err)
{
    const enum status st = create_blocks(ret, a->text_bytes, a->blocks_bytes, err);
    const uint8_t *at = a->blocks;
    if (st != OK)
        return st;
    if (a->blocks_bytes > 0)
        memcpy(ret->code, a->blocks, a->blocks_bytes);
    for (size_t from = 0; from < a->text_bytes; from += ARCHIVE_BLOCK_BYTES) {
        const uint32_t bytes = (uint32_t)le_take(&at, SIZE_BYTES), text = block_bytes(a->text_bytes, from);
        if (bytes == text)
            memcpy(ret->text + from, at, text);
        else
            ret->blocks[ret->count++] = (struct coding_block){.text = ret->text + from,
                                                              .code = ret->code + (at - a->blocks),
                                                              .text_bytes = text,
                                                              .code_bytes = bytes};
        at += bytes;
    }
    return OK;
}

enum status archive_check_text(const struct archive *a, const uint8_t *text, struct error *err)
{
    uint8_t checksum[ARCHIVE_CHECKSUM_BYTES];
    checksum_of(checksum, text, a->text_bytes);
    if (memcmp(checksum, a->checksum, sizeof checksum) != 0)
        return archive_refuse(err, "does not give the text that was compressed: it was changed, or the model computes "
                                   "differently here than where it was made");
    return OK;
}
