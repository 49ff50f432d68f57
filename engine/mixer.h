/* mixer.h - what a token mixer provides. One file in mixers/ for each, one row in the table of engine.c.
 * A mixer reads q, k and v from the activations' qkv rows and leaves its output, before the out projection, in h. */
#ifndef ENGINE_MIXER_H
#define ENGINE_MIXER_H

#include "engine/block.h"

/* A pass over streams: row r is the byte at `position` of a stream, whose state for the layer is `state`. Rows of one
 * part are consecutive and in order. */
struct stream_part {
    float *state;          /* [depth] of layer_floats */
    uint32_t first, count; /* rows of the pass */
    uint32_t position;     /* of the first row */
};

struct stream_pass {
    const struct stream_part *parts;
    size_t part_count;
};

/* A pass over pictures: picture i has the rows i * tokens .. */
struct picture_pass {
    size_t pictures;
    uint32_t height, width; /* the token grid */
};

/* Intermediate results of a mixer over pictures; one set serves every layer. */
struct mixer_scratch {
    float *e, *den;  /* [rows, keys] */
    float *ev, *num; /* [rows, channels] */
    float *threads;  /* [threads, thread_floats] */
    size_t thread_floats;
};

struct mixer {
    enum mixer_type type;
    enum model_task task;

    /* Note the memory of the block's own constants, then compute them from the model's weights. */
    void (*plan)(struct block *b, struct workspace *w, const struct engine_core *e, const struct block_weights *bw);
    void (*pack)(struct block *b, const struct engine_core *e, const struct block_weights *bw);

    /* Generators: floats of one stream's state for one layer; then mix the rows of a pass (team). */
    size_t (*layer_floats)(const struct engine_core *e);
    void (*mix_streams)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                        const struct stream_pass *pass);

    /* Classifiers: note scratch memory for `rows` rows of pictures of at most `tokens` patches; then mix (team). */
    void (*plan_scratch)(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens);
    void (*mix_pictures)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                         const struct mixer_scratch *s, const struct picture_pass *pass);
};

extern const struct mixer mixer_aft_conv, mixer_aft_local;

#endif
