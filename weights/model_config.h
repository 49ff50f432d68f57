/* model_config.h - config.json of a model directory as a struct. Everything that weights/FORMAT.md names is parsed
 * and checked here, for every task and mixer; whether the engine can run it is the engine's business. */
#ifndef WEIGHTS_MODEL_CONFIG_H
#define WEIGHTS_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "weights/chat_template.h"
#include "weights/mixers.h"

enum model_task { TASK_IMAGE_CLASSIFICATION, TASK_TEXT_GENERATION, TASK_TEXT_CLASSIFICATION, TASK_IMAGE_GENERATION };
enum model_input { INPUT_IMAGE, INPUT_BYTES, INPUT_PIXELS };
enum activation { ACTIVATION_GELU, ACTIVATION_GELU_TANH, ACTIVATION_RELU };
enum pooling { POOLING_MEAN, POOLING_CLASS_TOKEN, POOLING_ATTENTION };
enum interpolation { INTERPOLATION_BICUBIC, INTERPOLATION_BILINEAR };

struct model_config {
    enum model_task task;
    uint32_t dim;    /* d */
    uint32_t depth;  /* L */
    uint32_t hidden; /* mlp_ratio * d */
    enum activation activation;
    float norm_eps;
    bool share_layers;
    struct mixer_config mixer;
    enum pooling pooling;
    char **labels;    /* [classes], each NUL-terminated UTF-8; owned */
    uint32_t classes; /* 0 for generators */
    enum model_input input;
    uint32_t size[2];  /* images, pixels: {H, W} */
    uint32_t patch[2]; /* images: {ph, pw}; both divide size */
    float mean[3], std[3];
    uint32_t resize_to;
    enum interpolation interpolation;
    uint32_t context;          /* bytes, pixels: T */
    struct chat_template chat; /* text generation: if there is one (chat_template_exists); owned */
};

/* Called for each unknown key ("config.json: unknown key \"mixer.foo\" is ignored"). */
typedef void model_warning(void *arg, const char *message);

/* Parse `path`. *ret holds owned memory on OK: model_config_clear. Errors: ERR_IO, ERR_NOMEM, ERR_FORMAT naming
 * the key and what was expected. `warn` may be NULL. */
enum status model_config_read(struct model_config *ret, const char *path, model_warning *warn, void *arg,
                              struct error *err);
void model_config_clear(struct model_config *c); /* zeroed is fine */

/* Is the task causal, each element seeing only those before it? */
bool model_config_causal(const struct model_config *c);
/* Rows of the longest sequence that the mixers see: the patches and class token of a picture of the trained size, else
 * the context T. */
uint32_t model_config_tokens(const struct model_config *c);

/* Must pictures have the trained size? Yes with learnt positions, or with biases for pairs of positions. */
bool model_config_fixed_size(const struct model_config *c, bool pos_embed);
/* Do sequences end at the context T? No if positions are not learnt and biases go by distance or there are none. */
bool model_config_limited(const struct model_config *c, bool pos_embed);
/* Is it worth a second state to each stream to feed it ahead what it goes on from where its context ends? A text may go
 * on there, and a picture ends; a state that has all keys and values is many times as much, and a step costs the more
 * the longer the text is. */
bool model_config_feeds_ahead(const struct model_config *c, bool pos_embed);

/* Is a token's key one number for each head, or channel, that weighs it (AFT), rather than a vector? */
bool model_config_scalar_keys(const struct model_config *c);
/* How many numbers a token's key has: one for each head, or d. */
uint32_t model_config_keys(const struct model_config *c);
/* How many keys of a token can be told apart: one for each head or, without heads, for each of the d channels. */
uint32_t model_config_heads(const struct model_config *c);
/* Where pairs of positions have biases: pairs nearer than this. The window, or the number of tokens if that is less. */
uint32_t model_config_span(const struct model_config *c);

/* The words in config.json: "image-classification", ... */
const char *model_task_name(enum model_task task);

#endif
