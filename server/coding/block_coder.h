/* block_coder.h - compresses or restores a block of bytes by one stream: each of its logits becomes frequencies, and
 * these bits (arithmetic_coder.h). Who compresses feeds what is there, many bytes at a time; who restores feeds what it
 * has just decoded. Both go through the same windows of the model's context, so that both see the same logits.
 *
 * Whoever has the engine feeds window elements [fed, length), counts them as fed, and gives the coder the logits: those
 * behind each of them of a block to encode, behind the last of one to decode. The thread that feeds, but for
 * block_coder_decode; nothing here allocates. */
#ifndef SERVER_CODING_BLOCK_CODER_H
#define SERVER_CODING_BLOCK_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/coding/arithmetic_coder.h"
#include "server/stream/stream_window.h"

/* A piece of a text that is coded by itself, so that several can be at a time; of at least two bytes. */
struct coding_block {
    uint8_t *text; /* [text_bytes]: given, or to be restored */
    uint8_t *code; /* [code_bytes]: given, or made: there is room for text_bytes then */
    uint32_t text_bytes, code_bytes;
    bool is_stored; /* its code would not be shorter than itself, which is its code then */
};

struct block_coder {
    struct stream_window *window; /* borrowed; the coder's alone while it codes */
    struct coding_block *block;
    uint32_t coded; /* bytes of the text that are done */
    uint32_t begin; /* compressing: the first byte of the text in the window */
    uint32_t first; /* 1: the window begins with the start */
    union {
        struct arithmetic_encoder encoder;
        struct arithmetic_decoder decoder;
    } by;
};

/* Begin a block, in a window of whatever was before. */
void block_coder_begin_encode(struct block_coder *c, struct stream_window *w, struct coding_block *b);
void block_coder_begin_decode(struct block_coder *c, struct stream_window *w, struct coding_block *b);

/* Use the logits [count, 256] behind the window's latest `count` bytes that are fed, and go on. True when the block is
 * done. */
bool block_coder_encode(struct block_coder *c, const float *logits, uint32_t count);

/* The next byte by the logits [256] behind all that was fed. Any thread, one for a coder. */
void block_coder_decode(struct block_coder *c, const float *logits);
/* Have it fed next. True when the block is done. */
bool block_coder_go_on(struct block_coder *c);

#endif
