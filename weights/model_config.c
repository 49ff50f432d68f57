/* model_config.c - config.json by weights/FORMAT.md: one table of keys for each of its three objects, then the checks
 * that need more than one key. Any thread; no state. */
#include "weights/model_config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "weights/keys.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define BIT(value) (UINT32_C(1) << (value))

/* The enums are stored through KEY_WORD. */
_Static_assert(sizeof(enum model_task) == sizeof(unsigned) && sizeof(enum mixer_type) == sizeof(unsigned) &&
                   sizeof(enum model_input) == sizeof(unsigned) && sizeof(enum activation) == sizeof(unsigned) &&
                   sizeof(enum pooling) == sizeof(unsigned) && sizeof(enum interpolation) == sizeof(unsigned),
               "an enum is not stored as an unsigned number");
_Static_assert(MODEL_CONTEXT_MAX < 1000000 && MODEL_CLASSES_MAX < 1000000 && MODEL_HIDDEN_MAX < 1000000,
               "a message shows bounds with six digits");

static const char model_format[] = "aftd-model";
enum { MODEL_VERSION = 1, MLP_RATIO_DEFAULT = 4 };

/* ---- the format's words ----------------------------------------------------------------------------------------- */

static const char *const task_words[] = {
    [TASK_IMAGE_CLASSIFICATION] = "image-classification",
    [TASK_TEXT_GENERATION] = "text-generation",
    [TASK_TEXT_CLASSIFICATION] = "text-classification",
    [TASK_IMAGE_GENERATION] = "image-generation",
};
static const char *const mixer_words[] = {
#define X(constant, name, word, ...) [MIXER_##constant] = (word),
    MIXERS(X)
#undef X
};
static const char *const input_words[] = {
    [INPUT_IMAGE] = "image",
    [INPUT_BYTES] = "bytes",
    [INPUT_PIXELS] = "pixels",
};
static const char *const activation_words[] = {
    [ACTIVATION_GELU] = "gelu",
    [ACTIVATION_GELU_TANH] = "gelu_tanh",
    [ACTIVATION_RELU] = "relu",
};
static const char *const pooling_words[] = {
    [POOLING_MEAN] = "mean",
    [POOLING_CLASS_TOKEN] = "class-token",
    [POOLING_ATTENTION] = "attention",
};
static const char *const mixer_norm_words[] = {
    [NORM_L1] = "l1",
    [NORM_L2] = "l2",
    [NORM_NONE] = "none",
};
static const char *const interpolation_words[] = {
    [INTERPOLATION_BICUBIC] = "bicubic",
    [INTERPOLATION_BILINEAR] = "bilinear",
};

/* What each task reads. */
static const enum model_input task_inputs[] = {
    [TASK_IMAGE_CLASSIFICATION] = INPUT_IMAGE,
    [TASK_TEXT_GENERATION] = INPUT_BYTES,
    [TASK_TEXT_CLASSIFICATION] = INPUT_BYTES,
    [TASK_IMAGE_GENERATION] = INPUT_PIXELS,
};

const char *model_task_name(enum model_task task)
{
    assert((size_t)task < LENGTH(task_words));
    return task_words[task];
}

bool model_config_causal(const struct model_config *c)
{
    return c->task == TASK_TEXT_GENERATION || c->task == TASK_IMAGE_GENERATION;
}

uint32_t model_config_tokens(const struct model_config *c)
{
    if (c->input != INPUT_IMAGE)
        return c->context;
    return c->size[0] / c->patch[0] * (c->size[1] / c->patch[1]) + (c->pooling == POOLING_CLASS_TOKEN ? 1 : 0);
}

bool model_config_fixed_size(const struct model_config *c, bool pos_embed)
{
    return pos_embed || mixer_facts(c->mixer.type)->biases == BIASES_PER_PAIR;
}

bool model_config_limited(const struct model_config *c, bool pos_embed)
{
    return pos_embed || mixer_facts(c->mixer.type)->streams != STREAMS_ENDLESS;
}

bool model_config_feeds_ahead(const struct model_config *c, bool pos_embed)
{
    return c->task == TASK_TEXT_GENERATION && model_config_limited(c, pos_embed) &&
           mixer_facts(c->mixer.type)->streams != STREAMS_GROWING;
}

bool model_config_scalar_keys(const struct model_config *c)
{
    return mixer_facts(c->mixer.type)->keys != KEYS_ARE_VECTORS;
}

uint32_t model_config_keys(const struct model_config *c)
{
    return mixer_facts(c->mixer.type)->keys == KEYS_PER_HEAD ? c->mixer.heads : c->dim;
}

uint32_t model_config_heads(const struct model_config *c)
{
    return c->mixer.heads != 0 ? c->mixer.heads : c->dim;
}

