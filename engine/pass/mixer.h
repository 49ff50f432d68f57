/* mixer.h - what a token mixer provides. One file in mixers/ for each, or for those that differ in their biases alone,
 * and its row in weights/mixers.h, which has what the model format knows of it. A mixer reads q, k and v from the
 * activations' qkv rows, which it may overwrite, and leaves its output, before the out projection, in h. */
#ifndef ENGINE_PASS_MIXER_H
#define ENGINE_PASS_MIXER_H

#include "engine/core/team.h"
#include "engine/core/types.h"
#include "engine/pass/block.h"
#include "engine/pass/stream_state.h"

/* Rows of one stream in a pass: consecutive and in order. */
struct stream_part {
    float *state;          /* [depth] of layer_floats: the stream's, of every layer */
    uint32_t first, count; /* rows of the pass */
    uint32_t position;     /* of the first row */
};

struct stream_pass {
    const struct stream_part *parts;
    size_t part_count;
};

/* A pass over whole sequences of one length: sequence i has the rows i * tokens .. */
struct sequence_pass {
    size_t sequences;
    uint32_t tokens;
    uint32_t height, width; /* of a picture without class token: its grid, height * width = tokens; else 1, tokens */
};

/* Intermediate results of a mixer over sequences; one set serves every layer. */
struct mixer_scratch {
    float *rows[4]; /* of every row; what each holds is the mixer's matter */
    float *threads; /* [threads, thread_floats] */
    size_t thread_floats;
};

struct mixer {
    /* What it keeps of a block, b->mixing: that many bytes, zeroed; then note the memory of the constants in it, and
     * compute them from the model's weights. NULL: it has none. */
    size_t block_bytes;
    void (*plan)(struct block *b, struct workspace *w, const struct engine_core *e, const struct block_weights *bw);
    void (*pack)(struct block *b, const struct engine_core *e, const struct block_weights *bw);

    /* The causal, recurrent form, or NULL: floats of one stream's state for one layer; then mix the rows of a pass
     * (team). */
    size_t (*layer_floats)(const struct engine_core *e);
    void (*mix_streams)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                        const struct stream_pass *pass);
    /* The same by the calling thread alone, or NULL. The same bits. */
    void (*mix_parts)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                      const struct stream_pass *pass);
    /* Walk over the parts of a layer's state that are in use at `position` > 0, always in the same order: to save and
     * to copy it. `state`: the layer's. Present wherever there is a recurrent form. */
    void (*walk_state)(const struct engine_core *e, uint32_t layer, float *state, uint32_t position,
                       struct state_walk *w);

    /* The parallel form, every token seeing all: note scratch memory for `rows` rows of sequences of at most `tokens`;
     * then mix (team). */
    void (*plan_scratch)(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens);
    void (*mix_sequences)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass);
    /* The same for one sequence by the calling thread alone, where `a` begins with its rows, or NULL. s has room for a
     * sequence of each thread. The same bits. */
    void (*mix_alone)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                      const struct mixer_scratch *s, const struct sequence_pass *pass);

    /* Multiply-adds of mixing in a block, once planned, except for what is done once per channel: of a pass or, causal
     * and with `pass` NULL, of the last step of the context. */
    uint64_t (*macs)(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass);

    /* The learnt position biases as tiles to look at: the tiles' shape; then one of them from what was packed, as
     * engine_biases_read (engine.h), which has checked layer and head. Any thread. NULL: it has none. */
    struct engine_biases (*biases_shape)(const struct engine_core *e);
    void (*read_biases)(const struct engine_core *e, uint32_t layer, uint32_t head, float *out);
    /* For maps of keys that are vectors (engine_batch_want_map): what the mixer divides a channel's keys by, k [tokens]
     * at `stride`. NULL: by nothing. */
    float (*key_norm)(const struct engine_core *e, const float *k, size_t tokens, size_t stride);
};

/* MIXER(name) = {...}: a file in mixers/ is compiled for each instruction set (engine/kernels/simd.h), and its mixer
 * is in that set's table. */
#define MIXER(name)                                 \
    extern const struct mixer KERNEL(mixer_##name); \
    const struct mixer KERNEL(mixer_##name)

/* The calling thread's part of the scratch. */
static inline float *mixer_thread_scratch(const struct mixer_scratch *s)
{
    return s->threads + team_thread() * s->thread_floats;
}

#endif
