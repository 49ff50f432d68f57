/* block_coder.c - see block_coder.h. Without a start embedding the first byte has no logits: all bytes are equally
 * likely then. Where the context ends, the window starts over with the last OVERLAP bytes of it, whose logits are not
 * needed any more: that costs a quarter more computing and saves most of the bits of a cold start. */
#include "server/operation/block_coder.h"

#include <assert.h>
#include <string.h>

#define OVERLAP(bytes) ((bytes) / 4 > 0 ? (bytes) / 4 : (bytes) > 0 ? 1 : 0)

/* Start the window over, with the start embedding if there is one. */
static void reset(struct block_coder *c, struct stream_window *w)
{
    stream_window_reset(w);
    c->first = w->length;
}

/* Where in the text a window that starts over begins. */
static uint32_t overlap_begin(const struct block_coder *c, const struct stream_window *w)
{
    const uint32_t overlap = OVERLAP(w->model->window_size - c->first);
    return c->coded > overlap ? c->coded - overlap : 0;
}

static void begin(struct block_coder *c, struct stream_window *w, struct coding_block *b)
{
    assert(b->text_bytes >= 2);
    c->block = b;
    c->coded = c->begin = 0;
    reset(c, w);
}

/* ---- compressing ------------------------------------------------------------------------------------------------ */

/* Fill the window with the text from `begin` on. The last byte of the text is not fed: nothing is to be predicted after
 * it. */
static void block_coder_fill(struct block_coder *c, struct stream_window *w)
{
    (void)stream_window_fill(w, c->block->text + c->begin, c->block->text_bytes - 1 - c->begin);
}

void block_coder_begin_encode(struct block_coder *c, struct stream_window *w, struct coding_block *b)
{
    begin(c, w, b);
    arithmetic_encoder_init(&c->by.encoder, b->code, b->text_bytes - 1);
    if (!w->model->starts) {
        struct byte_frequencies even;
        byte_frequencies_even(&even);
        arithmetic_encode(&c->by.encoder, &even, b->text[c->coded++]);
    }
    block_coder_fill(c, w);
}

static void end_encoding(struct block_coder *c)
{
    struct coding_block *b = c->block;
    arithmetic_encoder_end(&c->by.encoder);
    b->is_stored = c->by.encoder.is_full;
    b->code_bytes = b->is_stored ? b->text_bytes : (uint32_t)c->by.encoder.size;
    if (b->is_stored)
        memcpy(b->code, b->text, b->text_bytes);
}

/* The window is used up: begin the next one. */
static void next_window(struct block_coder *c, struct stream_window *w)
{
    if (stream_model_is_limited(w->model)) {
        reset(c, w);
        c->begin = overlap_begin(c, w);
    } else {
        stream_window_clear(w);
        c->first = 0;
        c->begin = c->coded - 1;
    }
    block_coder_fill(c, w);
}

bool block_coder_encode(struct block_coder *c, struct stream_window *w, const float *logits, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct byte_frequencies f;
        const uint32_t told = c->begin + w->fed - count + i + 1 - c->first; /* the byte that these logits predict */
        if (told < c->coded)
            continue;
        assert(told == c->coded && told < c->block->text_bytes);
        byte_frequencies_of(&f, logits + (size_t)i * BYTE_VALUES);
        arithmetic_encode(&c->by.encoder, &f, c->block->text[c->coded++]);
    }
    if (c->coded == c->block->text_bytes || c->by.encoder.is_full) {
        end_encoding(c);
        return true;
    }
    if (w->fed == w->length)
        next_window(c, w);
    return false;
}

/* ---- restoring -------------------------------------------------------------------------------------------------- */

void block_coder_begin_decode(struct block_coder *c, struct stream_window *w, struct coding_block *b)
{
    begin(c, w, b);
    arithmetic_decoder_init(&c->by.decoder, b->code, b->code_bytes);
    if (!w->model->starts) {
        struct byte_frequencies even;
        byte_frequencies_even(&even);
        b->text[0] = arithmetic_decode(&c->by.decoder, &even);
        c->coded = 1;
        (void)stream_window_fill(w, b->text, 1);
    }
}

void block_coder_decode(struct block_coder *c, const float *logits)
{
    struct byte_frequencies f;
    byte_frequencies_of(&f, logits);
    c->block->text[c->coded++] = arithmetic_decode(&c->by.decoder, &f);
}

bool block_coder_go_on(struct block_coder *c, struct stream_window *w)
{
    const uint8_t *text = c->block->text;
    if (c->coded == c->block->text_bytes)
        return true;
    if (w->length == w->model->window_size && stream_model_is_limited(w->model)) {
        reset(c, w);
        const uint32_t from = overlap_begin(c, w);
        (void)stream_window_fill(w, text + from, c->coded - from);
    } else {
        (void)stream_window_push(w, text[c->coded - 1], false); /* an unlimited window starts over by itself */
    }
    return false;
}
