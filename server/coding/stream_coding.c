/* stream_coding.c - see stream_coding.h. The first byte of a model without a start embedding has no logits: all bytes
 * are alike then. Where the context ends, the window begins anew with the last OVERLAP of it, whose logits nobody needs
 * any more: that costs a quarter more of computing and spares most of a cold start's bits. */
#include "server/coding/stream_coding.h"

#include <assert.h>
#include <string.h>

#include "server/batch/stream_slot.h"

#define OVERLAP(bytes) ((bytes) / 4 > 0 ? (bytes) / 4 : (bytes) > 0 ? 1 : 0)

static bool is_limited(const struct stream_model *m)
{
    return m->context != ENGINE_CONTEXT_UNLIMITED;
}

/* Begin the window anew, with the start where there is one. */
static void reset(const struct stream_model *m, struct stream_slot *s)
{
    engine_stream_reset(m->engine, s->index);
    s->fed = s->length = 0;
    s->coding.first = m->starts ? 1 : 0;
    if (m->starts)
        s->window[s->length++] = 0;
}

/* Where a window that begins anew starts in the text. */
static uint32_t overlap_begin(const struct stream_model *m, const struct stream_coding *c)
{
    const uint32_t overlap = OVERLAP(m->window_size - c->first);
    return c->coded > overlap ? c->coded - overlap : 0;
}

static void begin(const struct stream_model *m, struct stream_slot *s, struct coding_block *b)
{
    assert(b->text_bytes >= 2);
    s->given = NULL;
    s->given_count = s->at = 0; /* the window is filled here */
    s->coding.block = b;
    s->coding.coded = s->coding.begin = 0;
    reset(m, s);
}

/* ---- compressing ------------------------------------------------------------------------------------------------ */

/* As much of the text from `begin` on as the window takes; behind its last byte nothing is to be told. */
static void fill(const struct stream_model *m, struct stream_slot *s)
{
    const struct stream_coding *c = &s->coding;
    const uint32_t left = c->block->text_bytes - 1 - c->begin, room = m->window_size - s->length;
    const uint32_t n = left < room ? left : room;
    memcpy(s->window + s->length, c->block->text + c->begin, n);
    s->length += n;
}

void stream_coding_begin_encode(const struct stream_model *m, struct stream_slot *s, struct coding_block *b)
{
    begin(m, s, b);
    arithmetic_encoder_init(&s->coding.by.encoder, b->code, b->text_bytes - 1);
    if (!m->starts) {
        struct byte_frequencies even;
        byte_frequencies_even(&even);
        arithmetic_encode(&s->coding.by.encoder, &even, b->text[s->coding.coded++]);
    }
    fill(m, s);
}

static void end_encoding(struct stream_coding *c)
{
    struct coding_block *b = c->block;
    arithmetic_encoder_end(&c->by.encoder);
    b->is_stored = c->by.encoder.is_full;
    b->code_bytes = b->is_stored ? b->text_bytes : (uint32_t)c->by.encoder.size;
    if (b->is_stored)
        memcpy(b->code, b->text, b->text_bytes);
}

/* The window is used up. */
static void next_window(const struct stream_model *m, struct stream_slot *s)
{
    struct stream_coding *c = &s->coding;
    if (is_limited(m)) {
        reset(m, s);
        c->begin = overlap_begin(m, c);
    } else {
        s->fed = s->length = 0;
        c->first = 0;
        c->begin = c->coded - 1;
    }
    fill(m, s);
}

bool stream_coding_encode(const struct stream_model *m, struct stream_slot *s, const float *logits, uint32_t count)
{
    struct stream_coding *c = &s->coding;
    for (uint32_t i = 0; i < count; i++) {
        struct byte_frequencies f;
        const uint32_t told = c->begin + s->fed - count + i + 1 - c->first; /* the byte that these logits tell */
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
    if (s->fed == s->length)
        next_window(m, s);
    return false;
}

/* ---- restoring -------------------------------------------------------------------------------------------------- */

void stream_coding_begin_decode(const struct stream_model *m, struct stream_slot *s, struct coding_block *b)
{
    begin(m, s, b);
    arithmetic_decoder_init(&s->coding.by.decoder, b->code, b->code_bytes);
    if (!m->starts) {
        struct byte_frequencies even;
        byte_frequencies_even(&even);
        b->text[0] = arithmetic_decode(&s->coding.by.decoder, &even);
        s->coding.coded = 1;
        s->window[s->length++] = b->text[0];
    }
}

uint8_t stream_coding_decode(struct stream_slot *s, const float *logits)
{
    struct stream_coding *c = &s->coding;
    struct byte_frequencies f;
    byte_frequencies_of(&f, logits);
    const uint8_t byte = arithmetic_decode(&c->by.decoder, &f);
    c->block->text[c->coded++] = byte;
    return byte;
}

bool stream_coding_go_on(const struct stream_model *m, struct stream_slot *s)
{
    struct stream_coding *c = &s->coding;
    if (c->coded == c->block->text_bytes)
        return true;
    if (s->length < m->window_size) {
        s->window[s->length++] = c->block->text[c->coded - 1];
    } else if (is_limited(m)) {
        reset(m, s);
        const uint32_t from = overlap_begin(m, c);
        memcpy(s->window + s->length, c->block->text + from, c->coded - from);
        s->length += c->coded - from;
    } else {
        s->window[0] = c->block->text[c->coded - 1];
        s->fed = 0;
        s->length = 1;
    }
    return false;
}
