/* test_bits.c - the bits of golden models' logits for each instruction set and precision, whatever compiled the engine.
 * Whoever changes what is computed, or in which order, finds the new ones in the failure. Not in here, as they compute
 * by OpenBLAS, whose bits go with its version and the processor: some mixers. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/engine/kernels/tables.h"

/* Streams by factors, exactly and by attention; pictures by tiles and exactly. */
static const char *const models[] = {"lm-local-8",
                                     "lm-local-large-keys",
                                     "lm-local-no-global-large-keys",
                                     "lm-local-plain-bias",
                                     "lm-conv-heads4-k5",
                                     "lm-conv-heads32-k16",
                                     "lm-full",
                                     "lm-simple",
                                     "lm-attention",
                                     "pixels-local",
                                     "conv-heads8-k5",
                                     "conv-k15-wider-than-grid",
                                     "conv-heads1-k3-raw",
                                     "conv-local-only",
                                     "conv-large-keys"};

static const struct {
    const char *isa;
    enum engine_precision precision;
    uint64_t bits;
} expected[] = {
#ifdef __x86_64__ /* arm64's baseline fuses products and sums */
    {"baseline", ENGINE_F32, UINT64_C(0xc64c5b4e638fc4b0)},  {"baseline", ENGINE_BF16, UINT64_C(0xd8dbf06c2929408d)},
    {"baseline", ENGINE_INT8, UINT64_C(0x79cf922917fc82a2)},
#endif
    {"avx2", ENGINE_F32, UINT64_C(0xec18404ee26980b7)},      {"avx2", ENGINE_BF16, UINT64_C(0x92c442614d6ee584)},
    {"avx2", ENGINE_INT8, UINT64_C(0x72d39326d6f9d5ef)},     {"avx512", ENGINE_F32, UINT64_C(0x7fe7783a8859a2c0)},
    {"avx512", ENGINE_BF16, UINT64_C(0xfed96e9dd70b948c)},   {"avx512", ENGINE_INT8, UINT64_C(0x9453f7aba72b7353)},
    {"avxvnni", ENGINE_INT8, UINT64_C(0x958efa673d5f5de4)},  {"amx", ENGINE_BF16, UINT64_C(0x2e4a65c8c342c538)},
    {"amx", ENGINE_INT8, UINT64_C(0x9453f7aba72b7353)},
};

enum { PASS = 64 }; /* bytes of a stream at a time */

/* FNV-1a (Fowler, Noll & Vo 1991). */
static uint64_t hash(uint64_t bits, const float *logits, size_t n)
{
    const uint8_t *bytes = (const uint8_t *)logits;
    for (size_t i = 0; i < n * sizeof *logits; i++)
        bits = (bits ^ bytes[i]) * UINT64_C(0x100000001b3);
    return bits;
}

static uint64_t hash_bytes(uint64_t bits, struct engine *e, const struct tensor *in)
{
    static float logits[PASS * BYTE_VALUES];
    engine_stream_reset(e, 0);
    for (uint64_t at = 0; at < in->elements; at += PASS) {
        const uint64_t left = in->elements - at;
        const struct engine_part part = {.count = (uint32_t)(left < PASS ? left : PASS),
                                         .bytes = (const uint8_t *)in->data + at,
                                         .every = true,
                                         .logits = logits};
        engine_feed(e, &part, 1);
        bits = hash(bits, logits, part.count * (size_t)BYTE_VALUES);
    }
    return bits;
}

static uint64_t hash_picture(uint64_t bits, struct engine *e, const struct tensor *in, size_t classes)
{
    const uint8_t *pixels[1] = {in->data};
    engine_pictures_begin(e, pixels, 1, (uint32_t)in->shape[0], (uint32_t)in->shape[1]);
    while (!engine_batch_step(e))
        ;
    return hash(bits, engine_batch_logits(e, 0), classes);
}

/* All inputs of a golden model. */
static uint64_t hash_model(uint64_t bits, const char *name, const char *isa, enum engine_precision precision)
{
    struct engine_options o = {.isa = isa,
                               .threads = 1,
                               .precision = precision,
                               .pictures_max = 1,
                               .tokens_max = 4096,
                               .streams_max = 1,
                               .rows_max = PASS};
    struct model *m = NULL;
    struct engine *e = NULL;
    struct safetensors *cases = NULL;
    struct error err;
    char path[256], input[32];
    (void)snprintf(path, sizeof path, "tests/data/golden/%s", name);
    if (model_load(&m, path, NULL, NULL, &err) != OK || engine_open(&e, m, &o, &err) != OK)
        fail_msg("%s", err.message);
    (void)snprintf(path, sizeof path, "tests/data/golden/%s/cases.safetensors", name);
    if (safetensors_open(&cases, path, &err) != OK || safetensors_read(cases, &err) != OK)
        fail_msg("%s", err.message);
    const struct tensor *in;
    for (size_t k = 0;
         (void)snprintf(input, sizeof input, "input.%zu", k), (in = safetensors_find(cases, input)) != NULL; k++)
        bits = m->config.input == INPUT_IMAGE ? hash_picture(bits, e, in, m->config.classes) : hash_bytes(bits, e, in);
    engine_close(e);
    safetensors_close(cases);
    model_free(m);
    return bits;
}

static void bits_depend_on_the_instruction_set_not_on_the_compiler(void **state)
{
    (void)state;
    bool ran = false, failed = false;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        if (__has_feature(thread_sanitizer) || kernels_select(expected[i].isa) == NULL)
            continue; /* for ThreadSanitizer the sets are compiled from other code (Makefile) */
        uint64_t bits = UINT64_C(0xcbf29ce484222325);
        for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
            bits = hash_model(bits, models[m], expected[i].isa, expected[i].precision);
        ran = true;
        if (bits == expected[i].bits)
            continue;
        failed = true;
        print_error("%s in %s: 0x%016" PRIx64 ", expected 0x%016" PRIx64 "\n", expected[i].isa,
                    engine_precision_word(expected[i].precision), bits, expected[i].bits);
    }
    if (failed)
        fail();
    if (!ran) {
        print_message("no instruction set here has its bits written down\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_on_the_instruction_set_not_on_the_compiler),
    };
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}
