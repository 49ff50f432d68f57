/* logits.c - logits ISA OUT DIR...: what each model gives for inputs that are the same everywhere, in each precision,
 * on the given instruction set. Writes all logits to the file OUT as they are in memory; a line for each says where:
 * "name precision/threads first count". builds.py compares what several builds of it give. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/support/random.h"
#include "weights/model.h"

enum { TEXT_BYTES = 40, SIDE_PATCHES = 5, BATCH = 3 };

static FILE *out;
static size_t written;

static void keep(const float *logits, size_t count)
{
    if (fwrite(logits, sizeof *logits, count, out) != count)
        abort();
    written += count;
}

static void fill(uint8_t *bytes, size_t count)
{
    struct random r = {1};
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)random_next(&r);
}

static void classify(struct engine *e, const struct model_config *c)
{
    const struct engine_info *info = engine_info(e);
    const uint32_t height = info->fixed_size ? c->size[0] : c->patch[0] * SIDE_PATCHES;
    const uint32_t width = info->fixed_size ? c->size[1] : c->patch[1] * (SIDE_PATCHES + 1);
    const size_t each = c->input == INPUT_IMAGE ? (size_t)height * width * 3 : TEXT_BYTES;
    uint8_t *bytes = malloc(BATCH * each);
    const uint8_t *inputs[BATCH];
    if (bytes == NULL)
        abort();
    fill(bytes, BATCH * each);
    for (size_t i = 0; i < BATCH; i++)
        inputs[i] = bytes + i * each;
    const uint32_t length = info->elements_max < TEXT_BYTES ? info->elements_max : TEXT_BYTES;
    if (c->input == INPUT_IMAGE)
        engine_pictures_begin(e, inputs, BATCH, height, width);
    else
        engine_texts_begin(e, inputs, BATCH, length);
    while (!engine_batch_step(e))
        ;
    for (size_t i = 0; i < BATCH; i++)
        keep(engine_batch_logits(e, i), c->classes);
    free(bytes);
}

/* At once, then byte by byte. */
static void generate(struct engine *e)
{
    static float logits[TEXT_BYTES * BYTE_VALUES];
    const uint32_t context = engine_info(e)->context, count = context < TEXT_BYTES ? context : TEXT_BYTES;
    uint8_t bytes[TEXT_BYTES];
    fill(bytes, sizeof bytes);
    engine_feed(e, &(struct engine_part){.stream = 0, .count = count, .bytes = bytes, .every = true, .logits = logits},
                1);
    keep(logits, (size_t)count * BYTE_VALUES);
    for (uint32_t i = 0; i < count; i++) {
        engine_feed(e, &(struct engine_part){.stream = 1, .count = 1, .bytes = bytes + i, .logits = logits}, 1);
        keep(logits, BYTE_VALUES);
    }
}

static bool run(const char *isa, const char *dir, enum engine_precision precision, uint32_t threads)
{
    struct engine_options o = {.isa = isa,
                               .threads = threads,
                               .precision = precision,
                               .pictures_max = BATCH,
                               .tokens_max = ENGINE_ROWS_MAX < 1024 ? ENGINE_ROWS_MAX : 1024,
                               .streams_max = 2,
                               .rows_max = TEXT_BYTES};
    struct model *m = NULL;
    struct engine *e = NULL;
    struct error err;
    const size_t begin = written;
    enum status st = model_load(&m, dir, NULL, NULL, &err);
    if (st == OK)
        st = engine_open(&e, m, &o, &err);
    if (st == OK && model_config_causal(&m->config))
        generate(e);
    else if (st == OK)
        classify(e, &m->config);
    if (st != OK)
        (void)fprintf(stderr, "%s: %s\n", dir, err.message);
    else
        (void)printf("%s %s/%u %zu %zu\n", dir, engine_precision_word(precision), threads, begin, written - begin);
    engine_close(e);
    model_free(m);
    return st == OK;
}

int main(int argc, char *argv[])
{
    bool fine = argc > 3;
    out = fine ? fopen(argv[2], "wb") : NULL;
    for (int i = 3; out != NULL && i < argc; i++)
        for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
            for (uint32_t threads = 1; threads <= 3; threads += 2)
                fine = run(argv[1], argv[i], (enum engine_precision)p, threads) && fine;
    return out != NULL && fclose(out) == 0 && fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
