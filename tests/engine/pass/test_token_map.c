/* test_token_map.c - what each patch is to a block, from keys of a few numbers: shares of a softmax where a key is one
 * number, lengths of vectors where it is several. */
#include "engine/pass/token_map.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/core/types.h"
#include "engine/pass/mixer.h"

enum { DIM = 4, TOKENS = 3, STRIDE = 3 * DIM };
#define LN2 0.693147180559945309f

/* Keys lie behind DIM channels of the query. */
struct scene {
    struct model_config config;
    struct engine_core core;
    float qkv[TOKENS + 1][STRIDE];
    bool queries; /* are looked at, and lie where keys do else */
};

static void begin(struct scene *s, enum mixer_type type, uint32_t heads)
{
    *s = (struct scene){.config = {.dim = DIM, .mixer = {.type = type, .heads = heads}}};
    s->core = (struct engine_core){.config = &s->config,
                                   .mixer = kernels_select(NULL)->mixers[s->config.mixer.type],
                                   .dims = {.dim = DIM, .channels = DIM, .keys = DIM, .qkv = STRIDE}};
    assert_non_null(s->core.mixer);
    for (int t = 0; t <= TOKENS; t++)
        for (int i = 0; i < STRIDE; i++)
            s->qkv[t][i] = 1000.0f; /* what is not looked at */
    for (int t = 0; t <= TOKENS; t++)
        for (int c = 0; c < DIM; c++)
            s->qkv[t][DIM + c] = 0.0f;
}

static void set_keys(struct scene *s, int first, int channel, const float keys[TOKENS])
{
    for (int t = 0; t < TOKENS; t++)
        s->qkv[first + t][(s->queries ? 0 : DIM) + channel] = keys[t];
}

/* In place of a head: all together. */
#define ALL UINT32_MAX

static void expect_map(const struct scene *s, size_t before, uint32_t head, const float want[TOKENS])
{
    float got[TOKENS + 1] = {7.0f, 7.0f, 7.0f, 7.0f};
    const struct engine_map m = {
        .layers = 1, .head = head == ALL ? 0 : head, .heads = head == ALL ? 0 : 1, .queries = s->queries, .out = got};
    token_maps(&m, &s->core, 0, &s->qkv[0][0], TOKENS + before, before);
    for (int t = 0; t < TOKENS; t++)
        if (!(fabsf(got[t] - want[t]) < 1e-6f))
            fail_msg("patch %d is %g, expected %g", t, (double)got[t], (double)want[t]);
    assert_true(got[TOKENS] == 7.0f); /* nothing behind the map */
}

/* A key that is one number weighs its token by exp(k - max k). */
static void scalar_keys_are_weights_below_the_largest(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, MIXER_AFT_CONV, 2);
    set_keys(&s, 0, 0, (const float[]){0.0f, LN2, 2 * LN2});
    set_keys(&s, 0, 1, (const float[]){100.0f, 100.0f, 100.0f});
    expect_map(&s, 0, 0, (const float[]){0.25f, 0.5f, 1.0f});
    expect_map(&s, 0, 1, (const float[]){1.0f, 1.0f, 1.0f});
    expect_map(&s, 0, ALL, (const float[]){0.625f, 0.75f, 1.0f}); /* the mean of both */
}

static void each_channel_is_a_key_where_there_are_no_heads(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, MIXER_AFT_SIMPLE, 0);
    for (int c = 0; c < DIM; c++)
        set_keys(&s, 0, c, (const float[]){0.0f, LN2, c < 2 ? LN2 : -60.0f});
    expect_map(&s, 0, ALL, (const float[]){0.5f, 1.0f, 0.5f});
    expect_map(&s, 0, 3, (const float[]){0.5f, 1.0f, 0.0f});
}

/* Head 1 has channels 2 and 3; lengths are brought to 0..1. */
static void vector_keys_are_lengths_between_the_least_and_the_most(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, MIXER_ATTENTION, 2);
    set_keys(&s, 0, 0, (const float[]){50.0f, 0.0f, 0.0f}); /* of the other head */
    set_keys(&s, 0, 2, (const float[]){3.0f, 0.0f, -6.0f});
    set_keys(&s, 0, 3, (const float[]){4.0f, 1.0f, 8.0f}); /* 5, 1, 10 */
    expect_map(&s, 0, 1, (const float[]){4.0f / 9.0f, 0.0f, 1.0f});
    expect_map(&s, 0, 0, (const float[]){1.0f, 0.0f, 0.0f});
}

