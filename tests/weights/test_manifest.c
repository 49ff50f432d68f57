/* test_manifest.c - tensors that are missing, misshapen, left over or of the wrong kind are refused with their name
 * and what was expected. A row changes one good model in one place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/temp_dir.h"
#include "weights/model.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char folder[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(folder);
    return 0;
}

static float zeros[300 * 300];

enum change { DROP, SHAPE }; /* SHAPE sets or adds a tensor of zeros */
static const char conv[] = "tests/data/golden/conv-heads8-k5", local[] = "tests/data/golden/lm-local-8",
                  plain[] = "tests/data/golden/lm-local-plain-bias",
                  class_token[] = "tests/data/golden/image-aft-full-class-token",
                  shared_value[] = "tests/data/golden/text-fastformer",
                  own_value[] = "tests/data/golden/text-fastformer-own-value",
                  simple[] = "tests/data/golden/text-simple-attention",
                  pooled[] = "tests/data/golden/image-conv-pooled-by-attention";

static const struct {
    const char *source;
    enum change change;
    const char *tensor;
    uint64_t rows, columns; /* columns 0: rank 1 */
    const char *piece;
} cases[] = {
    {conv, DROP, "patch_embed.weight", 0, 0,
     "patch_embed.weight is missing, expected shape [32, 3, 4, 4] (dim, colours, patch height, patch width)"},
    {conv, DROP, "norm.weight", 0, 0, "norm.weight is missing, expected shape [32] (dim)"},
    {conv, DROP, "norm.bias", 0, 0, "norm.bias is missing"},
    {conv, DROP, "head.weight", 0, 0, "head.weight is missing, expected shape [7, 32] (classes, dim)"},
    {conv, DROP, "blocks.1.norm2.bias", 0, 0, "blocks.1.norm2.bias is missing"},
    {conv, DROP, "blocks.1.mixer.k.weight", 0, 0,
     "blocks.1.mixer.k.weight is missing, expected shape [8, 32] (heads, dim)"},
    {conv, DROP, "blocks.0.mixer.conv.weight", 0, 0,
     "blocks.0.mixer.conv.weight is missing, expected shape [8, 5, 5] (heads, kernel height, kernel width)"},
    {conv, DROP, "blocks.1.mixer.conv.gain", 0, 0,
     "blocks.1.mixer.conv.gain is missing, expected together with blocks.1.mixer.conv.bias"},
    {conv, DROP, "blocks.0.mixer.conv.bias", 0, 0,
     "blocks.0.mixer.conv.bias is missing, expected together with blocks.0.mixer.conv.gain"},
    {conv, DROP, "blocks.0.mlp.fc1.weight", 0, 0,
     "blocks.0.mlp.fc1.weight is missing, expected shape [128, 32] (hidden, dim)"},
    {conv, SHAPE, "blocks.1.mixer.k.weight", 32, 32,
     "blocks.1.mixer.k.weight has shape [32, 32], expected [8, 32] (heads, dim)"},
    {conv, SHAPE, "blocks.0.mixer.q.bias", 8, 0, "blocks.0.mixer.q.bias has shape [8], expected [32] (dim)"},
    {conv, SHAPE, "blocks.0.mixer.conv.weight", 8, 25,
     "blocks.0.mixer.conv.weight has shape [8, 25], expected [8, 5, 5]"},
    {conv, SHAPE, "blocks.0.mixer.conv.gain", 8, 1, "blocks.0.mixer.conv.gain has shape [8, 1], expected [8] (heads)"},
    {conv, SHAPE, "head.weight", 32, 7, "head.weight has shape [32, 7], expected [7, 32] (classes, dim)"},
    {conv, SHAPE, "head.bias", 0, 0, "head.bias has shape [0], expected [7] (classes)"},
    {conv, SHAPE, "pos_embed", 65, 32, "pos_embed has shape [65, 32], expected [64, 32] (tokens, dim)"},
    {conv, SHAPE, "cls_token", 32, 0,
     "cls_token is left over: no such tensor is expected for image-classification with aft-conv, 2 blocks"},
    {conv, SHAPE, "blocks.2.norm1.weight", 32, 0, "blocks.2.norm1.weight is left over"},
    {conv, SHAPE, "blocks.00.norm1.weight", 32, 0, "blocks.00.norm1.weight is left over"},
    {conv, SHAPE, "blocks.0.mixer.pos_u", 64, 8, "blocks.0.mixer.pos_u is left over"},
    {conv, SHAPE, "", 1, 0, " is left over"},
    {local, DROP, "tok_embed", 0, 0, "tok_embed is missing, expected shape [256, 32] (byte values, dim)"},
    {local, DROP, "head.weight", 0, 0, "head.weight is missing, expected shape [256, 32] (byte values, dim)"},
    {local, DROP, "blocks.0.mixer.pos_u", 0, 0,
     "blocks.0.mixer.pos_u is missing, expected together with blocks.0.mixer.pos_v"},
    {local, DROP, "blocks.1.mixer.pos_v", 0, 0,
     "blocks.1.mixer.pos_v is missing, expected together with blocks.1.mixer.pos_u"},
    {local, SHAPE, "blocks.0.mixer.pos_u", 48, 9,
     "blocks.0.mixer.pos_v has shape [48, 8], expected [48, 9] (tokens, d')"},
    {local, SHAPE, "blocks.1.mixer.pos_v", 47, 8,
     "blocks.1.mixer.pos_v has shape [47, 8], expected [48, 8] (tokens, d')"},
    {local, SHAPE, "blocks.0.mixer.pos_u", 48, 0,
     "blocks.0.mixer.pos_u has shape [48], expected [48, d'] (tokens, d')"},
    {local, SHAPE, "blocks.0.mixer.pos_bias", 48, 48,
     "blocks.0.mixer.pos_bias is given together with blocks.0.mixer.pos_u"},
    {local, SHAPE, "start_embed", 31, 0, "start_embed has shape [31], expected [32] (dim)"},
    {class_token, DROP, "cls_token", 0, 0, "cls_token is missing, expected shape [32] (dim)"},
    {class_token, SHAPE, "pos_embed", 64, 32, "pos_embed has shape [64, 32], expected [65, 32] (tokens, dim)"},
    {pooled, DROP, "pool_score", 0, 0, "pool_score is missing, expected shape [24] (dim)"},
    {conv, SHAPE, "pool_score", 32, 0, "pool_score is left over"},
    {shared_value, SHAPE, "blocks.0.mixer.v.weight", 32, 32, "blocks.0.mixer.v.weight is left over"},
    {own_value, DROP, "blocks.0.mixer.v.weight", 0, 0,
     "blocks.0.mixer.v.weight is missing, expected shape [32, 32] (dim, dim)"},
    {own_value, SHAPE, "blocks.0.mixer.query_score", 8, 4,
     "blocks.0.mixer.query_score has shape [8, 4], expected [4, 8] (heads, dim / heads)"},
    {simple, SHAPE, "blocks.0.mixer.out.weight", 32, 32, "blocks.0.mixer.out.weight is left over"},
    {local, SHAPE, "patch_embed.weight", 32, 48, "patch_embed.weight is left over"},
    {local, SHAPE, "pos_embed", 48, 31, "pos_embed has shape [48, 31], expected [48, 32] (tokens, dim)"},
    {plain, DROP, "blocks.1.mixer.pos_bias", 0, 0,
     "blocks.1.mixer.pos_u is missing, expected pos_u and pos_v or pos_bias"},
    {plain, SHAPE, "blocks.0.mixer.pos_bias", 48, 47,
     "blocks.0.mixer.pos_bias has shape [48, 47], expected [48, 48] (tokens, tokens)"},
    {plain, SHAPE, "blocks.0.mixer.pos_v", 48, 8,
     "blocks.0.mixer.pos_bias is given together with blocks.0.mixer.pos_v"},
};

