/* stream_coding.h - a stream that compresses or restores a block of bytes: each of its logits becomes frequencies, and
 * these bits (arithmetic_coder.h). Who compresses feeds what is there, many bytes at a time; who restores feeds what it
 * has just decoded. Both go through the same windows of the model's context, so that both see the same logits.
 * Engine thread only, but for who makes the blocks and takes them; nothing here allocates. */
#ifndef SERVER_CODING_STREAM_CODING_H
#define SERVER_CODING_STREAM_CODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/coding/arithmetic_coder.h"

struct stream_model;
struct stream_slot;

/* A piece of a text that is coded by itself, so that several can be at a time; of at least two bytes. */
struct coding_block {
    uint8_t *text; /* [text_bytes]: given, or to be restored */
    uint8_t *code; /* [code_bytes]: given, or made: there is room for text_bytes then */
    uint32_t text_bytes, code_bytes;
    bool is_stored; /* its code would not be shorter than itself, which is its code then */
};

/* The part of a slot. */
struct stream_coding {
    struct coding_block *block;
    uint32_t coded; /* bytes of the text that are done */
    uint32_t begin; /* compressing: the first byte of the text in the window */
    uint32_t first; /* 1: the window begins with the start */
    union {
        struct arithmetic_encoder encoder;
        struct arithmetic_decoder decoder;
    } by;
};

/* Begin a block in a slot; index and window are set. */
void stream_coding_begin_encode(const struct stream_model *m, struct stream_slot *s, struct coding_block *b);
void stream_coding_begin_decode(const struct stream_model *m, struct stream_slot *s, struct coding_block *b);

/* Use a part's logits [count, 256], of the window's bytes before s->fed, and go on. True when the block is done. */
bool stream_coding_encode(const struct stream_model *m, struct stream_slot *s, const float *logits, uint32_t count);

/* The next byte by the logits [256] behind all that was fed. Any thread, one for a slot. */
uint8_t stream_coding_decode(struct stream_slot *s, const float *logits);
/* Have it fed next. True when the block is done. */
bool stream_coding_go_on(const struct stream_model *m, struct stream_slot *s);

#endif
