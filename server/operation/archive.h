/* archive.h - what POST /v1/compress makes and POST /v1/decompress reads:
 *
 *     bytes
 *         4  "aftz"
 *         1  format's version, ARCHIVE_VERSION
 *         1  A: bytes of the arithmetic's name
 *         2  zero
 *         8  N: bytes of the text
 *         8  the first bytes of the text's SHA-256
 *        16  the model's digest (precision.h)
 *         A  arithmetic: what computed it (model_identity.h)
 *     then for each ARCHIVE_BLOCK_BYTES of the text (the last block may have fewer):
 *         2  bytes of the block's code
 *            the code; if it is as long as the block, it is the block itself, uncoded
 *
 * Numbers are little-endian. Each block is coded by itself, so that a daemon can restore several at a time. What cannot
 * be compressed grows by the header and two bytes per block. Any thread; no state. */
#ifndef SERVER_OPERATION_ARCHIVE_H
#define SERVER_OPERATION_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/models/model_identity.h"
#include "server/operation/block_coder.h"

enum { ARCHIVE_VERSION = 2, ARCHIVE_BLOCK_BYTES = 8192, ARCHIVE_CHECKSUM_BYTES = 8 };
/* Size of the largest archive: the header, the text, and two bytes per block. */
#define ARCHIVE_BYTES_MAX                                                    \
    (24 + MODEL_DIGEST_BYTES + MODEL_ARITHMETIC_BYTES + COMPRESS_BYTES_MAX + \
     2 * (COMPRESS_BYTES_MAX / ARCHIVE_BLOCK_BYTES))

/* Blocks of a text, and the memory that they lie in; all malloc'd. */
struct archive_blocks {
    uint8_t *text, *code;
    struct coding_block *blocks; /* [count], those to be coded or decoded */
    uint32_t count;
    size_t text_bytes; /* of all blocks, including those that no coder sees */
};

void archive_blocks_clear(struct archive_blocks *b); /* zeroed is fine */

/* ---- compressing ------------------------------------------------------------------------------------------------ */

/* Make the blocks to encode, perhaps none, of a copy of the text, at most COMPRESS_BYTES_MAX bytes. *ret is set only on
 * OK. Errors: ERR_NOMEM. */
enum status archive_split(struct archive_blocks *ret, const uint8_t *text, size_t size, struct error *err);
/* Make the archive of blocks that are encoded. *ret is malloc'd. Errors: ERR_NOMEM. */
enum status archive_make(uint8_t **ret, size_t *size, const struct archive_blocks *b, const struct model_identity *id,
                         struct error *err);

/* ---- restoring -------------------------------------------------------------------------------------------------- */

struct archive {
    struct model_identity id;
    uint8_t checksum[ARCHIVE_CHECKSUM_BYTES];
    size_t text_bytes;
    const uint8_t *blocks; /* [blocks_bytes], borrowed */
    size_t blocks_bytes;
};

/* Read the header and check everything that can be checked without the model. Errors: ERR_ARGUMENT (param "body"). */
enum status archive_read(struct archive *ret, const uint8_t *bytes, size_t size, struct error *err);
/* Make the blocks to decode, perhaps none; the text of the others is there already. *ret is set only on OK. Errors:
 * ERR_NOMEM. */
enum status archive_open(struct archive_blocks *ret, const struct archive *a, struct error *err);
/* Is the text [a->text_bytes] the one that was compressed? Errors: ERR_ARGUMENT (param "body"). */
enum status archive_check_text(const struct archive *a, const uint8_t *text, struct error *err);

#endif