static void expect_refusal(const char *piece)
{
    struct model *m = NULL;
    struct error err = {.message = ""};
    const enum status st = model_load(&m, folder, NULL, NULL, &err);

    if (st != ERR_FORMAT || strstr(err.message, piece) == NULL || strstr(err.message, folder) == NULL)
        fail_msg("%s \"%s\", expected \"%s\"", status_name(st), err.message, piece);
    if (strstr(err.message, err.param) == NULL)
        fail_msg("\"%s\" is said to be about \"%s\"", err.message, err.param);
}

static void tensors_that_do_not_fit_the_config_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct model_copy c;
        model_copy_read(&c, cases[i].source);
        if (cases[i].change == DROP)
            model_copy_drop(&c, cases[i].tensor);
        else
            model_copy_set(&c, cases[i].tensor, zeros, cases[i].rows, cases[i].columns);
        model_copy_write(&c, folder);
        expect_refusal(cases[i].piece);
        model_copy_clear(&c);
    }
}

static void several_left_over_tensors_are_counted(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, conv);
    model_copy_set(&c, "extra.a", zeros, 1, 0);
    model_copy_set(&c, "extra.b", zeros, 1, 0);
    model_copy_set(&c, "extra.c", zeros, 1, 0);
    model_copy_write(&c, folder);
    expect_refusal("extra.a is left over (and 2 more)");
    model_copy_clear(&c);
}

static void bytes_and_nans_are_no_weights(void **state)
{
    static const uint8_t nan_at_2[4 * 32] = {[8] = 0x00, [10] = 0xC0, [11] = 0x7F};
    struct model_copy c;

    (void)state;
    model_copy_read(&c, conv);
    struct tensor *t = model_copy_tensor(&c, "norm.weight");
    t->data = nan_at_2;
    model_copy_write(&c, folder);
    expect_refusal("tensor \"norm.weight\" holds a NaN at element 2");
    t->dtype = DTYPE_U8;
    t->bytes = 32;
    model_copy_write(&c, folder);
    expect_refusal("tensor \"norm.weight\" has dtype U8, expected F32, F16 or BF16");
    model_copy_clear(&c);
}

static void shared_layers_leave_no_room_for_other_blocks(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, local);
    assert_int_equal(json_object_set_new(c.config, "share_layers", json_true()), 0);
    model_copy_write(&c, folder);
    expect_refusal(
        "is left over (and 17 more): no such tensor is expected for text-generation with aft-local, 2 blocks "
        "that share those of blocks.0");
    model_copy_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_that_do_not_fit_the_config_are_refused_by_name),
        cmocka_unit_test(several_left_over_tensors_are_counted),
        cmocka_unit_test(bytes_and_nans_are_no_weights),
        cmocka_unit_test(shared_layers_leave_no_room_for_other_blocks),
    };

    return cmocka_run_group_tests_name("manifest", tests, setup, temp_dirs_end);
}
