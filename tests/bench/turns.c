/* turns.c - an engine that computes when it is told to and sleeps meanwhile, so that two builds of it can take turns of
 * milliseconds on the same processors (builds.py). Linked with whichever build's libaftd.a.
 *
 *     build/tests/bench/turns NAME PRECISION THREADS
 *
 * NAME is a synthetic model, AFTD_ISA an instruction set as aft has it. Each line of standard input asks for one turn,
 * and is answered with its seconds: "streams N", STEPS passes of one byte for each of N streams; "prompt N", a prompt
 * of N bytes; "batch N", N pictures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"
#include "server/core/short_spin.h"
#include "weights/synthetic.h"

enum { STREAMS = 64, BATCH = 8, STEPS = 4, PROMPT_ROWS = 256 };

static struct engine *engine;
static const struct model_config *config;
static float logits[STREAMS * BYTE_VALUES];
static uint8_t bytes[PROMPT_ROWS];

static int fail(const char *what)
{
    (void)fprintf(stderr, "turns: %s\n", what);
    return EXIT_FAILURE;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void feed(uint32_t stream, uint32_t count)
{
    for (uint32_t left = count; left > 0;) {
        const uint32_t n = left < PROMPT_ROWS ? left : PROMPT_ROWS;
        const struct engine_part part = {.stream = stream, .count = n, .bytes = bytes};
        engine_feed(engine, &part, 1);
        left -= n;
    }
}

/* From the middle of the context on: windows are full. */
static double run_streams(uint32_t count)
{
    struct engine_part parts[STREAMS];
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = engine_stream_position(engine, i), middle = config->context / 2;
        parts[i] = (struct engine_part){
            .stream = i, .count = 1, .bytes = bytes + i, .logits = logits + (size_t)i * BYTE_VALUES};
        if (at >= middle && at + STEPS <= config->context)
            continue;
        engine_stream_reset(engine, i);
        feed(i, middle);
    }
    engine_feed(engine, parts, count); /* what stood in the caches was the other's */
    const double begin = now();
    for (int step = 1; step < STEPS; step++)
        engine_feed(engine, parts, count);
    return now() - begin;
}

static double run_prompt(uint32_t count)
{
    engine_stream_reset(engine, 0);
    const double begin = now();
    feed(0, count);
    return now() - begin;
}

static double run_batch(uint32_t count, const uint8_t *picture)
{
    const uint8_t *pictures[BATCH];
    for (uint32_t i = 0; i < count; i++)
        pictures[i] = picture;
    const double begin = now();
    engine_pictures_begin(engine, pictures, count, config->size[0], config->size[1]);
    while (!engine_batch_step(engine))
        ;
    return now() - begin;
}

static int take_turns(const uint8_t *picture)
{
    const bool generates = model_config_causal(config);
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *number = line + strcspn(line, " ");
        if (*number != '\0')
            *number++ = '\0';
        const unsigned long count = strtoul(number, NULL, 10);
        double seconds = -1.0;
        if (generates && strcmp(line, "streams") == 0 && count >= 1 && count <= STREAMS)
            seconds = run_streams((uint32_t)count);
        else if (generates && strcmp(line, "prompt") == 0 && count >= 1 && count <= config->context)
            seconds = run_prompt((uint32_t)count);
        else if (!generates && strcmp(line, "batch") == 0 && count >= 1 && count <= BATCH)
            seconds = run_batch((uint32_t)count, picture);
        else
            return fail("expected \"streams N\", \"prompt N\" or \"batch N\" on standard input");
        (void)printf("%.9f\n", seconds);
        (void)fflush(stdout);
    }
    return EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
    struct model *m = NULL;
    struct error err;
    short_spin_reexec(argv);
    if (argc != 4)
        return fail("expected a synthetic model's name, a precision and a number of threads");
    if (synthetic_model(&m, argv[1], &err) != OK)
        return fail(err.message);
    config = &m->config;
    struct engine_options o = {.isa = getenv("AFTD_ISA"),
                               .threads = (uint32_t)strtoul(argv[3], NULL, 10),
                               .pictures_max = BATCH,
                               .streams_max = STREAMS,
                               .rows_max = PROMPT_ROWS};
    while (strcmp(engine_precision_word(o.precision), argv[2]) != 0)
        if (++o.precision > ENGINE_INT8)
            return fail("the precision is unknown; expected f32, bf16 or int8");
    if (engine_open(&engine, m, &o, &err) != OK)
        return fail(err.message);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 2654435761U >> 13);
    const size_t size = config->input == INPUT_IMAGE ? (size_t)3 * config->size[0] * config->size[1] : 1;
    uint8_t *picture = malloc(size);
    for (size_t i = 0; picture != NULL && i < size; i++)
        picture[i] = (uint8_t)(i * 2654435761U >> 13);
    const int code = picture != NULL ? take_turns(picture) : fail("out of memory");
    free(picture);
    engine_close(engine);
    model_free(m);
    return code;
}
