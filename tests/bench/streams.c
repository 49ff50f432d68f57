/* streams.c - 64 streams in the process, one byte each a step, without end: what serving.py holds beside the same
 * through HTTP. The bytes done so far stand in a file that is mapped, a number of 8 bytes: whoever halts this process
 * between two looks at it knows what it did meanwhile.
 *
 *     build/tests/bench/streams MODEL FILE        fp32, a thread for each processor
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine.h"
#include "server/core/short_spin.h"
#include "weights/model.h"

#define STREAMS 64

static int fail(const char *what)
{
    (void)fprintf(stderr, "streams: %s\n", what);
    return EXIT_FAILURE;
}

/* Texts as long as the context, one after the other. */
static _Noreturn void run(struct engine *e, uint32_t context, _Atomic uint64_t *done)
{
    static const char text[] = "The quick brown fox jumps over the lazy dog. ";
    static float logits[STREAMS * BYTE_VALUES];
    struct engine_part parts[STREAMS];
    for (uint32_t at = 0;; at = at + 1 < context ? at + 1 : 0) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            if (at == 0)
                engine_stream_reset(e, i);
            parts[i] = (struct engine_part){.stream = i,
                                            .count = 1,
                                            .bytes = (const uint8_t *)&text[at % (sizeof text - 1)],
                                            .logits = logits + (size_t)i * BYTE_VALUES};
        }
        engine_feed(e, parts, STREAMS);
        atomic_fetch_add(done, STREAMS);
    }
}

int main(int argc, char *argv[])
{
    struct model *m = NULL;
    struct engine *e = NULL;
    struct error err;
    short_spin_reexec(argv);
    if (argc != 3)
        return fail("expected a model's folder and a file to count in");
    if (model_load(&m, argv[1], NULL, NULL, &err) != OK)
        return fail(err.message);
    const char *isa = getenv("AFTD_ISA");
    const struct engine_options o = {.streams_max = STREAMS,
                                     .rows_max = STREAMS,
                                     .isa = isa != NULL && strcmp(isa, "auto") == 0 ? NULL : isa,
                                     .keeps_places = true};
    if (!model_config_causal(&m->config))
        return fail("the model generates no text");
    if (engine_open(&e, m, &o, &err) != OK)
        return fail(err.message);
    const int fd = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) != 0)
        return fail("the file to count in cannot be written");
    _Atomic uint64_t *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (done == MAP_FAILED)
        return fail("the file to count in cannot be mapped");
    run(e, m->config.context, done);
}
