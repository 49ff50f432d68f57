/* block_coder.h - compresses or restores a block of bytes with one stream: its logits become frequencies, and these
 * become bits (arithmetic_coder.h). Compressing feeds what is there, many bytes at a time; restoring feeds what it has
 * just decoded. Both go through the same windows of the model's context, so that both see the same logits.
 *
 * Whoever has the engine feeds window elements [fed, length), counts them as fed, and gives the coder the logits: for a
 * block to encode, those after each of them; for a block to decode, those after the last. For the thread that feeds,
 * except block_coder_decode; nothing here allocates. */
#ifndef SERVER_OPERATION_BLOCK_CODER_H
#define SERVER_OPERATION_BLOCK_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/operation/arithmetic_coder.h"
#include "server/operation/stream_window.h"

/* A piece of a text, at least two bytes, that is coded by itself, so that several can be coded at a time. */
struct coding_block {
    uint8_t *text; /* [text_bytes]: given, or to be restored */
    uint8_t *code; /* [code_bytes]: given, or made, with room for text_bytes */
    uint32_t text_bytes, code_bytes;
    bool is_stored; /* its code would not be shorter than its text, which takes the place of the code */
};

struct block_coder {
    struct coding_block *block;
    uint32_t coded; /* bytes of the text that are done */
    uint32_t begin; /* compressing: the first byte of the text in the window */
    uint32_t first; /* 1: the window begins with the start */
    union {
        struct arithmetic_encoder encoder;
        struct arithmetic_decoder decoder;
    } by;
};

/* Begin a block, in a window with whatever was in it before, which is the coder's alone until the block is done. */
void block_coder_begin_encode(struct block_coder *c, struct stream_window *w, struct coding_block *b);
void block_coder_begin_decode(struct block_coder *c, struct stream_window *w, struct coding_block *b);

/* Use the logits [count, 256] after the latest `count` bytes of the window that are fed, and go on. True when the block
 * is done. */
bool block_coder_encode(struct block_coder *c, struct stream_window *w, const float *logits, uint32_t count);

/* Decode the next byte with the logits [256] after everything that was fed. Any thread, one for each coder. */
void block_coder_decode(struct block_coder *c, const float *logits);
/* Push it to be fed next. True when the block is done. */
bool block_coder_go_on(struct block_coder *c, struct stream_window *w);

#endif