uint32_t model_config_span(const struct model_config *c)
{
    const uint32_t tokens = model_config_tokens(c);

    return mixer_has(c->mixer.type, OPTION_WINDOW) && c->mixer.window < tokens ? c->mixer.window : tokens;
}

/* ---- the tables ------------------------------------------------------------------------------------------------- */

#define CLASSIFIERS (BIT(TASK_IMAGE_CLASSIFICATION) | BIT(TASK_TEXT_CLASSIFICATION))
#define GENERATORS (BIT(TASK_TEXT_GENERATION) | BIT(TASK_IMAGE_GENERATION))
#define PICTURES BIT(TASK_IMAGE_CLASSIFICATION)
#define SEQUENCES (GENERATORS | BIT(TASK_TEXT_CLASSIFICATION))

static const struct mixer_config mixer_defaults = {
#define INTEGER(option, field, least, most) .field = 0,
#define SIDES(option, field, most) .field = {1, 1},
#define BOOLEAN(option, field, otherwise) .field = (otherwise),
#define WORD(option, field, type, otherwise) .field = (otherwise),
    MIXER_OPTIONS(INTEGER, SIDES, BOOLEAN, WORD)
#undef INTEGER
#undef SIDES
#undef BOOLEAN
#undef WORD
};

/* What the keys are read into: the config, and what is needed only to finish it. */
struct draft {
    struct model_config config;
    uint32_t mlp_ratio;
};

#define AT(field) .offset = offsetof(struct draft, field)
#define WORDS(list, field) .kind = KEY_WORD, .words = (list), .word_count = LENGTH(list), AT(config.field)
#define FLAG(field) .kind = KEY_FLAG, AT(config.field)
#define INTEGERS(field, n, low, high) .kind = KEY_INTEGER, .length = (n), .min = (low), .max = (high), AT(field)
#define NUMBERS(field, n, low, high) .kind = KEY_NUMBER, .length = (n), .min = (low), .max = (high), AT(config.field)
#define OBJECT(table) .kind = KEY_OBJECT, .keys = (table), .key_count = LENGTH(table)
#define REQUIRED .required = true

