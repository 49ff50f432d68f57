/* mixers.h - the one list of token mixers, with a row for each: what the model format knows of it. What it computes is
 * in engine/mixers/NAME.c, as its MIXER(NAME) (engine/pass/mixer.h): a mixer is such a file and a row here. Those that
 * differ in their biases alone share a file. Constants; any thread. */
#ifndef WEIGHTS_MIXERS_H
#define WEIGHTS_MIXERS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "weights/extents.h"

/* ---- the keys of `mixer` in config.json ------------------------------------------------------------------------- */

/* Every key besides `type`; mixers whose rows below name it have it. Its constant, its name here and in struct
 * mixer_config, and, by kind:
 *   INTEGER: the least and the largest value. Required; 0 for other mixers.
 *   SIDES:   the largest values of pictures; the least are 1. Required: {kh, kw} of pictures, {1, K} of sequences,
 *            where K is at most MODEL_CONTEXT_MAX; {1, 1} for other mixers.
 *   BOOLEAN: its value where it is not given, and for other mixers.
 *   WORD:    its enum, the words of which model_config.c has, and the same value.
 *
 * window: s, nearer positions have biases; 0 is aft-simple, and taken as such. heads: h, a divisor of d. query_gate:
 * sigmoid(q) in front. global: positions beyond the window or kernel count with w = 0. share_value_query: the value is
 * the query, without a projection of its own. scale: divided by sqrt(T). norm: of each channel of q and k over the
 * tokens. */
#define MIXER_OPTIONS(INTEGER, SIDES, BOOLEAN, WORD)     \
    INTEGER(WINDOW, window, 0, MODEL_CONTEXT_MAX)        \
    INTEGER(HEADS, heads, 1, MODEL_DIM_MAX)              \
    SIDES(KERNEL, kernel, MODEL_KERNEL_MAX)              \
    BOOLEAN(QUERY_GATE, query_gate, true)                \
    BOOLEAN(GLOBAL, global, true)                        \
    BOOLEAN(SHARE_VALUE_QUERY, share_value_query, false) \
    BOOLEAN(SCALE, scale, true)                          \
    WORD(NORM, norm, mixer_norm, NORM_L1)

enum mixer_norm { NORM_L1, NORM_L2, NORM_NONE };

enum mixer_option_number {
#define X(constant, ...) OPTION_NUMBER_##constant,
    MIXER_OPTIONS(X, X, X, X)
#undef X
};

/* Sets of them. */
enum mixer_option {
#define X(constant, ...) OPTION_##constant = 1 << OPTION_NUMBER_##constant,
    MIXER_OPTIONS(X, X, X, X)
#undef X
};

/* ---- what differs by mixer -------------------------------------------------------------------------------------- */

/* What a token's key is. */
enum mixer_keys {
    KEYS_ARE_VECTORS, /* d numbers, of which each head has d / h */
    KEYS_PER_CHANNEL, /* AFT: a number for each channel that weighs the token there */
    KEYS_PER_HEAD     /* the same for each head */
};

/* The learnt position biases. */
enum mixer_biases {
    BIASES_NONE,
    BIASES_PER_OFFSET, /* a kernel for each head: mixer.conv.weight, re-parameterised by mixer.conv.gain and .bias */
    BIASES_PER_PAIR    /* for two positions nearer than the window: mixer.pos_u and mixer.pos_v, or mixer.pos_bias */
};

/* The causal form. */
enum mixer_streams {
    STREAMS_NONE,       /* it has none: for classifiers only */
    STREAMS_GROWING,    /* a step reads all elements before it, so its cost grows with their number; at most T */
    STREAMS_TO_CONTEXT, /* a step costs the same anywhere; at most T elements, because what is learnt ends at T */
    STREAMS_ENDLESS     /* a step costs the same anywhere, and nothing learnt depends on the position */
};

#define MIXER_TENSORS_MAX 4
#define MIXER_TENSOR_RANK_MAX 3

/* A tensor of each block: mixer.NAME, required. */
struct mixer_tensor {
    const char *name;
    uint32_t rank;
    enum extent shape[MIXER_TENSOR_RANK_MAX];
};

struct mixer_facts {
    const char *word; /* in config.json: "aft-conv" */
    unsigned options; /* its keys there: a set of enum mixer_option */
    enum mixer_keys keys;
    enum mixer_biases biases;
    enum mixer_streams streams;
    bool bare; /* no projection after it: there is no mixer.out */
    /* What it has besides the projections and biases; their floats are block_weights.own, in this order. */
    struct mixer_tensor tensors[MIXER_TENSORS_MAX];
};

/* ---- the list --------------------------------------------------------------------------------------------------- */

#define AFT_OPTIONS (OPTION_QUERY_GATE | OPTION_GLOBAL)

/* constant, name in C, word, those other facts that are not 0 */
#define MIXERS(X)                                                                                                   \
    X(AFT_FULL, aft, "aft-full", .options = AFT_OPTIONS, .keys = KEYS_PER_CHANNEL, .biases = BIASES_PER_PAIR,       \
      .streams = STREAMS_GROWING)                                                                                   \
    X(AFT_LOCAL, aft, "aft-local", .options = AFT_OPTIONS | OPTION_WINDOW, .keys = KEYS_PER_CHANNEL,                \
      .biases = BIASES_PER_PAIR, .streams = STREAMS_TO_CONTEXT)                                                     \
    X(AFT_SIMPLE, aft, "aft-simple", .options = AFT_OPTIONS, .keys = KEYS_PER_CHANNEL, .streams = STREAMS_ENDLESS)  \
    X(AFT_CONV, aft_conv, "aft-conv", .options = AFT_OPTIONS | OPTION_HEADS | OPTION_KERNEL, .keys = KEYS_PER_HEAD, \
      .biases = BIASES_PER_OFFSET, .streams = STREAMS_ENDLESS)                                                      \
    X(ATTENTION, attention, "attention", .options = OPTION_HEADS, .streams = STREAMS_GROWING)                       \
    X(SIMA, sima, "sima", .options = OPTION_HEADS | OPTION_NORM)                                                    \
    X(SIMPLE_ATTENTION, simple_attention, "simple-attention", .options = OPTION_HEADS | OPTION_SCALE, .bare = true) \
    X(FASTFORMER, fastformer, "fastformer", .options = OPTION_HEADS | OPTION_SHARE_VALUE_QUERY,                     \
      .tensors = {{"query_score", 2, {EXTENT_HEADS, EXTENT_HEAD_WIDTH}},                                            \
                  {"key_score", 2, {EXTENT_HEADS, EXTENT_HEAD_WIDTH}}})

#define X(constant, ...) MIXER_##constant,
enum mixer_type { MIXERS(X) MIXER_COUNT };
#undef X

/* ---- what a config.json says about its mixer -------------------------------------------------------------------- */

struct mixer_config {
    enum mixer_type type;
#define INTEGER(constant, field, least, most) uint32_t field;
#define SIDES(constant, field, most) uint32_t field[2];
#define BOOLEAN(constant, field, otherwise) bool field;
#define WORD(constant, field, type, otherwise) enum type field;
    MIXER_OPTIONS(INTEGER, SIDES, BOOLEAN, WORD)
#undef INTEGER
#undef SIDES
#undef BOOLEAN
#undef WORD
};

const struct mixer_facts *mixer_facts(enum mixer_type type);
/* Do mixers of this type have that key? */
bool mixer_has(enum mixer_type type, enum mixer_option option);
/* The word in config.json: "aft-conv", ... */
const char *mixer_type_name(enum mixer_type type);

#endif
