/* test_block_coder.c - blocks of a text, one after another by the same coder: each comes out as if it were the first,
 * across windows and whatever has been in them. The logits are made up; of the engine only the resets are needed. */
#include "server/operation/block_coder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "engine/engine.h"
#include "tests/support/random.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum { WINDOW_MAX = 64, TEXT_BYTES = 300, LETTERS = 8 };

static struct model *model;
static struct engine *engine;
static struct stream_model shape;
static float logits[WINDOW_MAX][BYTE_VALUES]; /* the first letters are as likely as can be */

static int set_up(void **state)
{
    const struct engine_options options = {.threads = 1, .pictures_max = 1, .streams_max = 1, .rows_max = 1};
    (void)state;
    if (model_load(&model, "tests/data/golden/lm-local-8", NULL, NULL, NULL) != OK ||
        engine_open(&engine, model, &options, NULL) != OK)
        return -1;
    shape = stream_model_of(engine, model->config.context);
    for (int i = 0; i < WINDOW_MAX; i++)
        for (int letter = 0; letter < LETTERS; letter++)
            logits[i]['a' + letter] = 12.0f;
    return shape.window_size <= WINDOW_MAX ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    engine_close(engine);
    model_free(model);
    return 0;
}

static void encode(struct block_coder *c, struct stream_window *w, struct coding_block *b)
{
    uint32_t count;
    block_coder_begin_encode(c, w, b);
    do {
        count = w->length - w->fed;
        assert_in_range(count, 1, WINDOW_MAX);
        w->fed = w->length;
    } while (!block_coder_encode(c, w, logits[0], count));
}

static void decode(struct block_coder *c, struct stream_window *w, struct coding_block *b)
{
    block_coder_begin_decode(c, w, b);
    do {
        w->fed = w->length;
        block_coder_decode(c, logits[0]);
    } while (!block_coder_go_on(c, w));
}

static void a_coder_begins_each_block_anew(void **state)
{
    static const uint32_t sizes[] = {TEXT_BYTES, 2, 47, 48, 49, TEXT_BYTES};
    uint8_t elements[2][WINDOW_MAX], text[TEXT_BYTES], back[TEXT_BYTES], code[TEXT_BYTES], own[TEXT_BYTES];
    struct stream_window windows[2] = {{.model = &shape, .elements = elements[0]},
                                       {.model = &shape, .elements = elements[1]}};
    struct block_coder in = {.block = NULL}, out = {.block = NULL};
    struct random r = {5};
    (void)state;
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        struct block_coder fresh = {.block = NULL};
        struct coding_block b = {.text = text, .code = code, .text_bytes = sizes[i]}, alone = b;
        for (uint32_t k = 0; k < sizes[i]; k++)
            text[k] = (uint8_t)('a' + random_below(&r, LETTERS));
        alone.code = own;
        encode(&in, &windows[0], &b);
        encode(&fresh, &windows[1], &alone);
        assert_int_equal(b.code_bytes, alone.code_bytes);
        assert_memory_equal(code, own, b.code_bytes);
        assert_true(b.is_stored || b.code_bytes < sizes[i]);
        assert_true(b.is_stored == (sizes[i] == 2)); /* three bits of eight for each but the first */
        if (b.is_stored)
            continue;
        memset(back, 0, sizeof back);
        b.text = back;
        decode(&out, &windows[0], &b);
        assert_memory_equal(back, text, sizes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_coder_begins_each_block_anew),
    };
    return cmocka_run_group_tests_name("block coder", tests, set_up, tear_down);
}