static void lengths_that_are_alike_are_all_1(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, MIXER_SIMPLE_ATTENTION, 1);
    expect_map(&s, 0, 0, (const float[]){1.0f, 1.0f, 1.0f});
    set_keys(&s, 0, 1, (const float[]){-2.0f, 2.0f, 2.0f});
    expect_map(&s, 0, ALL, (const float[]){1.0f, 1.0f, 1.0f});
}

/* sima: each channel counts as a share of its sum over the tokens: 0 1/2 1/2 and 0 1/4 3/4 of two of them. */
static void channels_count_alike_where_the_mixer_has_it_so(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, MIXER_SIMA, 1);
    set_keys(&s, 0, 0, (const float[]){0.0f, 500.0f, -500.0f});
    set_keys(&s, 0, 1, (const float[]){0.0f, 0.001f, 0.003f});
    const float second = sqrtf(0.25f + 0.0625f), third = sqrtf(0.25f + 0.5625f);
    expect_map(&s, 0, 0, (const float[]){0.0f, second / third, 1.0f});
}

static void queries_are_seen_as_keys_are(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, MIXER_ATTENTION, 2);
    s.queries = true;
    set_keys(&s, 0, 2, (const float[]){3.0f, 0.0f, -6.0f});
    set_keys(&s, 0, 3, (const float[]){4.0f, 1.0f, 8.0f});
    expect_map(&s, 0, 1, (const float[]){4.0f / 9.0f, 0.0f, 1.0f});
}

/* The second of two blocks and its two heads, of which the map has both blocks. */
static void each_map_has_its_place(void **state)
{
    struct scene s;
    float got[2][2][TOKENS] = {{{0.0f}}};
    const struct engine_map m = {.layer = 4, .layers = 2, .heads = 2, .out = got[0][0]};
    (void)state;
    begin(&s, MIXER_AFT_CONV, 2);
    set_keys(&s, 0, 0, (const float[]){0.0f, LN2, 2 * LN2});
    token_maps(&m, &s.core, 5, &s.qkv[0][0], TOKENS, 0);
    for (int t = 0; t < TOKENS; t++) {
        assert_true(got[0][0][t] == 0.0f && got[0][1][t] == 0.0f && got[1][1][t] == 1.0f);
        assert_true(fabsf(got[1][0][t] - (const float[]){0.25f, 0.5f, 1.0f}[t]) < 1e-6f);
    }
}

/* The class token, in front, is no patch: no map has it, and it takes nothing from a softmax; but sima's sums are over
 * all tokens. */
static void tokens_in_front_are_no_patches(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, MIXER_AFT_FULL, 0);
    for (int c = 0; c < DIM; c++) {
        set_keys(&s, 1, c, (const float[]){0.0f, LN2, LN2});
        s.qkv[0][DIM + c] = 90.0f;
    }
    expect_map(&s, 1, ALL, (const float[]){0.5f, 1.0f, 1.0f});
    begin(&s, MIXER_SIMA, 1);
    set_keys(&s, 1, 0, (const float[]){0.0f, 3.0f, 0.0f});
    set_keys(&s, 1, 1, (const float[]){0.0f, 0.0f, 3.0f});
    s.qkv[0][DIM + 1] = 3.0f; /* halves the share of the second channel */
    expect_map(&s, 1, 0, (const float[]){0.0f, 1.0f, 0.5f});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalar_keys_are_weights_below_the_largest),
        cmocka_unit_test(each_channel_is_a_key_where_there_are_no_heads),
        cmocka_unit_test(vector_keys_are_lengths_between_the_least_and_the_most),
        cmocka_unit_test(lengths_that_are_alike_are_all_1),
        cmocka_unit_test(channels_count_alike_where_the_mixer_has_it_so),
        cmocka_unit_test(queries_are_seen_as_keys_are),
        cmocka_unit_test(each_map_has_its_place),
        cmocka_unit_test(tokens_in_front_are_no_patches),
    };
    return cmocka_run_group_tests_name("token_map", tests, NULL, NULL);
}
