/* fuzz_model_config.c - a config.json of any bytes is refused with a reason, or every number of it is in its bounds. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "weights/model_config.h"

static bool in_range(uint64_t value, uint64_t max)
{
    return value >= 1 && value <= max;
}

static void check_warning(void *arg, const char *message)
{
    (void)arg;
    fuzz_check(message[0] != '\0', "a warning says something");
    fuzz_check_utf8(message, strlen(message));
}

static void check_picture(const struct model_config *c)
{
    for (size_t i = 0; i < 2; i++) {
        fuzz_check(in_range(c->size[i], MODEL_PICTURE_SIDE_MAX), "input.size is in its bounds");
        fuzz_check(c->patch[i] > 0 && c->size[i] % c->patch[i] == 0, "patches tile the picture");
    }
    fuzz_check((uint64_t)(c->size[0] / c->patch[0]) * (c->size[1] / c->patch[1]) <= MODEL_TOKENS_MAX,
               "a picture has a bounded number of patches");
    fuzz_check(in_range(c->resize_to, MODEL_PICTURE_SIDE_MAX), "input.resize_to is in its bounds");
    for (size_t i = 0; i < 3; i++)
        fuzz_check(c->std[i] > 0.0f && c->mean[i] - c->mean[i] == 0.0f, "pixels can be scaled");
}

static void check_chat(const struct chat_template *t)
{
    const struct chat_message message = {CHAT_USER, (const uint8_t *)"x", 1};
    for (int role = 0; role < CHAT_ROLES; role++)
        fuzz_check(strlen(t->roles[role]) <= MODEL_CHAT_TEXT_MAX && strstr(t->roles[role], "{content}") != NULL,
                   "a role's text is short, and has a place for the content");
    fuzz_check(in_range(t->stop_count, MODEL_CHAT_STOPS_MAX), "stop strings are few, and some");
    for (uint32_t i = 0; i < t->stop_count; i++)
        fuzz_check(in_range(strlen(t->stops[i]), GENERATE_STOP_BYTES_MAX), "stop strings are short");
    fuzz_check(chat_template_write(t, &message, 1, NULL) ==
                   strlen(t->roles[CHAT_USER]) - strlen("{content}") + 1 + strlen(t->reply),
               "a prompt is as long as its parts");
}

static void check_config(const struct model_config *c)
{
    fuzz_check(in_range(c->dim, MODEL_DIM_MAX) && in_range(c->depth, MODEL_DEPTH_MAX) &&
                   in_range(c->hidden, MODEL_HIDDEN_MAX),
               "dim, depth and the hidden width are in their bounds");
    fuzz_check(c->hidden % c->dim == 0, "the hidden width is a multiple of dim");
    fuzz_check(c->norm_eps > 0.0f && c->norm_eps <= 1.0f, "norm_eps is in its bounds");
    fuzz_check(c->mixer.heads == 0 || c->dim % c->mixer.heads == 0, "heads divide dim");
    fuzz_check(in_range(c->mixer.kernel[0], MODEL_KERNEL_MAX) &&
                   in_range(c->mixer.kernel[1], c->input == INPUT_IMAGE ? MODEL_KERNEL_MAX : MODEL_CONTEXT_MAX),
               "the kernel is in its bounds");
    fuzz_check(c->mixer.type != MIXER_AFT_LOCAL || in_range(c->mixer.window, MODEL_CONTEXT_MAX),
               "the window is in its bounds");
    fuzz_check(c->input == INPUT_IMAGE || in_range(c->context, MODEL_CONTEXT_MAX), "the context is in its bounds");
    fuzz_check((c->classes > 0) == (c->labels != NULL) && c->classes <= MODEL_CLASSES_MAX,
               "labels are there if they are counted");
    for (uint32_t i = 0; i < c->classes; i++) {
        fuzz_check(strlen(c->labels[i]) <= MODEL_LABEL_MAX, "labels are short");
        fuzz_check_utf8(c->labels[i], strlen(c->labels[i]));
    }
    if (c->input == INPUT_IMAGE)
        check_picture(c);
    if (chat_template_exists(&c->chat))
        check_chat(&c->chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_FORMAT};
    struct model_config c;
    struct error err = {.message = ""};

    const enum status st = model_config_read(&c, fuzz_file(data, size), check_warning, NULL, &err);
    if (st != OK) {
        fuzz_check_error(st, &err, allowed, 1);
        return 0;
    }
    check_config(&c);
    model_config_clear(&c);
    return 0;
}
