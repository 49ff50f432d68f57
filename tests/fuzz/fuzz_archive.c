/* fuzz_archive.c - what is to be restored, of any bytes: refused with a reason, or an archive whose blocks lie in it
 * and in the text that there is room for. The first byte says whether the bytes behind it are put behind a sound header
 * of a text of two blocks, without which they would seldom get past the first check. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "server/operation/archive.h"

enum { TEXT_BYTES = ARCHIVE_BLOCK_BYTES + 100, CODE_MAX = 65536 };

static const enum status allowed[] = {ERR_ARGUMENT};

/* All of it is there to be read, and what is to be restored to be written. */
static void touch(const struct archive_blocks *b, size_t text_bytes)
{
    fuzz_check(b->text_bytes == text_bytes, "there is room for the text");
    for (uint32_t i = 0; i < b->count; i++) {
        const struct coding_block *block = &b->blocks[i];
        fuzz_check(block->text_bytes >= 2 && block->code_bytes < block->text_bytes, "what is coded is smaller for it");
        fuzz_check(block->text >= b->text && block->text + block->text_bytes <= b->text + text_bytes,
                   "a block lies in the text");
        memset(block->text, 'x', block->text_bytes);
        for (uint32_t k = 0; k < block->code_bytes; k++) {
            const volatile uint8_t byte = block->code[k];
            (void)byte;
        }
    }
}

static void read_archive(const uint8_t *bytes, size_t size)
{
    struct archive a;
    struct archive_blocks blocks = {0};
    struct error err = {.message = ""};
    const enum status st = archive_read(&a, bytes, size, &err);
    if (st != OK) {
        fuzz_check_error(st, &err, allowed, 1);
        return;
    }
    fuzz_check(a.text_bytes <= COMPRESS_BYTES_MAX && size <= ARCHIVE_BYTES_MAX, "an archive is not too large");
    fuzz_check(memchr(a.id.arithmetic, '\0', sizeof a.id.arithmetic) != NULL, "the arithmetic's name ends");
    fuzz_check(archive_open(&blocks, &a, &err) == OK, "there is memory for the blocks");
    touch(&blocks, a.text_bytes);
    if (archive_check_text(&a, blocks.text, &err) != OK)
        fuzz_check_error(err.status, &err, allowed, 1);
    archive_blocks_clear(&blocks);
}

/* The header of TEXT_BYTES without its name, then what is given. */
static void read_behind_header(const uint8_t *data, size_t size)
{
    static const uint8_t text[TEXT_BYTES];
    static const struct model_identity id = {.arithmetic = ""};
    struct archive_blocks blocks = {0};
    struct error err;
    uint8_t *sound = NULL;
    size_t sound_size;
    fuzz_check(archive_split(&blocks, text, sizeof text, &err) == OK, "there is memory for blocks");
    for (uint32_t i = 0; i < blocks.count; i++)
        blocks.blocks[i].is_stored = true;
    fuzz_check(archive_make(&sound, &sound_size, &blocks, &id, &err) == OK, "there is memory for an archive");
    const size_t header = sound_size - sizeof text - 4; /* two sizes of two bytes */
    uint8_t *bytes = malloc(header + size + 1);
    fuzz_check(bytes != NULL, "there is memory for the input");
    memcpy(bytes, sound, header);
    if (size > 0)
        memcpy(bytes + header, data, size);
    read_archive(bytes, header + size);
    free(bytes);
    free(sound);
    archive_blocks_clear(&blocks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > CODE_MAX)
        return 0;
    if (data[0] % 2 == 0)
        read_archive(data + 1, size - 1);
    else
        read_behind_header(data + 1, size - 1);
    return 0;
}