/* Where pictures have two sides, sequences have the second. */
#define WHERE(option) .options = OPTION_##option
#define PICTURES_SIDES(option, field, most) \
    {#field, INTEGERS(config.mixer.field, 2, 1, most), REQUIRED, .scalar = true, WHERE(option), .tasks = PICTURES},
#define SEQUENCES_SIDE(option, field, most) \
    {#field, INTEGERS(config.mixer.field[1], 1, 1, MODEL_CONTEXT_MAX), REQUIRED, WHERE(option), .tasks = SEQUENCES},

/* `type` comes first: the other rows apply by it. */
static const struct key mixer_keys[] = {{"type", WORDS(mixer_words, mixer.type), REQUIRED},
                                        {"factorised", .kind = KEY_IGNORED},
                                        {"reparameterised", .kind = KEY_IGNORED},
#define INTEGER(option, field, least, most) \
    {#field, INTEGERS(config.mixer.field, 1, least, most), REQUIRED, WHERE(option)},
#define SIDES(option, field, most) PICTURES_SIDES(option, field, most) SEQUENCES_SIDE(option, field, most)
#define BOOLEAN(option, field, otherwise) {#field, FLAG(mixer.field), WHERE(option)},
#define WORD(option, field, type, otherwise) {#field, WORDS(type##_words, mixer.field), WHERE(option)},
                                        MIXER_OPTIONS(INTEGER, SIDES, BOOLEAN, WORD)
#undef INTEGER
#undef SIDES
#undef BOOLEAN
#undef WORD
};

/* `kind` comes first. */
static const struct key input_keys[] = {
    {"kind", WORDS(input_words, input), REQUIRED},
    {"size", INTEGERS(config.size, 2, 1, MODEL_PICTURE_SIDE_MAX), REQUIRED,
     .inputs = BIT(INPUT_IMAGE) | BIT(INPUT_PIXELS)},
    {"patch", INTEGERS(config.patch, 2, 1, MODEL_PICTURE_SIDE_MAX), REQUIRED, .inputs = BIT(INPUT_IMAGE)},
    {"mean", NUMBERS(mean, 3, -MODEL_MEAN_MAX, MODEL_MEAN_MAX), REQUIRED, .inputs = BIT(INPUT_IMAGE)},
    {"std", NUMBERS(std, 3, MODEL_STD_MIN, MODEL_STD_MAX), REQUIRED, .inputs = BIT(INPUT_IMAGE)},
    {"resize_to", INTEGERS(config.resize_to, 1, 1, MODEL_PICTURE_SIDE_MAX), .inputs = BIT(INPUT_IMAGE)},
    {"interpolation", WORDS(interpolation_words, interpolation), .inputs = BIT(INPUT_IMAGE)},
    {"context", INTEGERS(config.context, 1, 1, MODEL_CONTEXT_MAX), REQUIRED,
     .inputs = BIT(INPUT_BYTES) | BIT(INPUT_PIXELS)},
};

#define TEXT(field) .kind = KEY_TEXT, .length = MODEL_CHAT_TEXT_MAX, AT(config.chat.field), REQUIRED

static const struct key chat_keys[] = {
    {"system", TEXT(roles[CHAT_SYSTEM])},
    {"user", TEXT(roles[CHAT_USER])},
    {"assistant", TEXT(roles[CHAT_ASSISTANT])},
    {"reply", TEXT(reply)},
    {"stop", .kind = KEY_TEXTS, .length = GENERATE_STOP_BYTES_MAX, .min = 1, .max = MODEL_CHAT_STOPS_MAX,
     AT(config.chat.stops), .count_offset = offsetof(struct draft, config.chat.stop_count), REQUIRED},
};

/* `task` comes before what depends on it; `format` and `version` are checked before the table. */
static const struct key model_keys[] = {
    {"format", .kind = KEY_IGNORED},
    {"version", .kind = KEY_IGNORED},
    {"task", WORDS(task_words, task), REQUIRED},
    {"dim", INTEGERS(config.dim, 1, 1, MODEL_DIM_MAX), REQUIRED},
    {"depth", INTEGERS(config.depth, 1, 1, MODEL_DEPTH_MAX), REQUIRED},
    {"mlp_ratio", INTEGERS(mlp_ratio, 1, 1, MODEL_HIDDEN_MAX)},
    {"activation", WORDS(activation_words, activation)},
    {"norm_eps", NUMBERS(norm_eps, 1, MODEL_NORM_EPS_MIN, MODEL_NORM_EPS_MAX)},
    {"share_layers", FLAG(share_layers)},
    {"mixer", OBJECT(mixer_keys), REQUIRED},
    {"pooling", WORDS(pooling_words, pooling), .tasks = CLASSIFIERS},
    {"labels", .kind = KEY_TEXTS, .length = MODEL_LABEL_MAX, .min = 1, .max = MODEL_CLASSES_MAX, AT(config.labels),
     .count_offset = offsetof(struct draft, config.classes), REQUIRED, .tasks = CLASSIFIERS},
    {"input", OBJECT(input_keys), REQUIRED},
    {"chat_template", OBJECT(chat_keys), .tasks = BIT(TASK_TEXT_GENERATION)},
};

static bool key_applies(const struct key *k, const void *base)
{
    const struct model_config *c = &((const struct draft *)base)->config;

    return (k->tasks == 0 || (k->tasks & BIT(c->task)) != 0) &&
           (k->options == 0 || (k->options & mixer_facts(c->mixer.type)->options) != 0) &&
           (k->inputs == 0 || (k->inputs & BIT(c->input)) != 0);
}

/* ---- checks that need more than one key ------------------------------------------------------------------------- */

static enum status check_format(json_t *root, const char *path, struct error *err)
{
    const json_t *format = json_object_get(root, "format"), *version = json_object_get(root, "version");
    const bool known = json_is_string(format) && strcmp(json_string_value(format), model_format) == 0 &&
                       json_is_integer(version) && json_integer_value(version) == MODEL_VERSION;

    if (known)
        return OK;
    return error_set_param(err, ERR_FORMAT, "format",
                           "%s: format is %s and version is %s, expected format \"%s\" and version %d", path,
                           format == NULL ? "missing" : json_describe(format).text,
                           version == NULL ? "missing" : json_describe(version).text, model_format, MODEL_VERSION);
}

static enum status check_heads_and_width(const struct draft *d, const char *path, struct error *err)
{
    const struct model_config *c = &d->config;
    const uint64_t hidden = (uint64_t)d->mlp_ratio * c->dim;

    if (hidden > MODEL_HIDDEN_MAX)
        return error_set_param(err, ERR_FORMAT, "mlp_ratio",
                               "%s: mlp_ratio %u times dim %u is too large, expected at most %d hidden units", path,
                               d->mlp_ratio, c->dim, MODEL_HIDDEN_MAX);
    if (c->mixer.heads != 0 && c->dim % c->mixer.heads != 0)
        return error_set_param(err, ERR_FORMAT, "mixer.heads", "%s: mixer.heads is %u, expected a divisor of dim %u",
                               path, c->mixer.heads, c->dim);
    return OK;
}

/* A window of 0 leaves aft-local no biases, which is aft-simple (Zhai et al. 2021, table 5). */
static enum status settle_window(struct model_config *c, const char *path, struct error *err)
{
    if (c->mixer.type != MIXER_AFT_LOCAL || c->mixer.window != 0)
        return OK;
    if (!c->mixer.global)
        return error_set_param(err, ERR_FORMAT, "mixer.window",
                               "%s: mixer.window is 0, expected at least 1 where mixer.global is false: no position "
                               "would count",
                               path);
    c->mixer.type = MIXER_AFT_SIMPLE;
    return OK;
}

static enum status check_task(const struct model_config *c, json_t *root, const char *path, struct error *err)
{
    const uint32_t task = BIT(c->task);

    if (c->input != task_inputs[c->task])
        return error_set_param(err, ERR_FORMAT, "input.kind",
                               "%s: input.kind is \"%s\", expected \"%s\" for the task %s", path, input_words[c->input],
                               input_words[task_inputs[c->task]], task_words[c->task]);
    if ((task & GENERATORS) != 0 && mixer_facts(c->mixer.type)->streams == STREAMS_NONE)
        return error_set_param(err, ERR_FORMAT, "mixer.type",
                               "%s: mixer.type is \"%s\", which has no causal form: it cannot serve the task %s", path,
                               mixer_words[c->mixer.type], task_words[c->task]);
    if ((task & GENERATORS) != 0 && json_object_get(root, "labels") != NULL)
        return error_set_param(err, ERR_FORMAT, "labels", "%s: labels are for classifiers, but the task is %s", path,
                               task_words[c->task]);
    return OK;
}

static enum status check_picture(const struct model_config *c, const char *path, struct error *err)
{
    static const char *const sides[] = {"height", "width"};

    for (size_t i = 0; i < 2; i++) {
        if (c->size[i] % c->patch[i] != 0)
            return error_set_param(err, ERR_FORMAT, "input.patch",
                                   "%s: input.patch has %s %u, expected a divisor of input.size's %u", path, sides[i],
                                   c->patch[i], c->size[i]);
    }
    const uint64_t tokens = (uint64_t)(c->size[0] / c->patch[0]) * (c->size[1] / c->patch[1]);
    if (tokens > MODEL_TOKENS_MAX)
        return error_set_param(err, ERR_FORMAT, "input.patch",
                               "%s: input.size [%u, %u] in patches of [%u, %u] has too many patches, expected "
                               "at most %d",
                               path, c->size[0], c->size[1], c->patch[0], c->patch[1], MODEL_TOKENS_MAX);
    if (mixer_has(c->mixer.type, OPTION_KERNEL) && c->pooling == POOLING_CLASS_TOKEN)
        return error_set_param(
            err, ERR_FORMAT, "pooling",
            "%s: pooling is \"class-token\", expected \"mean\" or \"attention\": a class token has no place in the "
            "grid that %s works on",
            path, mixer_words[c->mixer.type]);
    return OK;
}

/* ---- public ----------------------------------------------------------------------------------------------------- */

static enum status read_draft(struct draft *d, json_t *root, const struct key_reader *r, struct error *err)
{
    struct model_config *c = &d->config;

    enum status st = check_format(root, r->path, err);
    if (st == OK)
        st = keys_read(r, root, "", model_keys, LENGTH(model_keys), err);
    if (st == OK)
        st = check_task(c, root, r->path, err);
    if (st == OK)
        st = check_heads_and_width(d, r->path, err);
    if (st == OK)
        st = settle_window(c, r->path, err);
    if (st == OK && c->input == INPUT_IMAGE)
        st = check_picture(c, r->path, err);
    if (st == OK && chat_template_exists(&c->chat))
        st = chat_template_check(&c->chat, r->path, err);
    if (st != OK)
        return st;
    c->hidden = d->mlp_ratio * c->dim;
    if (c->input != INPUT_BYTES && c->resize_to == 0)
        c->resize_to = c->size[0] < c->size[1] ? c->size[0] : c->size[1];
    return OK;
}

enum status model_config_read(struct model_config *ret, const char *path, model_warning *warn, void *arg,
                              struct error *err)
{
    json_t *root = NULL;
    struct draft d = {
        .config = {.norm_eps = 1e-5f, .mixer = mixer_defaults},
        .mlp_ratio = MLP_RATIO_DEFAULT,
    };
    const struct key_reader r = {.path = path, .base = &d, .applies = key_applies, .warn = warn, .arg = arg};

    enum status st = json_read_object(&root, path, CONFIG_JSON_MAX, err);
    if (st == OK)
        st = read_draft(&d, root, &r, err);
    if (st == OK) {
        *ret = d.config;
        d.config = (struct model_config){.labels = NULL}; /* its texts are the caller's now */
    }
    model_config_clear(&d.config);
    json_decref(root);
    return st;
}

void model_config_clear(struct model_config *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; c->labels != NULL && i < c->classes; i++)
        free(c->labels[i]);
    free(c->labels);
    chat_template_clear(&c->chat);
    *c = (struct model_config){.labels = NULL};
}
